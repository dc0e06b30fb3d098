"""A node of any kind, entered and resumed without a program around it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from app.machine.fields import Place
from app.machine.kind import NodeOutcome, Visit
from app.machine.nodes import NODES
from app.machine.program import Event, Facts, Finding, Node

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)  # a Monday
FACTS: Facts = {
    "trigger": {"plan": "pro", "total": "83.40", "blank": "  ", "at": "2026-11-05T13:30:00.5Z"},
    "contact": {"id": "con_1", "tags": ["vip"], "timezone": "America/New_York", "metadata": {}},
    "workspace": {"timezone": "Europe/Berlin"},
    "run": {"id": "run_1", "definitionId": "wfl_1"},
    "steps": {},
    "now": NOON,
}


def visit(kind: str, data: Mapping[str, Any], **facts: Any) -> Visit:
    findings: list[Finding] = []
    config = NODES[kind].read(dict(data), Place("", findings))
    assert findings == []
    return Visit(Node("n", kind, config, {}), 1, {**FACTS, **facts})


def enter(kind: str, data: Mapping[str, Any], **facts: Any) -> NodeOutcome:
    return NODES[kind].enter(visit(kind, data, **facts))


def resume(kind: str, data: Mapping[str, Any], event: Event, **facts: Any) -> NodeOutcome | None:
    resume = NODES[kind].resume
    assert resume is not None
    return resume(visit(kind, data, **facts), event)


def findings(kind: str, data: Any) -> list[tuple[str, str, bool]]:
    found: list[Finding] = []
    NODES[kind].read(data, Place("", found))
    return [(finding.code, finding.pointer, finding.draft) for finding in found]
