"""The comparisons a branch may make.

A condition is `{"all": […]}`, `{"any": […]}`, `{"not": …}` or `{"path", "op", "value"}`. It never
fails: a path that leads nowhere makes its comparison false, whatever the op (but `exists: false`).
null is a value that `eq` and `ne` see and `exists` does not. compare.py says what is equal to what.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from app.machine import compare, contact_values, document, path, template
from app.machine.fields import (
    Field,
    Place,
    Reader,
    choice,
    described_by,
    duration,
    quote,
    read_object,
    refuse_unknown,
)
from app.machine.program import Facts, Json
from app.machine.schema import ACTIVE, SCALAR, ref

MOST_COMPARISONS = 50  # of a step: each may look 4 ms through a text as long as a body can hold


@dataclass(frozen=True, slots=True)
class Comparison:
    path: path.Path
    op: str
    value: Json


@dataclass(frozen=True, slots=True)
class All:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


class Question(ABC):
    """A condition about more than a value at a path (segment_filter.py)."""

    __slots__ = ()

    @abstractmethod
    def answer(self, facts: Facts) -> tuple[bool, Mapping[str, Json]]:
        """Judge whether the question holds; returns also what decided it."""

    def comparisons(self) -> int:
        return 1


Condition: TypeAlias = Comparison | All | AnyOf | Not | Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a condition: whether it holds, and the comparisons that decided it, in order."""

    holds: bool
    operands: tuple[Mapping[str, Json], ...]


def comparisons(condition: Condition) -> int:
    """Count the comparisons that a condition makes at the most: what a decision may cost."""
    match condition:
        case All(parts) | AnyOf(parts):
            return sum(map(comparisons, parts))
        case Not(part):
            return comparisons(part)
        case Question():
            return condition.comparisons()
        case Comparison():
            return 1


def limit(conditions: Iterable[Condition], place: Place) -> None:
    if sum(map(comparisons, conditions)) > MOST_COMPARISONS:
        message = f"At most {MOST_COMPARISONS} comparisons may stand here; split them in two."
        place.limit("too_many", message)


def evaluate(condition: Condition, facts: Facts) -> Verdict:
    look = _Look(facts)
    return Verdict(_holds(condition, look), tuple(look.operands))


@dataclass(frozen=True, slots=True)
class _Look:
    """One evaluation: what was compared, and the lists that were looked through for it."""

    facts: Facts
    operands: list[Mapping[str, Json]] = field(default_factory=list)
    lists: dict[int, compare.Items] = field(default_factory=dict)

    def into(self, found: Json) -> Json:
        """A stranger's list is long, and a branch may ask for many things in it."""
        if not isinstance(found, list):
            return found
        if id(found) not in self.lists:
            self.lists[id(found)] = compare.Items(found)
        return self.lists[id(found)]


def _holds(condition: Condition, look: _Look) -> bool:
    match condition:
        case All(parts):
            return all(_holds(part, look) for part in parts)
        case AnyOf(parts):
            return any(_holds(part, look) for part in parts)
        case Not(part):
            return not _holds(part, look)
        case Question():
            holds, stated = condition.answer(look.facts)
            look.operands.append({**stated, "holds": holds})
            return holds
        case Comparison():
            op, found = OPS[condition.op], condition.path.find(look.facts)
            within = look.into(found) if op.within else found
            holds = op.holds(within, condition.value, look.facts.get("now"))
            asked = {"path": str(condition.path), "op": condition.op}
            seen = {} if found is path.MISSING else {"found": _shown(found)}
            stated = {**asked, "value": _shown(condition.value), **seen}
            look.operands.append({**stated, "holds": holds})
            return holds


LONGEST_OPERAND = 200
LONGEST_LIST = 20


def _shown(value: Json) -> Json:
    """The operand as a record keeps it: all of a small value, the beginning of a large one."""
    if not isinstance(value, list):
        return _brief(value)
    more = ["…"] if len(value) > LONGEST_LIST else []
    return [_brief(item) for item in value[:LONGEST_LIST]] + more


def _brief(value: Json) -> Json:
    if isinstance(value, dict | list):
        return "{…}" if isinstance(value, dict) else "[…]"
    if value is None or isinstance(value, bool):
        return value
    text = document.text(value[: LONGEST_OPERAND + 1] if isinstance(value, str) else value)
    if len(text) > LONGEST_OPERAND:
        return text[: LONGEST_OPERAND - 1] + "…"
    return value if isinstance(value, int | float) else text


