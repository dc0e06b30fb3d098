"""Background maintenance, which never holds up due rows: expiry, retention, removal."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias, TypeVar

import structlog

from app.accounts import closure
from app.audience import topics
from app.audit import chain
from app.billing import paying, quotas
from app.database.db import Handle
from app.database.visits import Visits
from app.errors import Unavailable
from app.messages import circuit_breaker, parking, refusals
from app.process import Process
from app.store import (
    directory_sweep,
    expiry,
    job_sweep,
    jobs,
    parked,
    segment_members,
    sweeps,
    webhook_requests,
)
from app.store.job_sweep import Key
from app.store.jobs import Kind
from app.store.row_keys import RowKey
from workers.retention import RetentionScan

log = logging.getLogger(__name__)

ROUND_SECONDS = 1.0
SHARDED_ROUND_SECONDS = 5.0  # most tasks begin with a look at all shards
# Seconds that a round rests for each that it worked. Of SQLite's one writer others have half; on
# PostgreSQL, which others share, what is too old has to go twice as fast as new things come.
REST = {"sqlite": 1.0, "postgresql": 0.5}
PAUSE_SECONDS = 0.05  # between two batches of a sweep, for others that wait for SQLite's one writer
REFRESH_SECONDS = 1.0  # between two checks for outdated statistics
# Of the coordinator, which has few rows: nodes have their own autovacuum.
SHARDED_REFRESH_SECONDS = 60.0
SWEEP_SECONDS = 60.0  # from the end of a sweep of expired rows to the next
# The least between two sweeps that one process makes for all of them.
SWEPT_AGAIN = timedelta(seconds=SWEEP_SECONDS / 2)
SWEPT_AT_ONCE = 1_000  # rows of one transaction
RELISTED_AGAIN = timedelta(minutes=10)  # between two looks at all keys, which are many
DEFINITIONS_AT_ONCE = 200  # that have requests: a page of them
RESUMED_AT_ONCE = 20  # workspaces: a page of them
STRAY_AFTER = timedelta(minutes=1)  # of a due job that nobody has claimed
Result = TypeVar("Result")
Batch: TypeAlias = Callable[[Process], Awaitable[bool]]  # whether there may be more
TASKS: Mapping[str, Batch] = {
    "probe_circuits": circuit_breaker.probe_batch,
    "undo_refusals": refusals.undo_batch,
    "fold_quotas": quotas.fold_batch,
    "forget_topics": topics.forget_batch,
}


async def run_for_ever(process: Process) -> None:
    """Run the tasks until cancelled. A task that fails holds up no other, and is tried again
    later."""
    in_turns = {
        "cancel_runs_of_archived": closure.cancelling().run_batch,
        "remove_workspaces": closure.removal().run_batch,
        "remove_old_rows": RetentionScan().run_batch,
    }
    await _repeat(process, {**TASKS, **in_turns}, SHARDED_ROUND_SECONDS)


async def seal_for_ever(process: Process) -> None:
    """Seal audit trails. A loop of its own: an entry waits no longer than a round, however much is
    removed. Of a sharded database the pools' look says of which workspaces."""
    await _repeat(process, {"seal_audit_trails": chain.Sealing().run_batch}, ROUND_SECONDS)


async def _repeat(process: Process, tasks: Mapping[str, Batch], sharded_seconds: float) -> None:
    due_at = dict.fromkeys(tasks, 0.0)
    while True:
        began, is_more = time.monotonic(), False
        apart = sharded_seconds if process.database.is_sharded else ROUND_SECONDS
        for task in [one for one, moment in due_at.items() if moment <= began]:
            has_more = await _attempt(task, tasks[task], process)
            # One with nothing to do is not asked again each time that another has more.
            due_at[task] = 0.0 if has_more else began + apart
            is_more |= bool(has_more)
        rest = REST[process.database.engine] * (time.monotonic() - began)
        await asyncio.sleep(min(rest, ROUND_SECONDS) if is_more else apart)


async def sweep_for_ever(process: Process) -> None:
    """Sweep until cancelled. A loop of its own, because a sweep goes to the end of what it finds,
    or waits for a provider."""
    job_sweep = JobSweep()
    while True:
        await sweep(process)
        await _attempt("sweep_jobs", job_sweep.run, process)
        await asyncio.sleep(SWEEP_SECONDS)


