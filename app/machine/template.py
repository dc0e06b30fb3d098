"""Liquid, locked down: limits, no loader, autoescape for HTML; parse once, render many.

The library parses and evaluates. What is ours is in `liquid/`: a linear reader of the source, in
which a path means what it means everywhere else; lookups that follow keys and indexes only, with
Liquid's `size`, `first` and `last` kept for arrays (and `size` for text) that can have no such key;
values printed as the sender wrote them; and one budget for a whole render.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Final, cast

from liquid import BoundTemplate
from liquid.exceptions import LiquidError

from app.machine import document, effort
from app.machine.kept import Kept
from app.machine.liquid.context import Buffer, Context
from app.machine.liquid.filters import FILTERS
from app.machine.liquid.tags import LIQUID, Nodes
from app.machine.program import Facts

ROOTS: Final = frozenset({"trigger", "contact", "workspace", "run", "steps", "now"})
# What a message reads beside them: where its recipient chooses what to get.
LINKS: Final = frozenset({"unsubscribeUrl", "preferencesUrl"})
OF_MESSAGES: Final = ROOTS | LINKS

SOURCE = 64 * 1024  # characters of a template
TAGS = 5_000  # in one that is saved: reading as many takes an eighth of a second
TOKENS = 20_000  # likewise: the names, values, operators and tags in it, and the text between
TOKEN_BYTES = 260  # what is kept of each, measured, with those of nodes and paths
MOST_BYTES = 16 * 1024 * 1024  # of all parsed templates that are kept
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
    """A template that can be parsed. `paths` are the places it reads, root first, up to a computed
    segment. What was parsed is kept apart, for as long as there is room for it."""

    source: str
    html: bool = field(repr=False)
    roots: frozenset[str] = field(repr=False)
    paths: tuple[tuple[str | int, ...], ...]
    tokens: int = field(repr=False)

    def render(self, facts: Facts) -> Rendered:
        """Render over the roots. Raises RenderError."""
        liquid = _parsed(self.source, self.html, self.roots).liquid
        context = Context(liquid, facts)
        buffer = Buffer(context)
        try:
            liquid.render_with_context(context, buffer)
        except LiquidError as error:
            source = error.token.source if error.token else ""
            message, line, _ = _trouble(error, source)
            raise RenderError(f"{message} (line {line})") from error
        except Exception as error:  # whatever a stranger's value does to a filter
            raise RenderError(f"The template failed on this data: {error}") from error
        missing = tuple(str(path) for path in islice(context.missing, NOTED))
        return Rendered(document.text(buffer.getvalue()), missing)


def parse(source: str, *, html: bool = False, roots: frozenset[str] = ROOTS) -> Template:
    """Parse and check, once while it is kept. Raises TemplateError."""
    return _parsed(source, html, roots).template


def excess(template: Template) -> str | None:
    """Say what is too much to be saved anew; what was saved before is parsed and rendered."""
    source = template.source
    if source.count("{{") + source.count("{%") > TAGS:
        return f"A template has at most {TAGS:,} tags."
    if template.tokens > TOKENS:
        return f"A template has at most {TOKENS:,} names, values, operators and tags in all."
    return None


@dataclass(frozen=True, slots=True)
class _Parsed:
    template: Template
    liquid: BoundTemplate


_kept: Kept[tuple[str, bool, frozenset[str]], _Parsed] = Kept(MOST_BYTES)
# Sources that have more tokens than may be parsed in an event loop: by their hashes.
_long: Kept[tuple[int, int], bool] = Kept(1_000)


def _parsed(source: str, html: bool, roots: frozenset[str]) -> _Parsed:
    key = (source, html, roots)
    found = _kept.get(key)
    if found is None:
        budget = effort.current()
        yields = budget is not None and budget.yields
        if yields and _long.get((len(source), hash(source))):
            raise effort.Exceeded
        try:
            found = _read(source, html, roots)
        except effort.Exceeded:
            if budget is not None and budget.tokens < 0:
                _long.keep((len(source), hash(source)), True, 1)
            raise
        _kept.keep(key, found, 2 * len(source) + TOKEN_BYTES * found.template.tokens)
    return found


def _read(source: str, html: bool, roots: frozenset[str]) -> _Parsed:
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
    # The segments before one that is computed (`items[trigger.n]`).
    fixed = (
        tuple(takewhile(lambda one: not isinstance(one, list), read.segments)) for read in reads
    )
    paths = cast("tuple[tuple[str | int, ...], ...]", tuple(dict.fromkeys(fixed)))
    tokens = cast("Nodes", template.nodes).tokens
    return _Parsed(Template(source, html, roots, paths, tokens), template)


def _trouble(error: LiquidError | RecursionError, source: str) -> tuple[str, int, int]:
    """The fault that the library found, and its place."""
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return "The template is nested too deeply", 1, 1
    message = str(error.message).replace("end of expression", "the end")
    return message, *_place(source, error.token.start_index if error.token else 0)


def _place(source: str, index: int) -> tuple[int, int]:
    before = source[: max(index, 0)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
