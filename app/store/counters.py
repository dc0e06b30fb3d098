"""Sums over all processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from app.database.db import Database, Handle
from app.errors import Unavailable
from app.runtime.metrics import Metrics

log = logging.getLogger(__name__)

ADD_UP_SECONDS = 5.0


async def add(db: Handle, amounts: Mapping[tuple[str, str], float]) -> None:
    """Add amounts by name and labels. In one order, so that two processes do not wait for each
    other."""
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
    rows = await db.fetch_tuples("SELECT name, labels, value FROM counters ORDER BY name, labels")
    return [(name, labels, value) for name, labels, value in rows]


async def add_up_for_ever(database: Database, metrics: Metrics) -> None:
    """Add up the figures until cancelled; the last ones are added then."""
    try:
        while True:
            await asyncio.sleep(ADD_UP_SECONDS)
            await add_up(database, metrics)
    finally:
        await add_up(database, metrics)


async def add_up(database: Database, metrics: Metrics) -> None:
    """Add the counted figures to the sums in the database; later, when it does not answer now."""
    taken = metrics.take()
    if not taken:
        return
    try:
        async with database.write() as db:
            await add(db, taken)
    except Exception as error:  # of a COMMIT without an answer too: figures, not promises
        metrics.give_back(taken)
        if isinstance(error, Unavailable):
            log.warning("metrics not stored yet", extra={"error": error.detail})
        else:
            log.exception("metrics not stored yet")
