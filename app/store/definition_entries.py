"""The runs by which a contact went through a definition that limits re-entry.

Kept while they count: of those that have ended, the newest. They outlive their runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle

LOOKED_AT = 1_000  # runs of a contact, the newest


@dataclass(frozen=True, slots=True)
class KeptEntry:
    run_id: str
    entered_at: datetime
    is_running: bool


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    id: str
    created_at: datetime
    has_begun: bool


async def of_contact(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str
) -> list[KeptEntry]:
    """The entries that count: a run that ended before its first step went through nothing."""
    return await db.fetch_all_as(
        KeptEntry,
        """
        SELECT e.run_id, e.entered_at,
               CAST(r.id IS NOT NULL AND r.finished_at IS NULL AS BOOLEAN) AS is_running
        FROM definition_entries e
        LEFT JOIN runs r ON r.workspace_id = :workspace_id AND r.id = e.run_id
        WHERE e.workspace_id = :workspace_id AND e.definition_id = :definition_id
          AND e.contact_id = :contact_id
          AND (r.id IS NULL OR r.finished_at IS NULL OR r.state IS NOT NULL)
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
    )


async def unfinished(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str, before: str | None = None
) -> list[UnfinishedRun]:
    """The contact's runs of the definition that have not ended, those below an id, in order."""
    narrowed = "" if before is None else "AND id < :before"
    return await db.fetch_all_as(
        UnfinishedRun,
        f"""
        SELECT id, created_at, CAST(state IS NOT NULL AS BOOLEAN) AS has_begun
        FROM (SELECT id, definition_id, created_at, state, finished_at FROM runs
              WHERE workspace_id = :workspace_id AND contact_id = :contact_id {narrowed}
              ORDER BY id DESC
              LIMIT {LOOKED_AT}) newest
        WHERE definition_id = :definition_id AND finished_at IS NULL
        ORDER BY id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
        **({} if before is None else {"before": before}),
    )


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    definition_id: str,
    contact_id: str,
    entries: Sequence[tuple[str, datetime]],
) -> None:
    """Each a run and when it came; the contact is locked."""
    await db.execute_many(
        """
        INSERT INTO definition_entries (workspace_id, definition_id, contact_id, run_id, entered_at)
        VALUES (:workspace_id, :definition_id, :contact_id, :run_id, :entered_at)
        ON CONFLICT DO NOTHING
        """,
        [
            {
                "workspace_id": workspace_id,
                "definition_id": definition_id,
                "contact_id": contact_id,
                "run_id": run_id,
                "entered_at": entered_at,
            }
            for run_id, entered_at in entries
        ],
    )


async def insert_if_limited(db: Handle, *, workspace_id: str, run_id: str) -> None:
    """The run is let in whatever the policy says, if its definition has one."""
    await db.execute(
        """
        INSERT INTO definition_entries (workspace_id, definition_id, contact_id, run_id, entered_at)
        SELECT r.workspace_id, r.definition_id, r.contact_id, r.id, r.created_at
        FROM runs r
        JOIN definition_versions v ON v.workspace_id = r.workspace_id
          AND v.definition_id = r.definition_id AND v.version = r.version
        WHERE r.workspace_id = :workspace_id AND r.id = :run_id
          AND COALESCE(v.trigger_config ->> 'reentry', 'always') <> 'always'
        ON CONFLICT DO NOTHING
        """,
        workspace_id=workspace_id,
        run_id=run_id,
    )


async def delete(
    db: Handle, *, workspace_id: str, definition_id: str, contact_id: str, run_ids: Sequence[str]
) -> None:
    await db.execute(
        """
        DELETE FROM definition_entries
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND contact_id = :contact_id AND run_id = ANY(:run_ids)
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        contact_id=contact_id,
        run_ids=list(run_ids),
    )


async def delete_many(
    db: Handle, *, workspace_id: str, entries: Sequence[Mapping[str, str]]
) -> None:
    """Delete those of runs that went through nothing and are gone themselves, for without its run
    an entry counts. Each by definition_id, contact_id and run_id."""
    await db.execute_many(
        """
        DELETE FROM definition_entries
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND contact_id = :contact_id AND run_id = :run_id
        """,
        [{"workspace_id": workspace_id, **entry} for entry in entries],
    )
