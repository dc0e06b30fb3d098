"""Defaults of a contact that the intake creates: values, and Liquid over the event's body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from app.machine import document, effort, template
from app.machine.program import Json

ROOTS: Final = frozenset({"trigger"})
SECONDS: Final = 0.1  # for all defaults of one event
MOST = 50  # values


class TooMany(ValueError):
    """More values, or more Liquid in them, than may be saved."""


@dataclass(frozen=True, slots=True)
class Defaults:
    values: Mapping[str, Json]
    tags: Sequence[Json]
    failed: Sequence[str]  # names of what could not be rendered


def of(raw: Mapping[str, Json], body: bytes) -> Defaults:
    """The fields and tags, over the event's body; one that fails is left out. Raises
    MalformedJson."""
    return over(raw, document.parse(body))


def over(raw: Mapping[str, Json], payload: Json) -> Defaults:
    def render(source: str) -> str:
        return template.parse(source, roots=ROOTS).render({"trigger": payload}).text

    return _made(raw, render)


def without_liquid(raw: Mapping[str, Json]) -> Defaults:
    """The defaults as if all failed that has to be rendered."""
    return _made(raw, _plain)


def _plain(source: str) -> str:
    if "{{" in source or "{%" in source:
        raise template.RenderError("It was not rendered.")
    return source


def _made(raw: Mapping[str, Json], render: Callable[[str], str]) -> Defaults:
    failed: list[str] = []
    made = {name: _value(value, name, render, failed) for name, value in raw.items()}
    tags = made.pop("tags", None) or ()
    kept = {name: value for name, value in made.items() if value is not None}
    return Defaults(kept, tags, failed)


def _value(value: Json, name: str, render: Callable[[str], str], failed: list[str]) -> Json:
    match value:
        case str():
            try:
                return render(value) or None
            except (template.TemplateError, template.RenderError):
                failed.append(name)
                return None  # a default may fail; the event may not
        case dict():
            return {
                key: _value(inner, f"{name}.{key}", render, failed) for key, inner in value.items()
            }
        case list() if name == "tags":
            return [_value(tag, name, render, failed) for tag in value]
        case _:
            return value


# --- as they are saved ----------------------------------------------------------------------------


def refuse_many(raw: Json) -> None:
    """Raises TooMany. What is wrong with a single value is not judged here."""
    texts = [*islice(_texts(raw), MOST + 1)]
    if len(texts) > MOST:
        raise TooMany(f"A new contact gets at most {MOST} values.")

    def parse_all() -> None:
        tokens = 0
        for text in texts:
            with suppress(template.TemplateError):
                tokens += template.parse(text, roots=ROOTS).tokens
            if tokens > effort.TOKENS:
                raise effort.Exceeded  # also for what was parsed before

    try:
        effort.attempt(SECONDS, parse_all)
    except effort.Exceeded:
        raise TooMany(
            f"All values together have at most {effort.TOKENS:,} names, values, operators and tags"
            " of Liquid."
        ) from None


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)
