"""Segments by the API: filters saved, refused and previewed, and the contacts that fit them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.audience import membership, segment_contacts, segment_jobs, segments
from app.audience.chunks import ChunkSize
from app.machine import document, segment_filter
from app.process import Process
from app.store import bounded_pages, broadcasts, jobs, names_in_use
from app.store import segments as store
from tests.cast import HELLO, Cast, settle
from tests.runs.test_runner import later
from tests.servers import set_clock
from tests.slow_statements import cut_off
from tests.tables import each_row
from workers.maintenance import JobSweep

VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
PRO = {"path": "contact.metadata.plan", "op": "eq", "value": "pro"}
TWICE = {"event": "order_placed", "count": {"op": "gte", "value": 2}, "within": "P30D"}


async def person(cast: Cast, name: str, **given: Any) -> str:
    made = await cast.ed.made("/contacts", {"email": f"{name}@x.test", **given})
    return str(made["id"])


async def ids_in(cast: Cast, path: str) -> list[str]:
    return [one["id"] for one in (await cast.vic.read(path))["data"]]


async def refused(cast: Cast, filter: Any) -> list[tuple[str, str]]:
    response = await cast.ed.post("/segments", {"name": "Odd", "filter": filter})
    assert response.status_code == 422, response.text
    return [(one["pointer"], one["message"]) for one in response.json()["errors"]]


async def test_a_segment_holds_who_fits_its_filter_at_this_moment(cast: Cast) -> None:
    ada = await person(cast, "ada", tags=["vip"], metadata={"plan": "pro"})
    bob = await person(cast, "bob", metadata={"plan": "pro"})
    await person(cast, "eve", tags=["vip"])
    made = await cast.ed.post("/segments", {"name": "Gold", "filter": {"all": [VIP, PRO]}})
    assert made.status_code == 201
    segment = made.json()
    assert segment["prose"] == "tagged “vip” and “plan” is “pro”"
    assert await cast.vic.read(made.headers["location"]) == segment
    assert await ids_in(cast, "/segments?name=Gold") == [segment["id"]]
    assert await ids_in(cast, "/segments?name=gold") == []
    path = f"/segments/{segment['id']}/contacts"
    assert await ids_in(cast, path) == [ada]
    await cast.ed.made(f"/contacts/{bob}/tags", {"tags": ["vip"]})
    assert await ids_in(cast, path) == [bob, ada]
    assert await ids_in(cast, f"{path}?createdBefore=2020-01-01T00:00:00Z") == []
    assert await ids_in(cast, f"{path}?createdAfter=2020-01-01T00:00:00Z") == [bob, ada]
    await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    assert await ids_in(cast, path) == [bob]


async def test_a_date_beyond_all_calendars_is_no_moment_to_wait_for(
    cast: Cast, process: Process
) -> None:
    """In UTC it lies in the year 10000, which no database column holds."""
    lately = {"path": "contact.metadata.at", "op": "within_last", "value": "P1D"}
    made = await cast.ed.made("/segments", {"name": "S", "filter": lately})
    await settle(process)
    late = {"metadata": {"at": "9999-12-31T23:59:59-12:00"}}
    ada = await cast.ed.made("/contacts", {"email": "ada@x.test", **late})
    await cast.ed.made("/events", {"match": {"email": "ada@x.test"}, "name": "x"})
    await settle(process)
    shown = await cast.vic.read(f"/segments/{made['id']}")
    assert shown["count"] == 0
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["metadata"] == late["metadata"]


async def test_a_message_counts_from_when_it_left(cast: Cast, process: Process) -> None:
    """Not from when it was ordered, which may be months before."""
    filter = {"message": "sent", "within": "PT1H"}
    made = await cast.ed.made("/segments", {"name": "S", "filter": filter})
    ada = await person(cast, "ada")
    async with process.database.read() as db:
        at = await db.now() + timedelta(hours=3)
    body = {"channel": "email", "contactId": ada, "content": HELLO, "sendAt": document.text(at)}
    await cast.ed.made("/messages", body)
    for hours, ids in ((0, []), (3.5, [ada]), (4, [ada]), (5, [])):
        set_clock(process.database, round(hours * 3_600_000))
        for _ in range(2):
            await settle(process)
        assert await ids_in(cast, f"/segments/{made['id']}/contacts") == ids, hours
        seen = await cast.ed.made("/segments/preview", {"filter": filter, "contactId": ada})
        assert (seen["count"], seen["contact"]["holds"]) == (len(ids), bool(ids))


async def test_what_somebody_did_counts(cast: Cast) -> None:
    ada, bob = await person(cast, "ada"), await person(cast, "bob")
    for who, total in ((ada, 10), (ada, 60), (bob, 70)):
        event = {"name": "order_placed", "properties": {"total": total}}
        await cast.ed.made(f"/contacts/{who}/events", event)
    large = {"path": "event.properties.total", "op": "gt", "value": 50}
    for filter, count in (
        (TWICE, 1),
        ({"not": TWICE}, 1),
        ({"event": "order_placed"}, 2),
        ({**TWICE, "match": large}, 0),
        ({"event": "order_placed", "match": large}, 2),
        ({"event": "order_placed", "count": {"op": "eq", "value": 0}}, 0),
    ):
        preview = await cast.vic.made("/segments/preview", {"filter": filter})
        assert (preview["count"], preview["isComplete"]) == (count, True), filter


async def test_a_preview_tells_how_many_can_be_written_to_and_why_not_the_others(
    cast: Cast,
) -> None:
    for name in ("ada", "bob", "eve", "ian"):
        await person(cast, name, tags=["vip"])
    await cast.ed.made("/contacts", {"phone": "+4915112345678", "tags": ["vip"]})
    await cast.ed.made("/contacts", {"email": "out@x.test"})
    bob = (await cast.vic.read("/contacts?email=bob@x.test"))["data"][0]["id"]
    await cast.ed.patch(f"/contacts/{bob}", {"subscriptions": {"email": "unsubscribed"}})
    await cast.adam.made("/suppressions", {"channel": "email", "address": "eve@x.test"})
    preview = await cast.vic.made("/segments/preview", {"filter": VIP})
    assert preview["count"] == 5
    assert preview["reachable"] == {
        "email": reach(reachable=2, noAddress=1, unsubscribed=2),
        "sms": reach(reachable=1, noAddress=4),
        "whatsapp": reach(reachable=1, noAddress=4),
    }
    assert len(preview["sample"]) == 5
    assert preview["sample"][0]["phone"] == "+4915112345678"


def reach(**given: int) -> dict[str, int]:
    names = ("reachable", "noAddress", "complained", "bounced", "unsubscribed")
    return {**dict.fromkeys(names, 0), **given}


async def test_previews_of_a_workspace_take_one_connection_at_a_time(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are asked for: the intake of others finds connections."""
    await person(cast, "ada", tags=["vip"])
    looking, most, reached = 0, 0, store.reached

    async def slowly(*args: Any, **given: Any) -> str | None:
        nonlocal looking, most
        looking += 1
        most = max(most, looking)
        await asyncio.sleep(0.01)
        looking -= 1
        return await reached(*args, **given)

    monkeypatch.setattr(store, "reached", slowly)
    previews = [cast.vic.made("/segments/preview", {"filter": VIP}) for _ in range(10)]
    assert [one["count"] for one in await asyncio.gather(*previews)] == [1] * 10
    assert most == 1


