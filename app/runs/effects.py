"""What a step asks of the world, carried out in the transaction in which the run moves on."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from app.contacts import audience, reactions, subscriptions
from app.contacts.addresses import BadAddress
from app.contacts.reactions import Workspace
from app.errors import Problem
from app.machine import document
from app.machine.program import (
    AddTag,
    ChangeContact,
    Finish,
    HttpCall,
    Json,
    Limited,
    RemoveTag,
    Resend,
    Send,
    StartRun,
    Step,
    Take,
    Taken,
    WaitFor,
    WaitUntil,
)
from app.machine.reasons import Reason
from app.messages import ordering
from app.process import Process
from app.runs import calling, facts
from app.runs.outcome import Outcome
from app.store import runs, throttles
from app.store.db import Handle, Row, new_id

Changed = TypeVar("Changed")


@dataclass(slots=True)
class Standing:
    """Where a run stands: its row and its contact, both locked, and what its step sees of them."""

    process: Process
    db: Handle
    row: Row
    contact: Row
    facts: dict[str, Json]
    audience: Workspace


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run waits for, as its row has it."""

    what: Mapping[str, Any]
    wake_at: datetime | None = None


Came: TypeAlias = Outcome[Waiting]


async def carry_out(standing: Standing, result: Step) -> Came:
    """Do what the step decided, in the run's transaction. Returns what came of it, to be saved
    with the run; `standing` holds the contact and the facts as they are then."""
    came = Came(result.record)
    for effect in result.effects:
        await EFFECTS[type(effect)](standing, effect, came)
    if standing.audience.refused:
        came.note(Reason.CHAIN_TOO_LONG)
        standing.audience.refused.clear()
    return came


async def _send(standing: Standing, effect: Send, came: Came) -> None:
    made = await ordering.create(
        standing.process,
        standing.db,
        ordering.Order(
            workspace_id=standing.row["workspace_id"],
            channel=effect.channel,
            contact_id=standing.contact["id"],
            to=effect.to and _addressed(effect.channel, effect.to, standing.audience.country),
            template_id=effect.template_id,
            content=effect.content,
            category=(effect.content or {}).get("category", "transactional"),
            run_id=standing.row["id"],
            node_id=effect.node_id,
            visit=effect.visit,
        ),
    )
    came.waiting = Waiting({"kind": "delivery", "messageId": made.message_id})


def _addressed(channel: str, to: str, country: str | None) -> str:
    """A number as people write it in the workspace's country, as everywhere; of what is no address
    the delivery says so."""
    with suppress(BadAddress):
        return subscriptions.clean(channel, to, country)
    return to


async def _resend(standing: Standing, effect: Resend, came: Came) -> None:
    workspace_id, wake_at = standing.row["workspace_id"], None
    attempt_id = await ordering.resend(
        standing.process, standing.db, workspace_id, effect.message_id
    )
    if attempt_id is None:
        # Its provider has told more since we looked, and wakes nobody for what had ended: look now.
        wake_at = await standing.db.now()
        standing.process.queue.advance(standing.db, workspace_id, standing.row["id"])
    came.waiting = Waiting({"kind": "delivery", "messageId": effect.message_id}, wake_at)


async def _call(standing: Standing, effect: HttpCall, came: Came) -> None:
    call_id = await calling.create(
        standing.process,
        standing.db,
        standing.row["workspace_id"],
        standing.row["id"],
        effect,
        depth=standing.audience.depth,
    )
    came.waiting = Waiting({"kind": "http", "callId": call_id})


async def _change_contact(standing: Standing, effect: ChangeContact, came: Came) -> None:
    changed = audience.change(standing.db, standing.audience, standing.contact, effect.changes)
    standing.contact = await _unless_refused(changed, came) or standing.contact
    await _see_contact(standing)


async def _add_tag(standing: Standing, effect: AddTag, came: Came) -> None:
    tagged = audience.add_tags(standing.db, standing.audience, standing.contact["id"], [effect.tag])
    await _unless_refused(tagged, came)
    await _see_contact(standing)


async def _remove_tag(standing: Standing, effect: RemoveTag, _came: Came) -> None:
    await audience.remove_tag(standing.db, standing.audience, standing.contact["id"], effect.tag)
    await _see_contact(standing)


async def _wait_until(_standing: Standing, effect: WaitUntil, came: Came) -> None:
    came.waiting = Waiting({"kind": "time", "until": document.text(effect.at)}, effect.at)


async def _wait_for(_standing: Standing, effect: WaitFor, came: Came) -> None:
    until = None if effect.until is None else _in_full(effect.until)
    what = {
        "kind": "event",
        "events": list(effect.events),
        "contact": effect.contact,
        "until": until and document.text(until),
    }
    came.waiting = Waiting(what, until)


def _in_full(moment: datetime) -> datetime:
    """The next full millisecond: as text it has no more, and must not be early."""
    return moment + timedelta(microseconds=-moment.microsecond % 1_000)


async def _take(standing: Standing, effect: Take, came: Came) -> None:
    taken = await throttles.take(
        standing.db,
        workspace_id=standing.row["workspace_id"],
        contact_id=standing.contact["id"],
        definition_id=standing.row["definition_id"],
        node_id=effect.node_id,
        key=hashlib.sha256(effect.key.encode()).hexdigest(),
        limit=effect.limit,
        window=effect.window,
    )
    came.answer = Taken() if taken else Limited()


async def _start_run(standing: Standing, effect: StartRun, came: Came) -> None:
    if standing.audience.depth > reactions.LONGEST_CHAIN:
        return came.note(Reason.CHAIN_TOO_LONG)
    workspace_id, id = standing.row["workspace_id"], new_id("run")
    started = await runs.insert(
        standing.db,
        workspace_id=workspace_id,
        id=id,
        definition_id=effect.definition_id,
        contact_id=standing.contact["id"],
        body=document.dumps(effect.data),
        depth=standing.audience.depth,
    )
    if not started:
        return came.note(Reason.START_REFUSED)
    standing.process.queue.advance(standing.db, workspace_id, id)
    return came.tell(runId=id)


async def _finish(_standing: Standing, effect: Finish, came: Came) -> None:
    came.finish = effect


EFFECTS: Mapping[type, Callable[[Standing, Any, Came], Awaitable[None]]] = {
    Send: _send,
    Resend: _resend,
    HttpCall: _call,
    ChangeContact: _change_contact,
    AddTag: _add_tag,
    RemoveTag: _remove_tag,
    WaitUntil: _wait_until,
    WaitFor: _wait_for,
    Take: _take,
    StartRun: _start_run,
    Finish: _finish,
}


async def _unless_refused(change: Awaitable[Changed], came: Came) -> Changed | None:
    try:
        return await change
    except Problem as problem:
        if problem.code not in ("invalid", "conflict") or came.record is None:
            raise
        came.refused(problem)
        return None


async def _see_contact(standing: Standing) -> None:
    standing.facts["contact"] = await facts.contact_root(
        standing.db, standing.row["workspace_id"], standing.contact
    )
