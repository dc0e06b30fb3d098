"""Reports of what became of an attempt: by its provider, or by a member who looked.

The status of an attempt only rises, from accepted to delivered, bounced or complained. So any
report resolves an UNKNOWN, and a late `sent` changes nothing. A provider knows better than a
member, who can only resolve what is UNKNOWN.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from app.database.db import Handle
from app.machine import document
from app.machine.reasons import Reason
from app.messages import settling
from app.process import Process
from app.providers.callbacks import Became
from app.store import delivery_attempts, delivery_reports, held_messages, runs
from app.store.delivery_reports import Ending, ReportedAttempt
from app.store.held_messages import HeldMessage, MessageAttempt
from app.store.row_keys import RowKey

log = logging.getLogger(__name__)

# How far an attempt has come; it never goes back. Of two ends of one rank the first stays.
RANKS: Mapping[str, int] = {"SENT": 1, "FAILED": 2, "DELIVERED": 2, "BOUNCED": 3, "COMPLAINED": 5}
HARD_RANK = 4

# What a member can find. Neither says more than an acceptance, or that there was none.
ARRIVED = Became("SENT", Reason.FOUND_ARRIVED)
LOST = Became("FAILED", Reason.FOUND_LOST)
FOUND = {ARRIVED.code, LOST.code}


def rises(row: ReportedAttempt, became: Became) -> bool:
    """Return whether the report moves the attempt."""
    return became.status is not None and _rank(became.status, became.code) > _rank(
        row.status, row.reason_code
    )


def _rank(status: str, code: str | None) -> int:
    if code in FOUND:
        return 0
    return HARD_RANK if code == Reason.BOUNCED_HARD else RANKS.get(status, 0)


async def remember(
    db: Handle,
    row: ReportedAttempt,
    became: Became,
    detail: str | None,
    provider_message_id: str | None = None,
) -> None:
    """Record the report in the attempt's history, whatever it changes."""
    event = {
        "at": document.text(await db.now()),
        "status": became.status or row.status,
        "code": became.code,
        "detail": _detail(row, detail),
    }
    await delivery_reports.remember(
        db,
        workspace_id=row.workspace_id,
        attempt_id=row.attempt_id,
        provider_message_id=provider_message_id,
        events=[*row.events, event][-settling.KEPT_EVENTS :],
    )


def _detail(row: ReportedAttempt, detail: str | None) -> str | None:
    """A report's words may name an address, which is not written down again once it is erased."""
    return detail if row.to_address is not None else None


async def move(
    process: Process, db: Handle, row: ReportedAttempt, became: Became, detail: str | None
) -> None:
    """Give the attempt the status that it became, and with the newest its message and the run that
    waits for it. Where an older one has arrived, what waits to be sent again has ended."""
    status, code = became.status, became.code
    if status is None:
        return
    ending = Ending(status, code, _detail(row, detail) if code else None)
    await delivery_reports.move_attempt(
        db,
        workspace_id=row.workspace_id,
        attempt_id=row.attempt_id,
        ending=ending,
        by_provider=code not in FOUND,
    )
    await settling.record_event(db, row, settling.Transition(status, code))
    db.after_commit(partial(_log_end, process, row, status))
    if row.is_newest:
        await _end(process, db, row, ending, is_awaited=row.status not in settling.ENDED)
    elif settling.ENDED[status] == "SENT":  # now: what is parked has no worker that would look
        held = await held_messages.locked(db, workspace_id=row.workspace_id, id=row.id)
        if held is not None:
            await has_arrived(process, db, held)


async def has_arrived(process: Process, db: Handle, row: HeldMessage) -> bool:
    """Return whether an earlier attempt of a message that waits to be sent again has arrived. Then
    that is the message's end, and the new attempt is not made."""
    where = {"workspace_id": row.workspace_id, "message_id": row.id}
    waits = row.status == "QUEUED" and row.number > 1
    ending = await delivery_reports.arrived(db, **where) if waits else None
    if ending is None:
        return False
    not_made = settling.Transition("SUPPRESSED", Reason.ARRIVED_BEFORE)
    await settling.note(db, row, not_made, channel=None, tries=row.tries)
    await _end(process, db, row, ending, is_awaited=True)
    return True


async def _end(
    process: Process, db: Handle, row: MessageAttempt, ending: Ending, *, is_awaited: bool
) -> None:
    """The message has come to this end, for which its run may be waiting."""
    await delivery_reports.move_message(db, workspace_id=row.workspace_id, id=row.id, ending=ending)
    await settling.settle_recipient(db, row, ending.status, ending.reason_code)
    if row.run_id is not None and is_awaited:
        where: RowKey = {"workspace_id": row.workspace_id, "id": row.run_id}
        await runs.wake(db, **where, awaited_id=row.id)
        process.hints.due(db, "run", row.workspace_id, row.run_id)


def _log_end(process: Process, row: ReportedAttempt, status: str) -> None:
    process.metrics.count("tidings_message_outcomes", channel=row.channel, status=status)
    whose = {"workspace_id": row.workspace_id, "message_id": row.id}
    log.info("message reported", extra={**whose, "status": status})


async def resolve(
    process: Process, db: Handle, *, workspace_id: str, id: str, found: Became, detail: str
) -> bool | None:
    """Record what a member found about a message that is UNKNOWN: ARRIVED or LOST. False when that
    is known already, None when the message is not UNKNOWN and nobody found this."""
    attempts = await delivery_attempts.of_message(db, workspace_id=workspace_id, message_id=id)
    row = await delivery_reports.locked(db, workspace_id=workspace_id, attempt_id=attempts[-1])
    if row is None or not row.is_newest:
        return None
    if row.status != "UNKNOWN":
        return False if row.reason_code == found.code else None
    await remember(db, row, found, detail)
    await move(process, db, row, found, detail)
    return True
