"""A page's SQL: the clauses of the filters that were given, and where the last page ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.database.db import Database, new_id
from app.database.ids import first_id
from app.store import keyset

CLAUSES = {"state": "state = :state", "name": "lower(name) = :name"}


@pytest.mark.parametrize(
    ("filters", "before", "clauses", "values"),
    [
        ({}, None, [], {}),
        ({"state": "ACTIVE"}, None, ["state = :state"], {"state": "ACTIVE"}),
        (
            {"state": "ACTIVE", "name": "x"},
            None,
            ["state = :state", "lower(name) = :name"],
            {"state": "ACTIVE", "name": "x"},
        ),
        ({}, "wfl_1", ["id < :before"], {"before": "wfl_1"}),
        (
            {"name": "x"},
            "wfl_1",
            ["lower(name) = :name", "id < :before"],
            {"name": "x", "before": "wfl_1"},
        ),
    ],
)
def test_only_what_is_asked_for_narrows(
    filters: dict[str, Any], before: str | None, clauses: list[Any], values: dict[str, Any]
) -> None:
    sql, bound = keyset.narrowed(CLAUSES, filters, before)
    assert [line.strip() for line in sql.split("AND ")[1:]] == clauses
    assert bound == values


def test_the_id_may_be_a_joined_table_s() -> None:
    assert keyset.narrowed({}, {}, "run_1", "r.id")[0].strip() == "AND r.id < :before"


def test_a_filter_that_nobody_knows_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        keyset.narrowed(CLAUSES, {"unknown": 1}, None)


async def test_a_time_of_creation_is_also_a_bound_of_ids(database: Database) -> None:
    """So a page begins there; the clocks that make ids may be wrong by an hour."""
    hour, now = timedelta(hours=1), datetime.now(UTC)
    filters = {"created_after": now - 3 * hour, "created_before": now + 3 * hour, "state": "x"}
    async with database.read() as db:
        bounded = await keyset.by_time(db, "run", filters)
    assert bounded.items() >= filters.items()
    assert bounded["id_from"] < new_id("run") < bounded["id_until"]
    assert bounded["id_from"] > first_id("run", now - 5 * hour, timedelta())
    assert bounded["id_until"] < first_id("run", now + 5 * hour, timedelta())


async def test_without_times_there_is_nothing_to_bound(database: Database) -> None:
    async with database.read() as db:
        assert await keyset.by_time(db, "run", {"state": "x"}) == {"state": "x"}


async def test_a_moved_clock_of_the_database_moves_the_bounds(connect: Any) -> None:
    day = timedelta(days=1)
    moved = await connect(clock_offset_ms=int(30 * day.total_seconds() * 1_000))
    async with moved.read() as db:
        then = await db.now()
        bounded = await keyset.by_time(db, "run", {"created_after": then - day})
    assert bounded["id_from"] < new_id("run")
