"""Sweeps over all workspaces that one process makes for all of them, each in its time."""

from __future__ import annotations

from datetime import timedelta

from app.database.db import Handle

FAR = timedelta(minutes=1)  # beyond its time: the database's clock was ahead when it was taken


async def take(db: Handle, name: str, *, every: timedelta) -> bool:
    """Take a sweep, unless another has taken it since. Whoever dies amid it is followed by whoever
    takes the next one."""
    taken = await db.fetch_value(
        """
        INSERT INTO sweeps (name, next_at)
        VALUES (:name, :next_at)
        ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at
        WHERE sweeps.next_at <= :now OR sweeps.next_at > :far
        RETURNING name
        """,
        name=name,
        next_at=await db.now() + every,
        far=await db.now() + every + FAR,
    )
    return taken is not None
