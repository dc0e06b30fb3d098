"""Answers to events with a key, so that their copies get the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.database.db import Handle
from app.database.sql import columns

KEPT_SECONDS = 86_400
REPEATED_WITHIN = timedelta(seconds=KEPT_SECONDS)
TRIES = 5  # of whoever writes one: another may get ahead with a key, but hardly again and again


@dataclass(frozen=True, slots=True)
class Receipt:
    workspace_id: str
    id: bytes  # keyed hash of definition, kind of key and value
    run_id: str
    contact_id: str


async def by_ids(db: Handle, pairs: Sequence[tuple[str, bytes]]) -> list[Receipt]:
    """The receipts that have not expired, by workspace and id."""
    rows = await db.fetch_tuples(
        f"""
        SELECT {columns(Receipt, "r")}, CAST(r.expires_at > :now AS BOOLEAN) AS is_good
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS BYTEA[]))
             AS given (workspace_id, id)
        JOIN receipts r ON r.workspace_id = given.workspace_id AND r.id = given.id
        """,
        workspace_ids=[workspace_id for workspace_id, _ in pairs],
        ids=[id for _, id in pairs],
    )
    # Not asked in WHERE: a planner might go by the index of expiry then, through all of them.
    return [Receipt(*receipt) for *receipt, is_good in rows if is_good]


async def insert_many(db: Handle, receipts: Sequence[Receipt], *, expires_at: datetime) -> int:
    """Insert receipts; returns how many. An expired one is taken over, a living one is left. They
    come sorted, so that two batches with the same keys do not wait for each other in a circle."""
    rows = await db.fetch_all(
        """
        INSERT INTO receipts (workspace_id, id, run_id, contact_id, expires_at)
        SELECT w.id, given.id, given.run_id, given.contact_id, CAST(:expires_at AS TIMESTAMPTZ)
        FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS BYTEA[]),
                    CAST(:run_ids AS TEXT[]), CAST(:contact_ids AS TEXT[]))
             AS given (workspace_id, id, run_id, contact_id)
        JOIN workspaces w ON w.id = given.workspace_id
        WHERE TRUE
        ON CONFLICT (workspace_id, id) DO UPDATE
        SET run_id = excluded.run_id, contact_id = excluded.contact_id,
            expires_at = excluded.expires_at
        WHERE receipts.expires_at <= :now
        RETURNING id
        """,
        workspace_ids=[receipt.workspace_id for receipt in receipts],
        ids=[receipt.id for receipt in receipts],
        run_ids=[receipt.run_id for receipt in receipts],
        contact_ids=[receipt.contact_id for receipt in receipts],
        expires_at=expires_at,
    )
    return len(rows)
