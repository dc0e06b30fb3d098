"""The freezing of an audience: contact by contact in the order of their ids, a chunk a transaction.

Who was created after `frozenAt` is not in it, and whoever is in it is there once, however often a
worker dies on the way: a chunk, its counts and the place that it ends at are one transaction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from app.audience.chunks import ChunkSize
from app.broadcasts import audience as audiences
from app.broadcasts.audience import CHUNK, FIRST, NONE, Audience
from app.database.db import Handle
from app.process import Process
from app.store import broadcast_audiences as stored_audiences
from app.store import broadcast_recipients as recipients
from app.store import broadcasts
from app.store.broadcast_audiences import UNSUBSCRIBED, Window
from app.store.broadcasts import Broadcast
from app.store.row_keys import BroadcastKey


async def freeze(
    process: Process, db: Handle, broadcast: Broadcast, audience: Audience, size: ChunkSize
) -> Broadcast:
    """Freeze one chunk of a broadcast whose job is held. Raises CutOff."""
    if broadcast.frozen_at is None:
        raise ValueError(f"{broadcast.id} has no time to freeze its audience at")
    after = broadcast.frozen_until or FIRST
    with size.measured():
        following = await audiences.next_window(db, audience, after, size, most=CHUNK)
        if following is None:
            changed = replace(broadcast, is_frozen=True)
        else:
            window = replace(following.window, created_until=broadcast.frozen_at)
            added = await _freeze(process, db, broadcast, audience, window, size=size)
            frozen = dict(Counter(broadcast.frozen) + added)
            changed = replace(broadcast, frozen=frozen, frozen_until=window.until)
    await broadcasts.note(
        db,
        workspace_id=broadcast.workspace_id,
        id=broadcast.id,
        frozen=dict(changed.frozen),
        frozen_until=changed.frozen_until,
        is_frozen=changed.is_frozen,
    )
    return changed


async def _freeze(
    process: Process,
    db: Handle,
    broadcast: Broadcast,
    audience: Audience,
    window: Window,
    *,
    size: ChunkSize,
) -> Counter[str]:
    """Add the window's contacts as recipients, counted by the reason for which they get nothing."""
    which: BroadcastKey = {"workspace_id": broadcast.workspace_id, "broadcast_id": broadcast.id}
    await stored_audiences.freeze(
        db,
        await audiences.fitting(db, audience, window, size),
        audience.gate,
        await audiences.turns_in(db, audience, window),
        window,
        **which,
    )
    added = await stored_audiences.count_frozen(db, window, **which)
    if added[UNSUBSCRIBED]:
        out = await stored_audiences.frozen_unsubscribed(db, audience.channel, window, **which)
        judged = await audiences.judge(process, db, audience, out)
        others = {id: reason for id, reason in judged.items() if reason != UNSUBSCRIBED}
        await recipients.judge(db, **which, reasons=others)
        added[UNSUBSCRIBED] -= len(judged)
        added += Counter(reason or NONE for reason in judged.values())
    return added
