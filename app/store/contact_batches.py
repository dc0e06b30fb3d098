"""Many contacts at once: a statement a table, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.database.db import Handle
from app.store import usage
from app.store.contacts import (
    ASSIGNED,
    BYTES,
    COLUMNS,
    GIVEN,
    NAMES,
    VALUES,
    Contact,
    searchable,
)


async def matching(
    db: Handle,
    *,
    workspace_id: str,
    email_keys: Sequence[str],
    phones: Sequence[str],
    ids: Sequence[str],
) -> list[str]:
    """The ids of those who have one of these, each looked up by itself: in a table that nobody has
    analyzed yet, a planner that is asked for all at once may walk through the whole workspace."""
    found = await db.fetch_values(
        """
        SELECT (SELECT c.id FROM contacts c
                WHERE c.workspace_id = :workspace_id AND c.email_key = given.value) AS id
        FROM unnest(CAST(:email_keys AS TEXT[])) AS given (value)
        UNION
        SELECT (SELECT c.id FROM contacts c
                WHERE c.workspace_id = :workspace_id AND c.phone = given.value)
        FROM unnest(CAST(:phones AS TEXT[])) AS given (value)
        UNION
        SELECT (SELECT c.id FROM contacts c
                WHERE c.workspace_id = :workspace_id AND c.id = given.value)
        FROM unnest(CAST(:ids AS TEXT[])) AS given (value)
        """,
        workspace_id=workspace_id,
        email_keys=list(email_keys),
        phones=list(phones),
        ids=list(ids),
    )
    return [id for id in found if id is not None]


# How each kind of lookup finds a contact; of several with one metadata value the oldest.
FOUND = {
    "email": """(SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.email_key = given.value) AS id,
               NULL AS another""",
    "phone": """(SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.phone = given.value) AS id,
               NULL AS another""",
    "contact_id": """(SELECT c.id FROM contacts c
                WHERE c.workspace_id = given.workspace_id AND c.id = given.value) AS id,
               NULL AS another""",
    "metadata": """(SELECT f.contact_id FROM contact_fields f
                WHERE f.workspace_id = given.workspace_id AND f.name = given.field
                  AND f.value = given.value
                ORDER BY f.contact_id LIMIT 1) AS id,
               (SELECT f.contact_id FROM contact_fields f
                WHERE f.workspace_id = given.workspace_id AND f.name = given.field
                  AND f.value = given.value
                ORDER BY f.contact_id LIMIT 1 OFFSET 1) AS another""",
}


@dataclass(frozen=True, slots=True)
class Match:
    """The contact that a value finds in a workspace."""

    workspace_id: str
    field: str  # of metadata
    value: str
    id: str | None
    another: str | None  # that it fits as well


async def found(db: Handle, kind: str, wanted: Sequence[tuple[str, str, str]]) -> list[Match]:
    """Find contacts by workspace, field and value. Looked up one by one for the reason above."""
    return await db.fetch_all_as(
        Match,
        f"""
        SELECT given.workspace_id, given.field, given.value,
               {FOUND[kind]}
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:fields AS TEXT[]),
                    CAST(:given_values AS TEXT[])) AS given (workspace_id, field, value)
        """,
        workspace_ids=[workspace_id for workspace_id, _, _ in wanted],
        fields=[field for _, field, _ in wanted],
        given_values=[value for _, _, value in wanted],
    )


async def insert_missing(
    db: Handle, rows: Sequence[tuple[str, str, Mapping[str, Any]]]
) -> set[str]:
    """Workspaces, ids and columns; the ids of those whose address nobody has taken meanwhile. They
    come sorted, so that two batches do not wait for each other in a circle."""
    columns = [searchable(columns) for _, _, columns in rows]
    inserted = await db.fetch_tuples(
        f"""
        INSERT INTO contacts (workspace_id, id, {NAMES}, revision, created_at, updated_at)
        SELECT w.id, given.id, {ELEMENTS}, 1, :now, :now
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]), {ARRAYS})
             AS given (workspace_id, id, {NAMES})
        JOIN workspaces w ON w.id = given.workspace_id
        WHERE TRUE
        ON CONFLICT DO NOTHING
        RETURNING workspace_id, id
        """,
        workspace_ids=[workspace_id for workspace_id, _, _ in rows],
        ids=[id for _, id, _ in rows],
        **{name: [one[name] for one in columns] for name in GIVEN},
    )
    if inserted:
        made = Counter(workspace_id for workspace_id, _ in inserted)
        await usage.add_each(db, meter=usage.CONTACTS, amounts=made)
    return {id for _, id in inserted}


# Each of what is given as an array, and its element in a row.
ARRAYS = ", ".join(
    f"CAST(:{name} AS {'JSONB' if name in ('metadata', 'subscriptions') else 'TEXT'}[])"
    for name in GIVEN
)
ELEMENTS = ", ".join(f"given.{name}" for name in GIVEN)


async def locked(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Contact]:
    """Lock contacts in the order of their ids, so that batches that share some do not deadlock."""
    return await db.fetch_all_as(
        Contact,
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        ORDER BY id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def weight(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> int:
    """The bytes of what these contacts have that may be large."""
    found: int = await db.fetch_value(
        f"""
        SELECT CAST(COALESCE(SUM(weighed.bytes), 0) AS BIGINT) AS bytes
        FROM (SELECT {BYTES} AS bytes
              FROM contacts newest
              WHERE newest.workspace_id = :workspace_id AND newest.id = ANY(:ids)) weighed
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return found


async def insert(
    db: Handle, *, workspace_id: str, rows: Sequence[tuple[str, Mapping[str, Any]]]
) -> None:
    """Ids and columns. Raises errors.Duplicate when another contact has an address."""
    await db.execute_many(
        f"""
        INSERT INTO contacts (workspace_id, id, {NAMES}, topics, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, {VALUES}, :topics, 1, :now, :now)
        """,
        [
            {"workspace_id": workspace_id, "id": id, "topics": {}, **searchable(columns)}
            for id, columns in rows
        ],
    )
    await usage.add(db, workspace_id=workspace_id, meter=usage.CONTACTS, amount=len(rows))


async def update(
    db: Handle, *, workspace_id: str, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """Ids and columns, of locked contacts. Raises errors.Duplicate like `insert`."""
    await db.execute_many(
        f"""
        UPDATE contacts
        SET {ASSIGNED}, topics = :topics, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        [{"workspace_id": workspace_id, "id": id, **searchable(columns)} for id, columns in rows],
    )


async def remove_fields(db: Handle, *, workspace_id: str, contact_ids: Sequence[str]) -> None:
    await db.execute(
        """
        DELETE FROM contact_fields
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
    )
