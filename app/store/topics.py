"""Topics: the subjects of marketing that contacts agree to, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.database.visits import FIRST, Key
from app.store import keyset
from app.store.directory import Place


@dataclass(frozen=True, slots=True)
class Topic:
    id: str
    name: str
    description: str | None
    channels: Sequence[str]
    double_opt_in: bool
    is_default: bool
    revision: int
    created_at: datetime
    updated_at: datetime


COLUMNS = columns(Topic)


async def lock(db: Handle, *, workspace_id: str) -> None:
    """Lock the topics of the workspace until the transaction ends. Nobody else makes or changes
    one."""
    await db.lock_name(f"topics|{workspace_id}")


def default_of(known: Mapping[str, Topic]) -> Topic | None:
    return next((topic for topic in known.values() if topic.is_default), None)


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    description: str | None,
    channels: Sequence[str],
    double_opt_in: bool,
    is_default: bool,
) -> Topic:
    return await db.returning_as(
        Topic,
        f"""
        INSERT INTO topics (workspace_id, id, name, description, channels, double_opt_in,
                            is_default, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :name, :description, :channels, :double_opt_in, :is_default,
                1, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        description=description,
        channels=list(channels),
        double_opt_in=double_opt_in,
        is_default=is_default,
    )


async def update(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    description: str | None,
    channels: Sequence[str],
    double_opt_in: bool,
) -> Topic:
    return await db.returning_as(
        Topic,
        f"""
        UPDATE topics
        SET name = :name, description = :description, channels = :channels,
            double_opt_in = :double_opt_in, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        description=description,
        channels=list(channels),
        double_opt_in=double_opt_in,
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    """Mark the topic as deleted, which hides it from everybody; forget_some forgets what contacts
    have answered about it."""
    await db.execute(
        """
        UPDATE topics SET forgotten_up_to = '', is_default = FALSE
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Topic | None:
    return await db.fetch_one_as(
        Topic,
        f"""
        SELECT {COLUMNS} FROM topics
        WHERE workspace_id = :workspace_id AND id = :id AND forgotten_up_to IS NULL
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def of_workspace(db: Handle, *, workspace_id: str) -> dict[str, Topic]:
    """All, by their ids; they are few."""
    found = await db.fetch_all_as(
        Topic,
        f"""
        SELECT {COLUMNS} FROM topics
        WHERE workspace_id = :workspace_id AND forgotten_up_to IS NULL
        ORDER BY id
        """,
        workspace_id=workspace_id,
    )
    return {topic.id: topic for topic in found}


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[Topic]:
    """A page of topics, the newest first."""
    return await keyset.page(
        db, Topic, "topics", COLUMNS, CLAUSES, condition="AND forgotten_up_to IS NULL", **asked
    )


CLAUSES = {
    "name": "name = :name",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": "updated_at > :updated_after",
}


# --- what contacts have answered ------------------------------------------------------------------


async def deleted(db: Handle, *, after: Key = FIRST, limit: int) -> list[Place]:
    """The next deleted ones about which answers may be left. Without a lock: asked often, and
    nearly always none."""
    return await db.fetch_all_as(
        Place,
        """
        SELECT workspace_id, id FROM topics
        WHERE forgotten_up_to IS NOT NULL AND (workspace_id, id) > (:whose, :after)
        ORDER BY workspace_id, id
        LIMIT :limit
        """,
        whose=after[0],
        after=after[1],
        limit=limit,
    )


async def forget_some(db: Handle, *, workspace_id: str, id: str, walk: int) -> bool:
    """Forget what the next contacts have answered about a deleted topic, and after the last of them
    itself. False when another worker is at it, or it is gone."""
    key = {"workspace_id": workspace_id, "id": id}
    after = await db.fetch_value(
        """
        SELECT forgotten_up_to FROM topics
        WHERE workspace_id = :workspace_id AND id = :id AND forgotten_up_to IS NOT NULL
        FOR UPDATE SKIP LOCKED
        """,
        **key,
    )
    if after is None:
        return False
    last = await _forget_answers(db, workspace_id=workspace_id, id=id, after=after, walk=walk)
    if last is None:
        await db.execute(
            "DELETE FROM topics WHERE workspace_id = :workspace_id AND id = :id",
            **key,
        )
    else:
        await db.execute(
            """
            UPDATE topics SET forgotten_up_to = :last
            WHERE workspace_id = :workspace_id AND id = :id
            """,
            last=last,
            **key,
        )
    return True


async def _forget_answers(
    db: Handle, *, workspace_id: str, id: str, after: str, walk: int
) -> str | None:
    """Forget what the next contacts behind an id have answered about the topic; the id of the last
    of them, None when there are not so many."""
    last: str | None = await db.fetch_value(
        """
        SELECT id FROM contacts
        WHERE workspace_id = :workspace_id AND id > :after
        ORDER BY id
        LIMIT 1 OFFSET :others
        """,
        workspace_id=workspace_id,
        after=after,
        others=walk - 1,
    )
    rows = await db.fetch_tuples(
        """
        SELECT id, topics FROM contacts
        WHERE workspace_id = :workspace_id AND id > :after AND id <= :last
          AND topics ->> CAST(:topic_id AS TEXT) IS NOT NULL
        ORDER BY id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        after=after,
        last=last or "z",  # behind every id
        topic_id=id,
    )
    kept = [
        {
            "workspace_id": workspace_id,
            "id": contact_id,
            "topics": {name: states for name, states in topics.items() if name != id},
        }
        for contact_id, topics in rows
    ]
    if kept:
        await db.execute_many(
            """
            UPDATE contacts SET topics = :topics, revision = revision + 1, updated_at = :now
            WHERE workspace_id = :workspace_id AND id = :id
            """,
            kept,
        )
    return last