async def _attempt(
    task: str, work: Callable[[Process], Awaitable[Result]], process: Process
) -> Result | None:
    """The result, or None of what failed, which is logged. Every record of it names the task."""
    with structlog.contextvars.bound_contextvars(task=task):
        try:
            return await work(process)
        except Unavailable as problem:
            log.warning("maintenance postponed", extra={"error": problem.detail})
        except Exception:
            log.exception("maintenance failed")
    return None


async def refresh_for_ever(process: Process) -> None:
    """Keep the database's planner statistics up to date while a deployment grows. Ends by
    cancellation. A task of its own, because a large table takes a while."""
    while True:
        try:
            async with process.database.write() as db:
                tables = await db.use(lambda link: link.refresh_statistics())
            if tables:
                log.info("statistics refreshed", extra={"tables": tables})
        except Unavailable as problem:
            log.warning("statistics refresh postponed", extra={"error": problem.detail})
        except Exception:
            log.exception("statistics refresh failed")
        sharded = process.database.is_sharded
        await asyncio.sleep(SHARDED_REFRESH_SECONDS if sharded else REFRESH_SECONDS)


async def sweep(process: Process) -> None:
    """Resume parked messages, delete expired rows, and renew subscriptions."""
    for work in SWEEPS:
        await _attempt(work.__name__, work, process)


async def resume_parked(process: Process) -> None:
    """Resume the rest where too much was waiting: of a page of workspaces some of each in turn."""
    page, visits = [""], Visits(process.database)
    while page:
        async with process.shards.reading(process.database) as db:
            page = await parked.in_vain(db, after=page[-1], limit=RESUMED_AT_ONCE)
        left = page
        while left:
            left = [
                whose
                for whose in left
                if await visits.visit(whose, partial(parking.resume_rest, workspace_id=whose))
            ]
            await asyncio.sleep(PAUSE_SECONDS)


async def delete_expired(process: Process) -> None:
    """Delete expired rows. On a sharded database one process does it for all of them: there the
    rows that one deletes are not passed over by the others."""
    if process.database.is_sharded:
        async with process.database.write() as db:
            if not await sweeps.take(db, "expired", every=SWEPT_AGAIN):
                return
    for table in expiry.KEYS:
        if process.database.is_sharded:
            await _delete_on_shards(process, table)
            continue
        deleted = SWEPT_AT_ONCE
        while deleted == SWEPT_AT_ONCE:
            async with process.database.write() as db:
                deleted = await expiry.delete_expired(db, table, limit=SWEPT_AT_ONCE)
            await asyncio.sleep(PAUSE_SECONDS)


async def renew_subscriptions(process: Process) -> None:
    while await paying.renew_batch(process):  # noqa: ASYNC110 - work, not waiting
        await asyncio.sleep(PAUSE_SECONDS)


async def _delete_on_shards(process: Process, table: str) -> None:
    """Look by look, each of which begins where the last has ended: some may be left, for another
    worker deletes the same, or a workspace cannot be visited, and they hide nothing behind them."""
    visits = Visits(process.database)
    since: datetime | None = None
    last: datetime | None = expiry.EARLIEST
    deleted = 0
    while last is not None and (deleted or last != since):
        since, deleted = last, 0
        async with process.shards.reading(process.database) as db:
            found, last = await expiry.expired(db, table, since=since, limit=SWEPT_AT_ONCE)
        for whose, ids in found.items():
            delete = partial(expiry.delete_of, table=table, workspace_id=whose, ids=ids)
            deleted += await visits.visit(whose, delete) or 0
        await asyncio.sleep(PAUSE_SECONDS)


