"""Usage of what a workspace's plan limits: totals, and the changes not yet in them.

There is no counter that all transactions would wait for: each writes its own change, and a worker
adds them up. What is used is both together, always read in one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from app.database.db import Handle, new_id

CONTACTS, MESSAGES = "contacts", "messages"
DAILY = "daily messages"  # through the operator's channels, of a workspace with a daily limit

OF_IT = "workspace_id = :workspace_id AND meter = :meter AND period = :period"
USED = f"""(
    COALESCE((SELECT amount FROM usage_totals WHERE {OF_IT}), 0)
    + COALESCE((SELECT sum(amount) FROM usage_changes WHERE {OF_IT}), 0))"""


async def add(
    db: Handle, *, workspace_id: str, meter: str, amount: int = 1, period: str = ""
) -> None:
    """`amount` in what the meter counts: contacts, or messages. `period` is a month, as in
    2026-01, or a day, for a meter that begins anew with each."""
    await add_each(db, meter=meter, amounts={workspace_id: amount}, period=period)


async def add_each(db: Handle, *, meter: str, amounts: Mapping[str, int], period: str = "") -> None:
    """Add to the meter of each workspace its amount, counted as in `add`."""
    await db.execute_many(
        """
        INSERT INTO usage_changes (workspace_id, meter, period, id, amount)
        VALUES (:workspace_id, :meter, :period, :id, :amount)
        """,
        [
            {
                "workspace_id": workspace_id,
                "meter": meter,
                "period": period,
                "id": new_id("use"),
                "amount": amount,
            }
            for workspace_id, amount in amounts.items()
        ],
    )


async def add_below(
    db: Handle, *, workspace_id: str, meter: str, period: str = "", limit: int
) -> bool:
    """One more, when there were fewer than `limit`; whether there were."""
    added = await db.fetch_value(
        f"""
        INSERT INTO usage_changes (workspace_id, meter, period, id, amount)
        SELECT w.id, :meter, :period, :id, 1 FROM workspaces w
        WHERE w.id = :workspace_id AND {USED} < :limit
        RETURNING id
        """,
        workspace_id=workspace_id,
        meter=meter,
        period=period,
        id=new_id("use"),
        limit=limit,
    )
    return added is not None


async def used(db: Handle, *, workspace_id: str, meter: str, period: str = "") -> int:
    """The total and the changes that are not yet in it."""
    amount: int = await db.fetch_value(
        f"SELECT {USED} AS used", workspace_id=workspace_id, meter=meter, period=period
    )
    return amount


async def used_by_period(db: Handle, *, workspace_id: str, meter: str) -> dict[str, int]:
    """The same for every period in which there was any."""
    rows = await db.fetch_tuples(
        """
        SELECT period, CAST(sum(amount) AS BIGINT) AS used
        FROM (SELECT period, amount FROM usage_totals
              WHERE workspace_id = :workspace_id AND meter = :meter
              UNION ALL
              SELECT period, amount FROM usage_changes
              WHERE workspace_id = :workspace_id AND meter = :meter) AS each
        GROUP BY period
        """,
        workspace_id=workspace_id,
        meter=meter,
    )
    return dict(rows)


async def forget_period(db: Handle, *, workspace_id: str, meter: str, period: str) -> None:
    for table in ("usage_totals", "usage_changes"):
        await db.execute(
            f"DELETE FROM {table} WHERE {OF_IT}",
            workspace_id=workspace_id,
            meter=meter,
            period=period,
        )


async def lock(db: Handle, *, workspace_id: str, meter: str, period: str = "") -> None:
    """Lock a meter: who takes of it with this lock is alone; others add meanwhile only from far
    below."""
    await db.execute(
        """
        INSERT INTO usage_totals (workspace_id, meter, period, amount)
        VALUES (:workspace_id, :meter, :period, 0)
        ON CONFLICT (workspace_id, meter, period) DO UPDATE SET amount = usage_totals.amount
        """,
        workspace_id=workspace_id,
        meter=meter,
        period=period,
    )


async def forget_days(db: Handle, *, workspace_id: str, before: str) -> None:
    """Delete what was counted on days before this one."""
    await db.execute(
        """
        DELETE FROM usage_totals
        WHERE workspace_id = :workspace_id AND meter = :meter AND period < :before
        """,
        workspace_id=workspace_id,
        meter=DAILY,
        before=before,
    )


async def any_changes(db: Handle) -> bool:
    return await db.fetch_value("SELECT id FROM usage_changes LIMIT 1") is not None


async def fold(db: Handle, *, limit: int) -> int:
    """Fold up to `limit` changes into their totals; returns how many."""
    changes = await db.fetch_tuples(
        """
        DELETE FROM usage_changes
        WHERE (workspace_id, meter, period, id) IN (
            SELECT workspace_id, meter, period, id FROM usage_changes
            LIMIT :limit
            FOR UPDATE SKIP LOCKED)
        RETURNING workspace_id, meter, period, amount
        """,
        limit=limit,
    )
    await _add_to_totals(db, changes)
    return len(changes)


async def changed(db: Handle, *, limit: int) -> list[str]:
    """Workspaces with changes that are not in their totals: for a sharded database, which looks at
    all shards without locks, and folds one workspace at a time."""
    return await db.fetch_values(
        """
        SELECT DISTINCT workspace_id
        FROM (SELECT workspace_id FROM usage_changes LIMIT :limit) AS found
        """,
        limit=limit,
    )


async def fold_of(db: Handle, *, workspace_id: str, limit: int) -> int:
    """Fold up to `limit` changes of one workspace into its totals; how many."""
    changes = await db.fetch_tuples(
        """
        DELETE FROM usage_changes
        WHERE workspace_id = :workspace_id AND (meter, period, id) IN (
            SELECT meter, period, id FROM usage_changes
            WHERE workspace_id = :workspace_id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED)
        RETURNING workspace_id, meter, period, amount
        """,
        workspace_id=workspace_id,
        limit=limit,
    )
    await _add_to_totals(db, changes)
    return len(changes)


async def _add_to_totals(db: Handle, changes: Sequence[tuple[Any, ...]]) -> None:
    sums = Counter[tuple[str, ...]]()
    for *key, amount in changes:
        sums[tuple(key)] += amount
    await db.execute_many(
        """
        INSERT INTO usage_totals (workspace_id, meter, period, amount)
        VALUES (:workspace_id, :meter, :period, :amount)
        ON CONFLICT (workspace_id, meter, period)
        DO UPDATE SET amount = usage_totals.amount + excluded.amount
        """,
        [
            {"workspace_id": workspace_id, "meter": meter, "period": period, "amount": amount}
            for (workspace_id, meter, period), amount in sorted(sums.items())  # all in one order
        ],
    )
