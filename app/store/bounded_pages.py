"""Pages of rows that may be large: a list of 200 of them would be tens of megabytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Generic, TypeVar

from app.database.db import Handle

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Listed = TypeVar("Listed", bound="DataclassInstance")

MOST_BYTES = 2 * 1024 * 1024
# Of those before it, so that a page has one at least.
_FITS = """COALESCE(CAST(SUM(newest.bytes) OVER (
               ORDER BY newest.id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS BIGINT), 0) < :most_bytes"""


@dataclass(frozen=True, slots=True)
class BoundedPage(Generic[Listed]):
    """Rows as far as they fill a page, and what they weigh. Where that leaves out some, `rest` is
    the id below which they are."""

    rows: list[Listed]
    rest: str | None
    bytes: int


@dataclass(frozen=True, slots=True)
class Weight:
    """Weight of a row `newest`: SQL of its bytes, and the columns that they are of, with types."""

    bytes: str
    large: Mapping[str, str]


async def read(
    db: Handle,
    kind: type[Listed],
    narrowed: str,
    values: Mapping[str, object],
    weight: Weight,
    *,
    spent: int = 0,
) -> BoundedPage[Listed]:
    """The rows that a query with these values finds, newest first, as far as they fill a page, of
    which so many bytes are `spent`. The large columns of others are not read."""
    most_bytes = MOST_BYTES - spent
    columns = ", ".join(
        f"CAST(CASE WHEN {_FITS} THEN newest.{one.name} END AS {weight.large[one.name]})"
        f" AS {one.name}"
        if one.name in weight.large
        else f"newest.{one.name}"
        for one in fields(kind)
    )
    found = await db.fetch_tuples(
        f"""
        SELECT {columns}, newest.bytes
        FROM (SELECT newest.*, {weight.bytes} AS bytes
              FROM ({narrowed}) newest) newest
        ORDER BY newest.id DESC
        """,
        most_bytes=most_bytes,
        **values,
    )
    rows, filled = list[Listed](), 0
    id_at = [one.name for one in fields(kind)].index("id")
    for *row, weighs in found:
        if filled >= most_bytes:
            return BoundedPage(rows, found[len(rows) - 1][id_at], filled)
        rows.append(kind(*row))
        filled += weighs
    return BoundedPage(rows, None, filled)
