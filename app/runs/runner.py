"""2. A run moves on: claim → machine.step → state, record and effects in one transaction → hint.

A claim is a lease with a fencing token (store/jobs.py). `move` walks until the run waits or ends;
every transaction locks the run's job by its token, so a worker that lost its lease finds none and
stops without a trace. No effect exists without its step, and no step without its effects.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from app.audience import reactions
from app.audience.workspace_context import WorkspaceContext
from app.database import pipelining
from app.database.db import Handle
from app.errors import CommitUnknown
from app.machine import document, reentry, step
from app.machine.program import (
    Event,
    Facts,
    Go,
    Json,
    Limited,
    Program,
    Record,
    State,
    Step,
    Taken,
)
from app.machine.reasons import Reason
from app.machine.reentry import Entry
from app.messages import facts
from app.outbound import events
from app.process import Process
from app.runs import effects, entering, pending_events, programs
from app.runs.effects import RunContext
from app.runs.pending_events import PendingEvents
from app.runtime import compute, logs
from app.runtime.batching import batched
from app.runtime.compute import Heavy, Unfinished
from app.store import calls, contact_events, contacts, erasure, jobs, run_steps, runs
from app.store.contacts import Contact
from app.store.jobs import Job
from app.store.row_keys import RowKey
from app.store.run_steps import NewStep
from app.store.runs import HeldRun, KnownRun

STEPS_PER_TRANSACTION = 50
BYTES_PER_TRANSACTION = 2 * 1024 * 1024  # of states, which are all held until the last step


async def move(process: Process, job: Job) -> None:
    """Walk the claimed run until it waits, ends, or turns out to be somebody else's by now."""
    rests = False
    while not rests:
        if not process.compute.is_heavy(job.workspace_id):
            try:
                rests = await process.batches.run(move_some, process, job)
                continue
            except Heavy as heavy:  # perhaps by chance: it is tried again, alone
                if heavy.large and heavy.computation.work is step.step:  # as all others of its run
                    process.compute.mark(job.workspace_id)
        process.compute.refuse_full(job.workspace_id)  # then it is tried again later
        async with process.lease(job):
            rests = await process.compute.within(
                lambda: process.batches.run(move_alone, process, job)
            )


@batched(max_items=32, concurrency=2, whose=lambda job: job.workspace_id)
async def move_some(process: Process, claimed: Sequence[Job]) -> Sequence[bool | CommitUnknown]:
    """Walk each claimed run as far as one transaction may: at most one run of each contact, whose
    lock its walk needs for itself, and at most BYTES_PER_TRANSACTION of states. Whether each rests
    now."""
    try:
        async with process.database.write() as db:
            known = await runs.known(db, [(job.workspace_id, job.id) for job in claimed])
            first: dict[tuple[str, str], Job] = {}  # by contact
            length = 0
            for job in claimed:
                run = known.get(job.id, KnownRun(job.id, "", 0))
                contact_key, longer = (job.workspace_id, run.contact_id), length + run.state_bytes
                if contact_key not in first and (not first or longer <= BYTES_PER_TRANSACTION):
                    first[contact_key], length = job, longer
            # By contact, so that no two transactions wait for each other.
            whose = sorted(first)
            walked = [first[one] for one in whose]
            # The contact before its runs' jobs, as whoever changes it wakes them.
            locking = [partial(contacts.locked, workspace_id=one, id=id) for one, id in whose]
            found = await pipelining.run_all(db, locking)
            held = await jobs.lock(db, walked)
            works = [
                partial(_walk, process, job, contact, job in held)
                for job, contact in zip(walked, found, strict=True)
            ]
            rests = dict(zip(walked, await pipelining.run_all(db, works), strict=True))
    except CommitUnknown as error:
        return [error for _ in claimed]
    return [rests.get(job, False) for job in claimed]


# Of heavy workspaces: a step that is too heavy ends its transaction.
move_alone = move_some.one_by_one()


async def _walk(
    process: Process, job: Job, contact: Contact | None, is_held: bool, db: Handle
) -> bool:
    """Advance the run by a transaction's work; returns whether it rests now for us. Raises
    Heavy."""
    if not is_held:
        return True
    whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
    row = await runs.held(db, **whose)
    if row is None:  # woken just when it ended
        await calls.delete_of_runs(db, workspace_id=job.workspace_id, run_ids=[job.id])
        await jobs.delete(db, "run", workspace_id=job.workspace_id, ids=[job.id])
        return True
    walk = Walk(process, db, job, row, contact)
    if job.claims > jobs.MAX_CLAIMS:
        await walk.end("FAILED", Reason.POISONED)
    else:
        await walk.on()
    return walk.rests


