"""2. A run moves on: claim → machine.step → state, record and effects in one transaction → hint.

A claim is a lease with a fencing token (store/jobs.py). `move` walks until the run waits or ends;
every transaction locks the run's row by its token, so a worker that lost its lease finds no row and
stops without a trace. No effect exists without its step, and no step without its effects.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from app import events
from app.contacts.reactions import WorkspaceContext
from app.errors import CommitUnknown
from app.machine import document, step
from app.machine.program import Event, Facts, Go, Program, Record, State, Step
from app.machine.reasons import Reason
from app.process import Process
from app.runs import effects, facts, pending_events, programs
from app.runs.effects import RunContext
from app.runs.pending_events import PendingEvents
from app.runtime import leases, slow_workspaces
from app.runtime.batching import BatchKind
from app.runtime.leases import Lease
from app.store import calls, contact_events, contacts, erasure, jobs, pipelining, runs
from app.store.db import Handle, Row

log = logging.getLogger(__name__)

STEPS_PER_TRANSACTION = 50


claim = partial(leases.claim, "runs")


async def move(process: Process, claimed: Row) -> None:
    """Walk the claimed run until it waits, ends, or turns out to be somebody else's by now."""
    rests = False
    while not rests:
        if slow_workspaces.is_slow(claimed["workspace_id"]):
            async with Lease(process, "runs", claimed).kept():
                rests = await process.batches.submit(ISOLATED, process, claimed)
        else:
            rests = await process.batches.submit(MOVES, process, claimed)


async def _move_some(
    process: Process, claimed: Sequence[Row], *, isolated: bool = False
) -> Sequence[bool | CommitUnknown]:
    """Whether each rests now, as far as one transaction led: one run of each contact, for a walk
    has the contact that it locked to itself."""
    # By contact, so that no two transactions wait for each other.
    first = {(row["workspace_id"], row["contact_id"]): row for row in reversed(claimed)}
    walked = [first[whose] for whose in sorted(first)]
    rest = await pipelining.run_in_transaction(
        process.database, [partial(_walk, process, row, isolated) for row in walked]
    )
    rests = {row["id"]: rests for row, rests in zip(walked, rest, strict=True)}
    return [rests.get(row["id"], False) for row in claimed]


MOVES = BatchKind(_move_some, max_items=32, concurrency=2)
ISOLATED = BatchKind(partial(_move_some, isolated=True), max_items=1)  # of slow workspaces


async def _walk(process: Process, claimed: Row, isolated: bool, db: Handle) -> bool:
    """Whether the run rests now."""
    workspace_id = claimed["workspace_id"]
    # The contact first, as everybody locks them who changes it and then wakes its runs.
    contact = await contacts.locked(db, workspace_id=workspace_id, id=claimed["contact_id"])
    row = await runs.held(db, **jobs.fenced_key(claimed))
    if row is None:
        return True
    walk = Walk(process, db, row, contact, isolated=isolated)
    if claimed["claims"] > jobs.MAX_CLAIMS:
        await walk.end("FAILED", Reason.POISONED)
    else:
        await walk.on()
    return walk.rests


