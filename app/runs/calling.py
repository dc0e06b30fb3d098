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

from app.contacts import reactions
from app.egress import Answer, Failure, Request
from app.machine import document
from app.machine.program import HttpCall, Json
from app.machine.reasons import Reason
from app.process import Process
from app.runtime import leases
from app.runtime.backoff import jittered, retry_after
from app.runtime.leases import Lease
from app.store import calls, jobs, runs
from app.store.db import Handle, Row, new_id

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
    process: Process, db: Handle, workspace_id: str, run_id: str, effect: HttpCall, *, depth: int
) -> str:
    """The call, to be made once the transaction commits; its id. It may hold credentials, so it is
    encrypted until it is answered, and then forgotten."""
    id = new_id("call")
    parts = ("v1", run_id, effect.node_id, str(effect.visit))
    request = {
        "method": effect.method,
        "url": effect.url,
        "headers": [
            *effect.headers,
            ("Idempotency-Key", hashlib.sha256("|".join(parts).encode()).hexdigest()[:40]),
            # Should the request come back to us, what it starts is that deep in the chain.
            (reactions.DEPTH, str(depth)),
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
    process.queue.call(db, workspace_id, id)
    return id


claim = partial(leases.claim, "calls")


async def make(process: Process, claimed: Row) -> None:
    """Make the claimed call, and write down what it came to."""
    lease = Lease(process, "calls", claimed)
    request = await lease.until_known(partial(_begin, process, claimed))
    if request is None:
        return
    if not lease.held:
        await _set_down(process, claimed)
        return
    outcome = await lease.over(process.egress.call(request)) or CUT_OFF

    async def record() -> None:
        async with process.database.write() as db:
            row = await _held(db, claimed)
            if row is not None:
                await _settle(process, db, row, request, outcome)

    await leases.surely(record, claimed["id"])


async def _begin(process: Process, claimed: Row) -> Request | None:
    """Count the try; None when nobody waits for it any more, or it was the last. Done again after a
    COMMIT whose answer was lost, it counts the same one.

    A request that cannot be opened counts no try, so the claims are bounded too, and both are
    looked at before it is opened."""
    async with process.database.write() as db:
        row = await _held(db, claimed)
        if row is None:
            return None
        if claimed["claims"] > jobs.MAX_CLAIMS:
            await _fail(process, db, row, Reason.POISONED, POISONED)
            return None
        if claimed["tries"] >= TRIES:
            await _fail(process, db, row, Reason.HTTP_BROKEN, LOST)
            return None
        request = _request(process, row)
        await calls.begin(
            db,
            **jobs.fenced_key(row),
            tries=claimed["tries"] + 1,
            wake_at=await db.now() + timedelta(seconds=process.settings.lease_seconds),
        )
        return request


async def _set_down(process: Process, claimed: Row) -> None:
    """Nobody was called: it was no try."""
    async with process.database.write() as db:
        await calls.requeue(
            db, **jobs.fenced_key(claimed), tries=claimed["tries"], wake_at=await db.now()
        )


async def _held(db: Handle, claimed: Row) -> Row | None:
    """The claimed call with its run, both locked; None when it is lost, or for nothing."""
    workspace_id, id = claimed["workspace_id"], claimed["id"]
    run_id = await calls.run_of(db, workspace_id=workspace_id, id=id)
    if run_id is None:
        return None
    run = await runs.locked(db, workspace_id=workspace_id, id=run_id)
    row = await calls.held(db, **jobs.fenced_key(claimed))
    archived = run is not None and run["definition_state"] == "ARCHIVED"
    if row is not None and (archived or not row["awaited"]):
        await calls.delete_of_run(db, workspace_id=workspace_id, run_id=run_id)
        return None
    return row


def _request(process: Process, row: Row) -> Request:
    told = document.parse(
        process.vault.decrypt(SEALED, row["sealed"], row["workspace_id"], row["id"])
    )
    return Request(
        told["method"],
        told["url"],
        [(name, value) for name, value in told["headers"]],
        told["body"].encode(),
        told["timeoutMs"] / 1_000,
    )


async def _settle(
    process: Process, db: Handle, row: Row, request: Request, outcome: Answer | Failure
) -> None:
    """The call and the run that waits for it, in one transaction."""
    mine = jobs.fenced_key(row)
    if row["tries"] < TRIES and _again(request, outcome):
        now = await db.now()
        wait = timedelta(seconds=_retry_delay(row["tries"], outcome, now))
        await calls.requeue(db, **mine, tries=row["tries"], wake_at=now + wait)
    elif isinstance(outcome, Answer):
        await calls.answer(db, **mine, answer=document.dumps(_told(outcome)).decode())
        await _wake(process, db, row)
    else:
        await _fail(process, db, row, REASONS[outcome.code], outcome.detail)


async def _fail(process: Process, db: Handle, row: Row, code: Reason, detail: str) -> None:
    mine = jobs.fenced_key(row)
    await calls.answer(db, **mine, reason_code=code, reason_detail=detail)
    await _wake(process, db, row)


async def _wake(process: Process, db: Handle, row: Row) -> None:
    await runs.wake(db, workspace_id=row["workspace_id"], id=row["run_id"], awaited_id=row["id"])
    process.queue.advance(db, row["workspace_id"], row["run_id"])


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


def _told(answer: Answer) -> dict[str, Json]:
    headers: dict[str, str] = {}
    for name, value in answer.headers:
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return {
        "status": answer.status,
        "headers": headers,
        "body": _body(answer),
        "truncated": answer.truncated,
    }


def _body(answer: Answer) -> Json:
    """JSON with its literals when it is JSON, whole; else text."""
    if not answer.truncated:
        try:
            return document.parse(answer.body)
        except document.MalformedJson:
            pass
    return document.text(answer.body.decode("utf-8", "replace"))
