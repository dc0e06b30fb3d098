"""When time alone may change the answer of a filter, as SQL over contacts `c` of :workspace_id:
what machine/segment_changes.next_flip says of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from app.database import texts
from app.database.engine import Engine
from app.machine.condition import Comparison, Condition
from app.machine.fields import parse_duration
from app.machine.segment_changes import TICK
from app.machine.segment_filter import Did, Got
from app.store.segments import Fitting


def next_flip(engine: Engine, now: datetime, parts: Sequence[Condition]) -> Fitting | None:
    """The earliest moment after `now` at which one of the timed parts may flip, or NULL. None where
    a part compares text that reads like a time: those the machine has to read."""
    moments = _Moments(engine, now)
    found = [moments.of(part) for part in parts]
    asked = [sql for sql in found if sql is not None]
    if len(asked) < len(found):
        return None
    return Fitting(_earliest(asked), moments.values)


def _earliest(asked: Iterable[str]) -> str:
    """min() of a row is LEAST in PostgreSQL, and NULL in SQLite where one of them is."""
    each = " UNION ALL ".join(f"SELECT {sql} AS at" for sql in dict.fromkeys(asked))
    return f"(SELECT min(at) FROM ({each}) AS flips)" if each else "CAST(NULL AS TIMESTAMPTZ)"


@dataclass(slots=True)
class _Moments:
    engine: Engine
    now: datetime
    values: dict[str, Any] = field(default_factory=dict)

    def of(self, part: Condition) -> str | None:
        match part:
            case Comparison() if part.path.segments == ("contact", "createdAt"):
                return self._flip("c.created_at", parse_duration(part.value))
            case Did(within=timedelta() as within):
                name = f"CAST(:{self._bind(part.event)} AS TEXT)"
                return f"""(SELECT min({self._flip("e.at", within)}) FROM contact_events e
                    WHERE e.workspace_id = :workspace_id AND e.contact_id = c.id
                      AND e.name = {name})"""
            case Got(within=timedelta() as within):
                return f"""(SELECT min({self._flip("m.created_at", within)}) FROM messages m
                    WHERE m.workspace_id = :workspace_id AND m.contact_id = c.id)"""
        return None

    def _flip(self, moment: str, within: timedelta | None) -> str:
        """When it enters or leaves the window that ends now."""
        left = (within or timedelta(0)) + TICK
        now, since = self._bind(self.now), self._bind(self.now - left)
        after = texts.later(self.engine, moment, self._bind(left // timedelta(microseconds=1)))
        return (
            f"CASE WHEN {moment} > :{now} THEN {moment} WHEN {moment} > :{since} THEN {after} END"
        )

    def _bind(self, value: Any) -> str:
        name = f"n_{len(self.values)}"
        self.values[name] = value
        return name
