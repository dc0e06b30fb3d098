"""An event goes out: claim → sign → POST → write down what came of it, by Standard Webhooks
(github.com/standard-webhooks/standard-webhooks, its specification 1.0.0).

At-least-once delivery: a try whose worker died is repeated under the same webhook-id, so that the
receiver can deduplicate. A failed event is tried ten times over three days. An endpoint that has
accepted nothing for five days, or answers 410, is disabled.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from app.database import pipelining
from app.database.db import Handle
from app.errors import CommitUnknown
from app.jobs import leases
from app.machine import document
from app.machine.program import Json
from app.net.egress import Answer, Failure, Request
from app.outbound import chains
from app.process import Process
from app.runtime.backoff import jittered, retry_after
from app.runtime.batching import batched
from app.store import event_endpoints, jobs, new_runs, outbound_events
from app.store.jobs import Job
from app.store.outbound_events import Endpoint, UnfinishedAttempt
from app.store.row_keys import RowKey
from app.vault import standard_webhooks

log = logging.getLogger(__name__)

# The schedule of the specification, seconds between a try and the next; with jitter, as it asks.
RETRY_SECONDS = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
JITTER = 0.1
LONGEST_RETRY_AFTER = 86_400  # seconds
GONE = 410
DISABLED_AFTER = timedelta(days=5)
SUSPENDED_FOR = timedelta(hours=1)  # then it is asked again whether the workspace is
EXCERPT_BYTES = 1_024  # of the answer, for whoever looks for what went wrong

SEALED = "event endpoint"  # the purpose that the vault encrypts for
OVERLAP = timedelta(hours=24)  # that an old secret signs beside the new one


# --- secrets --------------------------------------------------------------------------------------


def sealed(process: Process, workspace_id: str, endpoint_id: str, secret: str) -> bytes:
    """An endpoint's secret as the database keeps it: encrypted, and bound to workspace and
    endpoint."""
    return process.vault.encrypt(SEALED, secret.encode(), workspace_id, endpoint_id)


# --- claim, try, outcome --------------------------------------------------------------------------


async def post(process: Process, job: Job) -> None:
    """Make the claimed attempt's next try, and write down what it came to."""
    async with process.lease(job) as lease:
        attempt, now, chain = await process.batches.run(read_some, process, job)
        if not lease.is_held:
            return
        endpoint = None if attempt is None else attempt.endpoint
        if attempt is None or endpoint is None or endpoint.disabled_reason or attempt.suspended:
            await _set_down(process, job, attempt, now)
            return
        if job.claims > jobs.MAX_CLAIMS:
            await _record(process, job, attempt, TryOutcome("FAILED", "poisoned", POISONED))
            return
        begun = time.monotonic()
        request = _request(process, attempt, endpoint, now, chain)
        outcome = await lease.over(process.egress.call(request))
        ms = round((time.monotonic() - begun) * 1_000)
        if outcome is None:  # cut off, with the process: the next worker makes the try again
            await _put_off(process, job, now)
            return
        ended = _outcome_of(attempt, outcome, now)
        tried = {"at": document.text(now), "status": ended.status_code, "code": ended.code}
        await leases.until_recorded(
            lambda: _record(process, job, attempt, ended, {**tried, "durationMs": ms}), job
        )


POISONED = "Sending it crashed the worker several times."


@batched(max_items=32, concurrency=2, whose=lambda job: job.workspace_id)
async def read_some(
    process: Process, claimed: Sequence[Job]
) -> Sequence[tuple[UnfinishedAttempt | None, datetime, dict[str, str]]]:
    """Each attempt, the time, and the headers of its chain."""
    async with process.database.read() as db:
        return await pipelining.run_all(db, [partial(_read, process, job) for job in claimed])


async def _read(
    process: Process, job: Job, db: Handle
) -> tuple[UnfinishedAttempt | None, datetime, dict[str, str]]:
    workspace_id = job.workspace_id
    attempt = await outbound_events.unfinished(db, workspace_id=workspace_id, id=job.id)
    if attempt is None:
        return None, await db.now(), {}
    # In which chain the runs are that it starts, and how deep, should it come back to us.
    about = document.parse(attempt.data.encode())
    depth, root = about.get("depth", 0), about.get("root")
    if about.get("runId") is not None:
        before, root = await new_runs.chain(db, workspace_id=workspace_id, id=about["runId"])
        depth = before + 1
    headers = {chains.DEPTH: str(depth)}
    if root is not None:
        headers[chains.CHAIN] = chains.chain_token(process.vault, workspace_id, root)
    return attempt, await db.now(), headers