class Walk:
    """One transaction's worth of a run: steps until it waits or ends, or enough for one commit."""

    def __init__(
        self, process: Process, db: Handle, job: Job, row: HeldRun, contact: Contact | None
    ) -> None:
        self.process = process
        self.db = db
        self.job = job
        self.row = row
        self._found = contact
        # What its end starts, however early that comes, belongs to its chain.
        self._workspace = WorkspaceContext(
            row.workspace_id,
            None,
            process.vault,
            depth=row.depth + 1,
            root=row.root or row.id,
            hints=process.hints,
        )
        self.rests = True  # nothing to do until it is due again, if ever
        self._moved = False
        self._visits: dict[tuple[str, int], NewStep] = {}  # that are still to be recorded

    async def on(self) -> None:
        if self.row.definition_state == "ARCHIVED":
            return await self.end("CANCELLED", Reason.DEFINITION_ARCHIVED)
        contact = self._found
        if contact is None:
            await self.end("CANCELLED", Reason.CONTACT_ERASED)
            return await self._forget()
        if self.row.state is None:
            waited = (await self.db.now() - self.row.created_at).total_seconds()
            observe = self.process.metrics.observe
            self.db.after_commit(
                lambda: observe("tidings_acceptance_to_first_step_seconds", waited)
            )
        version = await programs.of(
            self.process,
            self.db,
            workspace_id=self.row.workspace_id,
            definition_id=self.row.definition_id,
            version=self.row.version,
        )
        if self.row.state is None and reentry.is_limited(version.reentry):
            obstacle = await entering.enter(self.db, self.row, version.reentry)
            if obstacle is not None:
                return await self._refuse(obstacle, version.reentry)
        raw = self.row.state
        state = (
            step.start(version.program)
            if raw is None
            else State.from_json(document.parse(raw.encode()))
        )
        known = await facts.of_run(self.db, self.row, contact, state.outputs)
        self._workspace = replace(self._workspace, country=known["workspace"]["country"])
        context = RunContext(self.process, self.db, self.row, contact, known, self._workspace)
        pending = await pending_events.load(self.db, self.row)
        return await self._steps(context, version.program, state, pending)

    async def _refuse(self, obstacle: Entry, policy: Json) -> None:
        """End before the first step, because of an earlier run."""
        await runs.set_blocked_by(
            self.db,
            workspace_id=self.row.workspace_id,
            id=self.row.id,
            blocked_by=obstacle.run_id,
        )
        detail = reentry.sentence(policy, obstacle)
        await self.end("COMPLETED", Reason.REENTRY_REFUSED, detail)

    async def _steps(
        self, context: RunContext, program: Program, state: State, pending: PendingEvents
    ) -> None:
        events, steps = deque(pending.events), 0
        while events:
            event = events.popleft()
            context.facts["steps"] = state.outputs
            try:
                result = self._step(program, state, event, context.facts)
            except Heavy:
                if not self._moved:
                    raise
                return await self._go_on(state)  # and there is nothing to be done again
            if result.record is None and not result.effects:
                continue  # not what it waits for
            state, outcome = result.state, await effects.apply(context, result)
            self._moved = True
            if outcome.record is not None and outcome.answer is None:
                await self._note(outcome.record, sum(state.visits.values()))
            if outcome.finish is not None:
                finish = outcome.finish
                return await self.end(finish.status, finish.code, finish.detail, _text(state))
            if outcome.waiting is not None:
                waiting = outcome.waiting
                return await self._save("WAITING", _text(state), waiting.what, waiting.wake_at)
            steps += 1
            # An answer is nowhere but here, so it is handled before the commit.
            if steps >= STEPS_PER_TRANSACTION and outcome.answer is None:
                return await self._go_on(state)
            events = deque([outcome.answer or Go()])
        # It waits on, and nothing of it has changed.
        return await self._rest(pending.wake_at)

    def _step(self, program: Program, state: State, event: Event, known: Facts) -> Step:
        """Raises Heavy."""
        if isinstance(event, Taken | Limited):  # an answer that is nowhere but here: no templates
            return step.step(program, state, event, known)
        computation = compute.Computation(
            self.row.workspace_id,
            step.step,
            (step.only(program, state), state, event, known),
            same=lambda: [
                *(self.row.id, self.row.version, state.to_json(), type(event).__name__),
                *(event, facts.compared(known)),
            ],
        )
        try:
            return self.process.compute.here(computation, large=facts.is_large(known))
        except Unfinished as error:
            return step.unfinished(program, state, error.detail)

    async def _go_on(self, state: State) -> None:
        """Go on in another transaction, under the same claim, whose lease begins anew."""
        self.rests = False
        await self._write("RUNNING", _text(state), None)
        lease_seconds = self.process.settings.lease_seconds
        await jobs.renew(self.db, self.job, lease_seconds=lease_seconds, has_progressed=True)

    async def _note(self, record: Record, position: int) -> None:
        """Note a step, to be recorded with the state. A visit that began in this transaction is one
        record."""
        key = (record.node_id, record.visit)
        begun = self._visits.get(key)
        self._visits[key] = NewStep(
            node_id=record.node_id,
            visit=record.visit,
            position=begun.position if begun else position,
            kind=record.kind,
            status=record.status,
            reason_code=record.code,
            reason_detail=record.detail,
            port=record.port,
            output=None if record.output is None else document.dumps(record.output).decode(),
            finished_at=None if record.status == "WAITING" else await self.db.now(),
        )

    async def _record(self) -> None:
        steps, self._visits = list(self._visits.values()), {}
        if steps:
            await run_steps.record(
                self.db, workspace_id=self.row.workspace_id, run_id=self.row.id, steps=steps
            )

    async def end(
        self, status: str, code: str | None, detail: str | None = None, state: str | None = None
    ) -> None:
        if (self.row.waiting_for or {}).get("kind") == "http":
            await calls.delete_of_runs(
                self.db, workspace_id=self.row.workspace_id, run_ids=[self.row.id]
            )
        await self._record()
        if status == "CANCELLED" or code == Reason.POISONED:  # from without, wherever it stands
            await run_steps.end_open(
                self.db,
                workspace_id=self.row.workspace_id,
                run_ids=[self.row.id],
                status=status,
                reason_code=code,
            )
        await self._save(
            status,
            state or self.row.state,
            None,
            None,
            code=code,
            detail=detail,
            finished_at=await self.db.now(),
        )
        type = {"COMPLETED": "run.completed", "FAILED": "run.failed"}.get(status)
        if type is not None and code != Reason.REENTRY_REFUSED:  # which went through nothing
            definition_id = self.row.definition_id
            shape = "workflowId" if definition_id.startswith("wfl_") else "automationId"
            about = {
                "runId": self.row.id,
                shape: definition_id,
                "contactId": self.row.contact_id,
                "status": status,
                "reason": code,
            }
            await events.record(self.db, self.row.workspace_id, type, about)
        self.db.after_commit(partial(self._log_end, status, code))

    def _log_end(self, status: str, code: str | None) -> None:
        self.process.metrics.count("tidings_runs_ended", status=status)
        logs.write(
            logging.INFO,
            __name__,
            "run ended",
            workspace_id=self.row.workspace_id,
            run_id=self.row.id,
            status=status,
            code=code,
        )

    async def _forget(self) -> None:
        """The contact was erased while its event was being accepted."""
        workspace_id = self.row.workspace_id
        await erasure.forget_runs(self.db, workspace_id=workspace_id, ids=[self.row.id])
        await erasure.delete_rows(
            self.db,
            "webhook_requests",
            workspace_id=workspace_id,
            contact_id=self.row.contact_id,
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
    ) -> None:
        await self._write(
            status, state, waiting_for, code=code, detail=detail, finished_at=finished_at
        )
        await self._rest(wake_at)

    async def _rest(self, wake_at: datetime | None) -> None:
        whose: RowKey = {"workspace_id": self.row.workspace_id, "id": self.row.id}
        await jobs.rest(self.db, "run", **whose, wake_at=wake_at)

    async def _write(
        self,
        status: str,
        state: str | None,
        waiting_for: Mapping[str, Any] | None,
        *,
        code: str | None = None,
        detail: str | None = None,
        finished_at: datetime | None = None,
    ) -> None:
        if self._moved and (self.row.waiting_for or {}).get("kind") == "event":
            # What reached it where it was; its own changes of the contact are among that.
            await contact_events.forget_signals(
                self.db, workspace_id=self.row.workspace_id, run_id=self.row.id
            )
        await self._record()
        await runs.save(
            self.db,
            workspace_id=self.row.workspace_id,
            id=self.row.id,
            status=status,
            state=state,
            waiting_for=waiting_for,
            reason_code=code,
            reason_detail=detail,
            finished_at=finished_at,
        )
        is_new = self.row.state is None or finished_at is not None
        if self.row.is_named and self._found is not None and is_new:
            await reactions.ran(
                self.db, self._workspace, self.row.contact_id, self.row.definition_id
            )


def _text(state: State) -> str:
    return document.dumps(state.to_json()).decode()
