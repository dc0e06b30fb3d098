"""PUT /contacts: a contact found by what is known of it is changed, a missing one created."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from app.config.plans import PLANS
from app.process import Process
from tests.cast import Cast, Person, settle

ADA = {"email": "ada@example.com"}


async def identify(person: Person, match: Any, /, status: int = 200, **fields: Any) -> Any:
    response = await person.call("PUT", "/contacts", json={"match": match, **fields})
    assert response.status_code == status, response.text
    return response.json()


async def number_of(process: Process, table: str) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value(f"SELECT count(*) FROM {table}"))


async def test_a_contact_is_created_once_and_changed_afterwards(cast: Cast) -> None:
    made = await identify(cast.ed, ADA, 201, firstName="Ada", tags=["lead"], metadata={"a": 1})
    assert (made["email"], made["tags"], made["metadata"]) == (ADA["email"], ["lead"], {"a": 1})
    changed = await identify(
        cast.ed, {"email": "ADA@example.com"}, lastName="Lovelace", metadata={"a": None, "b": 2}
    )
    assert changed["id"] == made["id"]
    assert (changed["firstName"], changed["lastName"]) == ("Ada", "Lovelace")
    assert (changed["tags"], changed["metadata"]) == (["lead"], {"b": 2})
    assert (await identify(cast.ed, ADA, tags=["vip"]))["tags"] == ["vip"]
    assert (await identify(cast.ed, {"contactId": made["id"]}, locale="de"))["locale"] == "de"


@pytest.mark.parametrize(
    "match", [ADA, {"phone": "+4915112345678"}, {"metadata": {"customerId": 981230455}}]
)
async def test_what_a_contact_is_matched_by_it_is_created_with(cast: Cast, match: Any) -> None:
    made = await identify(cast.ed, match, 201)
    assert {**made, **match} == made
    assert (await identify(cast.ed, match, firstName="Ada"))["id"] == made["id"]
    [listed] = (await cast.vic.read("/contacts"))["data"]
    assert listed["id"] == made["id"]


async def test_two_who_create_the_same_contact_at_once_make_one(
    cast: Cast, process: Process
) -> None:
    for match in (ADA, {"phone": "+4915112345678"}, {"metadata": {"customerId": "c1"}}):
        before = await number_of(process, "contacts")
        bodies = [{"match": match, "firstName": name} for name in ("Ada", "Bea", "Cleo", "Dora")]
        answers = await asyncio.gather(
            *(cast.ed.call("PUT", "/contacts", json=body) for body in bodies)
        )
        assert sorted(one.status_code for one in answers) == [200, 200, 200, 201]
        assert len({one.json()["id"] for one in answers}) == 1
        assert await number_of(process, "contacts") == before + 1


async def test_the_same_again_changes_nothing_and_notes_nothing(
    cast: Cast, process: Process
) -> None:
    made = await identify(cast.ed, ADA, 201, firstName="Ada", tags=["lead"])
    noted, sent = await number_of(process, "audit_logs"), await number_of(process, "events")
    again = await identify(cast.ed, ADA, firstName="Ada", tags=["lead"])
    assert again == made
    assert await number_of(process, "audit_logs") == noted
    assert await number_of(process, "events") == sent
    await identify(cast.ed, ADA, firstName="Bea")
    assert await number_of(process, "audit_logs") == noted + 1


async def test_of_several_with_the_value_none_is_changed(cast: Cast) -> None:
    for name in ("ada", "bob"):
        await cast.ed.made("/contacts", {"email": f"{name}@x.test", "metadata": {"crm": 7}})
    problem = await identify(cast.ed, {"metadata": {"crm": "7"}}, 409, firstName="Ada")
    assert problem["code"] == "conflict"
    assert "metadata field crm" in problem["detail"]
    shown = (await cast.vic.read("/contacts"))["data"]
    assert [one["firstName"] for one in shown] == [None, None]


async def test_an_id_that_is_nobody_s_creates_nobody(cast: Cast, process: Process) -> None:
    problem = await identify(cast.ed, {"contactId": "con_0"}, 404, email="x@x.test")
    assert problem["code"] == "contact_not_found"
    assert await number_of(process, "contacts") == 0


async def test_what_is_wrong_is_named_and_changes_nothing(cast: Cast, process: Process) -> None:
    other = await cast.ed.made("/contacts", {"phone": "+4915112345678"})
    before = await number_of(process, "contacts"), await number_of(process, "audit_logs")
    for body, pointer in (
        ({}, "/match"),
        ({"match": {}}, "/match"),
        ({"match": {**ADA, "contactId": "con_0"}}, "/match"),
        ({"match": {"name": "Ada"}}, "/match/name"),
        ({"match": {"email": "ada"}}, "/match/email"),
        ({"match": {"phone": "12"}}, "/match/phone"),
        ({"match": {"metadata": {"a": 1, "b": 2}}}, "/match/metadata"),
        ({"match": {"metadata": {"a": True}}}, "/match/metadata/a"),
        ({"match": ADA, "firstName": "a\nb"}, "/firstName"),
        ({"match": ADA, "frist": "a"}, "/frist"),
        ({"match": ADA, "email": "bea@example.com"}, "/match/email"),
        ({"match": {"metadata": {"a": 1}}, "metadata": {"a": 2}}, "/match/metadata"),
        ({"match": ADA, "subscriptions": {"email": "bounced"}}, "/subscriptions/email"),
    ):
        response = await cast.ed.call("PUT", "/contacts", json=body)
        assert response.status_code == 422, (body, response.text)
        assert pointer in [error["pointer"] for error in response.json()["errors"]], response.text
    taken = await identify(cast.ed, ADA, 409, phone="+4915112345678")
    assert taken["existingId"] == other["id"]
    assert (await number_of(process, "contacts"), await number_of(process, "audit_logs")) == before


async def test_who_is_known_by_an_address_is_named_to_who_asks_by_an_id_of_theirs(
    cast: Cast,
) -> None:
    ada = await cast.ed.made("/contacts", {**ADA, "phone": "+4915112345678"})
    own: dict[str, Any] = {"metadata": {"customerId": 981230455}}
    takings: list[tuple[dict[str, Any], list[str]]] = [
        (ADA, ["email"]),
        ({"phone": "+4915112345678"}, ["phone"]),
        ({**ADA, "phone": "+4915112345678"}, ["email", "phone"]),
    ]
    for taken, kinds in takings:
        refused = await identify(cast.ed, own, 409, **taken)
        assert (refused["code"], refused["existingId"]) == ("conflict", ada["id"])
        named = f"{ada['id']} has this {' and '.join(kinds)}"
        assert refused["detail"] == (
            f"Contact {named}; change that one instead. To have it found by customerId too, match"
            " it once by its contactId, email or phone, and give customerId in metadata."
        )
    assert (await identify(cast.ed, {"contactId": ada["id"]}, **own))["id"] == ada["id"]
    body: dict[str, Any] = {**ADA, "firstName": "Ada"}
    assert (await identify(cast.ed, own, **body))["id"] == ada["id"]


async def test_headers_say_whether_it_may_create_or_change(cast: Cast) -> None:
    def put(**headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cast.ed.call("PUT", "/contacts", json={"match": ADA, "locale": "de"}, headers=named)

    assert (await put(If_Match='"1"')).status_code == 412
    made = await put(If_None_Match="*")
    assert (made.status_code, made.headers["location"]) == (201, f"/contacts/{made.json()['id']}")
    assert (await put(If_None_Match="*")).status_code == 412
    assert (await put(If_Match='"7"')).status_code == 412
    assert (await put(If_Match=made.headers["etag"])).status_code == 200


async def test_the_plan_s_contacts_are_the_limit_of_new_ones_alone(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = PLANS["growth"]
    monkeypatch.setitem(PLANS, "growth", replace(plan, contacts=1))
    await identify(cast.ed, ADA, 201)
    full = await identify(cast.ed, {"email": "bob@x.test"}, 403)
    assert full["code"] == "quota_exceeded"
    assert (await identify(cast.ed, ADA, firstName="Ada"))["firstName"] == "Ada"
    assert await number_of(process, "contacts") == 1


async def test_who_left_is_not_subscribed_again_by_being_created(cast: Cast) -> None:
    address = {"channel": "email", "address": ADA["email"]}
    suppressed = await cast.adam.post("/suppressions", address)
    assert suppressed.status_code == 201, suppressed.text
    made = await identify(cast.ed, ADA, 201)
    assert made["suppressions"], made


async def test_a_contact_of_another_workspace_is_neither_found_nor_changed(cast: Cast) -> None:
    ours = await identify(cast.ed, ADA, 201, metadata={"crm": 7})
    theirs = await identify(cast.mallory, ADA, 201, firstName="Mallory's")
    assert theirs["id"] != ours["id"]
    await identify(cast.mallory, {"contactId": ours["id"]}, 404, firstName="X")
    await identify(cast.mallory, {"metadata": {"crm": 7}}, 201)
    assert (await cast.vic.read(f"/contacts/{ours['id']}"))["firstName"] is None


async def test_a_new_one_starts_what_new_ones_start_and_a_tag_what_tags_start(
    cast: Cast, process: Process
) -> None:
    stop = {"steps": [{"type": "exit", "reason": "done"}], "state": "ACTIVE"}
    await cast.ed.made(
        "/workflows", {"name": "N", "trigger": {"source": "contact_created"}, **stop}
    )
    tagged = {"source": "tag_added", "tag": "vip"}
    await cast.ed.made("/workflows", {"name": "T", "trigger": tagged, **stop})
    await identify(cast.ed, ADA, 201)
    assert await number_of(process, "runs") == 1
    await identify(cast.ed, ADA, tags=["vip"])
    await identify(cast.ed, ADA, tags=["vip"])
    assert await number_of(process, "runs") == 2


async def test_who_is_created_with_an_answer_starts_no_flow_of_those_without(
    cast: Cast, process: Process
) -> None:
    offers, deals = [
        (await cast.ed.made("/topics", {"name": name, "channels": ["email"], "doubleOptIn": asks}))
        for name, asks in (("Offers", False), ("Deals", True))
    ]
    flows = []
    for one in (offers, deals):
        unasked = {"not": {"path": f"contact.topics.{one['id']}.email", "op": "exists"}}
        body = {"name": f"Never asked about {one['name']}", "filter": unasked}
        id = (await cast.ed.made("/segments", body))["id"]
        await settle(process)
        stop = {"steps": [{"type": "exit", "reason": "done"}], "state": "ACTIVE"}
        trigger = {"source": "segment_entered", "segmentId": id}
        flows.append(await cast.ed.made("/workflows", {"name": "A", "trigger": trigger, **stop}))
    yes = {"topics": {one["id"]: {"email": "subscribed"} for one in (offers, deals)}}
    made = await identify(cast.ed, ADA, 201, **yes, consent={"source": "form", "evidence": "Yes."})
    assert made["topics"] == {
        offers["id"]: {"email": "subscribed"},
        deals["id"]: {"email": "pending"},
    }
    await settle(process)
    assert await number_of(process, "runs") == 0
    [letter] = (await cast.vic.read("/sandbox/messages"))["data"]
    assert "Deals" in letter["subject"]
    activity = (await cast.vic.read(f"/contacts/{made['id']}/activity"))["data"]
    answers = [one["consent"] for one in activity if one["type"] == "consent"]
    assert {(one["change"], one["source"], one["evidence"]) for one in answers} == {
        ("opted_in", "form", "Yes."),
        ("asked", "form", "Yes."),
    }
    await cast.ed.made("/contacts", {"email": "bob@x.test"})
    await settle(process)
    assert await number_of(process, "runs") == 2


async def test_who_is_changed_with_an_answer_starts_no_flow_of_those_without(
    cast: Cast, process: Process
) -> None:
    """Nor one of those who left it: she was never pro and not asked."""
    offers = (await cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]}))["id"]
    pro = {"path": "contact.metadata.plan", "op": "eq", "value": "pro"}
    unasked = {"not": {"path": f"contact.topics.{offers}.email", "op": "exists"}}
    body = {"name": "Pro, not asked", "filter": {"all": [pro, unasked]}}
    id = (await cast.ed.made("/segments", body))["id"]
    await settle(process)
    for source in ("segment_entered", "segment_left"):
        body = {"name": source, "trigger": {"source": source, "segmentId": id}, "state": "ACTIVE"}
        stop = {"steps": [{"type": "exit", "reason": "done"}]}
        await cast.ed.made("/workflows", {**body, **stop})
    ada = await identify(cast.ed, ADA, 201)
    yes: dict[str, Any] = {
        "topics": {offers: {"email": "subscribed"}},
        "consent": {"source": "form"},
    }
    shown = await identify(cast.ed, ADA, metadata={"plan": "pro"}, **yes)
    assert (shown["metadata"], shown["topics"]) == ({"plan": "pro"}, yes["topics"])
    await settle(process)
    assert await number_of(process, "runs") == 0
    again = await identify(cast.ed, ADA, metadata={"plan": "pro"}, **yes)
    assert again == shown
    changed = await identify(cast.ed, ADA, **{**yes, "topics": {offers: {"email": "unsubscribed"}}})
    activity = (await cast.vic.read(f"/contacts/{ada['id']}/activity"))["data"]
    answers = [one["consent"] for one in activity if one["type"] == "consent"]
    assert [(one["change"], one["source"]) for one in answers] == [
        ("opted_out", "form"),
        ("opted_in", "form"),
    ]
    assert changed["topics"] == {offers: {"email": "unsubscribed"}}
