"""2. A run moves on: claim → machine.step → state, record and effects in one transaction → hint.

A claim is a lease with a fencing token (store/jobs.py). `move` walks until the run waits or ends;
every transaction locks the run's row by its token, so a worker that lost its lease finds no row and
stops without a trace. No effect exists without its step, and no step without its effects.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from app import audience, delivery, facts
from app.audience import Workspace
from app.errors import Problem
from app.machine import check, document, step
from app.machine.program import (
    AddTag,
    ChangeContact,
    Delivered,
    Event,
    Finish,
    Go,
    Program,
    Record,
    RemoveTag,
    Resend,
    Send,
    State,
    WaitUntil,
    Woken,
)
from app.machine.reasons import Reason
from app.process import Process
from app.queue import Pair
from app.store import contacts, definitions, erasure, jobs, messages, runs
from app.store.db import Handle, Row

log = logging.getLogger(__name__)

STEPS_PER_TRANSACTION = 50
CLAIMS = 5  # without progress; a step that kills its worker every time is set aside
PROGRAMS = 100  # kept compiled; a large one takes some megabytes


async def claim(process: Process, hinted: Sequence[Pair], limit: int) -> list[Row]:
    """Take what is due, the hinted runs first: {workspace_id, id, lease_token, claims}."""
    async with process.database.write() as db:
        return await jobs.claim(
            db, "runs", hinted=hinted, limit=limit, lease_seconds=process.settings.lease_seconds
        )


async def move(process: Process, claimed: Row) -> None:
    """Walk the claimed run until it waits, ends, or turns out to be somebody else's by now."""
    rests = False
    while not rests:
        async with process.database.write() as db:
            row = await runs.held(
                db,
                workspace_id=claimed["workspace_id"],
                id=claimed["id"],
                lease_token=claimed["lease_token"],
            )
            if row is None:
                return
            walk = Walk(process, db, row)
            if claimed["claims"] > CLAIMS:
                await walk.end("FAILED", Reason.POISONED)
            else:
                await walk.on()
            rests = walk.rests


class Walk:
    """One transaction's worth of a run: steps until it waits or ends, or enough for one commit."""

    def __init__(self, process: Process, db: Handle, row: Row) -> None:
        self.process = process
        self.db = db
        self.row = row
        self.rests = True  # nothing to do until it is due again, if ever

    async def on(self) -> None:
        if self.row["definition_state"] == "ARCHIVED":
            return await self.end("CANCELLED", Reason.DEFINITION_ARCHIVED)
        contact = await contacts.locked(
            self.db, workspace_id=self.row["workspace_id"], id=self.row["contact_id"]
        )
        if contact is None:
            await self.end("CANCELLED", Reason.CONTACT_ERASED)
            return await erasure.forget_runs(
                self.db, workspace_id=self.row["workspace_id"], ids=[self.row["id"]]
            )
        event = await _event(self.db, self.row)
        if event is None:
            return await self._save("WAITING", self.row["state"], self.row["waiting_for"], None)
        self.contact = contact
        self.facts = await facts.of_run(self.db, self.row, contact)
        self.audience = Workspace(self.row["workspace_id"], self.facts["workspace"]["country"])
        return await self._steps(await _program(self.db, self.row), event)

    async def _steps(self, program: Program, event: Event) -> None:
        raw = self.row["state"]
        state = (
            step.start(program) if raw is None else State.from_json(document.parse(raw.encode()))
        )
        for _ in range(STEPS_PER_TRANSACTION):
            self.facts["steps"] = state.outputs
            result = step.step(program, state, event, self.facts)
            state, event, came = result.state, Go(), Outcome(result.record)
            for effect in result.effects:
                await EFFECTS[type(effect)](self, effect, came)
            if came.record is not None:
                await self._record(came.record, sum(state.visits.values()))
            if came.finish is not None:
                finish = came.finish
                return await self.end(finish.status, finish.code, finish.detail, _text(state))
            if came.waiting_for is not None:
                return await self._save("WAITING", _text(state), came.waiting_for, came.wake_at)
        self.rests = False
        lease = timedelta(seconds=self.process.settings.lease_seconds)
        return await self._save("RUNNING", _text(state), None, await self.db.now() + lease)

    async def _record(self, record: Record, position: int) -> None:
        await runs.record(
            self.db,
            workspace_id=self.row["workspace_id"],
            run_id=self.row["id"],
            node_id=record.node_id,
            visit=record.visit,
            position=position,
            kind=record.kind,
            status=record.status,
            reason_code=record.code,
            reason_detail=record.detail,
            port=record.port,
            output=None if record.output is None else document.dumps(record.output).decode(),
            finished_at=None if record.status == "WAITING" else await self.db.now(),
        )

    async def end(
        self, status: str, code: str | None, detail: str | None = None, state: str | None = None
    ) -> None:
        await self._save(
            status,
            state or self.row["state"],
            None,
            None,
            code=code,
            detail=detail,
            finished_at=await self.db.now(),
        )
        log.info("run ended", extra={"run_id": self.row["id"], "status": status, "code": code})

    async def _save(
        self,
        status: str,
        state: str | None,
        waiting_for: Mapping[str, Any] | None,
        wake_at: datetime | None,
        *,
        code: str | None = None,
        detail: str | None = None,
        finished_at: datetime | None = None,
    ) -> None:
        await runs.save(
            self.db,
            workspace_id=self.row["workspace_id"],
            id=self.row["id"],
            lease_token=self.row["lease_token"],
            status=status,
            state=state,
            waiting_for=waiting_for,
            wake_at=wake_at,
            reason_code=code,
            reason_detail=detail,
            finished_at=finished_at,
        )


