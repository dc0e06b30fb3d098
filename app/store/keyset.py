"""Lists a page at a time, newest first: the clauses of the filters that were given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from app.database.db import Handle
from app.database.ids import first_id

# How far the clocks of our machines may be from the database's.
SKEW = timedelta(hours=1)
BOUNDS = {"id_from": ">=", "id_until": "<", "before": "<"}


def narrowed(
    clauses: Mapping[str, str], filters: Mapping[str, Any], before: str | None, id: str = "id"
) -> tuple[str, dict[str, Any]]:
    """SQL to stand behind `WHERE workspace_id = :workspace_id`, and the values it binds.

    `clauses` are fixed texts by filter name; `before` is the id that the last page ended on.
    """
    values = dict(filters) if before is None else {**filters, "before": before}
    chosen = [
        f"{id} {BOUNDS[name]} :{name}" if name in BOUNDS else clauses[name] for name in values
    ]
    return "".join(f"\n          AND {clause}" for clause in chosen), values


async def by_time(db: Handle, kind: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """The filters, and for a time of creation the ids that lie around it, so that a page begins
    there and walks over nothing to find it. `kind` is the ids' prefix."""
    after, before = filters.get("created_after"), filters.get("created_before")
    bounded = dict(filters)
    if after is None and before is None:
        return bounded
    # An id has our clock's time, created_at the database's, which a test may have moved.
    moved = await db.now() - datetime.now(UTC)
    if after is not None:
        bounded["id_from"] = first_id(kind, after, moved + SKEW)
    if before is not None:
        bounded["id_until"] = first_id(kind, before, moved - SKEW)
    return bounded
