"""The trail of who changed what, and the signed head of its chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns, named_values
from app.store import bounded_pages, keyset
from app.store.bounded_pages import Weight


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the audit trail."""

    workspace_id: str
    id: str
    action: str
    actor_type: str
    actor_id: str | None
    actor_name: str
    resource_type: str
    resource_id: str
    changes: str | None  # JSON
    salt: bytes | None
    changes_hash: bytes
    forgotten: bytes | None
    ip: str | None
    request_id: str
    created_at: datetime
    mac: bytes
    sequence: int | None  # in the chain; None until it is chained
    hash: bytes | None  # of the chain up to here


COLUMNS = columns(Entry)
# Of a large contact, before and after.
WEIGHT = Weight("octet_length(COALESCE(newest.changes, ''))", {"changes": "TEXT"})


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning and end of the chain, with the MAC over them."""

    first_sequence: int
    first_hash: bytes
    sequence: int
    hash: bytes
    mac: bytes


CLAUSES: Mapping[str, str] = {
    "actor": "actor_id = :actor",
    "action": "action = :action",
    "resource_type": "resource_type = :resource_type",
    "resource_id": "resource_id = :resource_id",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


async def insert(db: Handle, entry: Entry) -> None:
    await db.execute(
        f"""
        INSERT INTO audit_logs ({COLUMNS})
        VALUES (:workspace_id, :id, :action, :actor_type, :actor_id, :actor_name,
                :resource_type, :resource_id, :changes, :salt, :changes_hash, :forgotten, :ip,
                :request_id, :created_at, :mac, :sequence, :hash)
        """,
        **named_values(entry),
    )


async def page(
    db: Handle,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
) -> tuple[list[Entry], str | None]:
    """A page of entries, the newest first, as far as they fill it; where that leaves out some, the
    second value is the id below which they are."""
    narrowed, values = keyset.narrowed(CLAUSES, await keyset.by_time(db, "aud", filters), before)
    page = await bounded_pages.read(
        db,
        Entry,
        f"""
        SELECT {COLUMNS}
        FROM audit_logs
        WHERE workspace_id = :workspace_id {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        {**values, "workspace_id": workspace_id, "limit": limit},
        WEIGHT,
    )
    return page.rows, page.rest


async def about(db: Handle, *, workspace_id: str, resource_id: str, limit: int) -> dict[str, bytes]:
    """The hashes of the changes of those that still have them, by id."""
    rows = await db.fetch_tuples(
        """
        SELECT id, changes_hash FROM audit_logs
        WHERE workspace_id = :workspace_id AND resource_id = :resource_id
          AND changes IS NOT NULL
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        resource_id=resource_id,
        limit=limit,
    )
    return dict(rows)


async def forget(db: Handle, *, workspace_id: str, allowed: Mapping[str, bytes]) -> None:
    """Ids, and for each the MAC that allows it."""
    await db.execute_many(
        """
        UPDATE audit_logs SET changes = NULL, salt = NULL, forgotten = :forgotten
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        [
            {"workspace_id": workspace_id, "id": id, "forgotten": forgotten}
            for id, forgotten in allowed.items()
        ],
    )


# --- the chain -----------------------------------------------------------------------------------


async def unchained_workspaces(db: Handle, *, after: str = "", limit: int) -> list[str]:
    """The next: one index probe for each that has something to chain, nearly always none. Of a
    sharded database the look at all shards finds them."""
    found: list[str] = []
    while len(found) < limit:
        workspace_id = await db.fetch_value(
            """
            SELECT workspace_id FROM audit_logs
            WHERE sequence IS NULL AND workspace_id > :after
            ORDER BY workspace_id, id
            LIMIT 1
            """,
            after=found[-1] if found else after,
        )
        if workspace_id is None:
            break
        found.append(workspace_id)
    return found


async def unchained(db: Handle, *, workspace_id: str, after: str = "", limit: int) -> list[Entry]:
    """Read the entries behind `after` that are not chained yet, in the order of the chain."""
    return await db.fetch_all_as(
        Entry,
        f"""
        SELECT {COLUMNS} FROM audit_logs
        WHERE workspace_id = :workspace_id AND sequence IS NULL AND id > :after
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        limit=limit,
    )


async def chain(db: Handle, *, workspace_id: str, links: Sequence[tuple[str, int, bytes]]) -> None:
    """Ids, places and hashes."""
    await db.execute_many(
        """
        UPDATE audit_logs SET sequence = :sequence, hash = :hash
        WHERE workspace_id = :workspace_id AND id = :id AND sequence IS NULL
        """,
        [
            {"workspace_id": workspace_id, "id": id, "sequence": sequence, "hash": hash}
            for id, sequence, hash in links
        ],
    )


async def links(db: Handle, *, workspace_id: str, after: int, limit: int) -> list[Entry]:
    """The chain in its order, from the place behind `after`."""
    return await db.fetch_all_as(
        Entry,
        f"""
        SELECT {COLUMNS} FROM audit_logs
        WHERE workspace_id = :workspace_id AND sequence > :after
        ORDER BY sequence
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        limit=limit,
    )


async def head(db: Handle, *, workspace_id: str) -> Head | None:
    return await db.fetch_one_as(
        Head,
        f"""
        SELECT {columns(Head)} FROM audit_heads
        WHERE workspace_id = :workspace_id
        """,
        workspace_id=workspace_id,
    )


async def head_locked(db: Handle, *, workspace_id: str) -> Head | None:
    """Lock the head before it is moved, so that a chain has one writer at a time."""
    return await db.fetch_one_as(
        Head,
        f"""
        SELECT {columns(Head)} FROM audit_heads
        WHERE workspace_id = :workspace_id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
    )


async def insert_head(db: Handle, *, workspace_id: str, head: Mapping[str, object]) -> None:
    """Insert the head of a workspace's chain, unless there is one by now."""
    await db.execute(
        """
        INSERT INTO audit_heads (workspace_id, first_sequence, first_hash, sequence, hash, mac)
        VALUES (:workspace_id, :first_sequence, :first_hash, :sequence, :hash, :mac)
        ON CONFLICT (workspace_id) DO NOTHING
        """,
        workspace_id=workspace_id,
        **head,
    )


async def move_head(db: Handle, *, workspace_id: str, head: Mapping[str, object]) -> None:
    """The caller has locked it."""
    await db.execute(
        """
        UPDATE audit_heads
        SET first_sequence = :first_sequence, first_hash = :first_hash, sequence = :sequence,
            hash = :hash, mac = :mac
        WHERE workspace_id = :workspace_id
        """,
        workspace_id=workspace_id,
        **head,
    )


async def oldest_links(
    db: Handle, *, workspace_id: str, after: int, moment: datetime, limit: int
) -> list[Entry]:
    """The links, of the `limit` behind `after`, that claim to be older than `moment`."""
    return await db.fetch_all_as(
        Entry,
        f"""
        SELECT {COLUMNS} FROM audit_logs
        WHERE workspace_id = :workspace_id AND sequence > :after AND sequence <= :through
          AND created_at < :moment
        ORDER BY sequence
        """,
        workspace_id=workspace_id,
        after=after,
        through=after + limit,
        moment=moment,
    )


async def prune(db: Handle, *, workspace_id: str, through: int) -> None:
    """Delete the chain's links up to that place; the caller has moved its head behind them."""
    await db.execute(
        "DELETE FROM audit_logs WHERE workspace_id = :workspace_id AND sequence <= :through",
        workspace_id=workspace_id,
        through=through,
    )
