"""The sandbox's channels: every message is captured, and may fail on purpose."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from app.database import pipelining
from app.database.db import Database, Handle
from app.errors import Unavailable
from app.machine.content import CHANNELS
from app.messages import callbacks
from app.process import Process
from app.providers.base import Channel, Message, Receipt
from app.providers.callbacks import Became
from app.providers.inbox import LOSING, Captured, Inbox, receipt_of
from app.runtime.batching import batched
from app.store import sandbox, sandbox_faults
from app.store.held_messages import CalledMessage

log = logging.getLogger(__name__)

MAX_AT_ONCE = 8_192  # characters


def channels(process: Process) -> Mapping[str, Channel]:
    """One of each; what they report comes back as a provider's callback would."""

    async def capture(captured: Captured) -> str | None:
        return await process.batches.run(capture_some, process.database, captured)

    async def report(captured: Captured, became: Became) -> None:
        try:
            await callbacks.captured(process, captured, became)
        except Unavailable:
            log.warning("callback was lost", extra={"message_id": captured.message_id})

    return {
        name: Inbox(capture, process.settings.mail_from, name, report=report) for name in CHANNELS
    }


async def capture_at_once(
    db: Handle, row: CalledMessage, channel: Channel, message: Message
) -> Receipt | None:
    """Capture in the transaction of the intent, for no provider outside is called. None where a
    call must be seen to be made: the channel is a real one, a fault waits, its circuit is not
    closed, or composing takes too long for a transaction."""
    if type(channel) is not Inbox or row.trouble_provider is not None:
        return None
    if sum(len(part or "") for part in message.content.values()) > MAX_AT_ONCE:
        return None
    if await sandbox_faults.waiting(db, workspace_id=message.workspace_id):
        return None
    captured = channel.captured(message)
    await sandbox.insert(db, captured)
    return receipt_of(captured)


@batched(whose=lambda one: one.workspace_id)
async def capture_some(database: Database, captured: Sequence[Captured]) -> Sequence[str | None]:
    """The fault that applies to each."""
    async with database.write() as db:
        faults = await sandbox_faults.take_each(db, captured)
        kept = [one for one, fault in zip(captured, faults, strict=True) if fault not in LOSING]
        await pipelining.run_all(db, [partial(sandbox.insert, captured=one) for one in kept])
    return faults
