"""What happened is kept for so long, and no longer: a round through all workspaces every hour."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from app.audit import chain
from app.process import Process
from app.store import retention

log = logging.getLogger(__name__)

ROUND_SECONDS = 3_600.0  # from the beginning of a round to that of the next
BATCH = 500  # rows of one transaction, and what hangs on them
WORKSPACES = 20  # looked at, at one go, in which nothing is old


class Rounds:
    """One process's, a step at a time, so that other chores have their turn in between. Several at
    once do no harm: each passes over what another is deleting."""

    def __init__(self) -> None:
        self._after = ""  # the workspace that was seen to last
        self._begun_at = -ROUND_SECONDS
        self._walking = False

    async def some(self, process: Process) -> bool:
        """False when the round is over, or none is due."""
        if not self._walking:
            if time.monotonic() - self._begun_at < ROUND_SECONDS:
                return False
            self._begun_at, self._walking, self._after = time.monotonic(), True, ""
        for _ in range(WORKSPACES):
            if await self._one(process):
                return True
            if not self._walking:
                return False
        return True

    async def _one(self, process: Process) -> bool:
        """A batch of the next workspace; True when it had something to delete."""
        async with process.database.write() as db:
            workspace = await retention.next_workspace(db, self._after)
            if workspace is None:
                self._walking = False
                return False
            days = workspace["retention_days"] or process.settings.retention_days
            moment = await db.now() - timedelta(days=days)
            id = workspace["id"]
            deleted = await retention.delete_old(db, workspace_id=id, moment=moment, limit=BATCH)
        pruned = await chain.prune(process, id, moment)
        if deleted:
            log.info("old rows removed", extra={"workspace_id": id, "rows": deleted})
        if deleted < BATCH and not pruned:
            self._after = id  # nothing is left of it
        return bool(deleted or pruned)