class Walk:
    """One transaction's worth of a run: steps until it waits or ends, or enough for one commit."""

    def __init__(
        self, process: Process, db: Handle, row: Row, contact: Row | None, *, isolated: bool
    ) -> None:
        self.process = process
        self.db = db
        self.row = row
        self._found = contact
        self.rests = True  # nothing to do until it is due again, if ever
        self._moved = False
        self._isolated = isolated
        self._meter = slow_workspaces.Meter(row["workspace_id"])

    async def on(self) -> None:
        if self.row["definition_state"] == "ARCHIVED":
            return await self.end("CANCELLED", Reason.DEFINITION_ARCHIVED)
        contact = self._found
        if contact is None:
            await self.end("CANCELLED", Reason.CONTACT_ERASED)
            return await self._forget()
        if self.row["state"] is None:
            waited = (await self.db.now() - self.row["created_at"]).total_seconds()
            observe = self.process.metrics.observe
            self.db.after_commit(
                lambda: observe("tidings_acceptance_to_first_step_seconds", waited)
            )
        known = await facts.of_run(self.db, self.row, contact)
        workspace = WorkspaceContext(
            self.row["workspace_id"],
            known["workspace"]["country"],
            self.process.vault,
            depth=self.row["depth"] + 1,
            queue=self.process.queue,
        )
        context = RunContext(self.process, self.db, self.row, contact, known, workspace)
        pending = await pending_events.load(self.db, self.row)
        program = await programs.of(self.process.vault, self.db, self.row)
        return await self._steps(context, program, pending)

    async def _steps(self, context: RunContext, program: Program, pending: PendingEvents) -> None:
        raw = self.row["state"]
        state = (
            step.start(program) if raw is None else State.from_json(document.parse(raw.encode()))
        )
        events, steps = deque(pending.events), 0
        while events:
            event = events.popleft()
            if (
                isinstance(event, Go)
                and not self._isolated
                and slow_workspaces.is_slow(self.row["workspace_id"])
            ):
                return await self._go_on(state)
            context.facts["steps"] = state.outputs
            result = await self._step(program, state, event, context.facts)
            if result.record is None and not result.effects:
                continue  # not what it waits for
            state, outcome = result.state, await effects.apply(context, result)
            self._moved = True
            if outcome.record is not None and outcome.answer is None:
                await self._record(outcome.record, sum(state.visits.values()))
            if outcome.finish is not None:
                finish = outcome.finish
                return await self.end(finish.status, finish.code, finish.detail, _text(state))
            if outcome.waiting is not None:
                waiting = outcome.waiting
                return await self._save("WAITING", _text(state), waiting.what, waiting.wake_at)
            steps += 1
            # An answer is nowhere but here, so it is heard before the commit.
            if steps >= (1 if self._isolated else STEPS_PER_TRANSACTION) and outcome.answer is None:
                return await self._go_on(state)
            events = deque([outcome.answer or Go()])
        return await self._save("WAITING", raw, self.row["waiting_for"], pending.wake_at)

    async def _step(self, program: Program, state: State, event: Event, known: Facts) -> Step:
        if self._isolated:
            return await self._meter.run_in_thread(step.step, program, state, event, known)
        return self._meter.run(step.step, program, state, event, known)

    async def _go_on(self, state: State) -> None:
        """In another transaction, under the same claim, whose lease begins anew."""
        self.rests = False
        lease = timedelta(seconds=self.process.settings.lease_seconds)
        until = await self.db.now() + lease
        await self._save("RUNNING", _text(state), None, until, goes_on=True)

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
        if (self.row["waiting_for"] or {}).get("kind") == "http":
            await calls.delete_of_run(
                self.db, workspace_id=self.row["workspace_id"], run_id=self.row["id"]
            )
        if status == "CANCELLED":
            await runs.cancel_steps(
                self.db,
                workspace_id=self.row["workspace_id"],
                run_ids=[self.row["id"]],
                reason_code=code,
            )
        await self._save(
            status,
            state or self.row["state"],
            None,
            None,
            code=code,
            detail=detail,
            finished_at=await self.db.now(),
        )
        await self._tell(status, code)
        self.db.after_commit(partial(self._tell_end, status, code))

    def _tell_end(self, status: str, code: str | None) -> None:
        self.process.metrics.count("tidings_runs_ended", status=status)
        whose = {"workspace_id": self.row["workspace_id"], "run_id": self.row["id"]}
        log.info("run ended", extra={**whose, "status": status, "code": code})

    async def _tell(self, status: str, code: str | None) -> None:
        type = {"COMPLETED": "run.completed", "FAILED": "run.failed"}.get(status)
        if type is None:
            return
        definition_id = self.row["definition_id"]
        shape = "workflowId" if definition_id.startswith("wfl_") else "automationId"
        about = {
            "runId": self.row["id"],
            shape: definition_id,
            "contactId": self.row["contact_id"],
            "status": status,
            "reason": code,
        }
        await events.tell(self.db, self.row["workspace_id"], type, about)

    async def _forget(self) -> None:
        """The contact was erased while its event was being accepted."""
        workspace_id = self.row["workspace_id"]
        await erasure.forget_runs(self.db, workspace_id=workspace_id, ids=[self.row["id"]])
        await erasure.delete_rows(
            self.db,
            "webhook_requests",
            workspace_id=workspace_id,
            contact_id=self.row["contact_id"],
        )

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
        goes_on: bool = False,
    ) -> None:
        if self._moved and (self.row["waiting_for"] or {}).get("kind") == "event":
            # What reached it where it was; its own changes of the contact are among that.
            await contact_events.forget_signals(
                self.db, workspace_id=self.row["workspace_id"], run_id=self.row["id"]
            )
        await runs.save(
            self.db,
            **jobs.fenced_key(self.row),
            status=status,
            state=state,
            waiting_for=waiting_for,
            wake_at=wake_at,
            reason_code=code,
            reason_detail=detail,
            finished_at=finished_at,
            goes_on=goes_on,
        )


def _text(state: State) -> str:
    return document.dumps(state.to_json()).decode()
