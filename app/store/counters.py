"""Sums over all processes."""

from __future__ import annotations

from collections.abc import Mapping

from app.store.db import Handle


async def add(db: Handle, amounts: Mapping[tuple[str, str], float]) -> None:
    """By name and labels; in one order, so that two processes do not wait for each other."""
    await db.execute_many(
        """
        INSERT INTO counters (name, labels, value)
        VALUES (:name, :labels, :value)
        ON CONFLICT (name, labels) DO UPDATE SET value = counters.value + excluded.value
        """,
        [
            {"name": name, "labels": labels, "value": float(amount)}
            for (name, labels), amount in sorted(amounts.items())
        ],
    )


async def every(db: Handle) -> list[tuple[str, str, float]]:
    rows = await db.fetch_all("SELECT name, labels, value FROM counters ORDER BY name, labels")
    return [(row["name"], row["labels"], row["value"]) for row in rows]
