"""Events of contacts, and the signals that carry them to the runs that wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.database.sql import columns
from app.store import jobs

CONTACT = "contact"  # the signal that the contact was changed


async def insert_many(
    db: Handle, *, workspace_id: str, rows: Sequence[Mapping[str, object]]
) -> None:
    await db.execute_many(
        """
        INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
        VALUES (:workspace_id, :id, :contact_id, :name, :properties, :at)
        """,
        [{"workspace_id": workspace_id, **row} for row in rows],
    )


@dataclass(frozen=True, slots=True)
class ContactEvent:
    id: str
    contact_id: str
    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class WholeEvent(ContactEvent):
    properties: str  # JSON


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that stands in a wait_for, and what it waits for."""

    id: str
    contact_id: str
    waiting_for: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Signal:
    """An event has reached a run; without a name, its contact was changed."""

    id: str
    at: datetime
    name: str | None
    properties: str | None  # JSON


async def by_id(db: Handle, *, workspace_id: str, id: str) -> WholeEvent | None:
    return await db.fetch_one_as(
        WholeEvent,
        f"""
        SELECT {columns(WholeEvent)} FROM contact_events
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_ids(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[ContactEvent]:
    return await db.fetch_all_as(
        ContactEvent,
        f"""
        SELECT {columns(ContactEvent)} FROM contact_events
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


@dataclass(frozen=True, slots=True)
class Listening:
    """The runs that wait for something, and the segments to judge their contacts for."""

    runs: Sequence[Waiting]
    segments: Sequence[str]


async def listening(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str], names: Sequence[str]
) -> Listening:
    """The runs of locked contacts, and, by the same statement, the segments that have one of the
    names: most workspaces have none."""
    rows = await db.fetch_tuples(
        f"""
        SELECT {columns(Waiting)}, NULL AS segment_id FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
          AND waiting_for ->> 'kind' = 'event'
        UNION ALL
        SELECT '', '', NULL, segment_id FROM segment_names
        WHERE workspace_id = :workspace_id AND name = ANY(:names)
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
        names=list(names),
    )
    return Listening(
        [Waiting(*waiting) for *waiting, segment_id in rows if segment_id is None],
        sorted({segment_id for *_, segment_id in rows if segment_id is not None}),
    )


async def signal(db: Handle, *, workspace_id: str, run_ids: Sequence[str], id: str) -> None:
    """The event, or CONTACT, has reached these runs, whose contacts are locked."""
    await db.execute_many(
        """
        INSERT INTO run_signals (workspace_id, run_id, id, at)
        VALUES (:workspace_id, :run_id, :id, :now)
        ON CONFLICT DO NOTHING
        """,
        [{"workspace_id": workspace_id, "run_id": run_id, "id": id} for run_id in run_ids],
    )
    await jobs.wake(db, "run", workspace_id=workspace_id, ids=run_ids)


async def take_signals(db: Handle, *, workspace_id: str, run_id: str, limit: int) -> list[Signal]:
    """The oldest, each once."""
    rows = await db.fetch_all_as(
        Signal,
        """
        SELECT s.id, s.at, e.name, e.properties
        FROM run_signals s
        LEFT JOIN contact_events e ON e.workspace_id = :workspace_id AND e.id = s.id
        WHERE s.workspace_id = :workspace_id AND s.run_id = :run_id
        ORDER BY s.at, s.id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        run_id=run_id,
        limit=limit,
    )
    if rows:
        await db.execute(
            """
            DELETE FROM run_signals
            WHERE workspace_id = :workspace_id AND run_id = :run_id AND id = ANY(:ids)
            """,
            workspace_id=workspace_id,
            run_id=run_id,
            ids=[row.id for row in rows],
        )
    return rows


async def forget_signals(db: Handle, *, workspace_id: str, run_id: str) -> None:
    """Delete the signals that reached the run before it came to where it waits now."""
    await db.execute(
        "DELETE FROM run_signals WHERE workspace_id = :workspace_id AND run_id = :run_id",
        workspace_id=workspace_id,
        run_id=run_id,
    )