def _request(
    process: Process,
    attempt: UnfinishedAttempt,
    endpoint: Endpoint,
    now: datetime,
    chain: Mapping[str, str],
) -> Request:
    body = document.dumps(
        {
            "type": attempt.type,
            "timestamp": attempt.happened_at,
            "data": document.parse(attempt.data.encode()),
        }
    )
    known = [endpoint.secret]
    old, until = endpoint.old_secret, endpoint.old_secret_until
    if old is not None and until is not None and until > now:
        known.append(old)
    bound = (attempt.workspace_id, attempt.endpoint_id)
    secrets = [process.vault.decrypt(SEALED, one, *bound).decode() for one in known]
    headers = {
        "content-type": "application/json",
        **chain,
        **standard_webhooks.sign(secrets, attempt.event_id, now, body),
    }
    return Request("POST", endpoint.url, list(headers.items()), body, owner=attempt.workspace_id)


async def _set_down(
    process: Process, job: Job, attempt: UnfinishedAttempt | None, now: datetime
) -> None:
    """Nobody is to be called: the attempt has ended, the endpoint is gone or disabled, or its
    workspace suspended."""
    if attempt is not None and attempt.endpoint is not None:
        if attempt.endpoint.disabled_reason is None:
            return await _put_off(process, job, now + SUSPENDED_FOR)
        disabled = "The endpoint was disabled meanwhile; enable it, and replay what it missed."
        failed = TryOutcome("FAILED", "endpoint_disabled", disabled)
        return await _record(process, job, attempt, failed)
    async with process.database.write() as db:
        if await jobs.lock(db, [job]):
            await outbound_events.delete_unfinished(db, workspace_id=job.workspace_id, id=job.id)
    return None


async def _put_off(process: Process, job: Job, wake_at: datetime) -> None:
    """Put the attempt back as if it had not been claimed, due then."""
    async with process.database.write() as db:
        if await jobs.lock(db, [job]):
            whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
            await jobs.rest(db, "event_attempt", **whose, wake_at=wake_at)


# --- what it came to ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """The result of a try: SUCCEEDED, FAILED, or QUEUED again until `wake_at`. `disables` is the
    reason to disable the endpoint, if any; `otherwise` is the result should it have moved, or not
    be failing since then any more."""

    status: str
    code: str | None = None
    detail: str | None = None
    status_code: int | None = None
    excerpt: str | None = None
    wake_at: datetime | None = None
    disables: str | None = None
    otherwise: TryOutcome | None = None


def _outcome_of(attempt: UnfinishedAttempt, outcome: Answer | Failure, now: datetime) -> TryOutcome:
    if isinstance(outcome, Failure):
        return _failed(attempt, now, code=outcome.code, detail=outcome.detail)
    excerpt = document.text(outcome.body[:EXCERPT_BYTES].decode("utf-8", "replace"))
    if 200 <= outcome.status < 300:
        return TryOutcome("SUCCEEDED", status_code=outcome.status, excerpt=excerpt)
    return _failed(
        attempt,
        now,
        code="gone" if outcome.status == GONE else "http_status",
        detail=f"The endpoint answered {outcome.status}; a 2xx says that it has the event.",
        status_code=outcome.status,
        excerpt=excerpt,
        asked=outcome.header("retry-after"),
    )


def _failed(
    attempt: UnfinishedAttempt,
    now: datetime,
    *,
    code: str,
    detail: str,
    status_code: int | None = None,
    excerpt: str | None = None,
    asked: str | None = None,
) -> TryOutcome:
    failure = (code, detail, status_code, excerpt)
    ended, made = TryOutcome("FAILED", *failure), len(attempt.tries)
    if made < len(RETRY_SECONDS):
        # The schedule's delay, or more when the receiver asks for it.
        at_least = retry_after(asked, now, most=LONGEST_RETRY_AFTER) or 0
        seconds = max(jittered(RETRY_SECONDS[made], by=JITTER), at_least)
        ended = TryOutcome("QUEUED", *failure, wake_at=now + timedelta(seconds=seconds))
    if code == "gone":
        return TryOutcome("FAILED", *failure, disables="gone", otherwise=ended)
    failing_since = _failing_since(attempt)
    if failing_since is not None and now - failing_since >= DISABLED_AFTER:
        return TryOutcome("FAILED", *failure, disables="failing", otherwise=ended)
    return ended


def _failing_since(attempt: UnfinishedAttempt) -> datetime | None:
    """The beginning of its endpoint's failures, as it was read before the try."""
    return None if attempt.endpoint is None else attempt.endpoint.failing_since


