"""Applies the effects of a step, in the transaction in which the run moves on."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from app.audience import reactions, subscriptions, writing
from app.audience.addresses import BadAddress
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.errors import Problem
from app.machine import document
from app.machine.categories import TRANSACTIONAL
from app.machine.program import (
    AddTag,
    ChangeContact,
    Finish,
    HttpCall,
    Json,
    Limited,
    RemoveTag,
    Send,
    SendAgain,
    StartRun,
    Step,
    Take,
    Taken,
    WaitFor,
    WaitUntil,
)
from app.machine.reasons import Reason
from app.messages import create, facts
from app.outbound import chains
from app.process import Process
from app.runs import calling
from app.runs.outcome import StepOutcome
from app.store import new_runs, throttles
from app.store.contacts import Contact
from app.store.runs import HeldRun

Changed = TypeVar("Changed")


@dataclass(slots=True)
class RunContext:
    """A run whose step is applied: its row and its contact, both locked, and its facts."""

    process: Process
    db: Handle
    row: HeldRun
    contact: Contact
    facts: dict[str, Json]
    workspace: WorkspaceContext


@dataclass(frozen=True, slots=True)
class Waiting:
    """The awaited thing, as the run's row has it."""

    what: Mapping[str, Any]
    wake_at: datetime | None = None


Outcome: TypeAlias = StepOutcome[Waiting]


async def apply(run: RunContext, step: Step) -> Outcome:
    """Apply the effects in order; updates `run.contact` and `run.facts`. Raises Problem, other than
    for a contact's refused value, which is noted in the step's record."""
    outcome = Outcome(step.record)
    for effect in step.effects:
        await EFFECTS[type(effect)](run, effect, outcome)
    if run.workspace.refused:
        outcome.note(Reason.CHAIN_TOO_LONG)
        run.workspace.refused.clear()
    if run.workspace.crowded:
        outcome.note(Reason.CHAIN_TOO_WIDE)
        run.workspace.crowded.clear()
    return outcome


async def _send(run: RunContext, effect: Send, outcome: Outcome) -> None:
    to = effect.to
    if to:
        # A number is one as people write it in the workspace's country, as everywhere; of what is
        # no address the delivery says so.
        with suppress(BadAddress):
            to = subscriptions.clean(effect.channel, to, run.workspace.country)
    made = await create.create(
        run.process,
        run.db,
        create.Order(
            workspace_id=run.row.workspace_id,
            channel=effect.channel,
            contact_id=run.contact.id,
            to=to,
            template_id=effect.template_id,
            content=effect.content,
            category=(effect.content or {}).get("category", TRANSACTIONAL),
            run_id=run.row.id,
            node_id=effect.node_id,
            visit=effect.visit,
        ),
    )
    outcome.waiting = Waiting({"kind": "delivery", "messageId": made.message_id})


async def _send_again(run: RunContext, effect: SendAgain, outcome: Outcome) -> None:
    workspace_id, wake_at = run.row.workspace_id, None
    attempt_id = await create.resend(run.process, run.db, workspace_id, effect.message_id)
    if attempt_id is None:
        # Its provider has told more since we looked, and wakes nobody for what had ended: look now.
        wake_at = await run.db.now()
        run.process.hints.due(run.db, "run", workspace_id, run.row.id)
    outcome.waiting = Waiting({"kind": "delivery", "messageId": effect.message_id}, wake_at)


async def _call(run: RunContext, effect: HttpCall, outcome: Outcome) -> None:
    call_id = await calling.create(
        run.process,
        run.db,
        run.workspace,
        run.row.id,
        effect,
    )
    outcome.waiting = Waiting({"kind": "http", "callId": call_id})


async def _change_contact(run: RunContext, effect: ChangeContact, outcome: Outcome) -> None:
    changed = writing.change(run.db, run.workspace, run.contact, effect.changes)
    run.contact = await _unless_refused(changed, outcome) or run.contact
    await _see_contact(run)


async def _add_tag(run: RunContext, effect: AddTag, outcome: Outcome) -> None:
    tagged = writing.add_tags(run.db, run.workspace, run.contact.id, [effect.tag])
    await _unless_refused(tagged, outcome)
    await _see_contact(run)


async def _remove_tag(run: RunContext, effect: RemoveTag, _outcome: Outcome) -> None:
    await writing.remove_tag(run.db, run.workspace, run.contact.id, effect.tag)
    await _see_contact(run)


async def _wait_until(_run: RunContext, effect: WaitUntil, outcome: Outcome) -> None:
    until = _in_full(effect.at)
    outcome.waiting = Waiting({"kind": "time", "until": document.text(until)}, until)


async def _wait_for(_run: RunContext, effect: WaitFor, outcome: Outcome) -> None:
    until = None if effect.until is None else _in_full(effect.until)
    what = {
        "kind": "event",
        "events": list(effect.events),
        "contact": effect.contact,
        **({"segments": list(effect.segments)} if effect.segments else {}),
        "until": until and document.text(until),
    }
    outcome.waiting = Waiting(what, until)


def _in_full(moment: datetime) -> datetime:
    """The next full millisecond: as text it has no more, and must not be early."""
    return moment + timedelta(microseconds=-moment.microsecond % 1_000)


async def _take(run: RunContext, effect: Take, outcome: Outcome) -> None:
    taken = await throttles.take(
        run.db,
        workspace_id=run.row.workspace_id,
        contact_id=run.contact.id,
        definition_id=run.row.definition_id,
        node_id=effect.node_id,
        key=hashlib.sha256(effect.key.encode()).hexdigest(),
        limit=effect.limit,
        window=effect.window,
    )
    outcome.answer = Taken() if taken else Limited()


async def _start_run(run: RunContext, effect: StartRun, outcome: Outcome) -> None:
    if run.workspace.depth > chains.LONGEST_CHAIN:
        return outcome.note(Reason.CHAIN_TOO_LONG)
    if await reactions.is_crowded(run.db, run.workspace):
        return outcome.note(Reason.CHAIN_TOO_WIDE)
    workspace_id, id = run.row.workspace_id, new_id("run")
    started = await new_runs.insert(
        run.db,
        workspace_id=workspace_id,
        id=id,
        definition_id=effect.definition_id,
        contact_id=run.contact.id,
        body=document.dumps(effect.data),
        depth=run.workspace.depth,
        root=run.workspace.root,
    )
    if not started:
        return outcome.note(Reason.START_REFUSED)
    run.process.hints.due(run.db, "run", workspace_id, id)
    return outcome.add_output(runId=id)


async def _finish(_run: RunContext, effect: Finish, outcome: Outcome) -> None:
    outcome.finish = effect


EFFECTS: Mapping[type, Callable[[RunContext, Any, Outcome], Awaitable[None]]] = {
    Send: _send,
    SendAgain: _send_again,
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


async def _unless_refused(change: Awaitable[Changed], outcome: Outcome) -> Changed | None:
    try:
        return await change
    except Problem as problem:
        if problem.code not in ("invalid", "conflict") or outcome.record is None:
            raise
        outcome.note_refusal(problem)
        return None


async def _see_contact(run: RunContext) -> None:
    run.facts["contact"] = await facts.contact_root(run.db, run.row.workspace_id, run.contact)
