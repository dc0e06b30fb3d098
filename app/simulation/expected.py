"""A part of a trace that must come: its shape, and how the rest of the trace is left aside.

What an object names must be there, and other members may be; of `steps` and `findings` the items
that are named must come in this order, with any others between them. Everything else is equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any

from pydantic import Field, model_validator

from app.machine import document
from app.machine.program import Json
from app.web.body import Shape

IN_ORDER: Mapping[str, str] = {"steps": "nodeId", "findings": "code"}  # and what names an item
MOST = 200  # items that are looked for in order
SHOWN = 120  # characters of a value in a sentence


class ExpectedFinding(Shape):
    severity: str | None = None
    code: str | None = None
    pointer: str | None = None


class ExpectedStep(Shape):
    """One visit. `entered` and `left` are durations since the start."""

    node_id: str | None = None
    kind: str | None = None
    visit: int | None = None
    status: str | None = None
    reason: str | None = None
    port: str | None = None
    output: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    entered: str | None = None
    left: str | None = None


class ExpectedEnd(Shape):
    status: str | None = None
    reason: str | None = None
    detail: str | None = None
    at: str | None = None


class Expected(Shape):
    """A part of a trace in its normal form. Only what is named is compared; `null` says that it is
    absent. Of `steps` and `findings` the named ones come in this order, among others."""

    findings: Annotated[list[ExpectedFinding], Field(max_length=MOST)] | None = None
    steps: Annotated[list[ExpectedStep], Field(max_length=MOST)] | None = None
    end: ExpectedEnd | None = None
    contact: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _names_something(self) -> Expected:
        if not any(self.model_dump(exclude_unset=True).values()):
            raise ValueError("Name something that must come, such as an end or a step.")
        return self


def part(wanted: Json, trace: Json) -> Json:
    """The part of the trace that stands where something is expected."""
    match wanted, trace:
        case dict(), dict():
            return {
                name: _in_order(one, trace.get(name) or [], IN_ORDER[name])
                if name in IN_ORDER and isinstance(one, list)
                else _within(one, trace.get(name))
                for name, one in wanted.items()
            }
    return trace


def _within(wanted: Json, came: Json) -> Json:
    match wanted, came:
        case dict(), dict():
            return {name: _within(one, came.get(name)) for name, one in wanted.items()}
        case list(), list():
            both = zip(wanted, came, strict=False)
            return [*(_within(one, other) for one, other in both), *came[len(wanted) :]]
    return came


def _in_order(wanted: Sequence[Json], came: Sequence[Json], name: str) -> list[Json]:
    """Match each wanted part with the next like it, else of the same name, else with None."""
    parts: list[Json] = []
    place = 0
    for one in wanted:
        ahead = range(place, len(came))
        like = (i for i in ahead if is_same(one, _within(one, came[i])))
        named = (i for i in ahead if came[i].get(name) == one.get(name))
        found = next(chain(like, named), None)
        parts.append(None if found is None else _within(one, came[found]))
        place = place if found is None else found + 1
    return parts


def is_same(wanted: Json, came: Json) -> bool:
    return next(_differences(wanted, came, ""), None) is None


def difference(wanted: Json, came: Json) -> str | None:
    """The first one, as a sentence."""
    found = next(_differences(wanted, came, ""), None)
    if found is None:
        return None
    pointer, one, other = found
    return f"At {pointer} there is {_shown(other)}, not {_shown(one)}."


def _differences(wanted: Json, came: Json, at: str) -> Iterator[tuple[str, Json, Json]]:
    match wanted, came:
        case dict(), dict():
            for name, one in wanted.items():
                yield from _differences(one, came.get(name), at + document.pointer(name))
        case list(), list() if len(wanted) == len(came):
            for index, (one, other) in enumerate(zip(wanted, came, strict=True)):
                yield from _differences(one, other, f"{at}/{index}")
        case _ if isinstance(wanted, bool) != isinstance(came, bool) or wanted != came:
            yield at, wanted, came


def _shown(value: Json) -> str:
    if value is None:
        return "nothing"
    text = (
        document.text(value) if isinstance(value, dict | list) else document.dumps(value).decode()
    )
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
