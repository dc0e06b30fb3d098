"""Recipients that a provider refuses or puts off: that is about them, unless they are too many.

A server that has lost its list of users refuses everybody as unknown, or says that every mailbox is
full. So of more than one in twenty recipients, of at least fifty in ten minutes, the server is at
fault: its circuit opens, their messages wait for it, nobody is suppressed any more, and whoever was
within these minutes is not any longer. And a server that asks for less may say so as another puts
off strangers: when it puts off more than half of at least ten recipients, it throttles.

Who judges a refusal has the provider's lock from before they look until their commit. So of two
that judge at once, the second one sees what the first has counted, suppressed or opened. The lock
comes before all others, and nobody asks for it who holds one of these. What was judged is counted
at the end: all that is sent through the provider writes the same row.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from app.consent import consent
from app.database.db import Handle
from app.database.visits import Visits
from app.machine.reasons import Reason
from app.process import Process
from app.providers.base import Receipt, SendError
from app.store import refused_recipients, suppressions
from app.store.refused_recipients import Undoing
from app.store.row_keys import WorkspaceKey

log = logging.getLogger(__name__)

LEAST = 50  # recipients; of fewer nothing can be said
ONE_IN = 20  # as many may be dead
LEAST_PUT_OFF = 10
UNDONE_AT_ONCE = 100

Result: TypeAlias = Receipt | SendError
ProviderKey: TypeAlias = tuple[str, str, str]  # workspace, channel, name
REFUSED = frozenset({Reason.BOUNCED_HARD, Reason.BOUNCED_SOFT})
JUDGED = frozenset({Reason.PROVIDER_REJECTED, *REFUSED})


class CallOutcome(NamedTuple):
    """The outcome of a call. No provider: one that refuses nobody at once. A recipient who is put
    off again is no other one, nor is one whose outcome is recorded again."""

    provider: ProviderKey | None
    result: Result
    is_first: bool = True  # try of the attempt
    is_late: bool = False  # perhaps recorded by a COMMIT whose answer was lost: judged, not counted


@dataclass(slots=True)
class Tally:
    """A provider's verdicts on the recipients of these outcomes; `dead` may be full, too."""

    recipients: int = 0
    dead: int = 0
    refuses: bool = False  # somebody, whether or not that is counted
    put_off: int = 0  # at their first try; they are not among the recipients
    puts_off: bool = False
    is_refusing: bool = False  # since before
    refuses_too_many: bool = False
    throttles: bool = False

    def add(self, outcome: CallOutcome) -> None:
        result = outcome.result
        if isinstance(result, Receipt) or result.code in JUDGED:
            self.refuses |= _is_refusal(result)
            self.recipients += not outcome.is_late
            self.dead += _is_refusal(result) and not outcome.is_late
        elif result.by_policy:
            self.puts_off = True
            self.put_off += outcome.is_first and not outcome.is_late


@dataclass(frozen=True, slots=True)
class JudgedRefusals:
    """The results in order, and what `count` is to be given at the end of the transaction."""

    results: list[Result]
    tallies: Mapping[ProviderKey, Tally]


async def judge(db: Handle, outcomes: Sequence[CallOutcome]) -> JudgedRefusals:
    """Treat what a provider at fault refuses as not accepted; what a throttling one puts off waits
    for it."""
    tallies: dict[ProviderKey, Tally] = defaultdict(Tally)
    for outcome in outcomes:
        if outcome.provider is not None:
            tallies[outcome.provider].add(outcome)
    for provider, tally in sorted(tallies.items(), key=lambda one: one[0]):
        await _judge(db, _key(provider), tally)
    results: list[Result] = []
    for outcome in outcomes:
        result = outcome.result
        if outcome.provider is not None and isinstance(result, SendError):
            tally = tallies[outcome.provider]
            if _is_refusal(result) and (tally.is_refusing or tally.refuses_too_many):
                result = SendError("not_accepted", Reason.RECIPIENTS_REFUSED, result.detail)
            elif result.by_policy and tally.throttles:
                result = SendError("not_accepted", Reason.PROVIDER_THROTTLED, result.detail)
        results.append(result)
    return JudgedRefusals(results, tallies)


async def _judge(db: Handle, key: Mapping[str, str], tally: Tally) -> None:
    if tally.refuses:
        await refused_recipients.lock(db, **key)
        tally.is_refusing = await refused_recipients.is_refusing(db, **key)
    if not tally.refuses and not tally.puts_off:
        return
    counted = await refused_recipients.counted(db, **key)
    recipients = counted.recipients + tally.recipients
    dead = counted.dead + tally.dead
    put_off = counted.put_off + tally.put_off
    asked = recipients + put_off
    tally.throttles = asked >= LEAST_PUT_OFF and put_off * 2 > asked
    if tally.is_refusing or not tally.dead or recipients < LEAST or dead * ONE_IN <= recipients:
        return
    tally.refuses_too_many = True
    since = await db.now() - refused_recipients.WINDOW
    await refused_recipients.undo_since(db, **key, since=since)
    db.after_commit(partial(_warn, key, {"recipients": recipients, "dead": dead}))


async def count(db: Handle, judged: JudgedRefusals) -> None:
    """Count the refusals; those while the circuit is open, or after it, begin a new count. To be
    done last in a transaction: others wait that record the same."""
    for provider, tally in sorted(judged.tallies.items(), key=lambda one: one[0]):
        if tally.refuses_too_many:
            await refused_recipients.forget_counts(db, **_key(provider))
        elif not tally.is_refusing and (tally.recipients or tally.put_off):
            await refused_recipients.count(
                db,
                **_key(provider),
                recipients=tally.recipients,
                dead=tally.dead,
                put_off=tally.put_off,
            )


def _key(provider: ProviderKey) -> dict[str, str]:
    return dict(zip(("workspace_id", "channel", "provider"), provider, strict=True))


def _warn(key: Mapping[str, str], figures: Mapping[str, int]) -> None:
    log.warning("provider refuses too many recipients", extra={**key, **figures})


def _is_refusal(result: Result) -> bool:
    return isinstance(result, SendError) and result.code in REFUSED


async def remember(
    db: Handle, provider: ProviderKey, message_id: str, suppression: consent.Suppression | None
) -> None:
    """Remember what a refusal has suppressed, for as long as that may have to be undone."""
    if suppression is None or suppression.id is None or suppression.reason != "bounced":
        return
    await refused_recipients.insert(
        db, **_key(provider), suppression_id=suppression.id, message_id=message_id
    )


async def undo_batch(process: Process) -> bool:
    """Lift what providers at fault have suppressed, each by itself; the log names them."""
    rounds, most = process.rounds["suppressions to undo"], UNDONE_AT_ONCE
    async with process.shards.reading(process.database) as db:
        rows = await refused_recipients.to_undo(db, after=rounds.after, limit=most)
    visits = Visits(process.database)
    for row in rows:
        await visits.visit(row.workspace_id, partial(_undo, process, row))
    return rounds.turn([(row.workspace_id, row.suppression_id) for row in rows], most)


async def _undo(process: Process, row: Undoing, db: Handle) -> None:
    where: WorkspaceKey = {"workspace_id": row.workspace_id}
    held = await suppressions.by_id(db, **where, id=row.suppression_id)
    if held is not None:
        await consent.lift_one(process, db, held, **where, source="provider")
    await refused_recipients.delete(db, **where, suppression_id=row.suppression_id)
    about = {**asdict(row), "found": held is not None}
    db.after_commit(partial(log.warning, "suppression undone", extra=about))
