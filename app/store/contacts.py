"""The audience: contacts and the text of their metadata fields, by which they are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.store import keyset
from app.store.db import Handle, Row

COLUMNS = """id, email, email_key, phone, first_name, last_name, timezone, locale, metadata,
             revision, created_at, updated_at"""


async def insert(
    db: Handle, *, workspace_id: str, id: str, columns: Mapping[str, Any]
) -> Row | None:
    """None when another contact has the address: the caller reads that one."""
    return await db.fetch_one(
        f"""
        INSERT INTO contacts (workspace_id, id, email, email_key, phone, first_name, last_name,
                              timezone, locale, metadata, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :email, :email_key, :phone, :first_name, :last_name,
                :timezone, :locale, :metadata, 1, :now, :now)
        ON CONFLICT DO NOTHING
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        **columns,
    )


async def update(db: Handle, *, workspace_id: str, id: str, columns: Mapping[str, Any]) -> Row:
    """Raises errors.Duplicate when another contact has the new address."""
    return await db.returning(
        f"""
        UPDATE contacts
        SET email = :email, email_key = :email_key, phone = :phone, first_name = :first_name,
            last_name = :last_name, timezone = :timezone, locale = :locale, metadata = :metadata,
            revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        **columns,
    )


async def touch(db: Handle, *, workspace_id: str, id: str) -> None:
    """What belongs to the contact, but stands in another table, has changed."""
    await db.execute(
        """
        UPDATE contacts SET revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> bool:
    gone = await db.fetch_value(
        "DELETE FROM contacts WHERE workspace_id = :workspace_id AND id = :id RETURNING id",
        workspace_id=workspace_id,
        id=id,
    )
    return gone is not None


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    return await db.fetch_one(
        f"SELECT {COLUMNS} FROM contacts WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_email(db: Handle, *, workspace_id: str, email_key: str) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND email_key = :email_key
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )


async def by_phone(db: Handle, *, workspace_id: str, phone: str) -> Row | None:
    return await db.fetch_one(
        f"SELECT {COLUMNS} FROM contacts WHERE workspace_id = :workspace_id AND phone = :phone",
        workspace_id=workspace_id,
        phone=phone,
    )


async def by_field(db: Handle, *, workspace_id: str, name: str, value: str) -> Row | None:
    """Compared as text; of several the oldest wins."""
    return await db.fetch_one(
        """
        SELECT c.id, c.email, c.email_key, c.phone, c.first_name, c.last_name, c.timezone,
               c.locale, c.metadata, c.revision, c.created_at, c.updated_at
        FROM contact_fields f
        JOIN contacts c ON c.workspace_id = f.workspace_id AND c.id = f.contact_id
        WHERE f.workspace_id = :workspace_id AND f.name = :name AND f.value = :value
        ORDER BY f.contact_id
        LIMIT 1
        """,
        workspace_id=workspace_id,
        name=name,
        value=value,
    )


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> list[Row]:
    """Filters: see CLAUSES."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before, "c.id")
    return await db.fetch_all(
        f"""
        SELECT {COLUMNS} FROM contacts c
        WHERE c.workspace_id = :workspace_id {narrowed}
        ORDER BY c.id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        limit=limit,
        **values,
    )


CLAUSES = {
    "email_key": "c.email_key = :email_key",
    "phone": "c.phone = :phone",
    "tag": """EXISTS (SELECT 1 FROM contact_tags t WHERE t.workspace_id = c.workspace_id
                      AND t.contact_id = c.id AND t.tag = :tag)""",
    "created_after": "c.created_at > :created_after",
    "created_before": "c.created_at < :created_before",
    "updated_after": "c.updated_at > :updated_after",
}


async def replace_fields(
    db: Handle, *, workspace_id: str, contact_id: str, fields: Mapping[str, str]
) -> None:
    """The metadata as text, name by name; what is not named any more is no longer found."""
    await db.execute(
        """
        DELETE FROM contact_fields
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
    )
    for name, value in fields.items():
        await db.execute(
            """
            INSERT INTO contact_fields (workspace_id, contact_id, name, value)
            VALUES (:workspace_id, :contact_id, :name, :value)
            """,
            workspace_id=workspace_id,
            contact_id=contact_id,
            name=name,
            value=value,
        )


async def tags_of(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str]
) -> dict[str, list[str]]:
    """Every asked contact is a key; its tags are sorted."""
    rows = await db.fetch_all(
        """
        SELECT contact_id, tag FROM contact_tags
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
        ORDER BY contact_id, tag
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
    )
    tags: dict[str, list[str]] = {contact_id: [] for contact_id in contact_ids}
    for row in rows:
        tags[row["contact_id"]].append(row["tag"])
    return tags


async def add_tag(db: Handle, *, workspace_id: str, contact_id: str, tag: str) -> bool:
    """True when the contact did not have it."""
    added = await db.fetch_value(
        """
        INSERT INTO contact_tags (workspace_id, contact_id, tag)
        VALUES (:workspace_id, :contact_id, :tag)
        ON CONFLICT DO NOTHING
        RETURNING tag
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        tag=tag,
    )
    return added is not None


async def remove_tag(db: Handle, *, workspace_id: str, contact_id: str, tag: str) -> bool:
    """True when the contact had it."""
    removed = await db.fetch_value(
        """
        DELETE FROM contact_tags
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id AND tag = :tag
        RETURNING tag
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        tag=tag,
    )
    return removed is not None
