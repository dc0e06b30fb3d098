"""Sets: a statement that is wanted with many values at once, as one statement over all of them.

PostgreSQL spends more on receiving a statement than on most of ours themselves. What each row of
values asks stays a query of its own, planned as if it were asked alone: joined with the others, a
planner whose statistics know nothing of their workspace reads it whole. The workspace is a value of
each row like any other; but for a database that is sharded by workspace it is one value of the
statement, which one shard answers, and several workspaces are several statements in one trip.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.database.sql import COMMENT, KEPT, LIST, NAMED, QUOTED, Bindable

NUMBER = "nth_of_each"  # the place of a row's values among all that were given, from one
WORKSPACE = "workspace_id"
ONE_WORKSPACE = "one_workspace_id"  # of a statement that was over rows of several

_SELECT = re.compile(
    r"\s*(?:SELECT|WITH)\b(?!.*\b(?:INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b)", re.I | re.S
)
_RETURNING = re.compile(r"\bRETURNING\b", re.I)
_CHANGES_WITHIN = re.compile(r"\bAS\s+(?:MATERIALIZED\s+)?\(\s*(?:INSERT|UPDATE|DELETE)\b", re.I)
_FENCED = re.compile(r"\bLIMIT\b|\bFOR\s+(?:NO\s+KEY\s+|KEY\s+)?(?:SHARE|UPDATE)\b", re.I)
_INSERT = re.compile(r"\s*INSERT\s+INTO\s+\w+\s*\((?P<columns>[^()]*)\)\s*", re.I)
_TARGET = re.compile(r"\s*\((?P<columns>[^()]*)\)")
_NOTHING = re.compile(r"\s*(?:\([^()]*\)\s*)?(?:WHERE\b.*)?DO\s+NOTHING\s*", re.I | re.S)
_QUERY = re.compile(r"\bSELECT\b", re.I)
_QUERY_FIRST = re.compile(r"\s*WITH\s+(?P<name>\w+)\s+AS\s+MATERIALIZED\s+\(", re.I)
_OF_WORKSPACE = re.compile(rf"\s*{WORKSPACE}\s*=\s*:{WORKSPACE}\s*", re.I)
_EQUAL = re.compile(r"\s*\w+\s*=\s*:(?P<name>\w+)\s*")
_TOKEN = re.compile(
    rf"{QUOTED}|{COMMENT}|(?P<open>\()|(?P<close>\))|(?P<comma>,)"
    r"|\b(?P<word>UPDATE|DELETE\s+FROM|SET|FROM|USING|WHERE|AND|OR|RETURNING|VALUES|SELECT"
    r"|ON\s+CONFLICT)\b",
    re.I | re.S,
)

OfOne = list["Bindable | list[Bindable]"]
Arguments = list[OfOne]
FEW = 16  # new rows: each number of them is a statement of its own, which the server keeps
PLACE = "{place}"


@lru_cache(4096)
def yields_rows(sql: str) -> bool:
    kept = KEPT.sub(" ", sql)
    return _RETURNING.search(kept) is not None or _SELECT.match(kept) is not None


@lru_cache(4096)
def numbered(sql: str) -> str | None:
    """The same with :nth_of_each as a first column of each row; None when it cannot be had:
    PostgreSQL takes what changes rows only in a WITH at the top."""
    if _CHANGES_WITHIN.search(KEPT.sub(" ", sql)):
        return None
    return f"WITH one AS ({sql}) SELECT CAST(:{NUMBER} AS INTEGER) AS {NUMBER}, one.* FROM one"


@dataclass(frozen=True, slots=True)
class SetStatement:
    """A statement over a set: its first value is the workspace, if `is_of_one_workspace`; then come
    the places of the set's rows, and a list for each of `names`. Rows that agree in all of `keys`
    are not one set, for a statement changes a row once."""

    text: str
    names: tuple[str, ...]
    is_of_one_workspace: bool = False
    keys: tuple[str, ...] = ()
    few: tuple[str, str, str] | None = None  # the parts of a `_Writing.row`

    def alone(self, arguments: OfOne) -> tuple[str, OfOne]:
        """The statement for one set, with its arguments. Citus plans an INSERT of a SELECT for each
        shard of the table, whatever workspace it names; so the rows of few are VALUES."""
        places = arguments[1 if self.is_of_one_workspace else 0]
        if self.few is None or not isinstance(places, list) or len(places) > FEW:
            return self.text, arguments
        begun, row, rest = self.few
        rows = ", ".join(row.replace(PLACE, str(n)) for n, _ in enumerate(places, 1))
        return f"{begun}VALUES {rows}{rest}", [one for one in arguments if one is not places]

    def fits(self, each: Sequence[Mapping[str, Bindable]]) -> bool:
        """Return whether no two of them are about one row."""
        if not self.keys:
            return True
        return len({tuple(one[name] for name in self.keys) for one in each}) == len(each)

    def arguments(self, each: Sequence[Mapping[str, Bindable]]) -> Arguments:
        """The values of one statement; if `is_of_one_workspace`, of one for each, in the order of
        their ids."""
        sets: defaultdict[str, list[int]] = defaultdict(list)
        for place, one in enumerate(each):
            sets[str(one[WORKSPACE]) if self.is_of_one_workspace else ""].append(place)
        return [
            [
                *([workspace_id] if self.is_of_one_workspace else ()),
                [place + 1 for place in places],
                *([each[place][name] for place in places] for name in self.names),
            ]
            for workspace_id, places in sorted(sets.items())
        ]


def over_set(
    sql: str, types: Mapping[str, str], *, now: str | None, held: bool
) -> SetStatement | None:
    """The statement over a set of what it takes, whose types are given by name, in order: a SELECT
    for each in turn, or an INSERT; an UPDATE of the rows that a query of the workspace finds; an
    UPDATE or a DELETE by key, if the transaction has them locked: those rows are found by their
    places, which nobody else moves. None where there is none.

    Without `now` the moment is one of the values, and the statement is for a sharded database: it
    names the workspace, and an INSERT takes that from its row, by which the shard is known."""
    if not types or LIST.search(KEPT.sub(" ", sql)):
        return None
    is_sharded = now is None
    if is_sharded and WORKSPACE not in types:
        return None
    names = tuple(name for name in types if not is_sharded or name != WORKSPACE)
    written = _Writing(types, names, now)
    made = (
        _insert(sql, written)
        or (_change(sql, written) if held else _select(sql, written))
        or _change_found(sql, written)
    )
    return made and SetStatement(made[0], names, is_sharded, *made[1:])


class _Writing:
    """Naming of the values of a statement that is over a set."""

    def __init__(self, types: Mapping[str, str], names: Sequence[str], now: str | None) -> None:
        self._now = now
        self.is_sharded = now is None
        self._workspace = f"$1::{types[WORKSPACE]}" if self.is_sharded else ""
        self._types = {name: types[name] for name in names}
        first = 2 if self.is_sharded else 1
        arrays = [
            f"${first}::integer[]",
            *(f"${n}::{types[name]}[]" for n, name in enumerate(names, first + 1)),
        ]
        # No column of ours begins with a colon, so none is taken for another.
        columns = ", ".join((NUMBER, *(f'":{name}"' for name in names)))
        self.given = f"unnest({', '.join(arrays)}) AS asked ({columns})"

    def of(self, sql: str, workspace: str | None = None, *, rows: str = "asked") -> str:
        return self._named(sql, workspace or self._workspace, lambda name: f'{rows}.":{name}"')

    def _named(self, sql: str, workspace: str, of_row: Callable[[str], str]) -> str:
        def replaced(match: re.Match[str]) -> str:
            name = match["name"]
            if name is None:
                return match[0]
            if name == "now" and self._now is not None:
                return self._now
            return workspace if workspace and name == WORKSPACE else of_row(name)

        return NAMED.sub(replaced, sql)

    def row(self, values: str) -> str | None:
        """Write these values as a row of VALUES, of a place in the lists. None where there is none:
        not of a database that is not sharded, which plans a SELECT as fast; nor with a query in
        it."""
        if not self.is_sharded or _QUERY.search(KEPT.sub(" ", values)):
            return None
        numbers = {name: n for n, name in enumerate(self._types, 2)}

        def in_list(name: str) -> str:
            return f"(${numbers[name]}::{self._types[name]}[])[{PLACE}]"

        return f"({self._named(values, self._workspace, in_list)})"

    def source(self, values: str) -> str:
        """A SELECT of these values, for each row of the set."""
        if not self.is_sharded:
            return f"SELECT {self.of(values)} FROM {self.given}"
        return (
            f"SELECT {self.of(values, 'home.id')} FROM workspaces AS home"
            f" CROSS JOIN {self.given} WHERE home.id = {self._workspace}"
        )

    def each(self, query: str) -> str:
        fence = "" if _FENCED.search(KEPT.sub(" ", query)) else " OFFSET 0"
        return f"{self.given} CROSS JOIN LATERAL ({self.of(query)}{fence}) AS one"


_Made = tuple[str, tuple[str, ...]] | tuple[str, tuple[str, ...], tuple[str, str, str] | None]


def _select(sql: str, written: _Writing) -> _Made | None:
    if _SELECT.match(KEPT.sub(" ", sql)) is None:
        return None
    return f"SELECT asked.{NUMBER}, one.* FROM {written.each(sql)}", ()


def _change_found(sql: str, written: _Writing) -> _Made | None:
    """An UPDATE of what one query finds in its workspace, so that no two find the same."""
    begun = _QUERY_FIRST.match(sql)
    if begun is None or written.is_sharded:
        return None
    depth, end = 1, len(sql)  # of the parenthesis that the query stands in
    for token in _TOKEN.finditer(sql, begun.end()):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0:
            end = token.start()
            break
    query, change = sql[begun.end() : end], sql[end + 1 :]
    parts = _parts(change, "UPDATE", "FROM", "RETURNING")
    if [word for word, _ in parts] != ["", "UPDATE", "FROM", "RETURNING"] or parts[0][1].strip():
        return None
    where = dict(_parts(query, "SELECT", "FROM", "WHERE")).get("WHERE", "")
    if not any(_OF_WORKSPACE.fullmatch(part) for part in _split(where, "AND")):
        return None
    found = begun["name"]
    changed, returned = (written.of(text, rows=found) for _, text in _parts(change, "RETURNING"))
    return (
        f"{begun[0]}SELECT asked.*, one.* FROM {written.each(query)}){changed}"
        f"RETURNING {found}.{NUMBER},{returned}",
        (WORKSPACE,),
    )


def _insert(sql: str, written: _Writing) -> _Made | None:
    """An INSERT of VALUES or of a SELECT, whose new rows are not asked for."""
    begun = _INSERT.match(sql)
    if begun is None:
        return None
    parts = _parts(sql[begun.end() :], "VALUES", "SELECT", "FROM", "ON CONFLICT", "RETURNING")
    words, text = [word for word, _ in parts[1:]], dict(parts)
    conflict = text.get("ON CONFLICT", "")
    moment = set() if written.is_sharded else {"now"}
    if {match["name"] for match in NAMED.finditer(conflict)} - {None} - moment:
        return None
    keys: tuple[str, ...] | None
    row: str | None = None
    if words in (["VALUES"], ["VALUES", "ON CONFLICT"]):
        values = text["VALUES"].strip()[1:-1]
        if len(_split(text["VALUES"], ",")) > 1:
            return None
        source, row = written.source(values), written.row(values)
        keys = _conflicting(begun["columns"], _split(values, ","), conflict)
    elif written.is_sharded:
        return None
    elif words in (["SELECT", "FROM"], ["SELECT", "FROM", "ON CONFLICT"]):
        query = f"SELECT{text['SELECT']}FROM{text['FROM']}"
        source = f"SELECT one.* FROM {written.each(query)}"
        keys = () if _does_nothing(conflict) else None
    else:
        return None
    if keys is None:
        return None
    begin, rest = sql[: begun.end()], f" ON CONFLICT{written.of(conflict)}" if conflict else ""
    return f"{begin}{source}{rest}", keys, (begin, row, rest) if row else None


def _does_nothing(conflict: str) -> bool:
    return not conflict or _NOTHING.fullmatch(conflict) is not None


def _conflicting(columns: str, values: Sequence[str], conflict: str) -> tuple[str, ...] | None:
    """The values by which new rows would meet one another; None where those cannot be told."""
    if _does_nothing(conflict):
        return ()
    target = _TARGET.match(conflict)
    if target is None:
        return None
    value_of = dict(zip(_names(columns), (value.strip() for value in values), strict=True))
    of_target = [value_of.get(name, ":") for name in _names(target["columns"])]
    keys = tuple(value[1:] for value in of_target if re.fullmatch(r":\w+", value))
    constants = [value for value in of_target if ":" not in value]
    return keys if keys and len(keys) + len(constants) == len(of_target) else None


def _names(columns: str) -> list[str]:
    return [column.strip() for column in columns.split(",")]


def _change(sql: str, written: _Writing) -> _Made | None:
    """An UPDATE or a DELETE, whose rows are found as they would be alone, and changed by place."""
    parts = _parts(sql, "UPDATE", "DELETE FROM", "SET", "FROM", "USING", "WHERE", "RETURNING")
    words, text = [word for word, _ in parts[1:]], dict(parts)
    if words[:3] == ["UPDATE", "SET", "WHERE"]:
        table = text["UPDATE"].strip()
        begun = f"UPDATE {table} SET{written.of(text['SET'])}FROM"
        rest = words[3:]
    elif words[:2] == ["DELETE FROM", "WHERE"]:
        table = text["DELETE FROM"].strip()
        begun = f"DELETE FROM {table} USING"
        rest = words[2:]
    else:
        return None
    wheres = [_EQUAL.fullmatch(part) for part in _split(text["WHERE"], "AND")]
    keys = tuple(where["name"] for where in wheres if where)
    if rest not in ([], ["RETURNING"]) or not {*keys} - {WORKSPACE}:
        return None
    found = written.each(f"SELECT ctid AS place FROM {table} WHERE{text['WHERE']}")
    whose = f"{table}.{WORKSPACE} = {written.of(f':{WORKSPACE}')} AND " * written.is_sharded
    returning = f" RETURNING asked.{NUMBER},{written.of(text['RETURNING'])}" if rest else ""
    return f"{begun} {found} WHERE {whose}{table}.ctid = one.place{returning}", keys


def _parts(sql: str, *words: str) -> list[tuple[str, str]]:
    """The statement at the words that stand outside of all parentheses: each with what follows."""
    parts: list[tuple[str, str]] = []
    depth, word, begin = 0, "", 0
    for token in _TOKEN.finditer(sql):
        depth += bool(token["open"]) - bool(token["close"])
        found = " ".join((token["word"] or "").upper().split())
        if depth == 0 and found in words:
            parts.append((word, sql[begin : token.start()]))
            word, begin = found, token.end()
    return [*parts, (word, sql[begin:])]


def _split(sql: str, at: str) -> list[str]:
    """Split SQL at the commas, or at the ANDs, outside of all parentheses."""
    parts: list[str] = []
    depth, begin = 0, 0
    for token in _TOKEN.finditer(sql):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0 and (token["comma"] or (token["word"] or "").upper()) == at:
            parts.append(sql[begin : token.start()])
            begin = token.end()
    return [*parts, sql[begin:]]


ROWS = re.compile(
    r"""\bunnest\s*\((?P<columns>\s*CAST\(:\w+\sAS\s\w+\[\]\)(?:\s*,\s*CAST\(:\w+\sAS\s\w+\[\]\))+\s*)\)
        \s+AS\s+(?P<rows>\w+)\s*\((?P<names>[\w\s,]+)\)
    """,
    re.I | re.S | re.X,
)
COLUMN = re.compile(r":(\w+)")


def by_workspace(sql: str, values: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]] | None:
    """A statement over rows of several workspaces, as one for each workspace; None of any other.
    On a sharded database a workspace that comes out of an array names no shard."""
    found = ROWS.search(sql) if "workspace_ids" in values else None
    if found is None:
        return None
    rows = rf"=\s*{found['rows']}\.workspace_id\b"
    text = re.sub(rows, f"= :{ONE_WORKSPACE}", sql)
    columns = COLUMN.findall(found["columns"])
    whose: dict[str, list[int]] = {}
    for place, workspace_id in enumerate(values["workspace_ids"]):
        whose.setdefault(workspace_id, []).append(place)
    own = {ONE_WORKSPACE} if text != sql else set()
    return [
        (
            text,
            {
                **values,
                **{name: [values[name][place] for place in places] for name in columns},
                **dict.fromkeys(own, workspace_id),
            },
        )
        for workspace_id, places in sorted(whose.items())
    ]
