"""A circuit breaker for each workspace and channel: a provider that does not take what it is given
is left alone for a while (open), then asked with one message (half-open); when it takes that one,
the others follow (closed).

What is known of a provider stands in the database, by workspace and channel, so that all workers
know the same. Whoever is about to call and may not is held back: it costs no try, and nobody claims
it until the provider is well. Each message that is taken wakes two, so that a queue comes back fast
and not all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.channels.base import Receipt, SendError
from app.machine import document
from app.machine.reasons import Reason
from app.process import Process
from app.runtime.backoff import jittered
from app.store import troubles
from app.store.db import Handle, Row

SHUT_AFTER = 5  # failures in a row; who says when to come back is believed at once
# Seconds: of the first pause, each the double of the one before, and of the longest.
PAUSES: Mapping[str, tuple[float, float]] = {
    Reason.PROVIDER_THROTTLED: (1.0, 10.0),
    Reason.PROVIDER_UNREACHABLE: (5.0, 120.0),
    Reason.PROVIDER_MISCONFIGURED: (30.0, 600.0),  # some providers lock out who knocks too often
}
ASKING = timedelta(seconds=30)  # an answer that takes longer is asked for beside
HELD_BACK = timedelta(hours=1)  # then it looks for itself, should nobody have woken it
WOKEN_BY_ONE = 2
ASKED_AT_ONCE = 100

# How long it is tried for: a provider that says “not now” has more time than one that says nothing.
PATIENCE: Mapping[str, timedelta] = {Reason.PROVIDER_THROTTLED: timedelta(hours=72)}
USUAL_PATIENCE = timedelta(hours=24)


WAITS_FOR: Mapping[str, str] = {
    Reason.PROVIDER_THROTTLED: "throttles until",
    Reason.PROVIDER_UNREACHABLE: "does not answer, and is asked again at",
    Reason.PROVIDER_MISCONFIGURED: "does not take the channel's credentials or sender: set the"
    " channel up anew, and it is asked at once; else at",
}


async def may_call(db: Handle, row: Row, provider: str) -> Row | None:
    """None when it may; else the trouble that holds it back, as {code, ask_at}."""
    if row["ask_at"] is None or row["trouble_provider"] != provider:
        return None
    which = {
        "workspace_id": row["workspace_id"],
        "channel": row["channel"],
        "provider": provider,
    }
    if await troubles.ask(db, **which, until=await db.now() + ASKING):
        return None
    return await troubles.closed(db, **which)


def told(trouble: Row) -> str:
    """For whoever wonders why a message waits."""
    at = document.text(trouble["ask_at"])
    return f"Waiting: the provider {WAITS_FOR[trouble['code']]} {at}."


def trouble_of(row: Row) -> tuple[str, datetime] | None:
    """What the attempt has come to every time since when."""
    return (row["trouble_code"], row["trouble_since"]) if row["trouble_since"] else None


def trouble_since(row: Row, code: str, now: datetime) -> datetime:
    trouble = trouble_of(row)
    return trouble[1] if trouble and trouble[0] == code else now


def is_hopeless(code: str, since: datetime, now: datetime) -> bool:
    return now - since >= PATIENCE.get(code, USUAL_PATIENCE)


@dataclass(frozen=True, slots=True)
class Called:
    """A message that a provider was given; `asked` when it was in trouble, to learn how it is."""

    row: Row  # as it is held now
    provider: str
    asked: bool

    @property
    def queue(self) -> dict[str, str]:
        return {"workspace_id": self.row["workspace_id"], "channel": self.row["channel"]}


async def learn(process: Process, db: Handle, called: Called, result: Receipt | SendError) -> None:
    """What the answer says about the provider. The last that a transaction does: it may wait for
    others who learn the same."""
    if isinstance(result, Receipt) or result.code == Reason.PROVIDER_REJECTED:
        await _learn_that_it_works(process, db, called)
    elif result.code in PAUSES:
        await _learn_that_it_fails(db, called, result.code, result.retry_after_seconds)
    elif result.code == Reason.OUTCOME_UNKNOWN:
        # Given more, it may swallow more, and nobody would know of any whether it arrived.
        await _learn_that_it_fails(db, called, Reason.PROVIDER_UNREACHABLE, None)


async def _learn_that_it_works(process: Process, db: Handle, called: Called) -> None:
    if called.row["trouble_provider"] is None:
        return
    is_its_own = called.row["trouble_provider"] == called.provider
    if is_its_own and called.row["ask_at"] is not None and not called.asked:
        return  # it was under way when the provider asked to be left alone
    await troubles.calm(db, **called.queue)
    if not await _wake(process, db, called.queue, WOKEN_BY_ONE):
        await troubles.forget(db, **called.queue)


async def _learn_that_it_fails(
    db: Handle, called: Called, code: str, retry_after_seconds: float | None
) -> None:
    trouble = await troubles.failed(
        db, **called.queue, provider=called.provider, code=code, asked=called.asked
    )
    now = await db.now()
    is_shut = not called.asked and trouble["ask_at"] is not None and trouble["ask_at"] > now
    if retry_after_seconds is not None:
        pause = retry_after_seconds
    elif is_shut:
        pause = 0.0  # what is known is enough
    elif called.asked or trouble["failures"] >= SHUT_AFTER:
        pause = _pause(code, trouble["failures"] - SHUT_AFTER)
    else:
        return
    ask_at = now + timedelta(seconds=pause)
    if not is_shut or ask_at > trouble["ask_at"]:
        await troubles.shut(db, **called.queue, ask_at=ask_at)
    await troubles.hold_back(db, workspace_id=called.row["workspace_id"], id=called.row["id"])
    if not is_shut:
        await troubles.call_next(db, **called.queue, ask_at=ask_at)


async def _wake(process: Process, db: Handle, queue: Mapping[str, str], limit: int) -> bool:
    woken = await troubles.wake(db, **queue, limit=limit)
    for id in woken:
        process.queue.deliver(db, queue["workspace_id"], id)
    return bool(woken)


def _pause(code: str, times: int) -> float:
    """Spread, for there are many workspaces, and one provider may be that of all."""
    first, longest = PAUSES[code]
    return jittered(min(first * 2 ** min(max(times, 0), 16), longest))


async def ask_some(process: Process) -> bool:
    """A chore: where nobody asked although the time has come, one of those who wait does. What was
    to ask may have been suppressed meanwhile, or its worker lost."""
    async with process.database.read() as db:
        if not await troubles.any_overdue(db):
            return False
    async with process.database.write() as db:
        for row in await troubles.overdue(db, limit=ASKED_AT_ONCE):
            if not await _wake(process, db, row, 1):
                await troubles.forget(db, **row)
    return False  # whoever was woken has not asked yet
