"""Names that contacts of a workspace have brought: of metadata, of tags, of events."""

from __future__ import annotations

from collections.abc import Sequence

from app.database.db import Handle

NEWEST = 10_000  # events that are looked through: no index has them by their names


async def of_contacts(
    db: Handle, *, workspace_id: str, fields: Sequence[str], tags: Sequence[str]
) -> set[tuple[str, str]]:
    """Find which of these metadata fields and tags some contact has: "field" or "tag", and the
    name. Each is looked up by itself, for the same reason as contact_batches.matching."""
    found = await db.fetch_tuples(
        """
        SELECT 'field' AS kind,
               (SELECT f.name FROM contact_fields f
                WHERE f.workspace_id = :workspace_id AND f.name = given.value
                LIMIT 1) AS name
        FROM unnest(CAST(:fields AS TEXT[])) AS given (value)
        UNION ALL
        SELECT 'tag',
               (SELECT t.tag FROM contact_tags t
                WHERE t.workspace_id = :workspace_id AND t.tag = given.value
                LIMIT 1)
        FROM unnest(CAST(:tags AS TEXT[])) AS given (value)
        """,
        workspace_id=workspace_id,
        fields=list(fields),
        tags=list(tags),
    )
    return {(kind, name) for kind, name in found if name is not None}


async def of_events(db: Handle, *, workspace_id: str, names: Sequence[str]) -> set[str]:
    """Find which of these names one of the newest events has."""
    found = await db.fetch_values(
        """
        SELECT DISTINCT newest.name
        FROM (SELECT name FROM contact_events
              WHERE workspace_id = :workspace_id
              ORDER BY id DESC
              LIMIT :most) AS newest
        WHERE newest.name = ANY(:names)
        """,
        workspace_id=workspace_id,
        names=list(names),
        most=NEWEST,
    )
    return set(found)