def _text(state: State) -> str:
    return document.dumps(state.to_json()).decode()


# --- what drives the next step ------------------------------------------------------------------


async def _event(db: Handle, row: Row) -> Event | None:
    """What the run waited for; None when that has not come."""
    match row["waiting_for"]:
        case {"kind": "time"}:
            return Woken()
        case {"kind": "delivery", "messageId": message_id}:
            return await _delivered(db, row["workspace_id"], message_id)
        case _:
            return Go()


async def _delivered(db: Handle, workspace_id: str, message_id: str) -> Delivered | None:
    outcome = await messages.outcome(db, workspace_id=workspace_id, id=message_id)
    if outcome is None or outcome["status"] not in delivery.ENDED:
        return None
    return Delivered(
        status=outcome["status"],
        message_id=message_id,
        number=outcome["number"],
        code=outcome["reason_code"],
        detail=outcome["reason_detail"],
    )


_programs: dict[tuple[str, int], Program] = {}


async def _program(db: Handle, row: Row) -> Program:
    """Compiled once a version: a version never changes, so the cache cannot outlive anything."""
    key = (row["definition_id"], row["version"])
    if key not in _programs:
        pinned = await definitions.pinned(
            db, workspace_id=row["workspace_id"], definition_id=key[0], version=key[1]
        )
        compiled = check.compile(pinned["shape"], document.parse(pinned["body"].encode()))
        while len(_programs) >= PROGRAMS:
            del _programs[next(iter(_programs))]
        # Checked when it was pinned; should newer code refuse it, the run ends by STEP_MISSING.
        _programs[key] = compiled.program or Program("gone", {})
    return _programs[key]


# --- effects, carried out -----------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What the effects of one step came to."""

    record: Record | None
    waiting_for: Mapping[str, Any] | None = None
    wake_at: datetime | None = None
    finish: Finish | None = None


async def _send(walk: Walk, effect: Send, came: Outcome) -> None:
    made = await delivery.create(
        walk.process,
        walk.db,
        delivery.Order(
            workspace_id=walk.row["workspace_id"],
            channel=effect.channel,
            contact_id=walk.contact["id"],
            to=effect.to,
            template_id=effect.template_id,
            content=effect.content,
            run_id=walk.row["id"],
            node_id=effect.node_id,
            visit=effect.visit,
        ),
    )
    came.waiting_for = {"kind": "delivery", "messageId": made.message_id}


async def _resend(walk: Walk, effect: Resend, came: Outcome) -> None:
    await delivery.resend(walk.process, walk.db, walk.row["workspace_id"], effect.message_id)
    came.waiting_for = {"kind": "delivery", "messageId": effect.message_id}


async def _change_contact(walk: Walk, effect: ChangeContact, came: Outcome) -> None:
    changed = audience.change(walk.db, walk.audience, walk.contact, effect.changes)
    walk.contact = await _unless_refused(changed, came) or walk.contact
    await _see_contact(walk)


async def _add_tag(walk: Walk, effect: AddTag, came: Outcome) -> None:
    tagged = audience.add_tags(walk.db, walk.audience, walk.contact["id"], [effect.tag])
    await _unless_refused(tagged, came)
    await _see_contact(walk)


async def _remove_tag(walk: Walk, effect: RemoveTag, _came: Outcome) -> None:
    await audience.remove_tag(walk.db, walk.audience, walk.contact["id"], effect.tag)
    await _see_contact(walk)


async def _wait_until(_walk: Walk, effect: WaitUntil, came: Outcome) -> None:
    until = document.text(effect.at)
    came.waiting_for, came.wake_at = {"kind": "time", "until": until}, effect.at


async def _finish(_walk: Walk, effect: Finish, came: Outcome) -> None:
    came.finish = effect


EFFECTS: Mapping[type, Callable[[Walk, Any, Outcome], Awaitable[None]]] = {
    Send: _send,
    Resend: _resend,
    ChangeContact: _change_contact,
    AddTag: _add_tag,
    RemoveTag: _remove_tag,
    WaitUntil: _wait_until,
    Finish: _finish,
}


async def _unless_refused(change: Awaitable[Any], came: Outcome) -> Any:
    """A value that the contact may not have is told in the step; it does not stop the run."""
    try:
        return await change
    except Problem as problem:
        if problem.code not in ("invalid", "conflict") or came.record is None:
            raise
        told = " ".join(error.message for error in problem.errors) or problem.detail
        came.record = replace(came.record, code=Reason.CHANGE_REFUSED, detail=told)
        return None


async def _see_contact(walk: Walk) -> None:
    walk.facts["contact"] = await facts.contact_root(
        walk.db, walk.row["workspace_id"], walk.contact
    )
