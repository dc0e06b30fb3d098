"""Every code of an explanation comes of what the service itself did, with the record of it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from app.commands import after_restore
from app.machine.reasons import SENTENCES, Reason
from app.machine.triggers import SOURCES
from app.messages import circuit_breaker
from app.providers.base import SendError
from app.runs import explaining_occasions, explanations, runner
from app.runs.explaining import NOTHING_CAME
from app.runs.explaining_broadcasts import BARRED, WAITING
from app.runs.explanations import MEANINGS, Explanation
from app.store import explaining, workspaces
from app.store.usage import MESSAGES
from tests.billing.test_quotas import use_up
from tests.broadcasts.test_control import stepped
from tests.cast import HELLO, NEXT_MONTH, SEND_HELLO, settle
from tests.driving import set_clock
from tests.messages.test_delivery import refuses, with_provider
from tests.messages.test_refusals import DEAD, TAKEN, judged
from tests.routes.test_broadcasts import broadcast
from tests.routes.test_webhooks import SECRET
from tests.runs.scene import EMAIL, MANUAL, WAIT, Scene
from tests.runs.test_explaining_occasions import (
    HOUR,
    at,
    moved_amid_a_fill,
    passed_in_a_pause,
    passed_while_workers_were_down,
    set_aside,
    watched,
)
from tests.tables import each_row

Case: TypeAlias = Callable[[Scene], Awaitable[str]]  # the id of the evidence
CASES: dict[Explanation, Case] = {}


def case(code: Explanation) -> Callable[[Case], Case]:
    def register(produce: Case) -> Case:
        CASES[code] = produce
        return produce

    return register


@pytest.mark.parametrize("code", Explanation)
async def test_every_code_is_what_the_service_did_and_names_its_record(
    scene: Scene, code: Explanation
) -> None:
    id = await CASES[code](scene)
    entry = await scene.entry(code)
    assert (entry["evidence"]["type"], entry["evidence"]["id"]) == (MEANINGS[code].evidence, id)
    assert entry["sentence"].endswith((".", "…")), entry
    if MEANINGS[code].evidence == "webhook_request":
        shown = await scene.cast.vic.read(f"/webhook-requests/{id}")
        assert shown["code"] == entry["reason"]
    if MEANINGS[code].evidence == "message":
        message = await scene.cast.vic.read(f"/messages/{id}")
        assert (message["reason"] or {}).get("code") == entry["reason"]


# --- the definition -------------------------------------------------------------------------------


@case(Explanation.NOT_ACTIVE)
async def paused(scene: Scene) -> str:
    id = await scene.workflow()
    await scene.cast.ed.patch(f"/workflows/{id}", {"state": "PAUSED"})
    return id


@each_row("source", SOURCES)
async def test_a_draft_of_whose_trigger_nothing_is_said_is_explained(
    scene: Scene, source: str
) -> None:
    draft = {"name": "Draft", "trigger": {"source": source}}
    scene.definition = await scene.cast.ed.made("/workflows", draft)
    entry = await scene.entry(Explanation.NOT_ACTIVE)
    assert entry["evidence"]["id"] == scene.definition["id"]
    assert entry["sentence"] == "The flow is a draft, so it starts no runs."


@case(Explanation.NO_EVENT)
async def nothing_came(scene: Scene) -> str:
    return await scene.workflow(source="event", name="order_paid")


@case(Explanation.NOT_KNOWN_BEFORE)
async def old(scene: Scene) -> str:
    """A definition that is older than what is kept of its requests."""
    await scene.hook()
    assert scene.definition is not None
    async with scene.process.database.write() as db:
        long_ago = await db.now() - timedelta(days=8)
        await db.execute(
            "UPDATE definitions SET created_at = :at WHERE id = :id",
            at=long_ago,
            id=scene.definition["id"],
        )
    return str(scene.definition["id"])


# --- events and requests --------------------------------------------------------------------------


@case(Explanation.EVENT_STARTED_NOTHING)
async def too_late(scene: Scene) -> str:
    await scene.workflow(source="event", name="order_paid")
    event = {"name": "order_paid", "occurredAt": "2026-01-31T09:30:00Z", "match": {"email": EMAIL}}
    return str((await scene.cast.ed.made("/events", event))["id"])


@case(Explanation.REPEATED)
async def repeated(scene: Scene) -> str:
    token = await scene.hook()
    await scene.request(token, 202, Idempotency_Key="one")
    return await scene.request(token, 202, Idempotency_Key="one")


@case(Explanation.REFUSED_SIGNATURE)
async def unsigned(scene: Scene) -> str:
    return await scene.request(await scene.hook(signingSecret=SECRET), 401)


@case(Explanation.REFUSED_INACTIVE)
async def inactive(scene: Scene) -> str:
    token = await scene.hook()
    assert scene.definition is not None
    await scene.cast.ed.patch(f"/workflows/{scene.definition['id']}", {"state": "PAUSED"})
    return await scene.request(token, 404)


@case(Explanation.REFUSED_NO_CONTACT)
async def unknown_then(scene: Scene) -> str:
    """Refuse a contact that is looked up by a field of one's own, which Ada got later."""
    field = {"contactLookup": "contact_id", "contactPath": "shop", "metadataField": "shopId"}
    token = await scene.hook(**field, createContact=False)
    request_id = await scene.request(token, 404, {"shop": 981230455})
    patch = {"metadata": {"shopId": "981230455"}}
    assert (await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", patch)).status_code == 200
    return request_id


@case(Explanation.REFUSED_CHAIN)
async def too_deep(scene: Scene) -> str:
    return await scene.request(await scene.hook(), 422, Tidings_Depth="11")


@case(Explanation.REFUSED_REQUEST)
async def malformed(scene: Scene) -> str:
    return await scene.request(await scene.hook(), 400, Idempotency_Key="k" * 256)


@case(Explanation.REFUSED_UNREADABLE)
async def about_nobody(scene: Scene) -> str:
    return await scene.request(await scene.hook(), 422, {"mail": EMAIL})


# --- dates and schedules --------------------------------------------------------------------------


@case(Explanation.MISSED_INACTIVE)
async def while_inactive(scene: Scene) -> str:
    await passed_in_a_pause(scene, "date")
    assert scene.definition is not None
    return str(scene.definition["id"])


@case(Explanation.MISSED_FILLING)
async def before_the_segment_was_filled(scene: Scene) -> str:
    await moved_amid_a_fill(scene, "segment_entered")
    assert scene.definition is not None
    return str(scene.definition["id"])


@case(Explanation.MISSED_LATE)
async def later_than_its_grace(scene: Scene) -> str:
    await passed_while_workers_were_down(scene, "schedule")
    assert scene.definition is not None
    return str(scene.definition["id"])


@case(Explanation.MISSED_RESTORED)
async def before_a_restore(scene: Scene) -> str:
    when = await watched(scene, "schedule")
    set_clock(scene.process, when + HOUR)
    await after_restore.park(scene.process)
    await settle(scene.process)
    assert scene.definition is not None
    return str(scene.definition["id"])


@case(Explanation.GIVEN_UP)
async def whose_work_was_given_up(scene: Scene) -> str:
    await watched(scene, "date")
    await set_aside(scene, "watch")
    assert scene.definition is not None
    return str(scene.definition["id"])


@case(Explanation.STARTED_LATE)
async def late(scene: Scene) -> str:
    when = await watched(scene, "schedule")
    await at(scene, when + 3 * HOUR)
    [run] = (await scene.cast.vic.read("/runs"))["data"]
    return str(run["id"])


# --- runs -----------------------------------------------------------------------------------------


@case(Explanation.RUN_QUEUED)
async def queued(scene: Scene) -> str:
    return await scene.run(WAIT, settled=False)


@case(Explanation.RUN_MOVING)
async def moving(scene: Scene) -> str:
    """Stop after one transaction of a long walk."""
    tags = [
        {"type": "add_tag", "tag": f"t{number}"}
        for number in range(runner.STEPS_PER_TRANSACTION + 1)
    ]
    run_id = await scene.run(*tags, settled=False)
    [job] = await scene.process.claim("run", [], 10)
    assert not await scene.process.batches.run(runner.move_some, scene.process, job)
    return run_id


@case(Explanation.WAITING_FOR_TIME)
async def resting(scene: Scene) -> str:
    return await scene.run(WAIT)


@case(Explanation.WAITING_FOR_EVENT)
async def listening(scene: Scene) -> str:
    conditions = [{"event": "order_paid"}, {"when": {"path": "contact.firstName", "op": "exists"}}]
    return await scene.run({"type": "wait_for", "conditions": conditions, "timeout": "P1D"})


@case(Explanation.WAITING_FOR_DELIVERY)
async def sending_still(scene: Scene) -> str:
    await scene.cast.ed.made("/sandbox/faults", {"kind": "throttle"})
    return await scene.run(SEND_HELLO)


@case(Explanation.WAITING_FOR_ANSWER)
async def calling(scene: Scene) -> str:
    call = {"type": "http_request", "method": "GET", "url": "http://localhost/"}
    run_id = await scene.run(call, settled=False)
    [job] = await scene.process.claim("run", [], 10)
    await runner.move(scene.process, job)
    return run_id


@case(Explanation.RUN_COMPLETED)
async def completed(scene: Scene) -> str:
    return await scene.run({"type": "add_tag", "tag": "vip"})


@case(Explanation.REENTRY_REFUSED)
async def kept_out(scene: Scene) -> str:
    id = await scene.workflow({"type": "add_tag", "tag": "vip"}, source="manual", reentry="once")
    runs = [
        await scene.cast.ed.made(f"/workflows/{id}/runs", {"contactId": scene.ada["id"]})
        for _ in range(2)
    ]
    await settle(scene.process)
    return str(runs[1]["runId"])


@case(Explanation.RUN_FAILED)
async def failed(scene: Scene) -> str:
    return await scene.run({"type": "http_request", "method": "GET", "url": "http://localhost/"})


@case(Explanation.RUN_CANCELLED)
async def cancelled(scene: Scene) -> str:
    run_id = await scene.run(WAIT)
    await scene.cast.ed.made(f"/runs/{run_id}/cancel", None)
    return run_id


# --- steps ----------------------------------------------------------------------------------------


@case(Explanation.OTHER_BRANCH)
async def elsewhere(scene: Scene) -> str:
    when = {"path": "contact.firstName", "op": "exists"}
    branch = {"id": "known", "type": "branch", "cases": [{"when": when, "steps": [SEND_HELLO]}]}
    return await scene.run(branch, {"type": "add_tag", "tag": "vip"})


@case(Explanation.THROTTLED)
async def limited(scene: Scene) -> str:
    throttle = {"id": "once", "type": "throttle", "limit": 1, "window": "P1D"}
    workflow_id = await scene.workflow({**throttle, "limited": [{"type": "exit"}]}, SEND_HELLO)
    url = f"/workflows/{workflow_id}/runs"
    for _ in range(2):
        run = await scene.cast.ed.made(url, {"contactId": scene.ada["id"]})
        await settle(scene.process)
    return str(run["runId"])


@case(Explanation.STEP_NOTED)
async def noted(scene: Scene) -> str:
    return await scene.run({"id": "tag", "type": "add_tag", "tag": "{{contact.firstName}}"})


# --- messages -------------------------------------------------------------------------------------


@case(Explanation.MESSAGE_QUEUED)
async def about_to_be_sent(scene: Scene) -> str:
    run_id = await scene.run(SEND_HELLO, settled=False)
    [job] = await scene.process.claim("run", [], 10)
    await runner.move(scene.process, job)
    [message] = (await scene.cast.ed.read(f"/messages?runId={run_id}"))["data"]
    return str(message["id"])


@case(Explanation.MESSAGE_HELD)
async def held(scene: Scene) -> str:
    return await scene.faulty("throttle")


@case(Explanation.SENT)
async def sent(scene: Scene) -> str:
    return await scene.message()


@case(Explanation.DELIVERED)
async def delivered(scene: Scene) -> str:
    return await scene.reported("duplicate_callback")


@case(Explanation.SUPPRESSED)
async def suppressed(scene: Scene) -> str:
    return await unsubscribed(scene)


@case(Explanation.MESSAGE_FAILED)
async def rejected(scene: Scene) -> str:
    return await scene.faulty("fail")


@case(Explanation.BOUNCED)
async def bounced(scene: Scene) -> str:
    return await scene.reported("bounce")


@case(Explanation.COMPLAINED)
async def complained(scene: Scene) -> str:
    return await scene.reported("complain")


@case(Explanation.OUTCOME_UNKNOWN)
async def unknown(scene: Scene) -> str:
    return await scene.faulty("stall")


# --- each suppression -----------------------------------------------------------------------------


async def unsubscribed(scene: Scene) -> str:
    patch = {"subscriptions": {"email": "unsubscribed"}}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", patch)
    return await scene.message(category="marketing")


async def bounced_before(scene: Scene) -> str:
    await scene.reported("bounce")
    return await scene.message()


async def complained_before(scene: Scene) -> str:
    await scene.reported("complain")
    return await scene.message(category="marketing")


async def stopped(scene: Scene) -> str:
    phone = {"phone": "+14155550132"}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", phone)
    reply = {"channel": "sms", "from": phone["phone"], "text": "STOP"}
    await scene.cast.ed.made("/sandbox/replies", reply)
    return await scene.message(channel="sms")


async def put_on_the_list(scene: Scene) -> str:
    await scene.cast.adam.made("/suppressions", {"channel": "email", "address": EMAIL})
    return await scene.message()


async def erased_before(scene: Scene) -> str:
    await scene.cast.ed.delete(f"/contacts/{scene.ada['id']}")
    scene.ada = await scene.cast.ed.made("/contacts", {"email": EMAIL})
    return await scene.message()


async def over_its_month(scene: Scene) -> str:
    await use_up(scene.process, scene.cast.ed.workspace_id, MESSAGES, left=0)
    return await scene.live_message()


async def of_nobody_verified(scene: Scene) -> str:
    async with scene.process.database.write() as db:
        await workspaces.change_plan(db, id=scene.cast.ed.workspace_id, plan="starter")
        await db.execute("UPDATE users SET email_verified_at = NULL")
    return await scene.live_message()


async def over_its_day(scene: Scene) -> str:
    async with scene.process.database.write() as db:
        await workspaces.change_plan(db, id=scene.cast.ed.workspace_id, plan="starter")
        await db.execute("UPDATE workspaces SET daily_limit = 0")
    return await scene.live_message()


async def without_a_yes(scene: Scene) -> str:
    topic = await scene.cast.ed.made("/topics", {"name": "Offers", "channels": ["email"]})
    return await scene.message(category="marketing", topicId=topic["id"])


async def over_the_cap(scene: Scene) -> str:
    cap = {"frequencyCap": {"limit": 1, "window": "P7D"}}
    await scene.cast.adam.patch("/settings/workspace", cap)
    await scene.message(category="marketing")
    return await scene.message(category="marketing")


async def in_too_long_a_night(scene: Scene) -> str:
    return await at_night(scene, maxWait="PT1M")


async def answered_before(scene: Scene) -> str:
    topic = {"name": "Offers", "channels": ["email"], "doubleOptIn": True}
    offers = (await scene.cast.ed.made("/topics", topic))["id"]
    path = f"/contacts/{scene.ada['id']}/topics/{offers}"
    for state in ("subscribed", "unsubscribed"):
        body = {"channel": "email", "state": state, "source": "form"}
        assert (await scene.cast.ed.call("PUT", path, json=body)).status_code == 200
    await settle(scene.process)
    messages = await scene.cast.vic.read(f"/messages?contactId={scene.ada['id']}")
    [letter] = [one for one in messages["data"] if one["status"] == "SUPPRESSED"]
    return str(letter["id"])


async def asked_and_not_answered(scene: Scene) -> str:
    """She has asked for it, and has not confirmed that by the letter."""
    topic = {"name": "Offers", "channels": ["email"], "doubleOptIn": True}
    offers = (await scene.cast.ed.made("/topics", topic))["id"]
    path = f"/contacts/{scene.ada['id']}/topics/{offers}"
    body = {"channel": "email", "state": "subscribed", "source": "form"}
    answered = (await scene.cast.ed.call("PUT", path, json=body)).json()
    assert answered["topics"] == {offers: {"email": "pending"}}
    return await scene.message(category="marketing", topicId=offers)


SUPPRESSIONS: Mapping[Reason, Case] = {
    Reason.SUPPRESSED_UNSUBSCRIBED: unsubscribed,
    Reason.SUPPRESSED_NO_CONSENT: without_a_yes,
    Reason.SUPPRESSED_CAPPED: over_the_cap,
    Reason.SUPPRESSED_MAX_WAIT: in_too_long_a_night,
    Reason.SUPPRESSED_ANSWERED: answered_before,
    Reason.SUPPRESSED_BOUNCED: bounced_before,
    Reason.SUPPRESSED_COMPLAINED: complained_before,
    Reason.SUPPRESSED_STOPPED: stopped,
    Reason.SUPPRESSED_MANUAL: put_on_the_list,
    Reason.SUPPRESSED_ERASED: erased_before,
    Reason.SUPPRESSED_QUOTA: over_its_month,
    Reason.SUPPRESSED_UNVERIFIED: of_nobody_verified,
    Reason.SUPPRESSED_DAILY_LIMIT: over_its_day,
}


@pytest.mark.parametrize("reason", [one for one in Reason if one.startswith("suppressed_")])
async def test_each_suppression_is_named_with_its_message(scene: Scene, reason: Reason) -> None:
    id = await SUPPRESSIONS[reason](scene)
    entry = await scene.entry(Explanation.SUPPRESSED)
    assert (entry["reason"], entry["evidence"]["id"]) == (reason, id)


async def test_who_has_not_confirmed_yet_has_not_agreed(scene: Scene) -> None:
    id = await asked_and_not_answered(scene)
    entry = await scene.entry(Explanation.SUPPRESSED)
    assert (entry["reason"], entry["evidence"]["id"]) == ("suppressed_no_consent", id)


# --- each reason to hold a message back -----------------------------------------------------------


async def scheduled_for_later(scene: Scene) -> str:
    body = {"contactId": scene.ada["id"], "channel": "email", "content": HELLO}
    later = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    id = (await scene.cast.ed.made("/messages", {**body, "sendAt": later}))["messageId"]
    await settle(scene.process)
    return str(id)


async def at_night(scene: Scene, **rest: str) -> str:
    always = [{"from": "00:00", "to": "23:45"}, {"from": "12:00", "to": "11:45"}]
    hour = (await scene.cast.vic.read("/contacts"))["data"][0]["createdAt"][11:13]
    quiet = {**always[hour == "23"], "timezone": "workspace", **rest}
    changed = await scene.cast.adam.patch("/settings/workspace", {"quietHours": quiet})
    assert changed.status_code == 200
    return await scene.message(category="marketing")


async def while_sending_is_paused(scene: Scene) -> str:
    await scene.cast.adam.patch("/settings/workspace", {"sendingPaused": True})
    return await scene.message()


async def of_a_paused_broadcast(scene: Scene) -> str:
    """Its message was made, and had not left."""
    await scene.cast.ed.made(f"/contacts/{scene.ada['id']}/tags", {"tags": ["vip"]})
    scene.broadcast_id = str((await broadcast(scene.cast))["id"])
    path = f"/broadcasts/{scene.broadcast_id}"
    await scene.cast.adam.made(f"{path}/schedule", None)
    await stepped(scene.process, 3)
    await scene.cast.adam.made(f"{path}/pause", None)
    await settle(scene.process)
    [recipient] = (await scene.cast.vic.read(f"{path}/recipients"))["data"]
    return str(recipient["messageId"])


def answered_by(code: Reason) -> Case:
    """The provider has not taken it, for this reason."""

    async def produce(scene: Scene) -> str:
        error = SendError("not_accepted", code, "Not now.")
        scene.process, _ = with_provider(scene.process, refuses(error))
        return await scene.message()

    return produce


async def by_one_that_refuses_everybody(scene: Scene) -> str:
    provider = (scene.cast.ed.workspace_id, "email", "scripted")
    await judged(scene.process, provider, *[TAKEN] * 57, *[DEAD] * 3)
    scene.process, server = with_provider(scene.process, refuses(DEAD))
    server.capabilities = replace(server.capabilities, refuses_recipients=True)
    return await scene.message()


HOLDS: Mapping[Reason, Case] = {
    Reason.SCHEDULED: scheduled_for_later,
    Reason.QUIET_HOURS: at_night,
    Reason.SENDING_PAUSED: while_sending_is_paused,
    Reason.BROADCAST_PAUSED: of_a_paused_broadcast,
    Reason.PROVIDER_THROTTLED: answered_by(Reason.PROVIDER_THROTTLED),
    Reason.PROVIDER_UNREACHABLE: answered_by(Reason.PROVIDER_UNREACHABLE),
    Reason.PROVIDER_MISCONFIGURED: answered_by(Reason.PROVIDER_MISCONFIGURED),
    Reason.RECIPIENT_DEFERRED: answered_by(Reason.RECIPIENT_DEFERRED),
    Reason.RECIPIENTS_REFUSED: by_one_that_refuses_everybody,
}


@pytest.mark.parametrize("reason", HOLDS)
async def test_each_reason_to_hold_a_message_back_is_named_with_it(
    scene: Scene, reason: Reason
) -> None:
    id = await HOLDS[reason](scene)
    entry = await scene.entry(Explanation.MESSAGE_HELD)
    assert (entry["reason"], entry["evidence"]["type"]) == (reason, "message")
    assert entry["evidence"]["id"] == id
    message = await scene.cast.vic.read(f"/messages/{id}")
    assert (message["status"], message["reason"]["code"]) == ("QUEUED", reason)


def test_the_reasons_to_hold_a_message_back_are_those_of_a_provider_and_of_a_wait() -> None:
    """What opens a circuit, what is tried again for a time of its own, and what waits or is
    parked."""
    waits = {Reason.SCHEDULED, Reason.QUIET_HOURS, Reason.SENDING_PAUSED, Reason.BROADCAST_PAUSED}
    troubles = circuit_breaker.OPEN_SECONDS.keys() | circuit_breaker.RETRY_FOR.keys()
    assert HOLDS.keys() == waits | troubles


async def test_what_a_circuit_holds_back_is_named_by_what_opened_it(scene: Scene) -> None:
    """A message that was never tried."""
    error = SendError("not_accepted", Reason.PROVIDER_UNREACHABLE, "Connection refused.")
    scene.process, provider = with_provider(scene.process, refuses(error))
    for _ in range(circuit_breaker.OPEN_AFTER):
        await scene.message()
    given, id = len(provider.given), await scene.message()
    entry = await scene.entry(Explanation.MESSAGE_HELD)
    assert len(provider.given) == given
    assert (entry["reason"], entry["evidence"]["id"]) == ("provider_unreachable", id)
    assert "is asked again at" in entry["sentence"]


# --- more exact than a code ----------------------------------------------------------------------


async def test_a_message_in_quiet_hours_says_until_when(scene: Scene) -> None:
    id = await at_night(scene)
    message = await scene.cast.vic.read(f"/messages/{id}")
    entry = await scene.entry(Explanation.MESSAGE_HELD)
    assert (entry["reason"], entry["evidence"]["id"]) == ("quiet_hours", id)
    assert entry["sentence"] == (
        f"The message waits for the end of the workspace's quiet hours, until {message['until']}."
    )


async def test_a_message_with_a_time_of_its_own_says_which(scene: Scene) -> None:
    id = await scheduled_for_later(scene)
    message = await scene.cast.vic.read(f"/messages/{id}")
    entry = await scene.entry(Explanation.MESSAGE_HELD)
    assert (entry["reason"], entry["evidence"]["id"]) == ("scheduled", id)
    assert entry["sentence"] == f"The message is to be sent at {message['until']}."


async def test_a_request_that_came_during_a_pause_says_so_in_plain_words(scene: Scene) -> None:
    await inactive(scene)
    entry = await scene.entry(Explanation.REFUSED_INACTIVE)
    assert entry["sentence"] == "The flow is paused, not active."


async def test_a_run_says_which_segment_it_waits_for(scene: Scene) -> None:
    made = await scene.cast.ed.made("/segments", {"name": "S", "filter": {"event": "x"}})
    id = made["id"]
    conditions = [{"event": "paid"}, {"segmentEntered": id}, {"segmentLeft": id}]
    await scene.run({"type": "wait_for", "conditions": conditions, "timeout": "P1D"})
    entry = await scene.entry(Explanation.WAITING_FOR_EVENT)
    assert entry["sentence"].startswith(
        f"The run waits for the event paid or the contact's entry into {id} or the contact's exit"
        f" from {id}, until "
    )


# --- what it is about ----------------------------------------------------------------------------


async def test_a_decision_is_named_with_what_it_missed(scene: Scene) -> None:
    run_id = await elsewhere(scene)
    entry = await scene.entry(Explanation.OTHER_BRANCH)
    assert entry["evidence"] == {"type": "run", "id": run_id, "nodeId": "known"}
    assert entry["sentence"] == "The run left known by else, which does not lead to hello."
    assert [one["code"] for one in await scene.explained()].count("step_noted") == 0


async def test_what_can_still_be_reached_was_not_missed(scene: Scene) -> None:
    when = {"path": "contact.firstName", "op": "exists"}
    branch = {"id": "known", "type": "branch", "cases": [{"when": when, "steps": [SEND_HELLO]}]}
    later = {**SEND_HELLO, "id": "later"}
    await scene.run(branch, WAIT, later)
    codes = {one["code"] for one in await scene.explained()}
    assert codes == {"waiting_for_time", "other_branch"}
    assert "later" not in (await scene.entry(Explanation.OTHER_BRANCH))["sentence"]


async def test_an_explanation_is_about_one_definition_and_a_time_if_that_is_asked(
    scene: Scene,
) -> None:
    await scene.run(WAIT)
    first = scene.definition
    await scene.message()
    whole = f"/contacts/{scene.ada['id']}/explain"
    every = (await scene.cast.vic.read(whole))["data"]
    assert {one["code"] for one in every} == {"waiting_for_time", "run_completed", "sent"}
    assert [one["at"] for one in every] == sorted((one["at"] for one in every), reverse=True)
    scene.definition = first
    assert [one["code"] for one in await scene.explained()] == ["waiting_for_time"]
    since = every[0]["at"]
    later = await scene.explained(f"&since={since}")
    assert [(one["code"], one["sentence"]) for one in later] == [
        (
            "no_event",
            f"Nobody started a run for this contact after {since}, and no other run did.",
        )
    ]


@each_row("source", NOTHING_CAME)
async def test_what_came_before_a_time_is_not_denied(scene: Scene, source: str) -> None:
    new = {"name": f"S of {source}", "filter": {"event": "x"}}
    segment = await scene.cast.ed.made("/segments", new)
    of_segment = {"segmentId": segment["id"]}
    given: dict[str, dict[str, Any]] = {
        "tag_added": {"tag": "vip {since}"},
        "event": {"name": "came"},
        "segment_entered": of_segment,
        "segment_left": of_segment,
        "date": {"field": "metadata.renewsAt"},
        "schedule": {**of_segment, "cron": "0 9 * * *"},
    }
    more = given.get(source, {})
    lookup = {"contactLookup": "email"} if source == "inbound_webhook" else {}
    await scene.workflow(source=source, **more, **lookup)
    since = "2030-01-01T00:00:00.000Z"
    [asked] = [one for one in await scene.explained(f"&since={since}") if one["code"] == "no_event"]
    assert asked["sentence"].count(f" after {since}") == 1
    [plain] = [one for one in await scene.explained() if one["code"] == "no_event"]
    assert plain["sentence"] == asked["sentence"].replace(f" after {since}", "")
    assert ("the segment S of " in plain["sentence"]) == ("segmentId" in more)


async def test_nobody_is_explained_to_strangers(scene: Scene) -> None:
    id = await scene.workflow()
    url = f"/contacts/{scene.ada['id']}/explain"
    assert (await scene.cast.mallory.get(url)).status_code == 404
    theirs = await scene.cast.mallory.made("/workflows", {"name": "Theirs", "trigger": MANUAL})
    assert (await scene.cast.vic.get(f"{url}?definitionId={theirs['id']}")).status_code == 404
    assert (await scene.cast.vic.get(f"{url}?definitionId={id}")).status_code == 200
    assert (await scene.cast.vic.get(f"{url}?since=yesterday")).status_code == 422


async def test_the_refused_requests_about_an_erased_contact_go_with_it(scene: Scene) -> None:
    """Also those that name it by nothing but a field of one's own."""
    request_id = await unknown_then(scene)
    assert (await scene.cast.ed.delete(f"/contacts/{scene.ada['id']}")).status_code == 204
    assert (await scene.cast.vic.get(f"/webhook-requests/{request_id}")).status_code == 404


async def test_what_had_to_go_for_newer_requests_is_not_known(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await scene.hook()
    ids = [await scene.request(token, 422, {"n": number}) for number in range(3)]
    known = partial(explaining.requests_known_since, kept=2)
    monkeypatch.setattr(explaining, "requests_known_since", known)
    entry = await scene.entry(Explanation.NOT_KNOWN_BEFORE)
    second = await scene.cast.vic.read(f"/webhook-requests/{ids[1]}")
    assert entry["at"] == second["createdAt"]


# --- a broadcast ----------------------------------------------------------------------------------


@case(Explanation.NOT_FROZEN)
async def scheduled(scene: Scene) -> str:
    return await scene.broadcast(sendAt=NEXT_MONTH)


@case(Explanation.NOT_IN_AUDIENCE)
async def not_meant(scene: Scene) -> str:
    return await scene.broadcast(tag="gold")


@case(Explanation.EXCLUDED)
async def not_subscribed(scene: Scene) -> str:
    out = {"subscriptions": {"email": "unsubscribed"}}
    await scene.cast.ed.patch(f"/contacts/{scene.ada['id']}", out)
    return await scene.broadcast()


@case(Explanation.AWAITS_TURN)
async def not_nine_yet(scene: Scene) -> str:
    return await scene.broadcast(localTime="09:00")


@case(Explanation.BROADCAST_CANCELLED)
async def not_any_more(scene: Scene) -> str:
    id = await scene.broadcast(localTime="09:00")
    await scene.cast.adam.made(f"/broadcasts/{id}/cancel", None)
    await settle(scene.process)
    return id


@case(Explanation.MESSAGE_PRUNED)
async def long_ago(scene: Scene) -> str:
    id = await scene.broadcast()
    async with scene.process.database.write() as db:
        await db.execute("DELETE FROM messages")
    return id


@case(Explanation.RECIPIENT_PRUNED)
async def longer_ago(scene: Scene) -> str:
    """Delete recipients as retention does, before the broadcast itself."""
    id = await scene.broadcast()
    async with scene.process.database.write() as db:
        await db.execute("DELETE FROM broadcast_recipients")
        await db.execute("UPDATE broadcasts SET finished_at = updated_at")
    return id


# --- the page -------------------------------------------------------------------------------------


def test_every_code_has_its_meaning_and_is_its_name_in_lower_case() -> None:
    assert set(MEANINGS) == set(Explanation) == set(CASES)
    for code in Explanation:
        assert code.value == code.name.lower()
        assert MEANINGS[code].sentence.endswith(".")


# Of requests and answers alone: people read the console, and its documents.
OF_THE_API = re.compile(r"definition|[a-z]{2}[A-Z]|`|\b(ACTIVE|PAUSED|CANCELLED)\b|frozen")


def test_no_sentence_speaks_in_words_that_only_programs_read() -> None:
    sentences = chain(
        (meaning.sentence for meaning in MEANINGS.values()),
        (why for _, why in explaining_occasions.WHY.values()),
        explaining_occasions.WHAT.values(),
        *(of.values() for of in (SENTENCES, NOTHING_CAME, BARRED, WAITING)),
    )
    bare = [re.sub(r"\{\w+\}", "", sentence) for sentence in sentences]
    assert len(bare) > 100
    assert [sentence for sentence in bare if OF_THE_API.search(sentence)] == []


def test_the_page_of_explanations_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs/explain.md"
    assert written.read_text() == explanations.page(), "write explanations.page() there"
