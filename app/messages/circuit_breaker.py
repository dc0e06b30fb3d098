"""A circuit breaker for each workspace and channel: a provider that does not take what it is given
is left alone for a while (open), then probed with one message (half-open); when it takes that one,
the others follow (closed).

The state is in the database, by workspace and channel, so that all workers share it. A message that
may not be sent is held back: that costs no try, and nobody claims it until the circuit closes. Each
message that is taken wakes two others, so that a queue recovers fast but not all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from app.database.db import Handle
from app.database.visits import Visits
from app.machine import document
from app.machine.reasons import Reason
from app.process import Process
from app.providers.base import Receipt, SendError
from app.runtime.backoff import jittered
from app.store import circuit_breakers
from app.store.circuit_breakers import OpenCircuit
from app.store.held_messages import CalledMessage
from app.store.row_keys import ProviderKey

OPEN_AFTER = 5  # failures in a row; at once when the provider sent a Retry-After
AT_ONCE = frozenset({Reason.RECIPIENTS_REFUSED})  # they were counted before
# Seconds that a circuit is open: the first time, then each time the double, and at most.
OPEN_SECONDS: Mapping[str, tuple[float, float]] = {
    Reason.PROVIDER_THROTTLED: (1.0, 10.0),
    Reason.PROVIDER_UNREACHABLE: (5.0, 120.0),
    Reason.PROVIDER_MISCONFIGURED: (30.0, 600.0),  # some providers lock out who knocks too often
    Reason.RECIPIENTS_REFUSED: (300.0, 3_600.0),
}
# The provider has taken what it was given, whatever it thinks of the message or its recipient.
ANSWERED = frozenset(
    {
        Reason.PROVIDER_REJECTED,
        Reason.RECIPIENT_DEFERRED,
        Reason.BOUNCED_HARD,
        Reason.BOUNCED_SOFT,
        Reason.SUPPRESSED_STOPPED,
    }
)
PROBE_TIMEOUT = timedelta(seconds=30)  # then another message may probe
HELD_BACK = timedelta(hours=1)  # then a message checks again, should nobody have woken it
WOKEN_BY_SUCCESS = 2
PROBES_AT_ONCE = 100

# How long a message is retried: longer with a provider that throttles than with a silent one.
RETRY_FOR: Mapping[str, timedelta] = {
    Reason.PROVIDER_THROTTLED: timedelta(hours=72),
    Reason.RECIPIENT_DEFERRED: timedelta(hours=72),
}
DEFAULT_RETRY_FOR = timedelta(hours=24)


EXPLANATIONS: Mapping[str, str] = {
    Reason.PROVIDER_THROTTLED: "throttles until",
    Reason.RECIPIENTS_REFUSED: "refuses so many recipients as unknown that it may be at fault, and"
    " is asked again at",
    Reason.PROVIDER_UNREACHABLE: "does not answer, and is asked again at",
    Reason.PROVIDER_MISCONFIGURED: "refuses the channel's credentials or sender. Save the channel's"
    " settings again to retry at once; otherwise it is probed at",
}


async def check(db: Handle, row: CalledMessage, provider: str) -> OpenCircuit | None:
    """None when the provider may be called; else its open circuit."""
    if row.ask_at is None or row.trouble_provider != provider:
        return None
    which: ProviderKey = {
        "workspace_id": row.workspace_id,
        "channel": row.channel,
        "provider": provider,
    }
    if await circuit_breakers.try_half_open(db, **which, until=await db.now() + PROBE_TIMEOUT):
        return None
    return await circuit_breakers.still_open(db, **which)


def explain(circuit: OpenCircuit) -> str:
    """Explain why a message waits for an open circuit, in a sentence."""
    at = document.text(circuit.ask_at)
    return f"Waiting: the provider {EXPLANATIONS[circuit.code]} {at}."


def failing_with(row: CalledMessage) -> tuple[str, datetime] | None:
    """The trouble of the attempt for which it is retried longest, and since when it has had any."""
    if row.trouble_code is None or row.trouble_since is None:
        return None
    return row.trouble_code, row.trouble_since


def failing(row: CalledMessage, code: str, now: datetime) -> tuple[str, datetime]:
    """The same with one more trouble. It never begins anew: of two that take turns neither would
    end."""
    before, since = failing_with(row) or (code, now)
    return max(before, code, key=_retry_for), since


def is_expired(code: str, since: datetime, now: datetime) -> bool:
    """Return whether a message has been retried for as long as it is with this code."""
    return now - since >= _retry_for(code)


def _retry_for(code: str) -> timedelta:
    return RETRY_FOR.get(code, DEFAULT_RETRY_FOR)


@dataclass(frozen=True, slots=True)
class Call:
    """A message that a provider was called for; `is_probe` when its circuit was half-open."""

    row: CalledMessage  # as it is held now
    provider: str
    is_probe: bool

    @property
    def key(self) -> dict[str, str]:
        return {"workspace_id": self.row.workspace_id, "channel": self.row.channel}


async def record_result(
    process: Process, db: Handle, call: Call, result: Receipt | SendError
) -> None:
    """Open or close the circuit by the result of a call. To be done last in a transaction: it may
    wait for others that record the same."""
    if isinstance(result, Receipt) or result.code in ANSWERED:
        trouble, is_asked = call.row.trouble_provider, call.row.ask_at is not None
        # One that was in progress when the circuit was opened says nothing.
        is_older = trouble == call.provider and is_asked and not call.is_probe
        if trouble is not None and not is_older:
            await circuit_breakers.close(db, **call.key)
            if not await _wake(process, db, call.key, WOKEN_BY_SUCCESS):
                await circuit_breakers.delete_idle(db, **call.key)
    elif result.code in OPEN_SECONDS:
        await _record_failure(db, call, result.code, result.retry_after_seconds)
    elif result.code == Reason.OUTCOME_UNKNOWN:
        # More messages might be lost too, and of none would anybody know whether it arrived.
        await _record_failure(db, call, Reason.PROVIDER_UNREACHABLE, None)


async def _record_failure(
    db: Handle, call: Call, code: str, retry_after_seconds: float | None
) -> None:
    circuit = await circuit_breakers.record_failure(
        db, **call.key, provider=call.provider, code=code, is_probe=call.is_probe
    )
    now = await db.now()
    before = None if call.is_probe else circuit.ask_at
    open_until = before if before is not None and before > now else None
    if retry_after_seconds is not None:
        seconds = retry_after_seconds
    elif open_until is not None:
        seconds = 0.0  # it stays open for as long as it was to be
    elif call.is_probe or circuit.failures >= OPEN_AFTER or code in AT_ONCE:
        # Exponential backoff with jitter, for many workspaces may have the same provider.
        first, longest = OPEN_SECONDS[code]
        times = min(max(circuit.failures - OPEN_AFTER, 0), 16)
        seconds = jittered(min(first * 2**times, longest))
    else:
        return
    ask_at = now + timedelta(seconds=seconds)
    if open_until is None or ask_at > open_until:
        await circuit_breakers.open_until(db, **call.key, ask_at=ask_at)
    await circuit_breakers.hold_back(db, workspace_id=call.row.workspace_id, id=call.row.id)
    if open_until is None:
        await circuit_breakers.schedule_probe(db, **call.key, ask_at=ask_at)


async def _wake(process: Process, db: Handle, key: Mapping[str, str], limit: int) -> bool:
    woken = await circuit_breakers.wake_held_back(db, **key, limit=limit)
    for id in woken:
        process.hints.due(db, "message", key["workspace_id"], id)
    return bool(woken)


async def probe_batch(process: Process) -> bool:
    """Wake a held back message for each circuit whose probe is due and was not sent, or that has
    closed while others are still held back: the message that was to be the probe, or those that
    were woken by its success, may have been suppressed meanwhile, or their worker lost."""
    rounds = process.rounds
    open_ones, closed_ones = rounds["circuits to probe"], rounds["closed circuits"]
    most = PROBES_AT_ONCE
    async with process.shards.reading(process.database) as db:
        due = await circuit_breakers.due_probes(db, after=open_ones.after, limit=most)
        closed = await circuit_breakers.closed(db, after=closed_ones.after, limit=most)
    visits = Visits(process.database)
    for workspace_id, channel in (*due, *closed):
        circuit = {"workspace_id": workspace_id, "channel": channel}
        await visits.visit(workspace_id, partial(_probe, process, circuit))
    open_ones.turn(due, most)
    closed_ones.turn(closed, most)
    return False  # the messages that were woken have not been sent yet


async def _probe(process: Process, circuit: Mapping[str, str], db: Handle) -> None:
    if await circuit_breakers.lock_due(db, **circuit) and not await _wake(process, db, circuit, 1):
        await circuit_breakers.delete_idle(db, **circuit)