async def _record(
    process: Process,
    job: Job,
    attempt: UnfinishedAttempt,
    ended: TryOutcome,
    tried: Mapping[str, Json] | None = None,
) -> None:
    await process.batches.run(record_some, process, Try(job, attempt, ended, tried))


@dataclass(frozen=True, slots=True)
class Try:
    """The outcome of a claimed attempt; `tried` tells of the call, if there was one."""

    job: Job
    attempt: UnfinishedAttempt
    outcome: TryOutcome
    tried: Mapping[str, Json] | None

    @property
    def called(self) -> tuple[str, str, str]:
        """The endpoint, with the URL which was called: what another one answered says nothing of
        it."""
        url = self.attempt.endpoint.url if self.attempt.endpoint is not None else ""
        return self.attempt.workspace_id, self.attempt.endpoint_id, url


@batched(max_items=32, concurrency=2, whose=lambda one: one.job.workspace_id)
async def record_some(process: Process, tries: Sequence[Try]) -> Sequence[CommitUnknown | None]:
    """The attempts' jobs, then their endpoints, in one transaction: everybody locks them in this
    order, and endpoints one after another in that of their ids."""
    try:
        async with process.database.write() as db:
            held = await jobs.lock(db, [one.job for one in tries])
            by_endpoint: defaultdict[tuple[str, str, str], list[Try]] = defaultdict(list)
            for one in tries:
                if one.job in held:
                    by_endpoint[one.called].append(one)
            ended: list[tuple[Try, TryOutcome]] = []
            for called in sorted(by_endpoint):
                ended += await _note(db, called, by_endpoint[called])
            await pipelining.run_all(db, [partial(_settle, *one) for one in ended])
    except CommitUnknown as error:
        return [error for _ in tries]
    for one, outcome in ended:
        if outcome.wake_at is None:
            process.metrics.count("tidings_events_ended", status=outcome.status)
        if outcome.disables is not None:
            log.warning(
                "event endpoint disabled",
                extra={"endpoint_id": one.attempt.endpoint_id, "code": outcome.disables},
            )
    return [None for _ in tries]


async def _note(
    db: Handle, called: tuple[str, str, str], tries: Sequence[Try]
) -> list[tuple[Try, TryOutcome]]:
    """Write down what tries say of their endpoint, and return what each came to by that: one
    disables it, if it may still be."""
    workspace_id, id, url = called
    endpoint = {"workspace_id": workspace_id, "id": id, "url": url}
    made = [one for one in tries if one.tried is not None]
    has_accepted = any(one.outcome.status == "SUCCEEDED" for one in made)
    # Another may have failed since that was read.
    if has_accepted or any(_failing_since(one.attempt) is None for one in made):
        await event_endpoints.set_failing(db, **endpoint, failing=not has_accepted)
    ended = []
    for one in tries:
        outcome = one.outcome
        if outcome.disables is not None and not await event_endpoints.disable(
            db,
            **endpoint,
            reason=outcome.disables,
            failing_since=_failing_since(one.attempt) if outcome.disables == "failing" else None,
        ):
            outcome = outcome.otherwise or outcome
        ended.append((one, outcome))
    return ended


async def _settle(one: Try, outcome: TryOutcome, db: Handle) -> None:
    await outbound_events.settle(
        db,
        workspace_id=one.job.workspace_id,
        id=one.job.id,
        status=outcome.status,
        reason_code=outcome.code,
        reason_detail=outcome.detail,
        response_status=outcome.status_code,
        response_excerpt=outcome.excerpt,
        tries=one.attempt.tries if one.tried is None else [*one.attempt.tries, one.tried],
        wake_at=outcome.wake_at,
        finished_at=None if outcome.wake_at else await db.now(),
    )
