"""An event goes out: claim → sign → POST → write down what came of it, by Standard Webhooks
(github.com/standard-webhooks/standard-webhooks, its specification 1.0.0).

At-least-once delivery: a try whose worker died is repeated under the same webhook-id, so that the
receiver can deduplicate. A failed event is tried ten times over three days. An endpoint that has
accepted nothing for five days, or answers 410, is disabled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from app import standard_webhooks
from app.contacts import reactions
from app.egress import Answer, Failure, Request
from app.machine import document
from app.machine.program import Json
from app.process import Process
from app.runtime import leases
from app.runtime.backoff import jittered, retry_after
from app.runtime.leases import Lease
from app.store import event_endpoints, events, jobs, runs
from app.store.db import Handle, Row

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


def _secrets(process: Process, row: Row, now: datetime) -> list[str]:
    known = [row["secret"]]
    if row["old_secret"] is not None and row["old_secret_until"] > now:
        known.append(row["old_secret"])
    bound = (row["workspace_id"], row["endpoint_id"])
    return [process.vault.decrypt(SEALED, one, *bound).decode() for one in known]


# --- claim, try, outcome --------------------------------------------------------------------------


claim = partial(leases.claim, "event_attempts")


async def post(process: Process, claimed: Row) -> None:
    """Make the claimed attempt's next try, and write down what it came to."""
    lease = Lease(process, "event_attempts", claimed)
    async with process.database.read() as db:
        row, now = await events.held(db, **jobs.fenced_key(claimed)), await db.now()
        depth = await _depth(db, row) if row is not None else 0
    if row is None or not lease.held:
        return
    if row["url"] is None or row["disabled_reason"] or row["suspended"]:
        await _set_down(process, row, now)
        return
    if claimed["claims"] > jobs.MAX_CLAIMS:
        await _record(process, row, TryOutcome("FAILED", "poisoned", POISONED))
        return
    begun = time.monotonic()
    outcome = await lease.over(process.egress.call(_request(process, row, now, depth)))
    ms = round((time.monotonic() - begun) * 1_000)
    if outcome is None:  # cut off, with the process: the next worker makes the try again
        async with process.database.write() as db:
            await events.put_off(db, **jobs.fenced_key(row), wake_at=now)
        return
    ended = _outcome_of(row, outcome, now)
    tried = {"at": document.text(now), "status": ended.status_code, "code": ended.code}
    await leases.surely(
        lambda: _record(process, row, ended, {**tried, "durationMs": ms}), row["id"]
    )


POISONED = "Sending it crashed the worker several times."


async def _depth(db: Handle, row: Row) -> int:
    """How deep in a chain the runs are that it starts, should it come back to us."""
    about = document.parse(row["data"].encode())
    if about.get("runId") is None:
        return int(about.get("depth", 0))
    return 1 + await runs.depth(db, workspace_id=row["workspace_id"], id=about["runId"])


def _request(process: Process, row: Row, now: datetime, depth: int) -> Request:
    body = document.dumps(
        {
            "type": row["type"],
            "timestamp": row["happened_at"],
            "data": document.parse(row["data"].encode()),
        }
    )
    headers = {
        "content-type": "application/json",
        reactions.DEPTH: str(depth),
        **standard_webhooks.sign(_secrets(process, row, now), row["event_id"], now, body),
    }
    return Request("POST", row["url"], list(headers.items()), body)


async def _set_down(process: Process, row: Row, now: datetime) -> None:
    """Nobody is to be called: the endpoint is gone or disabled, or its workspace suspended."""
    mine = jobs.fenced_key(row)
    if row["url"] is not None and row["disabled_reason"] is not None:
        disabled = "The endpoint was disabled meanwhile; enable it, and replay what it missed."
        return await _record(process, row, TryOutcome("FAILED", "endpoint_disabled", disabled))
    async with process.database.write() as db:
        if row["url"] is None:
            return await events.delete_attempt(db, **mine)
        return await events.put_off(db, **mine, wake_at=now + SUSPENDED_FOR)


# --- what it came to ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """The result of a try: SUCCEEDED, FAILED, or QUEUED again until `wake_at`. `disables` is the
    reason to disable the endpoint, if any."""

    status: str
    code: str | None = None
    detail: str | None = None
    status_code: int | None = None
    excerpt: str | None = None
    wake_at: datetime | None = None
    disables: str | None = None


def _outcome_of(row: Row, outcome: Answer | Failure, now: datetime) -> TryOutcome:
    if isinstance(outcome, Failure):
        return _failed(row, now, code=outcome.code, detail=outcome.detail)
    excerpt = document.text(outcome.body[:EXCERPT_BYTES].decode("utf-8", "replace"))
    if 200 <= outcome.status < 300:
        return TryOutcome("SUCCEEDED", status_code=outcome.status, excerpt=excerpt)
    return _failed(
        row,
        now,
        code="gone" if outcome.status == GONE else "http_status",
        detail=f"The endpoint answered {outcome.status}; a 2xx says that it has the event.",
        status_code=outcome.status,
        excerpt=excerpt,
        asked=outcome.header("retry-after"),
    )


def _failed(
    row: Row,
    now: datetime,
    *,
    code: str,
    detail: str,
    status_code: int | None = None,
    excerpt: str | None = None,
    asked: str | None = None,
) -> TryOutcome:
    told = (code, detail, status_code, excerpt)
    if code == "gone":
        return TryOutcome("FAILED", *told, disables="gone")
    failing_since = row["failing_since"]
    if failing_since is not None and now - failing_since >= DISABLED_AFTER:
        return TryOutcome("FAILED", *told, disables="failing")
    made = len(row["tries"])
    if made >= len(RETRY_SECONDS):
        return TryOutcome("FAILED", *told)
    return TryOutcome(
        "QUEUED", *told, wake_at=now + timedelta(seconds=_retry_delay(made, asked, now))
    )


def _retry_delay(made: int, asked: str | None, now: datetime) -> float:
    """Seconds before the next try: the schedule's, or more when the receiver asks for it."""
    seconds = jittered(RETRY_SECONDS[made], by=JITTER)
    return max(seconds, retry_after(asked, now, most=LONGEST_RETRY_AFTER) or 0)


async def _record(
    process: Process, row: Row, ended: TryOutcome, tried: Mapping[str, Json] | None = None
) -> None:
    """The attempt, then its endpoint, in one transaction: everybody locks them in this order."""
    async with process.database.write() as db:
        held = await events.settle(
            db,
            **jobs.fenced_key(row),
            status=ended.status,
            reason_code=ended.code,
            reason_detail=ended.detail,
            response_status=ended.status_code,
            response_excerpt=ended.excerpt,
            tries=row["tries"] if tried is None else [*row["tries"], tried],
            wake_at=ended.wake_at,
            finished_at=None if ended.wake_at else await db.now(),
        )
        if not held or tried is None:
            return
        endpoint = {"workspace_id": row["workspace_id"], "id": row["endpoint_id"]}
        succeeded = ended.status == "SUCCEEDED"
        if succeeded == (row["failing_since"] is not None):
            await event_endpoints.set_failing(db, **endpoint, failing=not succeeded)
        if ended.disables is not None:
            await event_endpoints.disable(db, **endpoint, reason=ended.disables)
    if ended.wake_at is None:
        process.metrics.count("tidings_events_ended", status=ended.status)
    if ended.disables is not None:
        log.warning(
            "event endpoint disabled",
            extra={"endpoint_id": row["endpoint_id"], "code": ended.disables},
        )
