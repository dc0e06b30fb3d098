"""A step calls out: the intent is committed → the call is made → its answer wakes the run.

The run waits; the call is a row of its own, made by a worker pool of its own, so that a slow server
holds up no other run. A call whose worker died is made again under the same
Idempotency-Key, and so is what surely did not arrive: at most three times in all, then the step
has failed. What may have arrived is made again only when its method says that this is harmless.
One that ends its worker before it is even tried has failed, too, after as many claims as anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.jobs import leases
from app.machine import document
from app.machine.program import HttpCall, Json
from app.machine.reasons import Reason
from app.net.egress import Answer, Failure, Request
from app.outbound import chains
from app.process import Process
from app.runtime.backoff import jittered, retry_after
from app.store import calls, jobs, runs
from app.store.calls import HeldCall
from app.store.jobs import Job
from app.store.row_keys import RowKey

TRIES = 3
RETRY_SECONDS = (2, 10)
LONGEST_RETRY_AFTER = 60  # seconds
NOT_NOW = frozenset({429, 503})  # refused for the moment (RFC 6585 §4, RFC 9110 §15.6.4)
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110 §9.2.2
SEALED = "http call"  # the purpose that the vault encrypts for

REASONS: Mapping[str, Reason] = {
    "invalid_request": Reason.HTTP_INVALID,
    "refused_target": Reason.HTTP_REFUSED,
    "connect_failed": Reason.HTTP_UNREACHABLE,
    "tls_failed": Reason.HTTP_UNREACHABLE,
    "timeout": Reason.HTTP_TIMEOUT,
    "broken_answer": Reason.HTTP_BROKEN,
}
PASSING = frozenset({"connect_failed", "timeout", "broken_answer"})  # may be better next time
CUT_OFF = Failure("broken_answer", "The worker stopped while it waited for the answer.", True)
LOST = "Every worker that made the call was lost before the answer."
POISONED = "Making the call broke the worker several times."


async def create(
    process: Process,
    db: Handle,
    workspace: WorkspaceContext,
    run_id: str,
    effect: HttpCall,
) -> str:
    """The call, to be made once the transaction commits; its id. It may hold credentials, so it is
    encrypted until it is answered, and then forgotten."""
    id, workspace_id, root = new_id("call"), workspace.id, workspace.root or run_id
    parts = ("v1", run_id, effect.node_id, str(effect.visit))
    request = {
        "method": effect.method,
        "url": effect.url,
        "headers": [
            *effect.headers,
            ("Idempotency-Key", hashlib.sha256("|".join(parts).encode()).hexdigest()[:40]),
            # Should the request come back to us, what it starts is that deep in this chain.
            (chains.DEPTH, str(workspace.depth)),
            (chains.CHAIN, chains.chain_token(process.vault, workspace_id, root)),
        ],
        "body": effect.body,
        "timeoutMs": effect.timeout_ms,
    }
    await calls.insert(
        db,
        workspace_id=workspace_id,
        id=id,
        run_id=run_id,
        sealed=process.vault.encrypt(SEALED, document.dumps(request), workspace_id, id),
    )
    process.hints.due(db, "call", workspace_id, id)
    return id


async def make(process: Process, job: Job) -> None:
    """Make the claimed call, and write down what it came to."""
    async with process.lease(job) as lease:
        request = await lease.until_known(partial(_begin, process, job))
        if request is None:
            return
        if not lease.is_held:  # nobody was called: it was no try
            async with process.database.write() as db:
                row = await _held(db, job)
                if row is not None:
                    await _requeue(db, row, _tries_before(job, row), await db.now())
            return
        outcome = await lease.over(process.egress.call(request)) or CUT_OFF

        async def record() -> None:
            async with process.database.write() as db:
                row = await _held(db, job)
                if row is not None:
                    await _settle(process, db, row, request, outcome)

        await leases.until_recorded(record, job)


async def _begin(process: Process, job: Job) -> Request | None:
    """Count the try; None when nobody waits for it any more, or it was the last. Done again after a
    COMMIT whose answer was lost, it counts the same one.

    A request that cannot be opened counts no try, so the claims are bounded too, and both are
    looked at before it is opened."""
    async with process.database.write() as db:
        row = await _held(db, job)
        if row is None:
            return None
        if job.claims > jobs.MAX_CLAIMS:
            await _fail(process, db, row, Reason.POISONED, POISONED)
            return None
        tries = _tries_before(job, row)
        if tries >= TRIES:
            await _fail(process, db, row, Reason.HTTP_BROKEN, LOST)
            return None
        opened = process.vault.decrypt(SEALED, row.sealed, row.workspace_id, row.id)
        parsed = document.parse(opened)
        request = Request(
            parsed["method"],
            parsed["url"],
            [(name, value) for name, value in parsed["headers"]],
            parsed["body"].encode(),
            parsed["timeoutMs"] / 1_000,
            owner=row.workspace_id,
        )
        await calls.begin(
            db,
            workspace_id=job.workspace_id,
            id=job.id,
            lease_token=job.lease_token,
            tries=tries + 1,
        )
        return request


def _tries_before(job: Job, row: HeldCall) -> int:
    """Count the tries of a call before this claim."""
    tries: int = row.tries
    is_counted: bool = row.begun_by == job.lease_token
    return tries - is_counted


async def _held(db: Handle, job: Job) -> HeldCall | None:
    """The claimed call, locked; None when it is lost, or for nothing."""
    if not await jobs.lock(db, [job]):
        return None
    row = await calls.held(db, workspace_id=job.workspace_id, id=job.id)
    if row is not None and row.awaited:
        return row
    await calls.delete(db, workspace_id=job.workspace_id, id=job.id)
    return None


async def _requeue(db: Handle, row: HeldCall, tries: int, wake_at: datetime) -> None:
    whose: RowKey = {"workspace_id": row.workspace_id, "id": row.id}
    await calls.requeue(db, **whose, tries=tries)
    await jobs.rest(db, "call", **whose, wake_at=wake_at)


async def _settle(
    process: Process, db: Handle, row: HeldCall, request: Request, outcome: Answer | Failure
) -> None:
    """The call and the run that waits for it, in one transaction."""
    if row.tries < TRIES and _again(request, outcome):
        now = await db.now()
        wait = timedelta(seconds=_retry_delay(row.tries, outcome, now))
        await _requeue(db, row, row.tries, now + wait)
    elif isinstance(outcome, Answer):
        headers: dict[str, str] = {}
        for name, value in outcome.headers:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        answer = {
            "status": outcome.status,
            "headers": headers,
            "body": _body(outcome),
            "truncated": outcome.truncated,
        }
        await _answer(process, db, row, answer=document.dumps(answer).decode())
    else:
        await _fail(process, db, row, REASONS[outcome.code], outcome.detail)


async def _fail(process: Process, db: Handle, row: HeldCall, code: Reason, detail: str) -> None:
    await _answer(process, db, row, reason_code=code, reason_detail=detail)


async def _answer(process: Process, db: Handle, row: HeldCall, **answer: str) -> None:
    whose: RowKey = {"workspace_id": row.workspace_id, "id": row.id}
    await calls.answer(db, **whose, **answer)
    await jobs.rest(db, "call", **whose, wake_at=None)
    run: RowKey = {"workspace_id": row.workspace_id, "id": row.run_id}
    if await runs.wake(db, **run, awaited_id=row.id):
        process.hints.due(db, "run", row.workspace_id, row.run_id)
    else:  # it has ended meanwhile
        await calls.delete(db, **whose)


# --- again, or not --------------------------------------------------------------------------------


def _again(request: Request, outcome: Answer | Failure) -> bool:
    if isinstance(outcome, Answer):
        return outcome.status in NOT_NOW
    if outcome is CUT_OFF:
        return True  # like a crash: the key tells the other side that it is the same
    return outcome.code in PASSING and (not outcome.sent or request.method in IDEMPOTENT)


def _retry_delay(tries: int, outcome: Answer | Failure, now: datetime) -> float:
    """Seconds before the next try; as asked for, within reason."""
    if outcome is CUT_OFF:
        return 0
    asked = outcome.header("retry-after") if isinstance(outcome, Answer) else None
    given = retry_after(asked, now, most=LONGEST_RETRY_AFTER)
    if given is not None:
        return given
    return jittered(RETRY_SECONDS[tries - 1])


# --- what the run is told -------------------------------------------------------------------------


def _body(answer: Answer) -> Json:
    """JSON with its literals when it is JSON, whole; else text."""
    if not answer.truncated:
        try:
            return document.parse(answer.body)
        except document.MalformedJson:
            pass
    return document.text(answer.body.decode("utf-8", "replace"))
