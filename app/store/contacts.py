"""Contacts, and what belongs to each: metadata fields as text, tags, former addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.database.sql import columns
from app.machine.text import composed
from app.store import bounded_pages, usage
from app.store.bounded_pages import Weight


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses that a contact has, or had formerly."""

    email: str | None
    email_key: str | None  # as it is compared
    phone: str | None


@dataclass(frozen=True, slots=True)
class Contact(Addresses):
    id: str
    first_name: str | None
    last_name: str | None
    timezone: str | None
    locale: str | None
    metadata: Mapping[str, Any]
    subscriptions: Mapping[str, Any]  # by channel; what is not here is subscribed
    topics: Mapping[str, Mapping[str, str]]  # by topic and channel
    revision: int
    created_at: datetime
    updated_at: datetime

    def profile(self) -> dict[str, Any]:
        """The columns that others set, by name."""
        return {name: getattr(self, name) for name in PROFILE}


COLUMNS = columns(Contact)
# The columns of its fields, by their names in the API.
FIELD_COLUMNS: Mapping[str, str] = {
    "email": "email",
    "phone": "phone",
    "firstName": "first_name",
    "lastName": "last_name",
    "timezone": "timezone",
    "locale": "locale",
}
# Channel → the column that holds its address in the form in which it is compared.
ADDRESS_COLUMNS: Mapping[str, str] = {"email": "email_key", "sms": "phone", "whatsapp": "phone"}
PROFILE = tuple(
    field.name
    for field in fields(Contact)
    if field.name not in ("id", "revision", "created_at", "updated_at")
)
# What a contact is written with: its profile without the topics, and what a search finds it by.
GIVEN = (*(name for name in PROFILE if name != "topics"), "name_key", "last_name_key")
NAMES = ", ".join(GIVEN)
VALUES = ", ".join(f":{name}" for name in GIVEN)
ASSIGNED = ", ".join(f"{name} = :{name}" for name in GIVEN)
# Of what may be large in a contact `newest`: 188 KB.
BYTES = """octet_length(CAST(newest.metadata AS TEXT)) + octet_length(CAST(newest.topics AS TEXT))
           + COALESCE((SELECT CAST(SUM(octet_length(t.tag)) AS BIGINT) FROM contact_tags t
                       WHERE t.workspace_id = :workspace_id AND t.contact_id = newest.id), 0)"""
WEIGHT = Weight(BYTES, {"metadata": "JSONB", "topics": "JSONB"})


def search_key(text: str) -> str:
    """The key that a search compares. Folded here: the engines fold only what is ASCII."""
    return composed(text.strip()).casefold()


def searchable(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of columns with those by which a search finds the names."""
    names = [name for name in (values["first_name"], values["last_name"]) if name]
    return {
        **values,
        "name_key": search_key(" ".join(names)) or None,
        "last_name_key": search_key(values["last_name"] or "") or None,
    }


async def insert(
    db: Handle, *, workspace_id: str, id: str, columns: Mapping[str, Any]
) -> Contact | None:
    """None when another contact has the address: the caller reads that one."""
    row = await db.fetch_one_as(
        Contact,
        f"""
        INSERT INTO contacts (workspace_id, id, {NAMES}, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, {VALUES}, 1, :now, :now)
        ON CONFLICT DO NOTHING
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        **searchable(columns),
    )
    if row is not None:
        await usage.add(db, workspace_id=workspace_id, meter=usage.CONTACTS)
    return row


async def update(db: Handle, *, workspace_id: str, id: str, columns: Mapping[str, Any]) -> Contact:
    """Raises errors.Duplicate when another contact has the new address."""
    return await db.returning_as(
        Contact,
        f"""
        UPDATE contacts
        SET {ASSIGNED}, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        **searchable(columns),
    )


async def set_subscriptions(
    db: Handle, *, workspace_id: str, id: str, subscriptions: Mapping[str, str]
) -> None:
    await db.execute(
        """
        UPDATE contacts
        SET subscriptions = :subscriptions, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        subscriptions=dict(subscriptions),
    )


