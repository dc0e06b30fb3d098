"""Addresses that are not to be written to, and why; found by a keyed hash, erased ones too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, Unpack

from app.database.db import Handle
from app.database.handle import lock_number
from app.database.sql import columns
from app.store import keyset

Reason: TypeAlias = Literal["unsubscribed", "bounced", "complained", "stopped", "manual", "erased"]


@dataclass(frozen=True, slots=True)
class Suppression:
    id: str
    channel: str
    address: str | None
    address_hash: str
    reason: Reason
    source: str
    in_flight: list[str]
    created_at: datetime


COLUMNS = columns(Suppression)


async def lock(db: Handle, *address_hashes: str) -> None:
    """Lock addresses until the transaction ends: whoever sends to one, or suppresses it, waits."""
    if address_hashes:
        await db.lock(*(lock_number(bytes.fromhex(one)) for one in address_hashes))


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    channel: str,
    address_hash: str,
    address: str | None,
    reason: str,
    source: str,
) -> Suppression | None:
    """None when the address is suppressed for this reason already."""
    return await db.fetch_one_as(
        Suppression,
        f"""
        INSERT INTO suppressions (workspace_id, id, channel, address_hash, address, reason, source,
                                  in_flight, created_at)
        VALUES (:workspace_id, :id, :channel, :address_hash, :address, :reason, :source,
                :in_flight, :now)
        ON CONFLICT (workspace_id, address_hash, reason) DO NOTHING
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        channel=channel,
        address_hash=address_hash,
        address=address,
        reason=reason,
        source=source,
        in_flight=[],
    )


async def insert_many(
    db: Handle, *, workspace_id: str, rows: Iterable[Mapping[str, object]]
) -> None:
    """Rows of id, channel, address_hash, address, reason, source; what is there stays."""
    await db.execute_many(
        """
        INSERT INTO suppressions (workspace_id, id, channel, address_hash, address, reason, source,
                                  in_flight, created_at)
        VALUES (:workspace_id, :id, :channel, :address_hash, :address, :reason, :source,
                :in_flight, :now)
        ON CONFLICT (workspace_id, address_hash, reason) DO NOTHING
        """,
        [{**row, "workspace_id": workspace_id, "in_flight": []} for row in rows],
    )


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Suppression | None:
    return await db.fetch_one_as(
        Suppression,
        f"""
        SELECT {COLUMNS} FROM suppressions
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_reason(
    db: Handle, *, workspace_id: str, address_hash: str, reason: str
) -> Suppression | None:
    return await db.fetch_one_as(
        Suppression,
        f"""
        SELECT {COLUMNS} FROM suppressions
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash AND reason = :reason
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
        reason=reason,
    )


async def of_address(db: Handle, *, workspace_id: str, address_hash: str) -> list[str]:
    """The reasons that hold."""
    return await db.fetch_values(
        """
        SELECT reason FROM suppressions
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
    )


async def reasons(
    db: Handle, *, workspace_id: str, address_hashes: Sequence[str]
) -> dict[str, list[str]]:
    """Every asked address is a key."""
    return await reasons_in(db, workspace_ids=[workspace_id], address_hashes=address_hashes)


async def reasons_in(
    db: Handle, *, workspace_ids: Sequence[str], address_hashes: Sequence[str]
) -> dict[str, list[str]]:
    """The reasons for addresses of several workspaces: each is known by a hash of its own."""
    rows = await db.fetch_tuples(
        """
        SELECT address_hash, reason FROM suppressions
        WHERE workspace_id = ANY(:workspace_ids) AND address_hash = ANY(:address_hashes)
        """,
        workspace_ids=list(workspace_ids),
        address_hashes=list(address_hashes),
    )
    found: dict[str, list[str]] = {address_hash: [] for address_hash in address_hashes}
    for address_hash, reason in rows:
        found[address_hash].append(reason)
    return found


async def lift(
    db: Handle, *, workspace_id: str, address_hash: str, reasons: Sequence[str]
) -> list[str]:
    """The reasons that did hold until now."""
    return await db.fetch_values(
        """
        DELETE FROM suppressions
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash
          AND reason = ANY(:reasons)
        RETURNING reason
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
        reasons=list(reasons),
    )


