"""The results of a definition's cases, as its check and its clients see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.machine import document
from app.machine.program import Finding, Json


@dataclass(frozen=True, slots=True)
class CaseResult:
    """`actual` is the part of the trace that stands where `expected` says something; None when
    there is none. `difference` is a sentence; None for a case that came as expected."""

    name: str
    expected: Json
    actual: Json
    difference: str | None

    @property
    def passes(self) -> bool:
        return self.difference is None


def found(results: Iterable[CaseResult], *, gate: bool) -> list[Finding]:
    return [
        Finding(
            "case_failed",
            document.pointer("cases", result.name),
            f"The case came out differently. {result.difference}",
            severity="error" if gate else "warning",
        )
        for result in results
        if not result.passes
    ]


def listed(results: Iterable[CaseResult]) -> list[dict[str, Any]]:
    """The form that clients see."""
    return [
        {
            "name": result.name,
            "passes": result.passes,
            "difference": result.difference,
            "expected": result.expected,
            "actual": result.actual,
        }
        for result in results
    ]
