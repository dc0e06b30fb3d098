"""The sandbox's channels: every message is captured, and may fail on purpose."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from app.channels.base import Channel
from app.channels.inbox import LOSING, Captured, Inbox
from app.channels.telling import Became
from app.errors import Unavailable
from app.machine.content import CHANNELS
from app.messages import callbacks
from app.process import Process
from app.runtime.batching import BatchKind
from app.store import sandbox, sandbox_faults
from app.store.db import Database

log = logging.getLogger(__name__)


def channels(process: Process) -> Mapping[str, Channel]:
    """One of each; what they report comes back as a provider's callback would."""

    async def capture(captured: Captured) -> str | None:
        return await process.batches.submit(CAPTURES, process.database, captured)

    async def report(captured: Captured, became: Became) -> None:
        try:
            await callbacks.captured(process, captured, became)
        except Unavailable:
            log.warning("callback was lost", extra={"message_id": captured.message_id})

    return {
        name: Inbox(capture, process.settings.mail_from, name, report=report) for name in CHANNELS
    }


async def _capture_some(database: Database, captured: Sequence[Captured]) -> Sequence[str | None]:
    """The fault that applies to each."""
    async with database.write() as db:
        faults = await sandbox_faults.take_each(db, captured)
        kept = [one for one, fault in zip(captured, faults, strict=True) if fault not in LOSING]
        await sandbox.insert_each(db, kept)
    return faults


CAPTURES = BatchKind(_capture_some)
