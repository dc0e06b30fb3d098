"""Moments at which time alone may change the answer of a filter, as SQL over contacts. The contacts
`c` are of :workspace_id, and it says what machine/segment_changes.next_flip says of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.database import texts
from app.database.engine import Engine
from app.machine.condition import Comparison, Condition
from app.machine.fields import parse_duration
from app.machine.segment_changes import TICK, timed_within
from app.machine.segment_filter import Did, Got
from app.store.segment_sql import Clause, SqlValue
from app.store.segments import Fitting


def next_flip(engine: Engine, now: datetime, parts: Sequence[Condition]) -> Fitting:
    """The earliest moment after `now` at which one of the timed parts may flip, or NULL."""
    moments = _Moments(Clause(engine, now, prefix="n"))
    asked = dict.fromkeys(sql for part in parts for sql in moments.of(part))
    each = " UNION ALL ".join(f"SELECT {sql} AS at" for sql in asked)
    # min() of a row is LEAST in PostgreSQL, and NULL in SQLite where one of them is.
    earliest = f"(SELECT min(at) FROM ({each}) AS flips)" if each else "CAST(NULL AS TIMESTAMPTZ)"
    return Fitting(earliest, moments.clause.values)


@dataclass(frozen=True, slots=True)
class _Moments:
    clause: Clause

    def of(self, part: Condition) -> Iterator[str]:
        match part:
            case Comparison() if part.path.segments == ("contact", "createdAt"):
                yield self._flip("c.created_at", parse_duration(part.value))
            case Comparison():
                yield self._read(self.clause.found(part.path), part, "")
            case Did():
                name = f"CAST(:{self.clause.bind(part.event)} AS TEXT)"
                events = f"""FROM contact_events e
                    WHERE e.workspace_id = :workspace_id AND e.contact_id = c.id
                      AND e.name = {name}"""
                if part.within is not None:
                    yield f"(SELECT min({self._flip('e.at', part.within)}) {events})"
                for one in timed_within(part.match):
                    yield self._read(self.clause.found(one.path), one, events)
            case Got(within=timedelta() as within):
                yield f"""(SELECT min({self._flip("m.sent_at", within)}) FROM messages m
                    WHERE m.workspace_id = :workspace_id AND m.contact_id = c.id)"""

    def _read(self, found: SqlValue, part: Comparison, rows: str) -> str:
        """The flip of text that reads like a time; each is read once."""
        fence = self.clause.fence
        return f"""(SELECT min({self._flip("m.at", parse_duration(part.value))})
            FROM (SELECT {texts.moment(self.clause.engine, "t.text")} AS at
                  FROM (SELECT CASE WHEN {found.is_text} THEN {found.text} END AS text
                        {rows}{fence}) AS t{fence}) AS m)"""

    def _flip(self, moment: str, within: timedelta | None) -> str:
        """Write when a moment enters or leaves the window that ends now."""
        clause, left = self.clause, (within or timedelta(0)) + TICK
        now, since = clause.bind(clause.now), clause.bind(clause.now - left)
        after = texts.later(clause.engine, moment, clause.bind(left // timedelta(microseconds=1)))
        return (
            f"CASE WHEN {moment} > :{now} THEN {moment} WHEN {moment} > :{since} THEN {after} END"
        )