# --- the ops ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Op:
    """Operator of a comparison: how it compares, how its `value` is checked, and when it holds.
    `about` says the latter for people; `holds` takes what was found, `value` and now. `about` says
    when it holds, for people. `within`: of a list it is asked for the items."""

    holds: Callable[[Json, Json, Json], bool]
    check: Reader
    about: str
    takes_null: bool = False
    within: bool = False


def _op(
    agree: Callable[[Json, Json], bool],
    check: Reader,
    about: str,
    *,
    takes_null: bool = False,
    within: bool = False,
) -> Op:
    def holds(found: Json, expected: Json, _now: Json) -> bool:
        return found is not path.MISSING and agree(found, expected)

    return Op(holds, check, about, takes_null, within)


def _on_text(agree: Callable[[str, str], bool]) -> Callable[[Json, Json], bool]:
    return lambda found, expected: isinstance(found, str) and agree(found, expected)


def _exists(found: Json, wanted: bool, _now: Json) -> bool:
    return (found is not path.MISSING and found is not None) is wanted


@described_by(SCALAR)
def _scalar(value: Json, place: Place) -> None:
    if isinstance(value, dict | list):
        place.refuse("wrong_type", "This must be text, a number, true, false or null.")


@described_by({"type": "array", "items": SCALAR, ACTIVE: {"minItems": 1}})
def _scalars(value: Json, place: Place) -> None:
    if not isinstance(value, list):
        place.refuse("wrong_type", "This must be a list of values to compare with.")
    elif not value:
        place.hold("missing", "Give at least one value to compare with.")
    else:
        for index, option in enumerate(value):
            _scalar(option, place.at(index))


@described_by({"type": "string"})
def _text(value: Json, place: Place) -> None:
    if not isinstance(value, str):
        place.refuse("wrong_type", "This must be text.")


@described_by({"type": ["boolean", "null"]})  # null, like an absent one, is true
def _flag(value: Json, place: Place) -> None:
    if not isinstance(value, bool):
        place.refuse("wrong_type", "This must be true or false.")


@described_by({"type": ["number", "string"]})
def _orderable(value: Json, place: Place) -> None:
    if not compare.is_number(value) and not isinstance(value, str):
        place.refuse("wrong_type", "This must be a number or a time.")
    elif compare.number(value) is None and compare.time(value) is None:
        place.hold("bad_value", f"{quote(str(value))} is neither a number nor an RFC 3339 time.")


@described_by({"type": "string"})
def _moment(value: Json, place: Place) -> None:
    if not isinstance(value, str):
        place.refuse("wrong_type", "This must be a time, as text.")
    elif compare.time(value) is None:
        place.hold("bad_time", f"{quote(value)} is not a time; write it like 2026-11-02T09:00:00Z.")


def _ordered(about: str, *orders: int) -> Op:
    """Numbers by size, times by when they are."""
    return _op(
        lambda found, expected: compare.order(found, expected) in orders,
        _orderable,
        f"{about}, a number or an RFC 3339 time",
    )


def _differs(found: Json, expected: Json) -> bool:
    return not compare.same(found, expected)


OPS: Mapping[str, Op] = {
    "eq": _op(compare.same, _scalar, "it is equal to `value`, which may be null", takes_null=True),
    "ne": _op(
        _differs,
        _scalar,
        "it is there, and not equal to `value`, which may be null",
        takes_null=True,
    ),
    "gt": _ordered("it is greater or later than `value`", 1),
    "gte": _ordered("it is greater or later than `value`, or the same", 0, 1),
    "lt": _ordered("it is smaller or earlier than `value`", -1),
    "lte": _ordered("it is smaller or earlier than `value`, or the same", 0, -1),
    "in": _op(compare.among, _scalars, "it is equal to one of the list `value`"),
    "contains": _op(
        compare.contains,
        _scalar,
        "it is a list with the item `value`, or text with `value` in it",
        within=True,
    ),
    "starts_with": _op(_on_text(str.startswith), _text, "it is text that begins with `value`"),
    "ends_with": _op(_on_text(str.endswith), _text, "it is text that ends with `value`"),
    "exists": Op(_exists, _flag, "it is there and not null; with `false`, if it is not"),
    "before": _op(
        lambda found, expected: compare.chronology(found, expected) == -1,
        _moment,
        "it is a time earlier than `value`, an RFC 3339 time",
    ),
    "after": _op(
        lambda found, expected: compare.chronology(found, expected) == 1,
        _moment,
        "it is a time later than `value`, an RFC 3339 time",
    ),
    "within_last": Op(
        compare.within_last,
        duration,
        "it is a time no longer ago than the duration `value`, such as P7D, and not to come",
    ),
}