class JobSweep:
    """Makes rows and jobs agree, should they not: some of them at each look, each in its turn.

    Nothing should ever be found, so what is found is logged as an error."""

    def __init__(self) -> None:
        self._rows: dict[Kind, Key | None] = {}
        self._jobs: Key | None = None

    async def run(self, process: Process) -> None:
        visits = Visits(process.database)
        for kind in jobs.KINDS:
            async with process.shards.reading(process.database) as db:
                found, self._rows[kind] = await job_sweep.missing(
                    db, kind, after=self._rows.get(kind), limit=SWEPT_AT_ONCE
                )
            for workspace_id, id in found:
                extra = {"workspace_id": workspace_id, "kind": kind, "job_id": id}
                log.error("a row had no job", extra=extra)
                wake = partial(jobs.wake, kind=kind, workspace_id=workspace_id, ids=[id])
                await visits.visit(workspace_id, wake)
            await asyncio.sleep(PAUSE_SECONDS)
        async with process.shards.reading(process.database) as db:
            late = await db.now() - STRAY_AFTER
            strays, self._jobs = await job_sweep.strays(
                db, late=late, after=self._jobs, limit=SWEPT_AT_ONCE
            )
        for kind, workspace_id, id in strays:
            extra = {"workspace_id": workspace_id, "kind": kind, "job_id": id}
            log.error("a job had no row", extra=extra)
            delete = partial(
                job_sweep.delete_stray, kind=kind, workspace_id=workspace_id, id=id, late=late
            )
            await visits.visit(workspace_id, delete)
        await _wake_late(process)


async def _wake_late(process: Process) -> None:
    """Segments' jobs that rest beyond what a change has made due since: that is no error, and
    somebody waits for it, so all are looked at each time, by one process for all of them."""
    async with process.database.write() as db:
        if not await sweeps.take(db, "late_segments", every=SWEPT_AGAIN):
            return
    after: tuple[str, str] | None = ("", "")
    visits = Visits(process.database)
    while after is not None:
        async with process.shards.reading(process.database) as db:
            found, after = await segment_members.late(db, after=after, limit=SWEPT_AT_ONCE)
        for workspace_id, some in groupby(sorted(found), key=itemgetter(0)):
            ids = [id for _, id in some]
            wake = partial(jobs.wake, kind="segment", workspace_id=workspace_id, ids=ids)
            await visits.visit(workspace_id, wake)
        await asyncio.sleep(PAUSE_SECONDS)


async def sweep_requests(process: Process) -> None:
    """Delete each definition's webhook requests that are too old, or too many: one process does it
    for all of them, a workspace at a time."""
    async with process.database.write() as db:
        if not await sweeps.take(db, "webhook_requests", every=SWEPT_AGAIN):
            return
    page, visits = [("", "")], Visits(process.database)
    while page:
        async with process.shards.reading(process.database) as db:
            page = await webhook_requests.definitions(db, page[-1], limit=DEFINITIONS_AT_ONCE)
        for whose, some in groupby(page, key=itemgetter(0)):
            delete = partial(_delete_requests, workspace_id=whose, ids=[id for _, id in some])
            while await visits.visit(whose, delete):  # noqa: ASYNC110 - work, not waiting
                await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


async def _delete_requests(db: Handle, workspace_id: str, ids: Sequence[str]) -> bool:
    """One transaction's worth of these definitions'; whether they may have more."""
    left = SWEPT_AT_ONCE
    for id in ids:
        left -= await webhook_requests.delete_old(
            db, workspace_id=workspace_id, definition_id=id, limit=left
        )
        if left <= 0:
            return True
    return False


async def relist_keys(process: Process) -> None:
    """Have every key lead to its row: one process looks at all of them, for all processes.

    Nothing should be found but after a crash of a sharded database's coordinator: what it had not
    committed with a node is missing there."""
    async with process.database.write() as db:
        if not await sweeps.take(db, "directory", every=RELISTED_AGAIN):
            return
    visits = Visits(process.database)
    for kind in directory_sweep.ROWS:
        after: Key | None = ("", "")
        while after is not None:
            async with process.shards.reading(process.database) as db:
                rows, after = await directory_sweep.keyed(
                    db, kind, after=after, limit=SWEPT_AT_ONCE
                )
            async with process.database.read() as db:  # of the coordinator: no node is asked
                found = await directory_sweep.unlisted(db, kind, rows)
            for place, _ in found:
                whose: RowKey = {"workspace_id": place.workspace_id, "id": place.id}
                relist = partial(directory_sweep.relist, kind=kind, **whose)
                if await visits.visit(place.workspace_id, relist):
                    extra = {**whose, "kind": kind, "row_id": place.id}
                    log.error("a key did not lead to its row", extra=extra)
            await asyncio.sleep(PAUSE_SECONDS)


# Last is what may wait for a provider.
SWEEPS: tuple[Callable[[Process], Awaitable[None]], ...] = (
    resume_parked,
    delete_expired,
    sweep_requests,
    relist_keys,
    renew_subscriptions,
)
