"""The workspaces in which the messages of new ones are counted, on a sharded database.

One person has one allowance for all of theirs, which is counted in the oldest of them, wherever
that lies. To find it all shards are asked, so a process keeps it for a while, and asks that one
workspace with each message whether it still counts: it is open, has no limit of its own, and one of
these people is still its owner. What else happens is seen once the while is over: one of them
becomes an owner of an older workspace, or the limit of an older one of theirs is taken away. Until
then the day goes on to be counted where it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeAlias

from app.database.db import Handle

KEPT_SECONDS = 300.0
REMEMBERED = 10_000  # sets of owners

Owners: TypeAlias = tuple[str, ...]
Kept: TypeAlias = tuple[str, float]  # a workspace, and until when


class Allowances:
    """Allowances of one process."""

    def __init__(self) -> None:
        self._kept: dict[Owners, Kept] = {}

    async def of(self, db: Handle, owners: Sequence[str], *, workspace_id: str) -> str | None:
        """The oldest workspace of these owners, of those that have no limit of their own. This one
        of theirs, which is open, has none."""
        if not owners:
            return None
        key = tuple(sorted(owners))
        kept, until = self._kept.get(key, ("", 0.0))
        if time.monotonic() < until:
            counts = kept == workspace_id or await db.fetch_value(
                """
                SELECT id FROM workspaces
                WHERE id = :workspace_id AND daily_limit IS NULL AND deleted_at IS NULL
                  AND EXISTS (SELECT 1 FROM memberships p
                              WHERE p.workspace_id = :workspace_id AND p.role = 'owner'
                                AND p.user_id = ANY(:owners))
                """,
                workspace_id=kept,
                owners=list(key),
            )
            if counts:
                return kept
        found: str | None = await db.fetch_value(
            """
            SELECT min(s.id) FROM memberships p
            JOIN workspaces s ON s.id = p.workspace_id
            WHERE p.user_id = ANY(:owners) AND p.role = 'owner'
              AND s.daily_limit IS NULL AND s.deleted_at IS NULL
            """,
            owners=list(key),
        )
        if found is not None:
            if len(self._kept) >= REMEMBERED:
                self._kept.clear()
            self._kept[key] = found, time.monotonic() + KEPT_SECONDS
        return found
