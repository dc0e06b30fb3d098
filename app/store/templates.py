"""The templates of messages: one row each, its newest content and the number of its version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.machine import document
from app.store import keyset


@dataclass(frozen=True, slots=True)
class SentTemplate:
    """A template as it is read to check or to simulate a definition that sends it."""

    id: str
    name: str
    channel: str
    category: str
    topic_id: str | None  # of marketing; None: the default topic
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template(SentTemplate):
    version: int  # of the content
    revision: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ListedTemplate:
    """A template without its content, which may be large."""

    id: str
    name: str
    channel: str
    category: str
    topic_id: str | None
    version: int
    created_at: datetime
    updated_at: datetime


COLUMNS = columns(Template)


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    channel: str,
    category: str,
    content: Mapping[str, Any],
    topic_id: str | None = None,
) -> Template:
    return await db.returning_as(
        Template,
        f"""
        INSERT INTO templates (workspace_id, id, name, channel, category, topic_id, content,
                               version, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :name, :channel, :category, :topic_id, :content, 1, 1, :now,
                :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        channel=channel,
        category=category,
        topic_id=topic_id,
        content=content,
    )


async def update(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    category: str,
    topic_id: str | None,
    content: Mapping[str, Any],
    version: int,
) -> Template:
    return await db.returning_as(
        Template,
        f"""
        UPDATE templates
        SET name = :name, category = :category, topic_id = :topic_id, content = :content,
            version = :version, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        category=category,
        topic_id=topic_id,
        content=content,
        version=version,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    await db.execute(
        "DELETE FROM templates WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Template | None:
    return await db.fetch_one_as(
        Template,
        f"SELECT {COLUMNS} FROM templates WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Template | None:
    return await db.fetch_one_as(
        Template,
        f"""
        SELECT {COLUMNS} FROM templates
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def lock(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Lock templates until the transaction ends: nobody changes or deletes those that exist."""
    await db.fetch_all(
        """
        SELECT id FROM templates
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        ORDER BY id
        FOR SHARE
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedTemplate:
    """A template, the name that people know it by, and its name in files."""

    id: str
    key: str | None
    name: str
    channel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledTemplate(KeyedTemplate):
    """A template as files have it."""

    category: str
    topic_id: str | None
    content: Mapping[str, Any]
    version: int


KEYED = columns(KeyedTemplate)
MOST_KEYED = 10_000


async def named(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> dict[str, KeyedTemplate]:
    """The templates that exist, by id."""
    rows = await db.fetch_all_as(
        KeyedTemplate,
        f"SELECT {KEYED} FROM templates WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return {row.id: row for row in rows}


async def keyed(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[KeyedTemplate]:
    """Read these templates and all others of the workspace. Of too many, the newest from no
    file are left out."""
    return await db.fetch_all_as(
        KeyedTemplate,
        f"""
        SELECT {KEYED} FROM templates
        WHERE workspace_id = :workspace_id
        ORDER BY id = ANY(:ids) DESC, key IS NULL, id
        LIMIT {MOST_KEYED}
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


# Of the contents of the templates that are read together: half of what a job of compute takes.
MOST_BYTES = 4 * 1024 * 1024
AT_ONCE = 16  # templates of one statement: MOST_BYTES, when each is as large as may be saved

Read = TypeVar("Read", SentTemplate, FiledTemplate)


async def sent(
    db: Handle, *, workspace_id: str, ids: Sequence[str]
) -> dict[str, SentTemplate] | None:
    """The templates that exist, by id; None when they are larger than MOST_BYTES together."""
    return await _contents(db, SentTemplate, workspace_id, ids)


async def filed(
    db: Handle, *, workspace_id: str, ids: Sequence[str]
) -> dict[str, FiledTemplate] | None:
    """The templates as files have them, by id; None when they are too large together."""
    return await _contents(db, FiledTemplate, workspace_id, ids)


async def _contents(
    db: Handle, kind: type[Read], workspace_id: str, ids: Sequence[str]
) -> dict[str, Read] | None:
    """Read AT_ONCE at a time: neither the process nor the database then holds much more than
    MOST_BYTES."""
    found: dict[str, Read] = {}
    size = 0
    for start in range(0, len(ids), AT_ONCE):
        rows = await db.fetch_all_as(
            kind,
            f"""
            SELECT {columns(kind)} FROM templates
            WHERE workspace_id = :workspace_id AND id = ANY(:ids)
            """,
            workspace_id=workspace_id,
            ids=list(ids[start : start + AT_ONCE]),
        )
        size += sum(len(document.dumps(row.content)) for row in rows)
        if size > MOST_BYTES:
            return None
        found |= {row.id: row for row in rows}
    return found


async def lock_for_change(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Lock templates until the transaction ends, to change them oneself; nobody else does."""
    await db.fetch_all(
        """
        SELECT id FROM templates
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        ORDER BY id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


async def set_key(db: Handle, *, workspace_id: str, id: str, key: str) -> None:
    await db.execute(
        "UPDATE templates SET key = :key WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
        key=key,
    )


async def naming_topic(
    db: Handle, *, workspace_id: str, topic_id: str, channels: Sequence[str]
) -> list[str]:
    """The ids of those on the channels whose topic it is."""
    return await db.fetch_values(
        """
        SELECT id FROM templates
        WHERE workspace_id = :workspace_id AND topic_id = :topic_id AND channel = ANY(:channels)
        ORDER BY id
        """,
        workspace_id=workspace_id,
        topic_id=topic_id,
        channels=list(channels),
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[ListedTemplate]:
    return await keyset.page(
        db, ListedTemplate, "templates", columns(ListedTemplate), CLAUSES, **asked
    )


CLAUSES = {
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": """id IN (SELECT u.id FROM templates u
                               WHERE u.workspace_id = :workspace_id
                                 AND u.updated_at > :updated_after)""",
}
