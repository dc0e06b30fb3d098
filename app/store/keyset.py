"""Lists a page at a time, newest first: the clauses of the filters that were given."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack

from app.database.db import Handle
from app.database.ids import first_id
from app.store.row_keys import WorkspaceKey

Listed = TypeVar("Listed")

# How far the clocks of our machines may be from the database's.
SKEW = timedelta(hours=1)
BOUNDS = {"id_from": ">=", "id_until": "<", "before": "<"}


class Page(WorkspaceKey):
    """Parameters of a page: at most `limit` rows that the filters let through. `before` is the id
    that the last page ended on."""

    filters: Mapping[str, object]
    before: str | None
    limit: int


async def page(
    db: Handle,
    kind: type[Listed],
    table: str,
    columns: str,
    clauses: Mapping[str, str],
    *,
    condition: str = "",
    key: str = "id",
    prefix: str | None = None,
    **asked: Unpack[Page],
) -> list[Listed]:
    """A page of a table, the newest first. A `condition`, which begins with AND, holds for all of
    its pages; `key` is the column that orders them. With the `prefix` of its ids: see by_time."""
    filters = asked["filters"]
    if prefix is not None:
        filters = await by_time(db, prefix, filters)
    among, values = narrowed(clauses, filters, asked["before"], key)
    return await db.fetch_all_as(
        kind,
        f"""
        SELECT {columns} FROM {table}
        WHERE workspace_id = :workspace_id {condition} {among}
        ORDER BY {key} DESC
        LIMIT :limit
        """,
        workspace_id=asked["workspace_id"],
        limit=asked["limit"],
        **values,
    )


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