async def set_topics(
    db: Handle, *, workspace_id: str, id: str, topics: Mapping[str, Mapping[str, str]]
) -> Contact:
    return await db.returning_as(
        Contact,
        f"""
        UPDATE contacts SET topics = :topics, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        topics=dict(topics),
    )


async def touch(db: Handle, *, workspace_id: str, id: str) -> None:
    """Note a change of what belongs to the contact but stands in another table."""
    await db.execute(
        """
        UPDATE contacts SET revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    """The locked contact, and what hangs on it."""
    gone = await db.fetch_value(
        "DELETE FROM contacts WHERE workspace_id = :workspace_id AND id = :id RETURNING id",
        workspace_id=workspace_id,
        id=id,
    )
    if gone is not None:
        await usage.add(db, workspace_id=workspace_id, meter=usage.CONTACTS, amount=-1)


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Contact | None:
    return await db.fetch_one_as(
        Contact,
        f"SELECT {COLUMNS} FROM contacts WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Contact | None:
    return await db.fetch_one_as(
        Contact,
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_email(db: Handle, *, workspace_id: str, email_key: str) -> Contact | None:
    return await db.fetch_one_as(
        Contact,
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND email_key = :email_key
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )


async def by_phone(db: Handle, *, workspace_id: str, phone: str) -> Contact | None:
    return await db.fetch_one_as(
        Contact,
        f"SELECT {COLUMNS} FROM contacts WHERE workspace_id = :workspace_id AND phone = :phone",
        workspace_id=workspace_id,
        phone=phone,
    )


async def by_ids(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Contact]:
    """The contacts of these ids, the newest first. Sorted here: a planner that must not sort would
    walk through everybody."""
    rows = await db.fetch_all_as(
        Contact,
        f"""
        SELECT {COLUMNS} FROM contacts
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return sorted(rows, key=lambda row: row.id, reverse=True)


async def newest(
    db: Handle, narrowed: str, values: Mapping[str, Any], *, workspace_id: str
) -> tuple[list[Contact], str | None]:
    """The contacts that a query with these values finds, as `c.*`, newest first, as far as they
    fill a page. Where that leaves out some, the second value is the id below which they are, and
    None otherwise."""
    page = await bounded_pages.read(
        db, Contact, narrowed, {**values, "workspace_id": workspace_id}, WEIGHT
    )
    return page.rows, page.rest


async def existing(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> set[str]:
    found = await db.fetch_values(
        "SELECT id FROM contacts WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return set(found)


async def hold(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> dict[str, datetime]:
    """The contacts that are there, and since when; none is erased before the transaction ends.
    Each is looked up by itself, as by segment_members.lock_free."""
    found = await db.fetch_each(
        """
        SELECT id, created_at FROM contacts
        WHERE workspace_id = :workspace_id AND id = :id
        FOR KEY SHARE
        """,
        [{"workspace_id": workspace_id, "id": id} for id in sorted(ids)],
    )
    return dict(tuple(row.values()) for rows in found for row in rows)


# --- what belongs to a contact -------------------------------------------------------------------


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
    if fields:
        await add_fields(db, workspace_id=workspace_id, fields=[(contact_id, fields)])


async def add_fields(
    db: Handle, *, workspace_id: str, fields: Iterable[tuple[str, Mapping[str, str]]]
) -> None:
    """The metadata as text of contacts that have none there."""
    await db.execute_many(
        """
        INSERT INTO contact_fields (workspace_id, contact_id, name, value)
        VALUES (:workspace_id, :contact_id, :name, :value)
        """,
        [
            {"workspace_id": workspace_id, "contact_id": id, "name": name, "value": value}
            for id, named in fields
            for name, value in named.items()
        ],
    )


async def with_fields(
    db: Handle, *, workspace_id: str, names: Sequence[str], values: Sequence[str]
) -> set[tuple[str, str]]:
    """Find which of the metadata fields have which of the values, in any contact."""
    rows = await db.fetch_tuples(
        """
        SELECT DISTINCT name, value FROM contact_fields
        WHERE workspace_id = :workspace_id AND name = ANY(:names) AND value = ANY(:field_values)
        """,
        workspace_id=workspace_id,
        names=list(names),
        field_values=list(values),
    )
    return {(name, value) for name, value in rows}


async def tags(db: Handle, *, workspace_id: str, contact_id: str) -> list[str]:
    """The contact's tags, sorted."""
    return await db.fetch_values(
        """
        SELECT tag FROM contact_tags
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
        ORDER BY tag
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
    )


async def tags_of(
    db: Handle, *, workspace_id: str, contact_ids: Sequence[str]
) -> dict[str, list[str]]:
    """Every asked contact is a key; its tags are sorted, here, as the rows of by_ids."""
    rows = await db.fetch_tuples(
        """
        SELECT contact_id, tag FROM contact_tags
        WHERE workspace_id = :workspace_id AND contact_id = ANY(:contact_ids)
        """,
        workspace_id=workspace_id,
        contact_ids=list(contact_ids),
    )
    tags: dict[str, list[str]] = {contact_id: [] for contact_id in contact_ids}
    for contact_id, tag in sorted(rows):
        tags[contact_id].append(tag)
    return tags


async def add_tags(
    db: Handle, *, workspace_id: str, tags: Iterable[tuple[str, Iterable[str]]]
) -> None:
    """Contacts and what each gets; what it has already stays."""
    await db.execute_many(
        """
        INSERT INTO contact_tags (workspace_id, contact_id, tag)
        VALUES (:workspace_id, :contact_id, :tag)
        ON CONFLICT DO NOTHING
        """,
        [
            {"workspace_id": workspace_id, "contact_id": id, "tag": tag}
            for id, added in tags
            for tag in added
        ],
    )


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


async def keep_former(
    db: Handle,
    *,
    workspace_id: str,
    changed: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any]]],
) -> None:
    """Keep the addresses that changed contacts, each an id with its columns before and after, have
    no longer."""
    rows = [
        {
            "workspace_id": workspace_id,
            "contact_id": id,
            "address": was[name],
            "email_key": was["email_key"] if name == "email" else None,
            "phone": was["phone"] if name == "phone" else None,
        }
        for id, was, now in changed
        for name in ("email", "phone")
        if was[name] and was[name] != now[name]
    ]
    if rows:
        await db.execute_many(
            """
            INSERT INTO former_addresses (workspace_id, contact_id, address, email_key, phone)
            VALUES (:workspace_id, :contact_id, :address, :email_key, :phone)
            ON CONFLICT DO NOTHING
            """,
            rows,
        )


async def former_addresses(db: Handle, *, workspace_id: str, id: str) -> list[Addresses]:
    """One a row, in a contact's columns, without those that another contact has by now."""
    return await db.fetch_all_as(
        Addresses,
        """
        SELECT CASE WHEN f.phone IS NULL THEN f.address END AS email, f.email_key, f.phone
        FROM former_addresses f
        WHERE f.workspace_id = :workspace_id AND f.contact_id = :id
          AND NOT EXISTS (SELECT 1 FROM contacts c
                          WHERE c.workspace_id = f.workspace_id AND c.email_key = f.email_key
                            AND c.id <> f.contact_id)
          AND NOT EXISTS (SELECT 1 FROM contacts c
                          WHERE c.workspace_id = f.workspace_id AND c.phone = f.phone
                            AND c.id <> f.contact_id)
        """,
        workspace_id=workspace_id,
        id=id,
    )
