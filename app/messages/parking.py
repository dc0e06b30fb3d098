"""Messages wait while their workspace's sending, or their broadcast, is paused."""

from __future__ import annotations

from app.database.db import Handle
from app.errors import Unavailable
from app.machine.reasons import Reason
from app.process import Process
from app.store import broadcasts, parked, workspaces
from app.store.held_messages import UnsettledMessage

WOKEN_AT_ONCE = 5_000  # rows of one transaction
NOT_YET = "Sending is paused, but what a worker had in hand before may still go out. Send it again."


async def park(db: Handle, row: UnsettledMessage) -> bool:
    """Have the message wait while its workspace sends nothing; mail about accounts is not its own.

    Asked again under a lock: parked after the workspace had sent again, it would wait for ever.
    """
    workspace_id = row.workspace_id
    if row.account_mail is not None or not await workspaces.sending_paused(db, id=workspace_id):
        return False
    await parked.park(db, workspace_id=workspace_id, id=row.id, reason_code=Reason.SENDING_PAUSED)
    return True


async def park_broadcast(db: Handle, row: UnsettledMessage) -> bool:
    """Have the message wait while its broadcast is paused; asked again under a lock, likewise."""
    workspace_id, broadcast_id = row.workspace_id, row.broadcast_id or ""
    if await broadcasts.state_of(db, workspace_id=workspace_id, id=broadcast_id) != "PAUSED":
        return False
    reason_code = Reason.BROADCAST_PAUSED
    await parked.park(db, workspace_id=workspace_id, id=row.id, reason_code=reason_code)
    return True


async def await_senders(process: Process, workspace_id: str) -> None:
    """Wait, after the commit of a pause and before its answer, for whoever read before it that the
    workspace sends: what they may call a provider for is intended by then. Raises Unavailable."""
    try:
        async with process.database.write() as db:
            await workspaces.await_senders(db, id=workspace_id)
    except Unavailable:
        raise Unavailable(NOT_YET) from None


async def resume(db: Handle, workspace_id: str) -> bool:
    """Make due what waited while the workspace sent nothing, much of it at once; whether there is
    more. The workers' heartbeat finds it."""
    woken = await parked.wake(db, workspace_id=workspace_id, limit=WOKEN_AT_ONCE)
    return woken == WOKEN_AT_ONCE


async def resume_rest(db: Handle, workspace_id: str) -> bool:
    """The same later, of a workspace that had too much waiting, unless it sends nothing again."""
    if await workspaces.sending_paused(db, id=workspace_id):
        return False
    return await resume(db, workspace_id)
