"""Lists a page at a time, newest first: the clauses of the filters that were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def narrowed(
    clauses: Mapping[str, str], filters: Mapping[str, Any], before: str | None, id: str = "id"
) -> tuple[str, dict[str, Any]]:
    """SQL to stand behind `WHERE workspace_id = :workspace_id`, and the values it binds.

    `clauses` are fixed texts by filter name; `before` is the id that the last page ended on.
    """
    chosen = [clauses[name] for name in filters]
    values = dict(filters)
    if before is not None:
        chosen.append(f"{id} < :before")
        values["before"] = before
    return "".join(f"\n          AND {clause}" for clause in chosen), values