# --- reading ------------------------------------------------------------------------------------

DEEPEST = 16


Roots: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class Grammar:
    """The language of one place: the roots of its paths, what else may be asked, by the member that
    names it, and a further check of each comparison."""

    roots: Roots = template.ROOTS
    questions: Mapping[str, Callable[[dict[str, Json], Place], Question | None]] = field(
        default_factory=dict
    )
    refine: Callable[[Comparison, Place], None] | None = None


BRANCH = Grammar()


def read(raw: Json, place: Place, depth: int = 1, grammar: Grammar = BRANCH) -> Condition | None:
    """The condition that JSON spells, or None when findings were left."""
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "A condition must be an object.")
        return None
    if depth > DEEPEST:
        place.refuse("too_deep", f"Conditions may be nested at most {DEEPEST} deep.")
        return None
    for name, read_parts in _COMBINATIONS.items():
        if name in raw:
            refuse_unknown(raw, {name}, place)
            return read_parts(raw[name], place.at(name), depth + 1, grammar)
    for name, read_question in grammar.questions.items():
        if name in raw:
            return read_question(raw, place)
    comparison = _read_comparison(raw, place, grammar.roots)
    if comparison is not None and grammar.refine is not None:
        grammar.refine(comparison, place)
    return comparison


def _read_parts(
    combine: Callable[[tuple[Condition, ...]], Condition],
    raw: Json,
    place: Place,
    depth: int,
    grammar: Grammar,
) -> Condition | None:
    if not isinstance(raw, list):
        place.refuse("wrong_type", "This must be a list of conditions.")
        return None
    if not raw:
        place.hold("missing", "Give at least one condition here.")
    parts = [read(part, place.at(index), depth, grammar) for index, part in enumerate(raw)]
    return combine(tuple(part for part in parts if part is not None))


def _read_not(raw: Json, place: Place, depth: int, grammar: Grammar) -> Condition | None:
    part = read(raw, place, depth, grammar)
    return None if part is None else Not(part)


_COMBINATIONS: Mapping[str, Callable[[Json, Place, int, Grammar], Condition | None]] = {
    "all": partial(_read_parts, All),
    "any": partial(_read_parts, AnyOf),
    "not": _read_not,
}


def _read_path(roots: Roots, raw: Json, place: Place) -> path.Path | None:
    if not isinstance(raw, str):
        place.refuse("wrong_type", "A path must be text, such as contact.metadata.plan.")
        return None
    try:
        found = path.parse(raw)
    except path.BadPath as error:
        place.refuse("bad_path", str(error))
        return None
    if found.segments[0] not in roots:
        place.refuse("bad_path", f"A path must start at one of {', '.join(sorted(roots))}.")
        return None
    return found


_FIELDS = {
    "op": Field(choice(*OPS), f"Say how to compare: one of {', '.join(OPS)}.", "How to compare."),
    "value": Field(Reader(lambda value, _: value, {}), about="What to compare with."),
}


def comparison_fields(roots: Roots) -> Mapping[str, Field]:
    at = Field(
        Reader(partial(_read_path, roots), {"type": "string"}),
        "Say which value to look at, such as contact.metadata.plan.",
        "Which value to look at.",
    )
    return {"path": at, **_FIELDS}


def _read_comparison(raw: dict[str, Json], place: Place, roots: Roots) -> Comparison | None:
    members = read_object(raw, comparison_fields(roots), place)
    if "op" not in members:
        return None
    op, value = OPS[members["op"]], raw.get("value")
    if members["op"] == "exists" and value is None:
        value = True
    if value is None and not (op.takes_null and "value" in raw):
        place.at("value").hold("missing", "Say what to compare with.")
    else:
        op.check(value, place.at("value"))
    if "path" not in members:
        return None
    contact_values.check(members["path"], members["op"], value, place)
    return Comparison(members["path"], members["op"], value)


def over(roots: Roots) -> Reader:
    return Reader(partial(read, grammar=Grammar(roots)), ref("Condition"))


read_condition = over(template.ROOTS)
