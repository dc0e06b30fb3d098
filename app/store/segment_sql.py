"""The filter of a segment as SQL over contacts `c` of :workspace_id, which the statement binds:
what segment_filter.py asks of one.

Every condition is true or false, never NULL, so that NOT means what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from app.database import texts
from app.database.engine import Engine
from app.database.texts import Order
from app.machine import compare
from app.machine.condition import All, AnyOf, Comparison, Condition, Not
from app.machine.fields import parse_duration
from app.machine.path import Path
from app.machine.program import Json
from app.machine.segment_filter import COUNTS, MESSAGES, RUNS, Did, Got, InSegment, Went
from app.store.contacts import FIELD_COLUMNS
from app.store.segments import Fitting

COLUMNS = {name: f"c.{column}" for name, column in {"id": "id", **FIELD_COLUMNS}.items()}
ORDERS: Mapping[str, Order] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
CHRONOLOGY: Mapping[str, Order] = {"before": "<", "after": ">"}


_BOUND = re.compile(r":([a-z]_[0-9]+)")


@dataclass(frozen=True, slots=True)
class SqlValue:
    """The value of a path in SQL: its text, and whether it is text, a number, a boolean, null."""

    text: str
    is_text: str
    is_number: str = "FALSE"
    is_boolean: str = "FALSE"
    is_null: str = "FALSE"

    def exists(self) -> str:
        return _any(self.is_text, self.is_number, self.is_boolean)


def _any(*parts: str) -> str:
    kept = [part for part in parts if part != "FALSE"]
    return f"({' OR '.join(kept)})" if kept else "FALSE"


def _both(*parts: str) -> str:
    return "FALSE" if "FALSE" in parts else f"({' AND '.join(parts)})"


@dataclass(slots=True)
class Clause:
    """The SQL of a filter as of `now`, and the values that it binds, by names with a `prefix`;
    `segments` are the filters of those that it names."""

    engine: Engine
    now: datetime
    segments: Mapping[str, Condition] = field(default_factory=dict)
    prefix: str = "f"
    values: dict[str, Any] = field(default_factory=dict)

    def fitting(self, part: Condition) -> Fitting:
        """Write a part with the values that are left of it: what can never be so is left out."""
        sql = self.sql(part)
        used = {name: self.values[name] for name in _BOUND.findall(sql)}
        return Fitting(sql, used)

    def sql(self, part: Condition) -> str:
        match part:
            case All(parts):
                return f"({' AND '.join(map(self.sql, parts))})"
            case AnyOf(parts):
                return f"({' OR '.join(map(self.sql, parts))})"
            case Not(one):
                return f"NOT {self.sql(one)}"
            case Comparison() if part.path.segments[1:] == ("tags",):
                is_so = self._equal(SqlValue("t.tag", "TRUE"), part.value)
                return f"""EXISTS (SELECT 1 FROM contact_tags t
            WHERE t.workspace_id = :workspace_id AND t.contact_id = c.id
              AND {is_so}{self.fence})"""
            case Comparison():
                return f"COALESCE({self._compared(part)}, FALSE)"
            case Did():
                return self._did(part)
            case Got():
                return self._got(part)
            case Went():
                return self._went(part)
            case InSegment():
                return self.sql(self.segments[part.segment_id])
        raise TypeError(f"{type(part).__name__} has no SQL")

    def bind(self, value: Any) -> str:
        name = f"{self.prefix}_{len(self.values)}"
        self.values[name] = value
        return name

    def _text(self, value: str) -> str:
        return f"CAST(:{self.bind(value)} AS TEXT)"

    # --- comparisons ----------------------------------------------------------------------------

    def found(self, path: Path) -> SqlValue:
        """The value at a path, but for tags and `createdAt`."""
        match path.segments[1:]:
            case ("subscriptions", str(channel)):
                text = f"COALESCE(c.subscriptions ->> {self._text(channel)}, 'subscribed')"
                return SqlValue(text, "TRUE")
            case ("topics", str(id), str(channel)):
                text = f"c.topics -> {self._text(id)} ->> {self._text(channel)}"
                return SqlValue(text, f"{text} IS NOT NULL")
            case ("metadata", str(name)):
                return self._member("c.metadata", name)
            case ("properties", str(name)):
                return self._member("e.properties", name)
            case (str(name),):
                column = COLUMNS[name]
                return SqlValue(column, f"{column} IS NOT NULL", is_null=f"{column} IS NULL")
        raise TypeError(f"{path} has no SQL")

    def _member(self, json: str, name: str) -> SqlValue:
        bound = self.bind(name)
        kind = texts.kind_in(self.engine, json, bound)
        return SqlValue(
            texts.text_in(self.engine, json, bound),
            *(f"{kind} = '{one}'" for one in ("string", "number", "boolean", "null")),
        )

    def _compared(self, part: Comparison) -> str:
        if part.path.segments[1:] == ("createdAt",):
            return self._of_creation(part)
        found, value = self.found(part.path), part.value
        match part.op:
            case "eq":
                return self._equal(found, value)
            case "ne":
                is_so = f"COALESCE({self._equal(found, value)}, FALSE)"
                return _both(_any(found.exists(), found.is_null), f"NOT {is_so}")
            case "in":
                return _any(*(self._equal(found, one) for one in value))
            case "exists":
                exists = f"COALESCE({found.exists()}, FALSE)"
                return exists if value else f"NOT {exists}"
            case "contains" | "starts_with" | "ends_with":
                return self._within_text(part.op, found, value)
            case "within_last":
                since = self._by_time(found, ">=", self._since(parse_duration(value)))
                return _both(since, self._by_time(found, "<=", self.now))
            case op:  # like compare.order, or compare.chronology
                exact = compare.number(value) if op in ORDERS else None
                if exact is not None:
                    return self._by_number(found, ORDERS[op], exact)
                moment = compare.time(value)
                order = ORDERS.get(op) or CHRONOLOGY[op]
                return "FALSE" if moment is None else self._by_time(found, order, moment)

    def _equal(self, found: SqlValue, value: Json) -> str:
        """Compare like compare.same."""
        if value is None:
            return found.is_null
        if isinstance(value, bool):
            return _both(found.is_boolean, f"{found.text} = '{'true' if value else 'false'}'")
        exact = compare.number(value)
        if compare.is_number(value):
            return self._by_number(found, "=", exact)
        is_number = _both(found.is_number, self._by_number(found, "=", exact))
        is_text = f"{found.text} = {self._text(value)}"
        moment = compare.time(value)
        if moment is not None:
            is_text = _any(is_text, self._by_time(found, "=", moment))
        return _any(_both(found.is_text, is_text), is_number)

    def _by_number(self, found: SqlValue, order: Order, exact: Decimal | None) -> str:
        if exact is None:
            return "FALSE"
        is_so = texts.by_number(self.engine, found.text, order, self.bind(str(exact)))
        return _both(_any(found.is_text, found.is_number), is_so)

    def _by_time(self, found: SqlValue, order: Order, moment: datetime) -> str:
        # A time as both engines read it; PostgreSQL as a time without a zone.
        utc = moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        is_so = texts.by_time(self.engine, found.text, order, self.bind(utc))
        return _both(found.is_text, is_so)

    def _since(self, length: timedelta | None) -> datetime:
        return self.now - (length or timedelta(0))

    def _within_text(self, op: str, found: SqlValue, value: Json) -> str:
        if not isinstance(value, str):
            return "FALSE"
        if not value:
            return found.is_text
        text, wanted, length = found.text, self._text(value), len(value)
        match op:
            case "contains":
                is_so = f"length(replace({text}, {wanted}, '')) < length({text})"
            case "starts_with":
                is_so = f"substr({text}, 1, {length}) = {wanted}"
            case _:
                begin = f"length({text}) - {length - 1}"
                is_so = f"length({text}) >= {length} AND substr({text}, {begin}) = {wanted}"
        return _both(found.is_text, is_so)

    def _of_creation(self, one: Comparison) -> str:
        """A time as such, not as text."""
        match one.op:
            case "exists":
                return "TRUE" if one.value else "FALSE"
            case "within_last":
                since = self.bind(self._since(parse_duration(one.value)))
                return f"c.created_at >= :{since} AND c.created_at <= :{self.bind(self.now)}"
            case "eq":
                return self._created("=", one.value)
            case "ne":
                return f"NOT {self._created('=', one.value)}"
            case "in":
                return _any(*(self._created("=", value) for value in one.value))
            case op if op in ORDERS or op in CHRONOLOGY:
                return self._created(ORDERS.get(op) or CHRONOLOGY[op], one.value)
        return "FALSE"

    def _created(self, order: Order, value: Json) -> str:
        moment = compare.time(value)
        return "FALSE" if moment is None else f"(c.created_at {order} :{self.bind(moment)})"

    # --- questions ------------------------------------------------------------------------------

    def _did(self, one: Did) -> str:
        clauses = [f"e.name = {self._text(one.event)}"]
        clauses += self._happened("e.at", one.within)
        if one.match is not None:
            clauses.append(self.sql(one.match))
        events = f"""FROM contact_events e
            WHERE e.workspace_id = :workspace_id AND e.contact_id = c.id
              AND {" AND ".join(clauses)}"""
        if (one.op, one.times) in (("gte", 1), ("gt", 0)):
            return f"EXISTS (SELECT 1 {events}{self.fence})"
        if (one.op, one.times) in (("eq", 0), ("lt", 1), ("lte", 0)):
            return f"NOT EXISTS (SELECT 1 {events}{self.fence})"
        return f"(SELECT count(*) {events}) {COUNTS[one.op]} {one.times:d}"

    def _got(self, one: Got) -> str:
        clauses = [_listed("m.status", MESSAGES[one.message])]
        clauses += self._happened("m.sent_at", one.within)
        if one.template_id is not None:
            clauses.append(f"m.template_id = {self._text(one.template_id)}")
        if one.broadcast_id is not None:
            clauses.append(f"m.broadcast_id = {self._text(one.broadcast_id)}")
        return f"""EXISTS (SELECT 1 FROM messages m
            WHERE m.workspace_id = :workspace_id AND m.contact_id = c.id
              AND {" AND ".join(clauses)}{self.fence})"""

    def _went(self, one: Went) -> str:
        statuses = RUNS[one.run]
        clauses = [f"r.definition_id = {self._text(one.definition_id)}", "r.blocked_by IS NULL"]
        if statuses is not None:
            clauses.append(_listed("r.status", statuses))
        return f"""EXISTS (SELECT 1 FROM runs r
            WHERE r.workspace_id = :workspace_id AND r.contact_id = c.id
              AND {" AND ".join(clauses)}{self.fence})"""

    @property
    def fence(self) -> str:
        """Asked of each contact by its own index: a planner that expects few rows would read those
        of everybody instead."""
        return " OFFSET 0" if self.engine == "postgresql" else ""

    def _happened(self, column: str, within: timedelta | None) -> list[str]:
        if within is None:
            return []
        since, until = self.bind(self._since(within)), self.bind(self.now)
        return [f"{column} >= :{since}", f"{column} <= :{until}"]


def _listed(column: str, words: Sequence[str]) -> str:
    """Words of our own."""
    quoted = ", ".join(f"'{word}'" for word in words)
    return f"{column} IN ({quoted})"
