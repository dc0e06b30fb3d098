"""Liquid, locked down: limits, no loader, autoescape for HTML; parse once, render many.

The library parses and evaluates. What is ours is in `liquid/`: a linear reader of the source, in
which a path means what it means everywhere else; lookups that follow keys and indexes only, with
Liquid's `size`, `first` and `last` kept for arrays (and `size` for text) that can have no such key;
values printed as the sender wrote them; and one budget for a whole render.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, takewhile
from typing import Final, cast

from liquid import BoundTemplate
from liquid.exceptions import LiquidError
from liquid.static_analysis import Segments

from app.machine import document
from app.machine.liquid.context import Buffer, Context
from app.machine.liquid.filters import FILTERS
from app.machine.liquid.tags import LIQUID
from app.machine.program import Facts

ROOTS: Final = frozenset({"trigger", "contact", "workspace", "run", "steps", "now"})

SOURCE = 64 * 1024  # characters of a template
TAGS = 5_000  # in one that is saved: reading as many takes an eighth of a second
NOTED = 100  # missing paths are as many as a person reads


class TemplateError(ValueError):
    """The template cannot be parsed; `line` and `column` count from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{message} (line {line}, column {column})")
        self.message = message
        self.line = line
        self.column = column


class RenderError(Exception):
    """A filter or a comparison failed, or a limit was reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text, and the paths that were printed but lead nowhere."""

    text: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. `paths` are the places it reads, root first, up to a computed segment."""

    paths: tuple[tuple[str | int, ...], ...]
    liquid: BoundTemplate = field(repr=False, compare=False)

    def render(self, facts: Facts) -> Rendered:
        """Render over the roots. Raises RenderError."""
        context = Context(self.liquid, facts)
        buffer = Buffer(context)
        try:
            self.liquid.render_with_context(context, buffer)
        except LiquidError as error:
            source = error.token.source if error.token else ""
            message, line, _ = _trouble(error, source)
            raise RenderError(f"{message} (line {line})") from error
        except Exception as error:  # whatever a stranger's value does to a filter
            raise RenderError(f"The template failed on this data: {error}") from error
        missing = tuple(str(path) for path in islice(context.missing, NOTED))
        return Rendered(document.text(buffer.getvalue()), missing)


def parse(source: str, *, html: bool = False, roots: frozenset[str] = ROOTS) -> Template:
    """Parse and check, once per (source, html, roots). Raises TemplateError."""
    return _parsed(source, html, roots)


def excess(source: str) -> str | None:
    """What is too much to be saved anew; what was saved before is parsed and rendered."""
    if source.count("{{") + source.count("{%") > TAGS:
        return f"A template has at most {TAGS:,} tags."
    return None


@lru_cache(maxsize=256)  # some 27 KB for each KB of source
def _parsed(source: str, html: bool, roots: frozenset[str]) -> Template:
    if len(source) > SOURCE:
        raise TemplateError(f"A template has at most {SOURCE} characters", 1, 1)
    try:
        template = LIQUID[html].from_string(source)
        found = template.analyze(include_partials=False)
    except (LiquidError, RecursionError) as error:
        raise TemplateError(*_trouble(error, source)) from error
    for name, spans in found.filters.items():
        if name not in FILTERS:
            raise TemplateError(f"There is no filter {name!r}", *_place(source, spans[0].index))
    reads = sorted(chain.from_iterable(found.globals.values()), key=lambda read: read.span.index)
    for read in reads:
        if (name := str(read.segments[0])) not in roots:
            known = ", ".join(sorted(roots))
            message = f"Unknown name {name!r}: a template reads {known}"
            raise TemplateError(message, *_place(source, read.span.index))
    return Template(tuple(dict.fromkeys(_fixed(read.segments) for read in reads)), template)


def _trouble(error: LiquidError | RecursionError, source: str) -> tuple[str, int, int]:
    """What the library found, and where."""
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return "The template is nested too deeply", 1, 1
    message = str(error.message).replace("end of expression", "the end")
    return message, *_place(source, error.token.start_index if error.token else 0)


def _place(source: str, index: int) -> tuple[int, int]:
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _fixed(segments: Segments) -> tuple[str | int, ...]:
    """The segments before one that is computed (`items[trigger.n]`)."""
    fixed = takewhile(lambda segment: not isinstance(segment, list), segments)
    return cast("tuple[str | int, ...]", tuple(fixed))