async def test_a_preview_says_why_a_contact_is_in_or_out(cast: Cast) -> None:
    ada = await person(cast, "ada", tags=["vip"])
    await cast.ed.made(f"/contacts/{ada}/events", {"name": "order_placed", "properties": {}})
    body = {"filter": {"all": [VIP, TWICE]}, "contactId": ada}
    preview = await cast.vic.made("/segments/preview", body)
    assert preview["contact"] == {
        "contactId": ada,
        "holds": False,
        "operands": [
            {
                "path": "contact.tags",
                "op": "contains",
                "value": "vip",
                "found": ["vip"],
                "holds": True,
            },
            {"event": "order_placed", "op": "gte", "value": 2, "found": 1, "holds": False},
        ],
    }
    unknown = await cast.vic.post("/segments/preview", {**body, "contactId": "con_1"})
    assert unknown.json()["errors"][0]["pointer"] == "/contactId"


async def test_a_preview_warns_of_names_that_are_nobody_s(cast: Cast) -> None:
    ada = await person(cast, "ada", tags=["vip"], metadata={"plan": "pro"})
    await cast.ed.made(f"/contacts/{ada}/events", {"name": "order_placed", "properties": {}})
    missing = {"path": "contact.metadata.paln", "op": "exists", "value": False}
    asked = [VIP, {**VIP, "value": "vpi"}, PRO, {"not": missing}, TWICE, {"event": "order_palced"}]
    preview = await cast.vic.made("/segments/preview", {"filter": {"any": asked}})
    assert preview["findings"] == [
        {"severity": "warning", "code": code, "pointer": f"/filter/any/{at}", "message": message}
        for code, at, message in (
            ("tag_of_nobody", "1/value", "No contact has the tag “vpi”: is it right?"),
            (
                "field_of_nobody",
                "3/not/path",
                "No contact has contact.metadata.paln: is the name right?",
            ),
            (
                "event_of_nobody",
                "5/event",
                "Of the newest 10,000 events none is called “order_palced”: is it right?",
            ),
        )
    ]
    theirs = await cast.mallory.made("/segments/preview", {"filter": {"any": asked}})
    assert len(theirs["findings"]) == 6


