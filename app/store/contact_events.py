"""What contacts did, and the signals that carry it to the runs that wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from app.store.db import Handle, Row

CONTACT = "contact"  # the signal that the contact was changed


async def insert(
    db: Handle, *, workspace_id: str, id: str, contact_id: str, name: str, properties: str
) -> Row:
    return await db.returning(
        """
        INSERT INTO contact_events (workspace_id, id, contact_id, name, properties, at)
        VALUES (:workspace_id, :id, :contact_id, :name, :properties, :now)
        RETURNING id, contact_id, name, at
        """,
        workspace_id=workspace_id,
        id=id,
        contact_id=contact_id,
        name=name,
        properties=properties,
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    return await db.fetch_one(
        """
        SELECT id, contact_id, name, properties, at FROM contact_events
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def listening(db: Handle, *, workspace_id: str, contact_ids: Sequence[str]) -> list[Row]:
    """The runs of locked contacts that stand in a wait_for, and what they wait for."""
    return await db.fetch_all(
        """
        SELECT id, waiting_for FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
          AND waiting_for ->> 'kind' = 'event'
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
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
    await wake(db, workspace_id=workspace_id, run_ids=run_ids)


async def wake(db: Handle, *, workspace_id: str, run_ids: Sequence[str]) -> None:
    """One that is claimed is left to its worker, who looks for signals once it has the contact."""
    await db.execute(
        """
        UPDATE runs SET wake_at = :now
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND claims = 0
        """,
        workspace_id=workspace_id,
        ids=list(run_ids),
    )


async def take_signals(db: Handle, *, workspace_id: str, run_id: str, limit: int) -> list[Row]:
    """The oldest, each once. `name` is None when the contact was changed."""
    rows = await db.fetch_all(
        """
        SELECT s.id, s.at, e.name, e.properties
        FROM run_signals s
        LEFT JOIN contact_events e ON e.workspace_id = s.workspace_id AND e.id = s.id
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
            ids=[row["id"] for row in rows],
        )
    return rows


async def forget_signals(db: Handle, *, workspace_id: str, run_id: str) -> None:
    """What reached the run before it came to where it waits now."""
    await db.execute(
        "DELETE FROM run_signals WHERE workspace_id = :workspace_id AND run_id = :run_id",
        workspace_id=workspace_id,
        run_id=run_id,
    )
