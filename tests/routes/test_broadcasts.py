"""Broadcasts by the API: written, refused, previewed, and what they name kept in place."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.audience.segments import parse
from app.broadcasts import audience as audiences
from app.machine.fields import YEAR
from app.process import Process
from app.store import (
    bounded_pages,
    broadcasts,
    segments,
    templates,
    workspaces,
)
from tests.cast import NEXT_MONTH, Cast, Person, lock_waiters, settle
from tests.driving import set_clock
from tests.routes.test_new_messages import in_production
from tests.slow_statements import cut_off
from tests.tables import each_row

HELLO = {"subject": "News for {{contact.firstName}}", "html": "<p>Hello</p>"}
VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
TWICE = {"event": "order", "count": {"op": "gte", "value": 2}}


async def template(cast: Cast, **given: Any) -> str:
    new = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO, **given}
    return str((await cast.ed.made("/templates", new))["id"])


async def broadcast(cast: Cast, **given: Any) -> dict[str, Any]:
    audience = {} if {"segmentId", "filter"} & given.keys() else {"tag": "vip"}
    new = {"name": "Summer", "templateId": await template(cast), **audience, **given}
    return await cast.ed.made("/broadcasts", new)


async def person(cast: Cast, name: str, **given: Any) -> str:
    made = await cast.ed.made("/contacts", {"email": f"{name}@x.test", "tags": ["vip"], **given})
    return str(made["id"])


async def test_a_broadcast_is_a_draft_that_can_be_changed_and_deleted(cast: Cast) -> None:
    made = await broadcast(cast, sendAt=NEXT_MONTH, perMinute=600)
    assert made["state"] == "DRAFT"
    assert made["reason"] is None
    assert made["audience"] == {
        "previewed": None,
        "frozen": None,
        "isComplete": False,
        "difference": None,
    }
    path = f"/broadcasts/{made['id']}"
    assert await cast.vic.read(path) == made
    changed = await cast.ed.patch(path, {"tag": None, "filter": VIP, "perMinute": None})
    assert changed.status_code == 200, changed.text
    assert (changed.json()["tag"], changed.json()["filter"]) == (None, VIP)
    assert (await cast.ed.patch(path, {"filter": VIP})).json() == changed.json()
    assert changed.headers["etag"] == (await cast.vic.get(path)).headers["etag"]
    stale = await cast.ed.patch(path, {"name": "X"}, headers={"If-Match": '"1"'})
    assert stale.status_code == 412
    [listed] = (await cast.vic.read("/broadcasts?state=DRAFT"))["data"]
    assert listed["id"] == made["id"]
    assert "progress" not in listed
    assert (await cast.vic.read("/broadcasts?state=SENT"))["data"] == []
    assert (await cast.vic.read("/broadcasts?state=DRAFT&name=Summer"))["data"] == [listed]
    assert (await cast.vic.read("/broadcasts?name=Another"))["data"] == []
    assert (await cast.ed.delete(path)).status_code == 204
    assert (await cast.ed.get(path)).status_code == 404


WRITTEN = (
    *("name", "segmentId", "filter", "tag", "templateId", "topicId"),
    *("sendAt", "localTime", "perMinute"),
)


@pytest.mark.parametrize("audience", [{"tag": "vip"}, {"filter": VIP}])
async def test_a_broadcast_is_copied_by_the_fields_that_are_written(
    cast: Cast, audience: dict[str, Any]
) -> None:
    made = await broadcast(cast, sendAt=NEXT_MONTH, localTime="09:00", perMinute=60, **audience)
    copy = await cast.ed.made("/broadcasts", {name: made[name] for name in WRITTEN})
    assert copy["id"] != made["id"]
    assert {name: copy[name] for name in WRITTEN} == {name: made[name] for name in WRITTEN}


@each_row(
    ("given", "pointer"),
    [
        ({"tag": None}, ""),
        ({"filter": VIP}, "/tag"),
        ({"tag": None, "filter": VIP, "segmentId": "seg_1"}, "/filter"),
        ({"tag": " "}, "/tag"),
        ({"tag": "x" * 101}, "/tag"),
        ({"tag": "two\nlines"}, "/tag"),
        ({"tag": "9999-12-31T23:59:59-23:59"}, "/tag"),
        ({"tag": None, "segmentId": "seg_1"}, "/segmentId"),
        ({"templateId": "tpl_1"}, "/templateId"),
        ({"tag": None, "filter": {**VIP, "path": "contact.nope"}}, "/filter/path"),
        ({"topicId": "top_1"}, "/topicId"),
        ({"localTime": "24:00"}, "/localTime"),
        ({"perMinute": 0}, "/perMinute"),
        ({"sendAt": "tomorrow"}, "/sendAt"),
        ({"sendAt": "9999-12-31T23:59:59Z", "localTime": "09:00"}, "/sendAt"),
        ({"state": "SENT"}, "/state"),
    ],
)
async def test_a_broadcast_that_cannot_be_is_refused_where_it_is_wrong(
    cast: Cast, given: dict[str, Any], pointer: str
) -> None:
    new = {"name": "Summer", "templateId": await template(cast), "tag": "vip", **given}
    refused = await cast.ed.post("/broadcasts", new)
    assert refused.status_code == 422, refused.text
    error = refused.json()["errors"][0]
    assert error["pointer"] == pointer
    assert error["message"].endswith(".")
    assert (await cast.vic.read("/broadcasts"))["data"] == []


async def test_another_kind_of_audience_takes_the_place_of_the_one_that_is_null(cast: Cast) -> None:
    segment = await cast.ed.made("/segments", {"name": "S", "filter": VIP})
    given: dict[str, Any] = {"segmentId": segment["id"], "filter": VIP, "tag": "vip"}
    made = await broadcast(cast, segmentId=segment["id"])
    path, kind = f"/broadcasts/{made['id']}", "segmentId"
    for other in ("tag", "filter", "segmentId"):
        refused = await cast.ed.patch(path, {other: given[other]})
        assert refused.status_code == 422
        message = f'Give exactly one of segmentId, filter, tag: beside {other} send "{kind}": null.'
        assert refused.json()["errors"] == [{"pointer": f"/{kind}", "message": message}]
        changed = await cast.ed.patch(path, {other: given[other], kind: None})
        assert changed.status_code == 200, changed.text
        shown = {name: changed.json()[name] for name in given}
        assert shown == {**dict.fromkeys(given), other: given[other]}
        kind = other


async def test_a_tag_is_the_one_that_contacts_have_however_it_is_typed(cast: Cast) -> None:
    await person(cast, "ada", tags=["Caf\u00e9"])
    made = await broadcast(cast, tag=" Cafe\u0301 ")
    assert made["tag"] == "Caf\u00e9"
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert preview["audience"]["reachable"] == 1


async def test_a_broadcast_begins_at_most_a_year_ahead(cast: Cast) -> None:
    limit = datetime.now(UTC) + YEAR
    made = await broadcast(cast, sendAt=(limit - timedelta(hours=1)).isoformat())
    path = f"/broadcasts/{made['id']}"
    refused = await cast.ed.patch(path, {"sendAt": (limit + timedelta(hours=1)).isoformat()})
    [error] = refused.json()["errors"]
    assert error == {"pointer": "/sendAt", "message": "Must be at most 366 days ahead."}
    assert await cast.vic.read(path) == made


async def test_a_time_that_has_passed_is_refused_when_it_is_written_and_when_it_is_scheduled(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada")
    now = datetime.now(UTC)
    made = await broadcast(cast, sendAt=(now - timedelta(minutes=2)).isoformat())  # as good as now
    path, passed = f"/broadcasts/{made['id']}", {"sendAt": (now - timedelta(hours=1)).isoformat()}
    new = {"name": "Summer", "templateId": made["templateId"], "tag": "vip", **passed}
    for refused in (await cast.ed.post("/broadcasts", new), await cast.ed.patch(path, passed)):
        assert refused.status_code == 422, refused.text
        [error] = refused.json()["errors"]
        assert (error["pointer"], error["message"][:23]) == ("/sendAt", "Must not be in the past")
    assert (await cast.vic.made(f"{path}/preview", None))["refusal"] is None

    set_clock(process, now + timedelta(hours=1))
    same = {"name": "Winter", "sendAt": made["sendAt"]}  # which nobody has chosen now
    assert (await cast.ed.patch(path, same)).status_code == 200
    preview = await cast.vic.made(f"{path}/preview", None)
    assert preview["refusal"]["code"] == "send_at_passed"
    refused = await cast.adam.post(f"{path}/schedule")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert refused.json()["detail"] == preview["refusal"]["sentence"]
    assert made["sendAt"] in refused.json()["detail"]
    assert "sendAt" not in refused.json()["detail"]  # the console shows it
    assert (await cast.vic.read(path))["state"] == "DRAFT"
    assert (await cast.ed.patch(path, {"sendAt": None})).status_code == 200
    assert (await cast.adam.made(f"{path}/schedule", None))["state"] == "SCHEDULED"


async def test_editors_write_broadcasts_and_admins_send_them(cast: Cast) -> None:
    made = await broadcast(cast)
    path = f"/broadcasts/{made['id']}"
    for act in ("schedule", "pause", "resume", "cancel"):
        assert (await cast.ed.post(f"{path}/{act}")).status_code == 403
    assert (await cast.vic.post(f"{path}/preview")).status_code == 200
    assert (await cast.vic.patch(path, {"name": "X"})).status_code == 403
    for act in ("pause", "resume", "cancel"):
        assert (await cast.adam.post(f"{path}/{act}")).status_code == 409


async def test_a_preview_counts_the_audience_by_reason_and_shows_what_it_says(cast: Cast) -> None:
    ada = await person(cast, "ada", firstName="Ada")
    bob = await person(cast, "bob", firstName="Bob")
    eve = await person(cast, "eve")
    await person(cast, "out", tags=["other"])
    await cast.ed.made("/contacts", {"phone": "+4915112345678", "tags": ["vip"]})
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    await person(cast, "ian")
    await cast.adam.made("/suppressions", {"channel": "email", "address": "ian@x.test"})
    made = await broadcast(cast)
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert preview["audience"] == {
        "total": 5,
        "reachable": 2,
        "erased": 0,
        "noAddress": 1,
        "suppressed": 1,
        "unsubscribed": 1,
        "noConsent": 0,
        "capped": 0,
    }
    assert (preview["isComplete"], preview["lookedAt"]) == (True, 6)
    assert preview["refusal"] is None
    subjects = {
        one["contactId"]: one["rendered"]["subject"]["rendered"] for one in preview["samples"]
    }
    assert subjects == {ada: "News for Ada", bob: "News for Bob"}


async def test_a_preview_renders_no_more_samples_than_come_to_a_few_megabytes(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kilobyte of Liquid makes a million characters of each part."""
    for name in ("ada", "bob", "cat", "dan"):
        await person(cast, name)
    path = f"/broadcasts/{(await broadcast(cast))['id']}/preview"
    whole = (await cast.vic.made(path, None))["samples"]
    assert len(whole) == 3
    parts = [part.get("rendered") or "" for part in whole[0]["rendered"].values()]
    for longest, samples in ((sum(map(len, parts)), 1), (sum(map(len, parts)) + 1, 2)):
        monkeypatch.setattr("app.routes.broadcast_acts.LONGEST", longest)
        assert (await cast.vic.made(path, None))["samples"] == whole[:samples]