async def forget(db: Handle, *, workspace_id: str, address_hashes: Sequence[str]) -> list[str]:
    """Forget addresses, whose suppressions still hold: nobody can read for whom. Returns their
    ids."""
    forgotten = await db.fetch_values(
        """
        UPDATE suppressions SET address = NULL
        WHERE workspace_id = :workspace_id AND address_hash = ANY(:address_hashes)
        RETURNING id
        """,
        workspace_id=workspace_id,
        address_hashes=list(address_hashes),
    )
    await db.execute(
        """
        DELETE FROM soft_bounces
        WHERE workspace_id = :workspace_id AND address_hash = ANY(:address_hashes)
        """,
        workspace_id=workspace_id,
        address_hashes=list(address_hashes),
    )
    return forgotten


async def recognize(db: Handle, rows: Sequence[Mapping[str, str]]) -> None:
    """Rows of workspace_id, address_hash and address: whose the suppressions are is known again."""
    if rows:
        await db.execute_many(
            """
            UPDATE suppressions SET address = :address
            WHERE workspace_id = :workspace_id AND address_hash = :address_hash
              AND address IS NULL
            """,
            rows,
        )


async def of_addresses(
    db: Handle, *, workspace_id: str, address_hashes: Sequence[str]
) -> list[Suppression]:
    """The oldest first."""
    return await db.fetch_all_as(
        Suppression,
        f"""
        SELECT {COLUMNS} FROM suppressions
        WHERE workspace_id = :workspace_id AND address_hash = ANY(:address_hashes)
        ORDER BY id
        """,
        workspace_id=workspace_id,
        address_hashes=list(address_hashes),
    )


async def name_in_flight(
    db: Handle, *, workspace_id: str, address_hash: str, reason: str, message_ids: Sequence[str]
) -> None:
    """Name the messages that may arrive although the answer says none will, beside those that
    earlier answers have named: what one of them said stays true."""
    where = {"workspace_id": workspace_id, "address_hash": address_hash, "reason": reason}
    named = await db.fetch_value(
        """
        SELECT in_flight FROM suppressions
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash AND reason = :reason
        FOR UPDATE
        """,
        **where,
    )
    if named is None:  # lifted meanwhile
        return
    await db.execute(
        """
        UPDATE suppressions SET in_flight = :message_ids
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash AND reason = :reason
        """,
        **where,
        message_ids=sorted({*named, *message_ids}),
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[Suppression]:
    """A page of suppressions, the newest first."""
    return await keyset.page(
        db, Suppression, "suppressions", COLUMNS, CLAUSES, prefix="sup", **asked
    )


CLAUSES = {
    "address_hashes": """id IN (SELECT own.id FROM suppressions own
                                WHERE own.workspace_id = :workspace_id
                                  AND own.address_hash = ANY(:address_hashes))""",
    "channel": "channel = :channel",
    "reason": "reason = :reason",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


# --- bounces that may pass ------------------------------------------------------------------------


async def count_soft_bounce(db: Handle, *, workspace_id: str, address_hash: str) -> int:
    """Count a soft bounce; returns how many there have been in a row, this one included."""
    bounces: int = await db.fetch_value(
        """
        INSERT INTO soft_bounces (workspace_id, address_hash, bounces)
        VALUES (:workspace_id, :address_hash, 1)
        ON CONFLICT (workspace_id, address_hash) DO UPDATE SET bounces = soft_bounces.bounces + 1
        RETURNING bounces
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
    )
    return bounces


async def forget_soft_bounces(db: Handle, *, workspace_id: str, address_hash: str) -> None:
    await db.execute(
        """
        DELETE FROM soft_bounces
        WHERE workspace_id = :workspace_id AND address_hash = :address_hash
        """,
        workspace_id=workspace_id,
        address_hash=address_hash,
    )
