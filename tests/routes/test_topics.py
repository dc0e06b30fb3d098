"""Topics: what marketing is about, who has agreed to get it, and that nobody else does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from app.audience import topics
from app.database.db import Handle, new_id
from app.definitions import findings
from app.files import sheets
from app.process import Process
from app.store import segments
from app.store import topics as stored_topics
from tests.cast import HELLO, Cast, Person, hook, lock_waiters, settle, suppress
from tests.routes.test_identified_contacts import identify
from tests.routes.test_imports import LINES, imported, totals

ADA = "ada@example.com"
OFFERS = {"name": "Offers", "channels": ["email", "sms"]}


async def topic(person: Person, **given: Any) -> str:
    made = await person.made("/topics", {**OFFERS, **given})
    return str(made["id"])


async def answer(
    person: Person, contact_id: str, topic_id: str, state: str = "subscribed", **given: Any
) -> dict[str, Any]:
    body = {"channel": "email", "state": state, "source": "footer form", **given}
    response = await person.call("PUT", f"/contacts/{contact_id}/topics/{topic_id}", json=body)
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.json()
    return shown


async def outcome(
    cast: Cast, process: Process, contact_id: str, content: dict[str, Any], **given: Any
) -> tuple[str, str | None]:
    """Read the outcome of a message to the contact."""
    wanted = {"channel": "email", "contactId": contact_id, "content": content, **given}
    made = await cast.ed.made("/messages", wanted)
    await settle(process)
    shown = await cast.vic.read(f"/messages/{made['messageId']}")
    return shown["status"], shown["reason"] and shown["reason"]["code"]


def about(topic_id: str) -> dict[str, Any]:
    return {**HELLO, "category": "marketing", "topicId": topic_id}


NO_CONSENT = ("SUPPRESSED", "suppressed_no_consent")
SENT = ("SENT", None)


async def test_a_topic_is_made_changed_and_removed(cast: Cast) -> None:
    made = await cast.ed.made("/topics", {**OFFERS, "description": "Once a week"})
    assert made == {
        "id": made["id"],
        "name": "Offers",
        "description": "Once a week",
        "channels": ["email", "sms"],
        "doubleOptIn": False,
        "isDefault": False,
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    path = f"/topics/{made['id']}"
    changed = await cast.ed.patch(path, {"name": "Deals", "channels": ["email"]})
    assert (changed.json()["name"], changed.json()["channels"]) == ("Deals", ["email"])
    for query in ("", "?name=Deals"):
        assert (await cast.vic.read(f"/topics{query}"))["data"] == [changed.json()]
    assert (await cast.vic.read("/topics?name=Offers"))["data"] == []
    assert (await cast.ed.delete(path)).status_code == 204
    assert (await cast.vic.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"channels": []}, "/channels"),
        ({"channels": ["email", "email"]}, "/channels"),
        ({"channels": ["fax"]}, "/channels/0"),
        ({"isDefault": True, "doubleOptIn": True}, "/doubleOptIn"),
        ({"name": ""}, "/name"),
    ],
)
async def test_what_cannot_be_a_topic_is_refused(cast: Cast, given: Any, pointer: str) -> None:
    response = await cast.ed.post("/topics", {**OFFERS, **given})
    assert response.status_code == 422
    assert pointer in [one["pointer"] for one in response.json()["errors"]]
    assert (await cast.vic.read("/topics"))["data"] == []


async def test_one_topic_may_be_the_default_and_stays_what_it_is(cast: Cast) -> None:
    id = await topic(cast.ed, isDefault=True)
    again = await cast.ed.post("/topics", {**OFFERS, "isDefault": True})
    assert (again.status_code, again.json()["existingId"]) == (409, id)
    assert (await cast.ed.patch(f"/topics/{id}", {"isDefault": False})).status_code == 422


async def test_another_topic_may_be_the_default_once_that_is_deleted(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "WALK", 1)  # some of its contacts are left to a worker
    for email in (ADA, "bob@x.test"):
        await cast.ed.made("/contacts", {"email": email})
    id = await topic(cast.ed, isDefault=True)
    assert (await cast.ed.delete(f"/topics/{id}")).status_code == 204
    assert await topic(cast.ed, isDefault=True) != id


async def test_a_workspace_has_a_bounded_number_of_topics(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MOST", 1)
    await topic(cast.ed)
    assert (await cast.ed.post("/topics", OFFERS)).status_code == 409


async def test_nobody_gets_a_topic_without_a_yes(cast: Cast, process: Process) -> None:
    ada, offers = await cast.ed.made("/contacts", {"email": ADA}), await topic(cast.ed)
    assert ada["topics"] == {}
    news = about(offers)
    assert await outcome(cast, process, ada["id"], news) == NO_CONSENT
    shown = await answer(cast.ed, ada["id"], offers, evidence="“Yes, send me offers”")
    assert shown["topics"] == {offers: {"email": "subscribed"}}
    assert await outcome(cast, process, ada["id"], news) == SENT
    assert await outcome(cast, process, ada["id"], news, to="bob@example.com") == NO_CONSENT
    await answer(cast.ed, ada["id"], offers, "unsubscribed")
    assert await outcome(cast, process, ada["id"], news) == NO_CONSENT
    assert await outcome(cast, process, ada["id"], {**HELLO, "category": "marketing"}) == SENT
    assert await outcome(cast, process, ada["id"], HELLO) == SENT  # transactional asks nobody


async def test_who_left_the_channel_gets_no_topic_on_it(cast: Cast, process: Process) -> None:
    ada, offers = await cast.ed.made("/contacts", {"email": ADA}), await topic(cast.ed)
    await answer(cast.ed, ada["id"], offers)
    await cast.ed.patch(f"/contacts/{ada['id']}", {"subscriptions": {"email": "unsubscribed"}})
    outcomes = await outcome(cast, process, ada["id"], about(offers))
    assert outcomes == ("SUPPRESSED", "suppressed_unsubscribed")


async def test_the_default_topic_is_the_subscription_to_the_channel(
    cast: Cast, process: Process
) -> None:
    ada = await cast.ed.made("/contacts", {"email": ADA})
    default = await topic(cast.ed, isDefault=True)
    assert await outcome(cast, process, ada["id"], about(default)) == SENT
    shown = await answer(cast.ed, ada["id"], default, "unsubscribed", evidence="by phone")
    assert (shown["subscriptions"]["email"], shown["topics"]) == ("unsubscribed", {})
    [event] = (await cast.vic.read(f"/contacts/{ada['id']}/activity?limit=1"))["data"]
    assert (event["consent"]["source"], event["consent"]["evidence"]) == ("footer form", "by phone")
    outcomes = await outcome(cast, process, ada["id"], about(default))
    assert outcomes == ("SUPPRESSED", "suppressed_unsubscribed")
    assert (await answer(cast.ed, ada["id"], default))["subscriptions"]["email"] == "subscribed"


async def test_a_template_names_the_topic_of_its_messages(cast: Cast, process: Process) -> None:
    ada, offers = await cast.ed.made("/contacts", {"email": ADA}), await topic(cast.ed)
    template = {"name": "T", "channel": "email", "category": "marketing", "content": HELLO}
    made = await cast.ed.made("/templates", {**template, "topicId": offers})
    assert made["topicId"] == offers
    wanted = {"channel": "email", "contactId": ada["id"], "templateId": made["id"]}
    sent = await cast.ed.made("/messages", wanted)
    await settle(process)
    shown = await cast.vic.read(f"/messages/{sent['messageId']}")
    assert shown["reason"]["code"] == "suppressed_no_consent"
    assert "agreed" in shown["reason"]["detail"]
    changed = await cast.ed.patch(f"/templates/{made['id']}", {"topicId": None})
    assert changed.json()["topicId"] is None


async def test_only_marketing_on_its_channels_has_a_topic(cast: Cast) -> None:
    offers = await topic(cast.ed, channels=["sms"])
    template = {"name": "T", "channel": "email", "content": HELLO, "topicId": offers}
    for given in (template, {**template, "category": "marketing"}):
        refused = await cast.ed.post("/templates", given)
        assert refused.status_code == 422
        assert [one["pointer"] for one in refused.json()["errors"]] == ["/topicId"]
    for content in ({**HELLO, "topicId": offers}, about(offers), about("top_none")):
        refused = await cast.ed.post(
            "/messages", {"channel": "email", "to": ADA, "content": content}
        )
        assert refused.status_code == 422
        assert "/content/topicId" in [one["pointer"] for one in refused.json()["errors"]]


async def test_a_definition_that_names_no_topic_of_ours_is_not_activated(cast: Cast) -> None:
    step = {"type": "send_message", "channel": "email", "content": about("top_none")}
    trigger = {"source": "manual"}
    draft = {"name": "W", "state": "ACTIVE", "trigger": trigger, "steps": [step]}
    refused = await cast.ed.post("/workflows", draft)
    assert errors(refused) == ["topic_unknown"]
    texts = await topic(cast.ed, channels=["sms"])
    step["content"] = about(texts)
    refused = await cast.ed.post("/workflows", draft)
    assert errors(refused) == ["topic_channel"]
    mails = await topic(cast.ed, channels=["email"])
    step["content"] = about(mails)
    assert (await cast.ed.post("/workflows", draft)).status_code == 201


def errors(refused: httpx2.Response) -> list[str]:
    found = refused.json()["findings"]
    return [one["code"] for one in found if one["severity"] == "error"]


@pytest.mark.parametrize("state", ["DRAFT", "ACTIVE"])
async def test_content_on_a_channel_that_its_topic_is_not_on_is_not_saved(
    cast: Cast, state: str
) -> None:
    mails = await topic(cast.ed, channels=["email"])
    content = {"text": "News", "category": "marketing", "topicId": mails}
    send = {"type": "send_message", "channel": "sms", "content": content}
    asked = {"path": f"contact.topics.{mails}.sms", "op": "eq", "value": "subscribed"}
    steps = [{"type": "branch", "cases": [{"when": asked, "steps": [send]}]}]
    draft = {"name": "W", "trigger": {"source": "manual"}, "state": state}
    at = "/steps/0/cases/0"
    pointers = [f"{at}/when/path", f"{at}/steps/0/content/topicId"]
    sends = {"id": "send", "type": "send_message", "data": {"channel": "sms", "content": content}}
    drawn = {
        "nodes": [{"id": "start", "type": "trigger"}, sends],
        "edges": [{"id": "e", "source": "start", "target": "send"}],
    }
    for path, body, wrong in (
        ("/workflows", {"steps": steps}, pointers),
        ("/automations", {"graph": drawn}, ["/graph/nodes/1/data/content/topicId"]),
    ):
        refused = await cast.ed.post(path, {**draft, **body})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        found = [one for one in refused.json()["errors"] if one["pointer"] in wrong]
        assert {one["message"] for one in found} == {"It is on email."}
        assert len(found) == len(wrong)
        made = await cast.ed.made(path, {"name": "W", "trigger": {"source": "manual"}})
        changed = await cast.ed.patch(f"{path}/{made['id']}", body)
        assert changed.status_code == 422
        assert await cast.vic.read(f"{path}/{made['id']}") == made


async def test_a_condition_about_a_topic_that_is_not_there_is_not_activated(cast: Cast) -> None:
    asked = {"path": "contact.topics.top_none.email", "op": "exists"}
    steps = [{"type": "branch", "cases": [{"when": asked, "steps": []}]}]
    draft = {"name": "W", "state": "ACTIVE", "trigger": {"source": "manual"}, "steps": steps}
    refused = await cast.ed.post("/workflows", draft)
    assert errors(refused) == ["topic_unknown"]
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/steps/0/cases/0/when/path"]


async def test_a_definition_uses_the_topics_of_its_content_and_its_conditions(cast: Cast) -> None:
    """None is deleted, nor loses a channel that it is used on."""
    offers = await topic(cast.ed, channels=["email", "sms", "whatsapp"])
    asked = {"path": f"contact.topics.{offers}.sms", "op": "exists"}
    send = {"type": "send_message", "channel": "email", "content": about(offers)}
    used = [
        (await cast.ed.made("/workflows", {"name": "W", "steps": [step]}))["id"]
        for step in ({"type": "branch", "cases": [{"when": asked, "steps": []}]}, send)
    ]
    gone = await cast.ed.delete(f"/topics/{offers}")
    assert (gone.status_code, gone.json()["usedBy"]) == (409, used)
    for channels, users in ((["email", "whatsapp"], used[:1]), (["sms", "whatsapp"], used[1:])):
        refused = await cast.ed.patch(f"/topics/{offers}", {"channels": channels})
        assert (refused.status_code, refused.json()["usedBy"]) == (409, users)
    kept = await cast.ed.patch(f"/topics/{offers}", {"channels": ["email", "sms"]})
    assert kept.status_code == 200, kept.text


async def test_all_definitions_that_use_a_topic_are_named_however_many_they_are(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "READ_AT_ONCE", 2)
    offers = await topic(cast.ed, channels=["email", "sms"])
    step = {"type": "send_message", "channel": "email", "content": about(offers)}
    used = []
    for _ in range(4):
        used.append((await cast.ed.made("/workflows", {"name": "W", "steps": [step]}))["id"])
        refused = await cast.ed.patch(f"/topics/{offers}", {"channels": ["sms"]})
        assert (refused.status_code, refused.json()["usedBy"]) == (409, used)


async def test_a_channel_that_is_in_use_is_not_taken_from_a_topic(cast: Cast) -> None:
    offers = await topic(cast.ed, channels=["email", "sms", "whatsapp"])
    new = {"name": "T", "channel": "email", "category": "marketing", "content": HELLO}
    about_it = await cast.ed.made("/templates", {**new, "topicId": offers})
    plain = await cast.ed.made("/templates", new)
    where = {"path": f"contact.topics.{offers}.sms", "op": "eq", "value": "subscribed"}
    segment = await cast.ed.made("/segments", {"name": "S", "filter": where})
    sent = {"name": "B", "tag": "vip", "templateId": plain["id"], "topicId": offers}
    broadcast = await cast.ed.made("/broadcasts", sent)
    path = f"/topics/{offers}"
    refused = await cast.ed.patch(path, {"channels": ["whatsapp"]})
    users = [about_it["id"], segment["id"], broadcast["id"]]
    assert (refused.status_code, refused.json()["usedBy"]) == (409, users)
    refused = await cast.ed.patch(path, {"channels": ["sms"]})
    assert refused.json()["usedBy"] == [about_it["id"], broadcast["id"]]
    assert (await cast.vic.read(path))["channels"] == ["email", "sms", "whatsapp"]
    kept = await cast.ed.patch(path, {"channels": ["sms", "email"]})
    assert (kept.status_code, kept.json()["channels"]) == (200, ["sms", "email"])


@pytest.mark.parametrize(
    "path",
    ['contact["topics"]["{}"].email', "contact.topics.{}.email", '["contact"].topics.{}["email"]'],
)
async def test_a_topic_is_in_use_however_its_path_is_written(cast: Cast, path: str) -> None:
    offers = await topic(cast.ed, channels=["email", "sms"])
    where = {"path": path.replace("{}", offers), "op": "eq", "value": "subscribed"}
    segment = await cast.ed.made("/segments", {"name": "S", "filter": where})
    new = {"name": "T", "channel": "email", "category": "marketing", "content": HELLO}
    template = await cast.ed.made("/templates", new)
    sent = {"name": "B", "filter": where, "templateId": template["id"]}
    broadcast = await cast.ed.made("/broadcasts", sent)
    for refused in (
        await cast.ed.delete(f"/topics/{offers}"),
        await cast.ed.patch(f"/topics/{offers}", {"channels": ["sms"]}),
    ):
        users = [segment["id"], broadcast["id"]]
        assert (refused.status_code, refused.json().get("usedBy")) == (409, users)
    kept = await cast.ed.patch(f"/topics/{offers}", {"channels": ["email"]})
    assert kept.status_code == 200, kept.text


async def test_a_run_goes_on_when_nobody_agreed(cast: Cast, process: Process) -> None:
    offers = await topic(cast.ed)
    step = {"id": "news", "type": "send_message", "channel": "email", "content": about(offers)}
    token = await hook(process, cast.ed.workspace_id, steps=[step])
    receipt = (await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": ADA})).json()
    await settle(process)
    run = await cast.vic.read(f"/runs/{receipt['runId']}")
    assert run["status"] == "COMPLETED"
    assert run["steps"][0]["reason"]["code"] == "suppressed_no_consent"
    explained = await cast.vic.read(f"/contacts/{receipt['contactId']}/explain")
    assert "suppressed_no_consent" in [one["reason"] for one in explained["data"]]


async def test_a_topic_in_use_is_not_deleted(cast: Cast) -> None:
    offers, other = await topic(cast.ed), await topic(cast.ed)
    ada = await cast.ed.made("/contacts", {"email": ADA})
    await answer(cast.ed, ada["id"], offers)
    await answer(cast.ed, ada["id"], other)
    template = {"name": "T", "channel": "email", "category": "marketing", "content": HELLO}
    made = await cast.ed.made("/templates", {**template, "topicId": offers})
    step = {"type": "send_message", "channel": "email", "content": about(offers)}
    workflow = await cast.ed.made(
        "/workflows", {"name": "W", "trigger": {"source": "manual"}, "steps": [step]}
    )
    where = {"path": f"contact.topics.{offers}.email", "op": "eq", "value": "subscribed"}
    segment = await cast.ed.made("/segments", {"name": "S", "filter": where})
    refused = await cast.ed.delete(f"/topics/{offers}")
    users = [made["id"], workflow["id"], segment["id"]]
    assert (refused.status_code, refused.json()["usedBy"]) == (409, users)
    for path in (f"/templates/{made['id']}", f"/segments/{segment['id']}"):
        assert (await cast.ed.delete(path)).status_code == 204
    await cast.ed.patch(f"/workflows/{workflow['id']}", {"steps": []})
    assert (await cast.ed.delete(f"/topics/{offers}")).status_code == 204
    shown = await cast.vic.read(f"/contacts/{ada['id']}")
    assert shown["topics"] == {other: {"email": "subscribed"}}


@pytest.mark.parametrize("change", [None, {"channels": ["sms"]}])
async def test_a_topic_that_a_segment_is_being_saved_with_is_in_use(
    cast: Cast, process: Process, change: dict[str, Any] | None
) -> None:
    offers, id = await topic(cast.ed), new_id("seg")
    where = {"path": f"contact.topics.{offers}.email", "op": "eq", "value": "subscribed"}
    async with process.database.write() as db:
        await segments.lock(db, workspace_id=cast.ed.workspace_id)
        await segments.insert(
            db,
            workspace_id=cast.ed.workspace_id,
            id=id,
            name="S",
            kind="live",
            filter=json.dumps(where),
            starts=False,
            fill_to="",
        )
        method = "DELETE" if change is None else "PATCH"
        asking = asyncio.create_task(cast.ed.call(method, f"/topics/{offers}", json=change))
        await lock_waiters(process, 1)
    refused = await asking
    assert (refused.status_code, refused.json()["usedBy"]) == (409, [id])


async def test_a_topic_that_many_have_answered_about_is_forgotten_by_a_worker(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "WALK", 2)
    offers, other = await topic(cast.ed), await topic(cast.ed)
    paths = []
    for number in range(5):
        made = await cast.ed.made("/contacts", {"email": f"p{number}@x.test"})
        paths.append(f"/contacts/{made['id']}")
        for id in (offers, other):
            await answer(cast.ed, made["id"], id)

    async def left() -> int:
        shown = [(await cast.vic.read(path))["topics"] for path in paths]
        assert all(other in one for one in shown)
        return sum(offers in one for one in shown)

    path = f"/topics/{offers}"
    assert not await topics.forget_batch(process)
    assert (await cast.ed.delete(path)).status_code == 204
    for again in (await cast.vic.get(path), await cast.ed.delete(path)):
        assert again.status_code == 404
    assert [one["id"] for one in (await cast.vic.read("/topics"))["data"]] == [other]
    seen = [await left()]
    while await topics.forget_batch(process):
        seen.append(await left())
    assert seen == [3, 1, 0]
    async with process.database.read() as db:
        assert await db.fetch_values("SELECT id FROM topics") == [other]


async def test_a_deleted_topic_whose_answers_cannot_be_forgotten_hides_no_other(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "WALK", 1)  # a request forgets what one contact has answered
    first, second = sorted([await topic(cast.ed), await topic(cast.ed)])
    await cast.ed.made("/contacts", {"email": ADA})
    for id in (first, second):
        assert (await cast.ed.delete(f"/topics/{id}")).status_code == 204
    forget = stored_topics.forget_some

    async def forgotten(db: Handle, *, workspace_id: str, id: str, walk: int) -> bool:
        if id == first:
            raise RuntimeError("a fault of ours")
        return await forget(db, workspace_id=workspace_id, id=id, walk=walk)

    monkeypatch.setattr(stored_topics, "forget_some", forgotten)
    monkeypatch.setattr(topics, "TRIED_AT_ONCE", 1)
    assert [await topics.forget_batch(process) for _ in range(3)] == [False, True, False]
    async with process.database.read() as db:
        assert [one.id for one in await stored_topics.deleted(db, limit=9)] == [first]


async def test_an_answer_is_recorded_once_with_its_source(cast: Cast) -> None:
    offers, ada = await topic(cast.ed), await cast.ed.made("/contacts", {"email": ADA})
    shown = await answer(cast.ed, ada["id"], offers, evidence="https://example.com/form")
    assert await answer(cast.ed, ada["id"], offers, source="again") == shown
    activity = (await cast.vic.read(f"/contacts/{ada['id']}/activity"))["data"]
    [consent] = [one["consent"] for one in activity]
    assert consent == {
        "id": consent["id"],
        "createdAt": consent["createdAt"],
        "reason": None,
        "channel": "email",
        "topicId": offers,
        "change": "opted_in",
        "source": "footer form",
        "evidence": "https://example.com/form",
        "inFlight": None,
    }


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"state": "pending"}, 422),
        ({"channel": "whatsapp"}, 422),
        ({"source": ""}, 422),
        ({"source": None}, 422),
    ],
)
async def test_what_is_no_answer_is_refused(cast: Cast, wrong: Any, status: int) -> None:
    offers, ada = await topic(cast.ed), await cast.ed.made("/contacts", {"email": ADA})
    body = {"channel": "email", "state": "subscribed", "source": "form", **wrong}
    response = await cast.ed.call("PUT", f"/contacts/{ada['id']}/topics/{offers}", json=body)
    assert response.status_code == status
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["topics"] == {}


@pytest.mark.parametrize("content", [b"CEZ?", b"[]", b"1"])
async def test_a_body_that_is_no_answer_at_all_is_refused(cast: Cast, content: bytes) -> None:
    ada = await cast.ed.made("/contacts", {"email": ADA})
    url, headers = f"/contacts/{ada['id']}/topics/top_1", {"Content-Type": "application/json"}
    response = await cast.ed.call("PUT", url, content=content, headers=headers)
    assert response.status_code in (400, 422), response.text


async def test_an_upsert_records_answers_if_it_says_where_they_come_from(cast: Cast) -> None:
    offers = await topic(cast.ed)
    yes = {"topics": {offers: {"email": "subscribed", "sms": "unsubscribed"}}}
    refused = await identify(cast.ed, {"email": ADA}, 422, **yes)
    assert [one["pointer"] for one in refused["errors"]] == ["/consent"]
    consent = {"source": "checkout", "evidence": "box ticked"}
    made = await identify(cast.ed, {"email": ADA}, 201, **yes, consent=consent)
    assert made["topics"] == yes["topics"]
    again = await identify(cast.ed, {"email": ADA}, 200, **yes, consent=consent)
    assert again["topics"] == yes["topics"]
    left = {"topics": {offers: {"email": "unsubscribed"}}, "consent": consent}
    changed = await identify(cast.ed, {"email": ADA}, 200, firstName="Ada", **left)
    assert changed["firstName"] == "Ada"
    assert changed["topics"] == {offers: {"email": "unsubscribed", "sms": "unsubscribed"}}
    wrong = {"topics": {"top_none": {"email": "subscribed"}}, "consent": consent}
    refused = await identify(cast.ed, {"email": ADA}, 422, **wrong)
    assert [one["pointer"] for one in refused["errors"]] == ["/topics/top_none"]


async def test_a_file_brings_answers_with_their_source_and_takes_back_no_opt_out(
    cast: Cast,
) -> None:
    offers = await topic(cast.ed)
    ada = await cast.ed.made("/contacts", {"email": ADA})
    await answer(cast.ed, ada["id"], offers, "unsubscribed")
    sheet = f"email,Newsletter\n{ADA},subscribed\nbob@example.com,subscribed\n".encode()
    query = f"?columns[Newsletter]=topics.{offers}.email"
    [error, counts] = await imported(cast.ed, sheet, query=query)
    assert (error["row"], error["pointer"]) == (3, "/topics")  # Ada's changes nothing
    assert counts == totals(unchanged=1, failed=1)
    sourced = f"{query}&consentSource=old%20shop&consentEvidence=signup%20form"
    dry = await imported(cast.ed, sheet, query=f"{sourced}&dryRun=true")
    assert dry == [totals(created=1, unchanged=1, dryRun=True)]
    assert await imported(cast.ed, sheet, query=sourced) == [totals(created=1, unchanged=1)]
    assert await imported(cast.ed, sheet, query=sourced) == [totals(unchanged=2)]
    [bob, shown] = (await cast.vic.read("/contacts"))["data"]
    assert shown["topics"] == {offers: {"email": "unsubscribed"}}
    assert bob["topics"] == {offers: {"email": "subscribed"}}
    [event] = (await cast.vic.read(f"/contacts/{bob['id']}/activity"))["data"]
    assert (event["consent"]["source"], event["consent"]["evidence"]) == ("old shop", "signup form")
    bad = f"email,topics.top_none.email,topics.{offers}.sms\nx@example.com,subscribed,maybe\n"
    [first, second, _] = await imported(cast.ed, bad.encode(), query="?consentSource=x")
    assert {first["pointer"], second["pointer"]} == {"/topics/top_none", f"/topics/{offers}/sms"}


async def test_a_contact_with_a_long_history_comes_back(cast: Cast) -> None:
    """Longer than a row of a sheet may be."""
    ada, offers = await cast.ed.made("/contacts", {"email": ADA}), await topic(cast.ed)
    for number in range(50):
        state = ("subscribed", "unsubscribed")[number % 2]
        await answer(cast.ed, ada["id"], offers, state, evidence="€" * 2_000)
    file = (await cast.vic.get("/contacts/export?format=ndjson")).content
    assert len(file) > sheets.ROW_BYTES
    assert await imported(cast.ed, file, LINES) == [totals(unchanged=1)]


async def test_a_file_brings_no_yes_to_who_left_the_channel(cast: Cast) -> None:
    offers, left = await topic(cast.ed), {"subscriptions": {"email": "unsubscribed"}}
    gone = await cast.ed.made("/contacts", {"email": "gone@example.com", **left})
    await cast.ed.delete(f"/contacts/{gone['id']}")  # and may be written to again, by an admin
    for held in (await cast.adam.read("/suppressions"))["data"]:
        if held["reason"] == "erased":
            await cast.adam.delete(f"/suppressions/{held['id']}")
    await cast.ed.made("/contacts", {"email": ADA, **left})
    people = ("gone@example.com", ADA, "bob@example.com")
    yes = {"topics": {offers: {"email": "subscribed"}}}
    rows = [{"email": one, **yes} for one in people] + [{"email": "eve@example.com", **left, **yes}]
    lines = "\n".join(map(json.dumps, rows)).encode()
    for dry in ("&dryRun=true", ""):
        query = f"?consentSource=sheet{dry}"
        [counts] = await imported(cast.ed, lines, LINES, query)
        assert counts == totals(created=3, unchanged=1, dryRun=bool(dry))
    shown = (await cast.vic.read("/contacts"))["data"]
    answers = {one["email"].partition("@")[0]: one["topics"] for one in shown}
    assert answers == {"gone": {}, "ada": {}, "eve": {}, "bob": {offers: {"email": "subscribed"}}}


async def test_a_bounce_or_a_move_hides_from_no_file_who_left_the_channel(
    cast: Cast, process: Process
) -> None:
    offers, left = await topic(cast.ed), {"subscriptions": {"email": "unsubscribed"}}
    for name in ("gone", "former"):
        gone = await cast.ed.made("/contacts", {"email": f"{name}@example.com", **left})
        await cast.ed.delete(f"/contacts/{gone['id']}")  # and may be written to again
    for held in (await cast.adam.read("/suppressions"))["data"]:
        if held["reason"] == "erased":
            await cast.adam.delete(f"/suppressions/{held['id']}")
    await cast.ed.made("/contacts", {"email": ADA, **left})
    await cast.ed.made("/contacts", {"phone": "+14155550133"})
    await cast.ed.made("/contacts", {"phone": "+14155550134", "email": "kim@example.com", **left})
    for address in (ADA, "gone@example.com"):
        await suppress(process, cast.ed.workspace_id, "bounced", address)
    yes = {"topics": {offers: {"email": "subscribed"}}}
    bounced = {"subscriptions": {"email": "bounced"}}
    rows = [
        {"email": ADA, **yes},
        {"email": "gone@example.com", **yes},
        {"phone": "+14155550133", "email": "former@example.com", **yes},
        {"phone": "+14155550134", "email": "new@example.com", **bounced, **yes},
    ]
    lines = "\n".join(map(json.dumps, rows)).encode()
    for dry in ("&dryRun=true", ""):
        [counts] = await imported(cast.ed, lines, LINES, f"?consentSource=sheet{dry}")
        assert counts == totals(created=1, updated=2, unchanged=1, dryRun=bool(dry))
    shown = (await cast.vic.read("/contacts"))["data"]
    assert {one["email"].partition("@")[0]: one["topics"] for one in shown} == {
        name: {} for name in ("ada", "gone", "former", "new")
    }


async def test_what_is_exported_says_who_agreed_to_what_and_comes_back_unchanged(
    cast: Cast,
) -> None:
    offers = await topic(cast.ed)
    ada = await cast.ed.made("/contacts", {"email": ADA})
    await answer(cast.ed, ada["id"], offers, evidence="form 7")
    sheet = await cast.vic.get("/contacts/export")
    header, row = sheet.text.splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))[f"topics.{offers}.email"] == (
        "subscribed"
    )
    lines = await cast.vic.get("/contacts/export?format=ndjson")
    [line] = map(json.loads, lines.text.splitlines())
    assert line["topics"] == {offers: {"email": "subscribed"}}
    [consent] = line["consents"]
    assert (consent["topicId"], consent["evidence"]) == (offers, "form 7")
    assert await imported(cast.ed, sheet.content) == [totals(unchanged=1)]
    assert await imported(cast.ed, lines.content, LINES) == [totals(unchanged=1)]


async def test_the_history_goes_with_the_contact(cast: Cast, process: Process) -> None:
    offers, ada = await topic(cast.ed), await cast.ed.made("/contacts", {"email": ADA})
    await answer(cast.ed, ada["id"], offers, evidence="Ada Lovelace, by phone")
    assert (await cast.ed.delete(f"/contacts/{ada['id']}")).status_code == 204
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM consent_events") == 0


async def test_a_segment_finds_who_agreed(cast: Cast) -> None:
    offers = await topic(cast.ed)
    ada = await cast.ed.made("/contacts", {"email": ADA})
    await cast.ed.made("/contacts", {"email": "bob@example.com"})
    await answer(cast.ed, ada["id"], offers)
    where = {"path": f"contact.topics.{offers}.email", "op": "eq", "value": "subscribed"}
    found = (await cast.vic.post("/segments/preview", {"filter": where})).json()
    assert (found["count"], found["sample"][0]["id"]) == (1, ada["id"])
    assert found["prose"] == f"email answer to {offers} is “subscribed”"
    default = await topic(cast.ed, isDefault=True)
    for id in ("top_none", default):
        asked = {"filter": {**where, "path": f"contact.topics.{id}.email"}}
        refused = await cast.vic.post("/segments/preview", asked)
        assert [one["pointer"] for one in refused.json()["errors"]] == ["/filter/path"]


async def test_a_condition_reads_the_answers(cast: Cast, process: Process) -> None:
    offers, ada = await topic(cast.ed), await cast.ed.made("/contacts", {"email": ADA})
    await answer(cast.ed, ada["id"], offers)
    agreed = {"path": f"contact.topics.{offers}.email", "op": "eq", "value": "subscribed"}
    steps = [{"type": "branch", "cases": [{"when": agreed, "steps": [tag("keen")]}]}]
    trigger = {"source": "manual"}
    made = await cast.ed.made(
        "/workflows", {"name": "W", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    )
    await cast.ed.made(f"/workflows/{made['id']}/runs", {"contactId": ada["id"]})
    await settle(process)
    assert (await cast.vic.read(f"/contacts/{ada['id']}"))["tags"] == ["keen"]
    given = {"email": ADA, "topics": {offers: {"email": "subscribed"}}}
    asked = {"contact": given, "startAt": "2026-01-31T09:30:00Z"}
    trace = (await cast.vic.post(f"/workflows/{made['id']}/simulate", asked)).json()
    assert trace["contact"]["tags"] == ["keen"]


def tag(name: str) -> dict[str, Any]:
    return {"type": "add_tag", "tag": name}
