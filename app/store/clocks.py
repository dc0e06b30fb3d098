"""The time by two clocks: what is deleted by one that is far ahead is gone."""

from __future__ import annotations

from datetime import UTC, datetime

from app.database.db import Handle


async def agreed(db: Handle) -> datetime:
    """The earlier of the database's moment and ours: that one of them is ahead makes nothing
    older. A test may have moved the database's."""
    return min(await db.now(), datetime.now(UTC))
