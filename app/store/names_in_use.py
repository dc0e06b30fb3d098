"""Names that contacts of a workspace have brought: of metadata, of tags, of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.database import texts
from app.database.db import Handle
from app.store import contact_lists

NEWEST = 10_000  # events that are looked through: no index has them by their names
# The newest, whose fields are looked through: no index has their types. The metadata of one may
# have 27,000 characters of up to four bytes, so that this alone bounds what a request reads: 22 MB.
CONTACTS = 200

FieldType: TypeAlias = Literal["string", "number", "boolean"]
TYPES: Sequence[FieldType] = ("string", "number", "boolean")


@dataclass(frozen=True, slots=True)
class UsedField:
    """A metadata field, and the types of its values."""

    name: str
    types: Sequence[FieldType]


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


async def fields(db: Handle, *, workspace_id: str, limit: int) -> list[UsedField]:
    """The metadata fields of the newest contacts, most used first; then those that only older ones
    have, by name and without types, which would have to be looked for in each of them."""
    members, kind = texts.members_of(db.engine, "newest.metadata")
    counts = ", ".join(f"count(CASE WHEN {kind} = '{one}' THEN 1 END) AS {one}s" for one in TYPES)
    rows = await db.fetch_tuples(
        f"""
        SELECT member.key AS name, {counts}
        FROM (SELECT metadata FROM contacts
              WHERE workspace_id = :workspace_id
              ORDER BY id DESC
              LIMIT :most) AS newest
        CROSS JOIN {members}
        GROUP BY member.key
        ORDER BY count(*) DESC, member.key
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        most=CONTACTS,
        limit=limit,
    )
    found = {
        name: UsedField(name, [one for one, times in zip(TYPES, of_type, strict=True) if times])
        for name, *of_type in rows
    }
    if len(found) < limit:
        for name in await contact_lists.field_names(db, workspace_id=workspace_id, limit=limit):
            found.setdefault(name, UsedField(name, []))
    return [*found.values()][:limit]


async def events(db: Handle, *, workspace_id: str, limit: int) -> list[str]:
    """The names of the newest events, most used first."""
    return await db.fetch_values(
        """
        SELECT newest.name
        FROM (SELECT name FROM contact_events
              WHERE workspace_id = :workspace_id
              ORDER BY id DESC
              LIMIT :most) AS newest
        GROUP BY newest.name
        ORDER BY count(*) DESC, newest.name
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        most=NEWEST,
        limit=limit,
    )
