"""Transactions in one workspace after another: of a sharded database each is on one node, and those
of others go on where that does not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from app.database.db import Database, Handle, RequestTimeouts
from app.errors import Contended, DiskFull, Unavailable

log = logging.getLogger(__name__)

# By which a node shows that it is there: its others have their turn.
ANSWERS = (Contended, DiskFull)
Key: TypeAlias = tuple[str, str]  # the workspace's id, and what orders its rows
FIRST: Key = ("", "")  # before all others
Result = TypeVar("Result")


class Visits:
    """One round of them. What fails in one is logged, and holds up no other workspace."""

    def __init__(self, database: Database, timeouts: RequestTimeouts | None = None) -> None:
        self.seconds = 0.0  # that were spent where there was an answer
        self._database = database
        self._timeouts = timeouts
        self._lost: set[int] = set()  # nodes: one workspace of each has waited for it
        self._away = False  # the database itself

    async def visit(
        self, workspace_id: str, work: Callable[[Handle], Awaitable[Result]]
    ) -> Result | None:
        """The result of a transaction in the workspace; None where there is none."""
        if self._away:
            return None
        began, node, is_begun = time.monotonic(), None, False
        whose = {"workspace_id": workspace_id}
        result = None
        try:
            async with self._database.write(self._timeouts) as db:
                is_begun = True
                node = await db.use(lambda link: link.node_of(workspace_id))
                if node in self._lost:
                    return None
                result = await work(db)
        except Unavailable as problem:
            log.warning("work in a workspace postponed", extra={**whose, "error": problem.detail})
            self._away = not is_begun
            if node is not None and not isinstance(problem, ANSWERS):
                log.warning("work in a node's other workspaces postponed", extra={"node": node})
                self._lost.add(node)
            return None
        except Exception:
            log.exception("work in a workspace failed", extra=whose)
            return None
        self.seconds += time.monotonic() - began
        return result


@dataclass(slots=True)
class Rounds:
    """Pages of what is to be done, in the order of its keys, one after another and from the first
    again: what fails each time and stays hides nothing behind it."""

    after: Key = FIRST  # where the next page begins

    def turn(self, page: Sequence[Key], limit: int) -> bool:
        """Go on behind this page; False when it was the last."""
        is_full = len(page) == limit
        self.after = page[-1] if is_full else FIRST
        return is_full
