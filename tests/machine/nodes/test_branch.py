"""branch: what it may cost to decide."""

from __future__ import annotations

from typing import Any

from app.machine import check
from app.machine.condition import MOST_COMPARISONS

ONE = {"path": "trigger.x", "op": "eq", "value": 1}


def findings(*conditions: dict[str, Any]) -> list[tuple[str, str]]:
    body = [{"type": "branch", "cases": [{"when": when} for when in conditions]}]
    return [(f.code, f.pointer) for f in check.compile("steps", body).findings if f.draft]


def test_a_branch_may_make_so_many_comparisons_and_no_more() -> None:
    half = {"any": [ONE] * (MOST_COMPARISONS // 2)}
    assert findings(half, {"not": half}) == []
    assert findings(half, {"not": half}, ONE) == [("too_many", "/steps/0/cases")]