async def test_what_uses_something_is_found_without_reading_what_others_mention(
    cast: Cast, process: Process
) -> None:
    used = [(await cast.ed.made("/segments", {"name": name, "filter": VIP}))["id"] for name in "AB"]
    made = [(await broadcast(cast, filter={"segmentId": id}))["id"] for id in used]
    whose = {"workspace_id": cast.ed.workspace_id}
    async with process.database.read() as db:
        found = [await broadcasts.unfinished(db, **whose, ids=[id, ""]) for id in used]
    assert [[row.id for row in rows] for rows in found] == [[id] for id in made]


async def test_a_preview_looks_for_samples_behind_a_page_that_ends_early(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of large contacts does: of such a page here, each has one."""
    ada = await person(cast, "ada")
    for name in ("bob", "cat"):
        newer = await person(cast, name)
        await cast.ed.patch(f"/contacts/{newer}", {"subscriptions": {"email": "unsubscribed"}})
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 1)
    made = await broadcast(cast)
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert [one["contactId"] for one in preview["samples"]] == [ada]


async def test_what_nobody_has_verified_is_refused_beforehand(cast: Cast, process: Process) -> None:
    await person(cast, "ada")
    path = f"/broadcasts/{(await broadcast(cast))['id']}"
    async with process.database.write() as db:
        await workspaces.change_plan(db, id=cast.ed.workspace_id, plan="starter")
        await db.execute("UPDATE users SET email_verified_at = NULL")
    async with in_production(process, cast.adam, role="admin") as adam:
        preview = await adam.made(f"{path}/preview", None)
        refused = await adam.post(f"{path}/schedule")
    assert preview["refusal"]["code"] == "suppressed_unverified"
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "role" not in refused.json()["title"]
    assert refused.json()["detail"] == preview["refusal"]["sentence"]
    assert (await cast.vic.read(path))["state"] == "DRAFT"


async def test_a_count_that_is_cut_short_says_how_many_it_looked_at(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audiences, "COUNT_SECONDS", 0)
    monkeypatch.setattr(audiences, "COUNT_WALK", 2)
    for name in ("ada", "bob", "eve"):
        await person(cast, name)
    path = f"/broadcasts/{(await broadcast(cast))['id']}"
    preview = await cast.vic.made(f"{path}/preview", None)
    assert (preview["isComplete"], preview["lookedAt"]) == (False, 2)
    assert preview["audience"]["total"] == 2
    scheduled = await cast.adam.made(f"{path}/schedule", None)
    assert scheduled["audience"]["previewed"] is None  # and compared with nothing
    assert scheduled["reason"]["code"] == "audience_not_counted"
    words = "of the 2 oldest contacts 2 can be reached. Should the messages left be too few"
    assert words in scheduled["reason"]["sentence"]


async def buyers(cast: Cast) -> list[str]:
    """The ids of those who have ordered twice or more often, of three who have ordered."""
    ids = []
    for orders, name in enumerate(("ada", "bob", "eve"), start=1):
        ids.append(await person(cast, name))
        for _ in range(orders):
            happened = {"match": {"email": f"{name}@x.test"}, "name": "order"}
            await cast.ed.made("/events", happened)
    return ids[1:]


@pytest.mark.parametrize("least", [2, 1], ids=["together", "even alone"])
async def test_those_who_take_too_long_are_counted_one_by_one(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    await buyers(cast)
    path = f"/broadcasts/{(await broadcast(cast, filter=TWICE))['id']}"
    cut_off(monkeypatch, least=least)
    preview = await cast.vic.made(f"{path}/preview", None)
    assert (preview["isComplete"], preview["lookedAt"]) == (True, 3)
    assert preview["audience"]["total"] == preview["audience"]["reachable"] == 2


async def test_a_count_for_which_contacts_take_too_long_is_cut_short_and_not_refused(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audiences, "COUNT_SECONDS", 0.05)
    await buyers(cast)
    path = f"/broadcasts/{(await broadcast(cast, filter=TWICE))['id']}"
    cut_off(monkeypatch, least=1, seconds=0.1)
    preview = await cast.vic.made(f"{path}/preview", None)
    assert (preview["isComplete"], preview["lookedAt"]) == (False, 1)
    scheduled = await cast.adam.made(f"{path}/schedule", None)
    assert scheduled["reason"]["code"] == "audience_not_counted"


async def test_a_segment_that_is_being_deleted_is_no_audience_any_more(
    cast: Cast, process: Process
) -> None:
    segment = await cast.ed.made("/segments", {"name": "S", "filter": VIP})
    new = {"name": "B", "segmentId": segment["id"], "templateId": await template(cast)}
    async with process.database.write() as db:
        where = {"workspace_id": cast.ed.workspace_id}
        await segments.lock(db, **where)
        await segments.remove(db, **where, id=segment["id"])
        asking = asyncio.create_task(cast.ed.post("/broadcasts", new))
        await lock_waiters(process, 1)
    refused = await asking
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/segmentId"]


async def test_a_template_that_is_being_deleted_is_sent_by_no_broadcast_any_more(
    cast: Cast, process: Process
) -> None:
    new = {"name": "B", "tag": "vip", "templateId": await template(cast)}
    async with process.database.write() as db:
        which = {"workspace_id": cast.ed.workspace_id, "id": new["templateId"]}
        await templates.locked(db, **which)
        await templates.delete(db, **which)
        asking = asyncio.create_task(cast.ed.post("/broadcasts", new))
        await lock_waiters(process, 1)
    refused = await asking
    assert refused.status_code == 422
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/templateId"]


async def test_transactional_content_reaches_those_who_unsubscribed(cast: Cast) -> None:
    eve = await person(cast, "eve")
    await cast.ed.patch(f"/contacts/{eve}", {"subscriptions": {"email": "unsubscribed"}})
    made = await broadcast(cast, templateId=await template(cast, category="transactional"))
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert preview["audience"]["reachable"] == 1


async def test_marketing_on_a_topic_reaches_those_who_agreed_to_it(
    cast: Cast, process: Process
) -> None:
    topic = await cast.ed.made("/topics", {"name": "News", "channels": ["email"]})
    ada, eve = await person(cast, "ada"), await person(cast, "eve")
    yes = {"channel": "email", "state": "subscribed", "source": "form"}
    answered = await cast.ed.call("PUT", f"/contacts/{ada}/topics/{topic['id']}", json=yes)
    assert answered.status_code == 200, answered.text
    made = await broadcast(cast, topicId=topic["id"])
    assert made["topicId"] == topic["id"]
    assert (await cast.ed.delete(f"/topics/{topic['id']}")).json()["usedBy"] == [made["id"]]
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert (preview["audience"]["reachable"], preview["audience"]["noConsent"]) == (1, 1)
    assert [one["contactId"] for one in preview["samples"]] == [ada]
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    await settle(process)
    path = f"/broadcasts/{made['id']}/recipients?reason=no_consent"
    assert [one["contactId"] for one in (await cast.vic.read(path))["data"]] == [eve]
    [captured] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert captured["contactId"] == ada


async def test_a_frozen_segment_is_who_was_in_it(cast: Cast, process: Process) -> None:
    """Not who fits its filter now."""
    ada, bob = await person(cast, "ada"), await person(cast, "bob")
    segment = await cast.ed.made("/segments", {"name": "Then", "filter": VIP, "kind": "frozen"})
    await settle(process)
    await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    await person(cast, "eve")
    made = await broadcast(cast, segmentId=segment["id"])
    preview = await cast.vic.made(f"/broadcasts/{made['id']}/preview", None)
    assert (preview["audience"]["total"], preview["audience"]["reachable"]) == (2, 2)
    assert {one["contactId"] for one in preview["samples"]} == {ada, bob}
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    await settle(process)
    sent = (await cast.vic.read(f"/broadcasts/{made['id']}/recipients"))["data"]
    assert {one["contactId"]: one["status"] for one in sent} == {ada: "SENT", bob: "SENT"}


async def test_a_broadcast_to_a_frozen_segment_is_not_scheduled_before_that_is_filled(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada")
    segment = await cast.ed.made("/segments", {"name": "Then", "filter": VIP, "kind": "frozen"})
    path = f"/broadcasts/{(await broadcast(cast, segmentId=segment['id']))['id']}"
    for act in ("preview", "schedule"):
        refused = await cast.adam.post(f"{path}/{act}")
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "still being filled" in refused.json()["detail"]
    async with process.database.write() as db:
        whose = {"workspace_id": cast.ed.workspace_id, "id": segment["id"]}
        await segments.set_aside(db, **whose, reason_code="poisoned")
    refused = await cast.adam.post(f"{path}/schedule")
    assert refused.status_code == 409
    assert "Save the segment's filter again" in refused.json()["detail"]
    await cast.ed.patch(f"/segments/{segment['id']}", {"filter": VIP})
    await settle(process)
    scheduled = await cast.adam.made(f"{path}/schedule", None)
    assert scheduled["audience"]["previewed"]["total"] == 1


async def test_what_an_unfinished_broadcast_names_is_not_deleted(cast: Cast) -> None:
    segment = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    made = await broadcast(cast, segmentId=segment["id"])
    for path in (f"/segments/{segment['id']}", f"/templates/{made['templateId']}"):
        refused = await cast.ed.delete(path)
        assert refused.status_code == 409
        assert refused.json()["usedBy"] == [made["id"]]
    await cast.ed.delete(f"/broadcasts/{made['id']}")
    assert (await cast.ed.delete(f"/segments/{segment['id']}")).status_code == 204


async def test_what_broadcasts_name_is_found_without_their_filters(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a thousand of them took a second of the event loop, whenever somebody looked at a
    template; and a topic does not stand in one whose path writes a letter as an escape."""
    named, free = [
        await cast.ed.made("/topics", {"name": name, "channels": ["email", "sms"]})
        for name in ("News", "Offers")
    ]
    gold, other = [
        await cast.ed.made("/segments", {"name": name, "filter": VIP}) for name in ("Gold", "Other")
    ]
    escaped = f"\\u0074{named['id'][1:]}"
    asked = {"path": f'contact.topics["{escaped}"].email', "op": "eq", "value": "subscribed"}
    filter = {"all": [{**VIP, "value": "unread"}, {"segmentId": gold["id"]}, asked]}
    made = await broadcast(cast, filter=filter, sendAt=NEXT_MONTH)
    await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    content = {**HELLO, "subject": "Hi"}
    unused = await template(cast, name="Other")

    def unread(text: str) -> Any:
        assert "unread" not in text
        return parse(text)

    monkeypatch.setattr("app.audience.segments.parse", unread)
    for path in (f"/templates/{made['templateId']}", f"/segments/{gold['id']}"):
        assert await cast.vic.read(f"{path}/uses") == {"usedBy": [made["id"]]}
    assert await cast.vic.read(f"/templates/{unused}/uses") == {"usedBy": []}
    by_mail, by_text = {"channels": ["email"]}, {"channels": ["sms"]}
    for refused in (
        await cast.ed.patch(f"/templates/{made['templateId']}", {"content": content}),
        await cast.ed.patch(f"/segments/{gold['id']}", {"filter": {**VIP, "value": "gold"}}),
        await cast.ed.patch(f"/topics/{named['id']}", by_text),
        await cast.ed.delete(f"/topics/{named['id']}"),
        await cast.ed.delete(f"/segments/{gold['id']}"),
    ):
        assert (refused.status_code, refused.json()["usedBy"]) == (409, [made["id"]])
    for allowed in (
        await cast.ed.patch(f"/templates/{unused}", {"content": content}),
        await cast.ed.patch(f"/segments/{other['id']}", {"filter": {**VIP, "value": "gold"}}),
        await cast.ed.patch(f"/topics/{named['id']}", by_mail),
        await cast.ed.delete(f"/topics/{free['id']}"),
        await cast.ed.delete(f"/segments/{other['id']}"),
    ):
        assert allowed.status_code in (200, 204), allowed.text


async def test_another_filter_of_a_broadcast_names_other_things(cast: Cast) -> None:
    one, two = [
        await cast.ed.made("/segments", {"name": name, "filter": VIP}) for name in ("One", "Two")
    ]
    made = await broadcast(cast, filter={"segmentId": one["id"]})
    await cast.ed.patch(f"/broadcasts/{made['id']}", {"filter": {"segmentId": two["id"]}})
    assert await cast.vic.read(f"/segments/{one['id']}/uses") == {"usedBy": []}
    assert await cast.vic.read(f"/segments/{two['id']}/uses") == {"usedBy": [made["id"]]}
    await cast.ed.patch(f"/broadcasts/{made['id']}", {"filter": None, "tag": "vip"})
    assert (await cast.ed.delete(f"/segments/{two['id']}")).status_code == 204


async def test_what_is_scheduled_is_not_changed_by_who_may_not_send(cast: Cast) -> None:
    """A template changes what it says, and a segment, however deep in others, to whom."""
    await person(cast, "ada")
    gold = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    around = {"name": "Around", "filter": {"segmentId": gold["id"]}}
    segment = await cast.ed.made("/segments", around)
    filter = {"any": [{"segmentId": segment["id"]}, VIP]}
    one = await broadcast(cast, segmentId=segment["id"], sendAt=NEXT_MONTH)
    two = await broadcast(cast, filter=filter, sendAt=NEXT_MONTH)
    template, target = f"/templates/{one['templateId']}", f"/segments/{gold['id']}"

    async def statuses(who: Person, say: str) -> list[tuple[int, list[str] | None]]:
        answers = [
            await who.patch(template, {"content": {**HELLO, "subject": say}}),
            await who.patch(target, {"filter": {**VIP, "value": say}}),
        ]
        return [(each.status_code, each.json().get("usedBy")) for each in answers]

    for made in (one, two):
        await cast.adam.made(f"/broadcasts/{made['id']}/schedule", None)
    refused = [(409, [one["id"]]), (409, [one["id"], two["id"]])]
    assert await statuses(cast.ed, "a") == refused
    for path in (template, target):
        assert (await cast.ed.patch(path, {"name": "Renamed"})).status_code == 200
    assert await statuses(cast.adam, "b") == [(200, None)] * 2
    assert await statuses(cast.ed, "c") == refused
    for made in (one, two):
        await cast.adam.patch(f"/broadcasts/{made['id']}", {"perMinute": 5})  # a DRAFT again
    assert await statuses(cast.ed, "d") == [(200, None)] * 2


async def test_what_is_scheduled_is_not_undone_by_who_may_not_send(cast: Cast) -> None:
    """Who may not cancel it would delete it, or make it a draft that does not leave at nine."""
    await person(cast, "ada")
    made = await broadcast(cast, sendAt=NEXT_MONTH)
    path = f"/broadcasts/{made['id']}"
    await cast.adam.made(f"{path}/schedule", None)
    for refused in (await cast.ed.patch(path, {"perMinute": 5}), await cast.ed.delete(path)):
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "broadcasts:send" in refused.json()["detail"]
    assert (await cast.vic.read(path))["state"] == "SCHEDULED"
    assert (await cast.adam.patch(path, {"perMinute": 5})).json()["state"] == "DRAFT"
    assert (await cast.ed.patch(path, {"perMinute": 6})).status_code == 200
    await cast.adam.made(f"{path}/schedule", None)
    assert (await cast.adam.delete(path)).status_code == 204


async def test_a_broadcast_is_scheduled_as_it_was_seen(cast: Cast) -> None:
    await person(cast, "ada")
    made = await broadcast(cast)
    path = f"/broadcasts/{made['id']}"
    seen = {"If-Match": (await cast.adam.get(path)).headers["etag"]}
    changed = await cast.ed.patch(path, {"perMinute": 5})
    stale = await cast.adam.post(f"{path}/schedule", headers=seen)
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert (await cast.vic.read(path))["state"] == "DRAFT"
    now = {"If-Match": changed.headers["etag"]}
    scheduled = await cast.adam.post(f"{path}/schedule", headers=now)
    assert scheduled.json()["state"] == "SCHEDULED", scheduled.text
    again = await cast.adam.post(f"{path}/schedule", headers={"If-Match": '"1"'})
    assert again.status_code == 412


async def test_a_test_goes_to_one_address_and_leaves_the_broadcast_as_it_is(
    cast: Cast, process: Process
) -> None:
    made = await broadcast(cast)
    ada = await person(cast, "ada", firstName="Ada")
    path = f"/broadcasts/{made['id']}"
    await cast.ed.made(f"{path}/test", {"to": "me@x.test", "contactId": ada})
    await settle(process)
    [captured] = (await cast.adam.read("/sandbox/messages"))["data"]
    assert (captured["to"], captured["subject"]) == ("me@x.test", "News for Ada")
    assert await cast.vic.read(path) == made
    wrong = await cast.ed.post(f"{path}/test", {"to": "me", "contactId": "con_1"})
    assert [one["pointer"] for one in wrong.json()["errors"]] == ["/to", "/contactId"]


async def test_an_editor_to_whom_it_is_given_sends_broadcasts(cast: Cast) -> None:
    await person(cast, "ada")
    made = await broadcast(cast)
    members = (await cast.adam.read("/memberships"))["data"]
    ids = {one["userId"]: one["id"] for one in members}
    assert {one["sendsBroadcasts"] for one in members} == {False}
    path = f"/broadcasts/{made['id']}/schedule"
    for who, status in ((cast.ed, 200), (cast.vic, 403)):  # whoever may not write may not send
        allowed = {"sendsBroadcasts": True}
        assert (await who.patch(f"/memberships/{ids[who.user_id]}", allowed)).status_code == 403
        given = await cast.adam.patch(f"/memberships/{ids[who.user_id]}", allowed)
        assert given.json()["sendsBroadcasts"], given.text
        assert ("broadcasts:send" in (await who.read("/auth/me"))["permissions"]) == (status == 200)
        assert (await who.post(path)).status_code == status
    taken = {"sendsBroadcasts": False}
    await cast.adam.patch(f"/memberships/{ids[cast.ed.user_id]}", taken)
    assert (await cast.ed.post(f"/broadcasts/{made['id']}/pause")).status_code == 403
