"""Retention: an hourly scan of all workspaces that deletes what is older than they keep it."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from app.audit import chain
from app.billing import quotas
from app.errors import Unavailable
from app.process import Process
from app.store import messages, retention, usage
from app.store.retention import Keeping

log = logging.getLogger(__name__)

SCAN_SECONDS = 3_600.0  # from the start of a scan to that of the next
BATCH = 500  # rows of one transaction, and what hangs on them
FORGET_SECONDS = 2.0  # for the addresses of one workspace, before others have their turn
DAYS_COUNTED = timedelta(days=2)  # of daily limits: nobody asks for more than today's
WORKSPACES = 20  # with nothing to delete, checked in one batch
PAGE = 200  # workspaces that are read at once: of a sharded database, from all shards
PAGE_SECONDS = 1.0  # it is used; how long a workspace keeps what, somebody may have changed since
MOST_APART = timedelta(hours=1)  # two clocks, of which nobody can tell which one is wrong


class _ClocksDiffer(Exception):
    """The database's and ours: what is old cannot be told, and what is deleted is gone."""


class RetentionScan:
    """The scan of one process, a batch at a time, so that other maintenance runs in between.
    Several at once do no harm: each skips the rows that another is deleting."""

    def __init__(self) -> None:
        self._cursor = ""  # the last workspace that is done
        self._up_to: Mapping[str, Mapping[str, str]] = {}  # of the next: how far each table is done
        self._page: deque[Keeping] = deque()  # the next ones
        self._read_at = -PAGE_SECONDS
        self._started_at = -SCAN_SECONDS
        self._is_running = False

    async def run_batch(self, process: Process) -> bool:
        """False when the scan is complete, or none is due."""
        if not self._is_running:
            if time.monotonic() - self._started_at < SCAN_SECONDS:
                return False
            self._started_at, self._is_running, self._cursor = time.monotonic(), True, ""
            self._page.clear()
        for _ in range(WORKSPACES):
            if await self._prune_next(process):
                return True
            if not self._is_running:
                return False
        return True

    async def _prune_next(self, process: Process) -> bool:
        """A batch of the next workspace; True when it had something to delete. One of which nothing
        can be deleted is left for the next scan, and holds up no other."""
        if not self._page or time.monotonic() - self._read_at >= PAGE_SECONDS:
            async with process.shards.reading(process.database) as db:
                page = await retention.next_workspaces(db, self._cursor, limit=PAGE)
            self._page, self._read_at = deque(page), time.monotonic()
        if not self._page:
            self._is_running = False
            return False
        workspace = self._page[0]
        deleted, is_more = 0, False
        try:
            deleted, is_more = await self._prune(process, workspace)
        except _ClocksDiffer as error:
            log.error("nothing is removed: the clocks differ", extra={"error": str(error)})
            self._is_running = False
            return False
        except Unavailable as problem:  # of one node perhaps: others are elsewhere
            whose = {"workspace_id": workspace.id, "error": problem.detail}
            log.warning("removal of old rows postponed", extra=whose)
        except Exception:
            log.exception("no old rows removed", extra={"workspace_id": workspace.id})
        if not is_more:
            self._page.popleft()
            self._cursor, self._up_to = workspace.id, {}
        return is_more or deleted > 0

    async def _prune(self, process: Process, workspace: Keeping) -> tuple[int, bool]:
        """One batch: the number of rows deleted, and whether there may be more. What it keeps is
        not looked at again by the next: that may be many, as messages that wait."""
        id = workspace.id
        days = workspace.retention_days or process.settings.retention_days
        async with process.database.write() as db:
            now = await db.now()
            apart = abs(now - datetime.now(UTC))
            if apart > MOST_APART and process.settings.production:  # else a test has moved one
                raise _ClocksDiffer(f"the database's is {apart} from ours")
            moment = now - timedelta(days=days)
            deleted = await retention.delete_old(
                db, workspace_id=id, moment=moment, limit=BATCH, after=self._up_to.get(id, {})
            )
            before = quotas.day(now - DAYS_COUNTED)
            await usage.forget_days(db, workspace_id=id, before=before)
        self._up_to = {id: deleted.up_to}
        if deleted.rows:
            log.info("old rows removed", extra={"workspace_id": id, "rows": deleted.rows})
        is_more = deleted.rows == BATCH
        for what, remove in (
            ("old audit entries", partial(chain.prune, process, id, moment)),
            ("addresses of messages", partial(_forget_addresses, process, id)),
        ):
            whose = {"workspace_id": id, "what": what}
            try:
                is_more |= await remove()
            except Unavailable as problem:
                whose["error"] = problem.detail
                log.warning("removal of old data postponed", extra=whose)
            except Exception:  # one fails by itself: the other is removed all the same
                log.exception("removal of old data failed", extra=whose)
        return deleted.rows, is_more


async def _forget_addresses(process: Process, workspace_id: str) -> bool:
    """Forget address hashes, a transaction a batch, for a while; True when some may be left."""
    ends, forgotten, last = time.monotonic() + FORGET_SECONDS, 0, BATCH
    while last == BATCH and time.monotonic() < ends:
        async with process.database.write() as db:
            last = await messages.forget_addresses(db, workspace_id=workspace_id, limit=BATCH)
        forgotten += last
    if forgotten:
        extra = {"workspace_id": workspace_id, "messages": forgotten}
        log.info("addresses of messages forgotten", extra=extra)
    return last == BATCH
