"""Many contacts at once: a statement a table, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.store.contacts import COLUMNS, searchable
from app.store.db import Handle, Row


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
    rows = await db.fetch_all(
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
    return [row["id"] for row in rows if row["id"] is not None]


async def locked(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Row]:
    """In the order of their ids, so that two batches that share contacts do not wait for each
    other."""
    return await db.fetch_all(
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        ORDER BY id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def insert(
    db: Handle, *, workspace_id: str, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """Ids and columns. Raises errors.Duplicate when another contact has an address."""
    await db.execute_many(
        """
        INSERT INTO contacts (workspace_id, id, email, email_key, phone, first_name, last_name,
                              name_key, last_name_key, timezone, locale, metadata, revision,
                              created_at, updated_at)
        VALUES (:workspace_id, :id, :email, :email_key, :phone, :first_name, :last_name,
                :name_key, :last_name_key, :timezone, :locale, :metadata, 1, :now, :now)
        """,
        [{"workspace_id": workspace_id, "id": id, **searchable(columns)} for id, columns in rows],
    )


async def update(
    db: Handle, *, workspace_id: str, rows: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """Ids and columns, of locked contacts. Raises errors.Duplicate like `insert`."""
    await db.execute_many(
        """
        UPDATE contacts
        SET email = :email, email_key = :email_key, phone = :phone, first_name = :first_name,
            last_name = :last_name, name_key = :name_key, last_name_key = :last_name_key,
            timezone = :timezone, locale = :locale, metadata = :metadata,
            revision = revision + 1, updated_at = :now
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
