"""The faults that the sandbox's provider is to show next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.store import keyset


@dataclass(frozen=True, slots=True)
class SandboxFault:
    id: str
    kind: str
    channel: str | None
    count: int
    remaining: int
    created_at: datetime


COLUMNS = columns(SandboxFault)


async def insert(
    db: Handle, *, workspace_id: str, id: str, kind: str, channel: str | None, count: int
) -> SandboxFault:
    """Insert a fault behind those that are there already; those that are used up go."""
    await db.execute(
        "DELETE FROM sandbox_faults WHERE workspace_id = :workspace_id AND remaining = 0",
        workspace_id=workspace_id,
    )
    return await db.returning_as(
        SandboxFault,
        f"""
        INSERT INTO sandbox_faults (workspace_id, id, kind, channel, count, remaining, created_at)
        VALUES (:workspace_id, :id, :kind, :channel, :count, :count, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        kind=kind,
        channel=channel,
        count=count,
    )


async def waiting(db: Handle, *, workspace_id: str) -> int:
    """Count the faults that are not used up."""
    return int(
        await db.fetch_value(
            """
            SELECT count(*) FROM sandbox_faults
            WHERE workspace_id = :workspace_id AND remaining > 0
            """,
            workspace_id=workspace_id,
        )
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[SandboxFault]:
    return await keyset.page(db, SandboxFault, "sandbox_faults", COLUMNS, CLAUSES, **asked)


CLAUSES = {
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


class Addressed(Protocol):
    @property
    def workspace_id(self) -> str: ...
    @property
    def channel(self) -> str: ...


async def take_each(db: Handle, sends: Sequence[Addressed]) -> list[str | None]:
    """The kind of fault that applies to each; one query where no faults are set."""
    tried = await db.fetch_values(
        """
        SELECT DISTINCT workspace_id FROM sandbox_faults
        WHERE workspace_id = ANY(:workspace_ids) AND remaining > 0
        """,
        workspace_ids=sorted({one.workspace_id for one in sends}),
    )
    return [
        await take(db, workspace_id=one.workspace_id, channel=one.channel)
        if one.workspace_id in tried
        else None
        for one in sends
    ]


async def take(db: Handle, *, workspace_id: str, channel: str) -> str | None:
    """The kind of fault that applies to the next message, which uses it up by one."""
    kind: str | None = await db.fetch_value(
        """
        UPDATE sandbox_faults SET remaining = remaining - 1
        WHERE workspace_id = :workspace_id AND remaining > 0 AND id = (
            SELECT id FROM sandbox_faults
            WHERE workspace_id = :workspace_id AND remaining > 0
              AND COALESCE(channel, :channel) = :channel
            ORDER BY id
            LIMIT 1
            FOR UPDATE)
        RETURNING kind
        """,
        workspace_id=workspace_id,
        channel=channel,
    )
    return kind


async def clear(db: Handle, *, workspace_id: str) -> None:
    await db.execute(
        "DELETE FROM sandbox_faults WHERE workspace_id = :workspace_id", workspace_id=workspace_id
    )