async def test_an_event_is_looked_for_among_the_newest_alone(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await person(cast, "ada")
    for name in ("visit", "order", "order"):
        await cast.ed.made(f"/contacts/{ada}/events", {"name": name, "properties": {}})
    monkeypatch.setattr(names_in_use, "NEWEST", 2)
    filter = {"any": [{"event": "visit"}, {"event": "order"}]}
    preview = await cast.vic.made("/segments/preview", {"filter": filter})
    assert [one["pointer"] for one in preview["findings"]] == ["/filter/any/0/event"]
    assert preview["count"] == 1


@each_row(
    ("filter", "pointer", "sentence"),
    [
        ({}, "/filter/path", "Say which value to look at"),
        ({"all": []}, "/filter/all", "Give at least one condition here"),
        ({"not": {**VIP, "op": "is"}}, "/filter/not/op", "must be one of eq, ne"),
        ({**VIP, "op": "eq"}, "/filter/op", "Tags are compared by `contains` alone"),
        ({**PRO, "path": "contact.nope"}, "/filter/path", "A filter reads contact.id"),
        ({**PRO, "path": "trigger.plan"}, "/filter/path", "must start at one of contact"),
        ({"event": "x", "within": "P366D"}, "/filter/within", "at most 365 days"),
        ({"event": "x", "count": {"op": "gte"}}, "/filter/count/value", "Say `op` and `value`"),
        ({"event": "x", "match": PRO}, "/filter/match/path", "must start at one of event"),
        ({"event": "x", "colour": 1}, "/filter/colour", "There is no field “colour”"),
        ({"message": "opened"}, "/filter/message", "must be one of sent, bounced"),
        ({"message": "sent", "templateId": "tpl_1"}, "/filter/templateId", "no such template"),
        ({"message": "sent", "broadcastId": "bro_1"}, "/filter/broadcastId", "no such broadcast"),
        ({"run": "in", "definitionId": "wfl_1"}, "/filter/definitionId", "no such definition"),
        ({"any": [VIP, {"segmentId": "seg_1"}]}, "/filter/any/1/segmentId", "no such segment"),
        ({"all": [VIP] * 51}, "/filter", "At most 50 comparisons may stand here"),
        ({**PRO, "op": "in", "value": ["x"] * 201}, "/filter", "at most 200 values"),
        ({**PRO, "value": "x" * 20_000}, "/filter", "at most 16 KiB"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_where_it_is_wrong(
    cast: Cast, filter: Any, pointer: str, sentence: str
) -> None:
    [(at, message), *_] = await refused(cast, filter)
    assert at == pointer
    assert sentence in message
    assert message.endswith(".")
    assert (await cast.vic.read("/segments"))["data"] == []


async def test_segments_name_one_another_but_never_in_a_circle(cast: Cast) -> None:
    gold = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    best = await cast.ed.made(
        "/segments", {"name": "Best", "filter": {"all": [{"segmentId": gold["id"]}, PRO]}}
    )
    assert best["prose"] == "in segment “Gold” and “plan” is “pro”"
    ada = await person(cast, "ada", tags=["vip"], metadata={"plan": "pro"})
    await person(cast, "bob", metadata={"plan": "pro"})
    assert await ids_in(cast, f"/segments/{best['id']}/contacts") == [ada]
    circle = {"not": {"segmentId": best["id"]}}
    response = await cast.ed.patch(f"/segments/{gold['id']}", {"filter": circle})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/filter/not/segmentId"
    assert error["message"] == "A segment cannot name itself, here through Best → Gold."
    used = await cast.ed.delete(f"/segments/{gold['id']}")
    assert (used.status_code, used.json()["usedBy"]) == (409, [best["id"]])
    assert await cast.vic.read(f"/segments/{gold['id']}/uses") == {"usedBy": [best["id"]]}
    assert (await cast.ed.delete(f"/segments/{best['id']}")).status_code == 204
    assert (await cast.ed.delete(f"/segments/{gold['id']}")).status_code == 204


async def test_two_at_once_make_no_circle(cast: Cast) -> None:
    one, two = [
        await cast.ed.made("/segments", {"name": name, "filter": VIP}) for name in ("One", "Two")
    ]
    answers = await asyncio.gather(
        cast.ed.patch(f"/segments/{one['id']}", {"filter": {"segmentId": two["id"]}}),
        cast.ed.patch(f"/segments/{two['id']}", {"filter": {"segmentId": one["id"]}}),
    )
    assert sorted(answer.status_code for answer in answers) == [200, 422]


async def test_segments_do_not_grow_through_one_another_without_end(cast: Cast) -> None:
    below = await cast.ed.made("/segments", {"name": "0", "filter": VIP})
    first = below["id"]
    for number in range(1, 6):
        body = {"name": str(number), "filter": {"segmentId": below["id"]}}
        below = await cast.ed.made("/segments", body)
    [(at, message)] = await refused(cast, {"segmentId": below["id"]})
    assert (at, message) == ("/filter", "Segments name one another at most 5 deep.")
    wide = await cast.ed.made("/segments", {"name": "W", "filter": {"all": [VIP] * 50}})
    [(_, message)] = await refused(cast, {"all": [{"segmentId": wide["id"]}] * 4})
    assert "at most 200 comparisons" in message
    response = await cast.ed.patch(f"/segments/{first}", {"filter": {"segmentId": wide["id"]}})
    assert "names this one, and then asks too much" in response.json()["errors"][0]["message"]


async def test_a_segment_does_not_grow_beyond_what_a_broadcast_that_names_it_may_ask(
    cast: Cast,
) -> None:
    small = await cast.ed.made("/segments", {"name": "Small", "filter": VIP})
    above = await cast.ed.made("/segments", {"name": "Above", "filter": {"segmentId": small["id"]}})
    fifty = {"all": [VIP] * 50}
    full = await cast.ed.made("/segments", {"name": "Full", "filter": fifty})
    news = {"name": "N", "channel": "email", "category": "marketing", "content": HELLO}
    template = await cast.ed.made("/templates", news)
    named = [full["id"], full["id"], full["id"], above["id"]]
    wide = {"all": [*({"segmentId": id} for id in named), VIP]}
    spring = {"name": "Spring", "filter": wide, "templateId": template["id"]}
    await cast.adam.made("/broadcasts", spring)
    path = f"/segments/{small['id']}"
    most = {"all": [VIP] * 44}
    assert (await cast.adam.patch(path, {"filter": most})).status_code == 200
    response = await cast.adam.patch(path, {"filter": fifty})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/filter"
    assert error["message"] == (
        "Broadcast “Spring” names this segment, and then asks too much. With the segments that it"
        " names, a filter makes at most 200 comparisons."
    )
    assert (await cast.vic.read(path))["filter"] == most


async def test_a_patch_replaces_a_filter_as_a_whole(cast: Cast) -> None:
    made = await cast.ed.post("/segments", {"name": "Gold", "filter": VIP})
    path, etag = made.headers["location"], made.headers["etag"]
    renamed = await cast.ed.patch(path, {"name": "Gold!"}, headers={"If-Match": etag})
    assert renamed.json()["filter"] == VIP
    changed = await cast.ed.patch(path, {"filter": {"any": [PRO]}})
    assert changed.json()["filter"] == {"any": [PRO]}
    same = await cast.ed.patch(path, {"name": "Gold!", "filter": {"any": [PRO]}})
    assert same.headers["etag"] == changed.headers["etag"]
    stale = await cast.ed.patch(path, {"filter": VIP}, headers={"If-Match": etag})
    assert stale.status_code == 412
    assert (await cast.ed.patch(path, {"filter": {"all": []}})).status_code == 422
    assert (await cast.ed.patch(path, {"filter": None})).status_code == 422
    assert (await cast.vic.patch(path, {"name": "Mine"})).status_code == 403


async def test_there_is_an_end_to_how_many_there_are(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MOST", 2)
    for number in range(2):
        await cast.ed.made("/segments", {"name": f"S{number}", "filter": VIP})
    response = await cast.ed.post("/segments", {"name": "One more", "filter": VIP})
    assert response.status_code == 409


async def test_a_list_of_long_filters_ends_early_and_reads_no_others(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred filters have 3 MB, which take a fifth of a second to read."""
    made, values = list[str](), ["x" * 300]
    for number in range(4):
        filter = {"path": "contact.firstName", "op": "in", "value": [*values, f"{number}"]}
        segment = await cast.ed.made("/segments", {"name": f"S{number}", "filter": filter})
        made.append(segment["id"])
    naming = {"name": "Other", "filter": {"segmentId": made[0]}}
    last = await cast.ed.made("/segments", naming)
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 600)
    segments.parse.cache_clear()
    read, filter_of = list[Any](), segment_filter.read

    def counted(raw: Any, *given: Any) -> Any:
        read.append(raw)
        return filter_of(raw, *given)

    monkeypatch.setattr(segment_filter, "read", counted)
    page = await cast.vic.read("/segments?limit=4")
    assert [one["id"] for one in page["data"]] == [last["id"], made[3], made[2]]
    assert page["data"][0]["prose"] == last["prose"]
    assert len(read) == 3
    page = await cast.vic.read(f"/segments?limit=4&cursor={page['nextCursor']}")
    assert [one["id"] for one in page["data"]] == [made[1], made[0]]
    assert page["nextCursor"] is None


async def test_a_page_goes_on_where_the_last_ended_however_few_fit(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of three contacts, and time for one of them."""
    fitting = []
    for number in range(10):
        tags = {"tags": ["vip"]} if number % 4 == 0 else {}
        id = await person(cast, f"p{number}", **tags)
        fitting += [id] if tags else []
    segment = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    monkeypatch.setattr(segment_contacts, "WALK", 3)
    path = f"/segments/{segment['id']}/contacts"
    assert await ids_in(cast, path) == fitting[::-1]
    assert (await cast.vic.made("/segments/preview", {"filter": VIP}))["count"] == 3
    monkeypatch.setattr(segment_contacts, "PAGE_SECONDS", 0)
    monkeypatch.setattr(segment_contacts, "COUNT_SECONDS", 0)
    page = await cast.vic.read(f"{path}?limit=2")
    found, pages = [one["id"] for one in page["data"]], 1
    while page["nextCursor"]:
        page = await cast.vic.read(f"{path}?limit=2&cursor={page['nextCursor']}")
        found, pages = [*found, *(one["id"] for one in page["data"])], pages + 1
    assert found == fitting[::-1]
    assert pages > 2
    preview = await cast.vic.made("/segments/preview", {"filter": VIP})
    assert (preview["count"], preview["isComplete"]) == (1, False)


@pytest.mark.parametrize("least", [2, 1], ids=["together", "even alone"])
async def test_those_who_take_too_long_are_looked_at_one_by_one(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """And shown, though there is time for one alone."""
    ids = []
    for orders, name in enumerate(("ada", "bob", "eve"), start=1):
        ids.append(await person(cast, name))
        for _ in range(orders):
            happened = {"match": {"email": f"{name}@x.test"}, "name": "order_placed"}
            await cast.ed.made("/events", happened)
    segment = await cast.ed.made("/segments", {"name": "Buyers", "filter": TWICE})
    cut_off(monkeypatch, least=least, seconds=0.05)
    preview = await cast.vic.made("/segments/preview", {"filter": TWICE})
    assert (preview["count"], preview["isComplete"]) == (2, True)
    assert [one["id"] for one in preview["sample"]] == ids[:0:-1]
    monkeypatch.setattr(segment_contacts, "PAGE_SECONDS", 0)
    monkeypatch.setattr(segment_contacts, "COUNT_SECONDS", 0)
    preview = await cast.vic.made("/segments/preview", {"filter": TWICE})
    assert (preview["count"], preview["isComplete"]) == (1, False)
    found, cursor = list[str](), ""
    while cursor is not None:
        page = await cast.vic.read(f"/segments/{segment['id']}/contacts?{cursor}")
        found += [one["id"] for one in page["data"]]
        cursor = page["nextCursor"] and f"cursor={page['nextCursor']}"
    assert found == ids[:0:-1]


async def test_a_segment_is_its_workspace_s_alone(cast: Cast, process: Process) -> None:
    made = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    rival = cast.mallory
    for path in (f"/segments/{made['id']}", f"/segments/{made['id']}/contacts"):
        assert (await rival.get(path)).status_code == 404
    await cast.ed.made("/contacts", {"email": "ada@x.test", "tags": ["vip"]})
    assert (await rival.made("/segments/preview", {"filter": VIP}))["count"] == 0
    response = await rival.post(
        "/segments", {"name": "Theirs", "filter": {"segmentId": made["id"]}}
    )
    assert response.status_code == 422
    async with process.database.read() as db:
        assert await store.of_workspace(db, workspace_id=rival.workspace_id) == {}


# --- kept membership ------------------------------------------------------------------------------


async def shown(cast: Cast, id: str) -> tuple[int | None, bool]:
    segment = await cast.vic.read(f"/segments/{id}")
    return segment["count"], segment["countedAt"] is not None


async def test_a_segment_is_counted_once_it_has_been_filled(cast: Cast, process: Process) -> None:
    await person(cast, "ada", tags=["vip"])
    id = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    assert await shown(cast, id) == (None, False)
    await settle(process)
    assert await shown(cast, id) == (1, True)
    bob = await person(cast, "bob", tags=["vip"])
    assert await shown(cast, id) == (2, True)
    assert [one["count"] for one in (await cast.vic.read("/segments"))["data"]] == [2]
    assert (await cast.ed.delete(f"/contacts/{bob}")).status_code == 204
    assert await shown(cast, id) == (1, True)


async def test_a_frozen_segment_stays_as_it_was(cast: Cast, process: Process) -> None:
    ada = await person(cast, "ada", tags=["vip"])
    frozen = {"name": "Then", "kind": "frozen", "filter": VIP}
    id = (await cast.ed.made("/segments", frozen))["id"]
    await settle(process)
    await person(cast, "bob", tags=["vip"])
    await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    assert await ids_in(cast, f"/segments/{id}/contacts") == [ada]
    assert await shown(cast, id) == (1, True)
    assert (await cast.vic.read(f"/segments/{id}"))["kind"] == "frozen"
    [(pointer, _)] = await refused(cast, {"segmentId": id})
    assert pointer == "/filter/segmentId"
    await cast.ed.patch(f"/segments/{id}", {"kind": "live"})
    await settle(process)
    assert (await shown(cast, id))[0] == 1
    assert ada not in await ids_in(cast, f"/segments/{id}/contacts")


async def test_a_frozen_segment_stays_as_it_was_whatever_becomes_of_those_it_names(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada", tags=["vip"])
    bob = await person(cast, "bob", metadata={"plan": "pro"})
    gold = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    frozen = {"name": "Then", "kind": "frozen", "filter": {"segmentId": gold}}
    then = (await cast.ed.made("/segments", frozen))["id"]
    await settle(process)
    new = (await cast.ed.made("/segments", {**frozen, "name": "New"}))["id"]
    await cast.ed.patch(f"/segments/{gold}", {"filter": PRO})
    await settle(process)
    assert await ids_in(cast, f"/segments/{then}/contacts") == [ada]
    assert await ids_in(cast, f"/segments/{new}/contacts") == [bob]  # it was being filled


async def test_a_preview_of_a_frozen_segment_counts_who_is_in_it(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada", tags=["vip"])
    frozen = {"name": "Then", "kind": "frozen", "filter": VIP}
    id = (await cast.ed.made("/segments", frozen))["id"]
    preview = {"filter": {"segmentId": id}}
    assert (await cast.vic.made("/segments/preview", preview))["count"] == 1  # is looked up
    await settle(process)
    await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    bob, _ = await person(cast, "bob", tags=["vip"]), await person(cast, "eve", tags=["vip"])
    for who, holds in ((ada, True), (bob, False)):
        found = await cast.vic.made("/segments/preview", {**preview, "contactId": who})
        assert (found["count"], found["reachable"]["email"]["reachable"]) == (1, 1)
        assert [one["id"] for one in found["sample"]] == [ada]
        assert found["contact"] == {
            "contactId": who,
            "holds": holds,
            "operands": [{"segmentId": id, "holds": holds}],
        }
    within = await cast.vic.post("/segments/preview", {"filter": {"not": {"segmentId": id}}})
    assert within.status_code == 422
    assert [one["pointer"] for one in within.json()["errors"]] == ["/filter/not/segmentId"]


async def test_whoever_was_touched_while_a_frozen_segment_was_live_stays_in_it(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "MOST_AT_ONCE", 0)  # as in an import
    id = (await cast.ed.made("/segments", {"name": "Then", "filter": VIP}))["id"]
    await settle(process)
    ada = await person(cast, "ada", tags=["vip"])
    await cast.ed.patch(f"/segments/{id}", {"kind": "frozen"})
    [job] = await process.claim("segment", [], 1)
    while (await cast.vic.read(f"/segments/{id}"))["count"] is None:
        assert await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
    await cast.ed.delete(f"/contacts/{ada}/tags/vip")
    await segment_jobs.work(process, job)
    await settle(process)
    assert await ids_in(cast, f"/segments/{id}/contacts") == [ada]


async def test_a_frozen_segment_rests_though_a_time_was_left_in_it(
    cast: Cast, process: Process
) -> None:
    """As by a transaction that saw it live, and created a contact while it was being frozen."""
    await person(cast, "ada", tags=["vip"])
    id = (await cast.ed.made("/segments", {"name": "Then", "kind": "frozen", "filter": VIP}))["id"]
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segment_members SET next_at = :now")
        await jobs.wake(db, "segment", workspace_id=cast.ed.workspace_id, ids=[id])
    [job] = await process.claim("segment", [], 1)
    assert await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
    assert not await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
    assert await shown(cast, id) == (1, True)


async def test_one_that_others_name_cannot_be_frozen(cast: Cast) -> None:
    id = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    await cast.ed.made("/segments", {"name": "Both", "filter": {"segmentId": id}})
    response = await cast.ed.patch(f"/segments/{id}", {"kind": "frozen"})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == ["/kind"]


async def test_one_that_the_filter_of_a_broadcast_names_cannot_be_frozen(
    cast: Cast, process: Process
) -> None:
    """Else the broadcast would go to who fits its filter by then. One that goes to the segment
    itself goes to its members."""
    id = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    new = {"name": "News", "channel": "email", "category": "marketing", "content": HELLO}
    template_id = (await cast.ed.made("/templates", new))["id"]
    named = {"name": "Summer", "templateId": template_id}
    filter = {"all": [{"segmentId": id}, PRO]}
    summer = (await cast.ed.made("/broadcasts", {**named, "filter": filter}))["id"]
    await cast.ed.made("/broadcasts", {**named, "segmentId": id})
    response = await cast.ed.patch(f"/segments/{id}", {"kind": "frozen"})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert error["pointer"] == "/kind"
    assert error["message"].startswith("Summer names this segment")
    assert (await cast.ed.patch(f"/segments/{id}", {"name": "Golden"})).status_code == 200
    async with process.database.write() as db:
        whose = {"workspace_id": cast.ed.workspace_id, "id": summer}
        await broadcasts.note(db, **whose, is_frozen=True)  # from now on nobody asks its filter
    assert (await cast.ed.patch(f"/segments/{id}", {"kind": "frozen"})).status_code == 200


async def test_a_frozen_segment_is_made_live_only_with_a_filter_that_can_be(
    cast: Cast, process: Process
) -> None:
    """While it is frozen nothing holds the retention that it asked for."""
    paid = {"event": "paid", "within": "P90D"}
    body = {"name": "Then", "kind": "frozen", "filter": paid}
    path = f"/segments/{(await cast.ed.made('/segments', body))['id']}"
    await settle(process)
    for days in (30, 90):
        changed = await cast.olivia.patch("/settings/workspace", {"retentionDays": days})
        assert changed.status_code == 200, changed.text
        live = await cast.ed.patch(path, {"kind": "live"})
        if days == 30:
            assert live.status_code == 422, live.text
            assert [one["pointer"] for one in live.json()["errors"]] == ["/filter/within"]
    assert (live.status_code, live.json()["filter"]) == (200, paid)


async def test_another_filter_is_filled_anew_and_with_it_whoever_names_it(
    cast: Cast, process: Process
) -> None:
    ada = await person(cast, "ada", tags=["vip"])
    bob = await person(cast, "bob", metadata={"plan": "pro"})
    inner = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    outer = (await cast.ed.made("/segments", {"name": "Out", "filter": {"segmentId": inner}}))["id"]
    await settle(process)
    assert await ids_in(cast, f"/segments/{outer}/contacts") == [ada]
    await cast.ed.patch(f"/segments/{inner}", {"filter": PRO})
    await settle(process)
    assert await ids_in(cast, f"/segments/{inner}/contacts") == [bob]
    assert await ids_in(cast, f"/segments/{outer}/contacts") == [bob]
    await cast.ed.delete(f"/contacts/{bob}")
    assert await shown(cast, outer) == (0, True)


async def test_what_is_left_of_a_deleted_segment_goes(cast: Cast, process: Process) -> None:
    await person(cast, "ada", tags=["vip"])
    id = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    await settle(process)
    assert (await cast.ed.delete(f"/segments/{id}")).status_code == 204
    assert (await cast.vic.get(f"/segments/{id}")).status_code == 404
    await settle(process)
    async with process.database.read() as db:
        for table in ("segments", "segment_members", "segment_names", "segment_touches"):
            assert await db.fetch_all(f"SELECT workspace_id FROM {table}") == []
        assert await db.fetch_all("SELECT meter FROM usage_changes WHERE meter = 'segment'") == []


async def given_up(cast: Cast, process: Process) -> str:
    """A segment whose every worker was lost; its path."""
    made = await cast.ed.made("/segments", {"name": "Gold", "filter": VIP})
    for _ in range(jobs.MAX_CLAIMS):
        assert [job.id for job in await process.claim("segment", [], 10)] == [made["id"]]
        await later(process, "segment", 60)
    await settle(process)
    return f"/segments/{made['id']}"


async def test_a_segment_that_ends_its_workers_is_given_up_until_it_is_saved_again(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada", tags=["vip"])
    path = await given_up(cast, process)
    before = await cast.vic.get(path)
    assert (before.json()["count"], before.json()["reason"]["code"]) == (None, "poisoned")
    async with process.database.write() as db:  # something touches a member
        acme = await db.fetch_value("SELECT workspace_id FROM segments")
        await jobs.wake(db, "segment", workspace_id=acme, ids=[before.json()["id"]])
    await JobSweep().run(process)
    await settle(process)
    assert (await cast.vic.read(path))["count"] is None
    saved = await cast.ed.patch(path, {"filter": VIP})
    assert (saved.status_code, saved.json()["reason"]) == (200, None)
    assert saved.headers["etag"] != before.headers["etag"]
    await settle(process)
    assert (await cast.vic.read(path))["count"] == 1


async def test_a_segment_that_is_given_up_later_is_not_counted_as_of_now(
    cast: Cast, process: Process
) -> None:
    await person(cast, "ada", tags=["vip"])
    path = f"/segments/{(await cast.ed.made('/segments', {'name': 'Gold', 'filter': VIP}))['id']}"
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET reason_code = 'poisoned'")
    shown = await cast.vic.read(path)
    assert (shown["count"], shown["countedAt"], shown["reason"]["code"]) == (1, None, "poisoned")


async def test_a_segment_that_was_given_up_can_be_deleted(cast: Cast, process: Process) -> None:
    path = await given_up(cast, process)
    assert (await cast.ed.delete(path)).status_code == 204
    await settle(process)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM segments") == 0


async def test_a_page_of_members_goes_on_where_the_last_one_ended(
    cast: Cast, process: Process
) -> None:
    ids = [await person(cast, f"p{n}", tags=["vip"]) for n in range(5)]
    id = (await cast.ed.made("/segments", {"name": "Gold", "filter": VIP}))["id"]
    await settle(process)
    path = f"/segments/{id}/contacts"
    first = await cast.vic.read(f"{path}?limit=2")
    assert [one["id"] for one in first["data"]] == ids[:2:-1]
    second = await cast.vic.read(f"{path}?limit=2&cursor={first['nextCursor']}")
    assert [one["id"] for one in second["data"]] == ids[2:0:-1]
    assert await ids_in(cast, f"{path}?createdBefore=2020-01-01T00:00:00Z") == []
