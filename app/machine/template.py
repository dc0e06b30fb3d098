"""Liquid, locked down: limits, no loader, autoescape for HTML; parse once, render many.

The library parses and evaluates. What is ours: a linear reader of the source, in which the dots and
brackets of a path mean what they mean everywhere else (`path.py`); lookups that follow keys and
indexes only, with Liquid's `size`, `first` and `last` kept for arrays (and `size` for text) that
can have no such key; values printed as the sender wrote them; and one budget for a whole render.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, wraps
from io import StringIO
from itertools import chain, islice, takewhile
from math import isfinite
from sys import getsizeof
from time import monotonic, thread_time
from typing import Final, TextIO, TypeAlias, cast

from liquid import BoundTemplate, Environment, Markup, RenderContext, Token, TokenStream, escape
from liquid import token as tokens
from liquid.ast import Node
from liquid.builtin.content import Literal
from liquid.builtin.expressions import FilteredExpression
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.builtin.filters import array, math, misc, string
from liquid.builtin.illegal import Illegal
from liquid.builtin.output import Output, OutputNode
from liquid.builtin.tags.assign_tag import AssignTag
from liquid.builtin.tags.capture_tag import CaptureTag
from liquid.builtin.tags.case_tag import CaseTag
from liquid.builtin.tags.for_tag import BreakTag, ContinueTag, ForLoop, ForNode, ForTag
from liquid.builtin.tags.if_tag import IfTag
from liquid.builtin.tags.tablerow_tag import TableRow
from liquid.builtin.tags.unless_tag import UnlessTag
from liquid.exceptions import LiquidError, LiquidSyntaxError, ResourceLimitError
from liquid.expression import Expression
from liquid.filter import sequence_filter, with_context
from liquid.parser import get_parser
from liquid.static_analysis import Segments
from liquid.tag import Tag
from liquid.undefined import UNDEFINED, Undefined
from liquid.utils import ReadOnlyChainMap

from app.machine import document
from app.machine.document import LiteralFloat
from app.machine.path import IN_LIQUID, MISSING, Path, follow, unquote
from app.machine.program import Facts

ROOTS: Final = frozenset({"trigger", "contact", "workspace", "run", "steps", "now"})

SOURCE = 64 * 1024  # characters of a template
SECONDS = 0.5  # of work for one render
ITERATIONS = 10_000  # of all loops of one render together
OUTPUT = 1_000_000  # bytes printed and captured, held by variables, or given by one filter
BITS = 14_284  # of a whole number, or 4,300 digits: Python prints no more
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
        context = _Context(self.liquid, facts)
        buffer = _Buffer(context)
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


def variables(source: str) -> list[str]:
    """The paths that a template reads, as text, in their order. Raises TemplateError."""
    return [str(Path(segments)) for segments in parse(source).paths]


@lru_cache(maxsize=256)  # some 27 KB for each KB of source
def _parsed(source: str, html: bool, roots: frozenset[str]) -> Template:
    if len(source) > SOURCE:
        raise TemplateError(f"A template has at most {SOURCE} characters", 1, 1)
    try:
        template = _LIQUID[html].from_string(source)
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


# --- reading the source ---------------------------------------------------------------------------
# The library's own patterns backtrack: 64 KiB of spaces after "{{" would take minutes.

_OPENING = re.compile(r"\{([{%])(-?)")
_NAME = re.compile(r"\s*(#|\w*)\s*")
_END_OF_RAW = re.compile(r"\{%-?\s*endraw\s*(-?)%\}")
_COMMENT = re.compile(r"\{%-?\s*(end)?comment\b[^%]*?(-?)%\}")

_EXPRESSION = re.compile(  # groups are named after the library's tokens, twins with an underscore
    rf"""(?P<skip>\s+)
    | "(?P<string>[^"]*)" | '(?P<string_>[^']*)'
    | \[\s*(?P<identindex>-?[0-9]+)\s*\]
    | \[\s*(?P<quoted>"(?:[^"\\]|\\.)*")\s*\] | \[\s*'(?P<identstring>[^']*)'\s*\]
    | (?P<range>\.\.) | \.(?P<identstring_>{IN_LIQUID})
    | (?P<float>-?[0-9]+\.[0-9]+)\b | (?P<integer>-?[0-9]+)\b
    | (?P<word>\w[\w-]*\??)
    | (?P<operator>[=!<>]{{1,2}}|[|:,()\[\]])
    | (?P<illegal>.)""",
    re.VERBOSE | re.DOTALL,
)
_RESERVED = (
    "true false nil null empty blank and or not contains if else in limit offset continue reversed"
)
_KEYWORDS = frozenset(_RESERVED.split())


def _markup(source: str) -> Iterator[Token]:
    """Text, outputs and tags, in one pass; comments are left out."""
    position, trim = 0, False
    while opening := _OPENING.search(source, position):
        yield from _content(source, position, opening.start(), trim, bool(opening[2]))
        closing = "}}" if opening[1] == "{" else "%}"
        end = source.find(closing, opening.end())
        if end < 0:
            raise _error(f"{opening[0]} is never closed by {closing}", source, opening.start())
        position, trim = end + 2, source[end - 1] == "-" and end > opening.end()
        inner = source[opening.end() : end - trim]
        if opening[1] == "{":
            yield Token(tokens.TOKEN_OUTPUT, opening[0], opening.start(), source)
            yield Token(tokens.TOKEN_EXPRESSION, inner, opening.end(), source)
            continue
        name = cast("re.Match[str]", _NAME.match(inner))
        if name[1] == "raw":
            position, trim = yield from _raw(source, position)
        elif name[1] == "comment":
            position, trim = _after_comment(source, position)
        elif name[1] != "#":
            yield Token(tokens.TOKEN_TAG, name[1], opening.start(), source)
            if name.end() < len(inner):
                start = opening.end() + name.end()
                yield Token(tokens.TOKEN_EXPRESSION, inner[name.end() :], start, source)
    yield from _content(source, position, len(source), trim, False)


def _content(source: str, start: int, end: int, left: bool, right: bool) -> Iterator[Token]:
    """The text between, without the space that a hyphen in its neighbours eats."""
    text = source[start:end]
    text = text.lstrip() if left else text
    text = text.rstrip() if right else text
    if text:
        yield Token(tokens.TOKEN_CONTENT, text, start, source)


def _raw(source: str, start: int) -> Generator[Token, None, tuple[int, bool]]:
    end = _END_OF_RAW.search(source, start)
    if end is None:
        raise _error("{% raw %} is never closed by {% endraw %}", source, start)
    yield from _content(source, start, end.start(), False, False)
    return end.end(), bool(end[1])


def _after_comment(source: str, start: int) -> tuple[int, bool]:
    depth = 1
    for mark in _COMMENT.finditer(source, start):
        depth += -1 if mark[1] else 1
        if not depth:
            return mark.end(), bool(mark[2])
    raise _error("{% comment %} is never closed by {% endcomment %}", source, start)


def _error(message: str, source: str, index: int) -> LiquidSyntaxError:
    return LiquidSyntaxError(message, token=Token(tokens.TOKEN_ILLEGAL, "", index, source))


class _Stream(TokenStream):
    """The library's stream over our tokens, whose end has a place too."""

    def __init__(self, found: Iterable[Token], source: str, end: int) -> None:
        super().__init__(iter(found))
        self.eof = Token(tokens.TOKEN_EOF, tokens.TOKEN_EOF, end, source)

    def into_inner(self, *, tag: Token | None = None, eat: bool = True) -> TokenStream:
        whole = self.current
        if whole.kind != tokens.TOKEN_EXPRESSION:
            raise LiquidSyntaxError("something is missing here", token=tag or whole)
        if eat:
            next(self)
        ranges = tag is not None and tag.value == "for"
        end = whole.start_index + len(whole.value)
        return _Stream(_expression(whole, ranges), whole.source, end)


def _expression(whole: Token, ranges: bool) -> Iterator[Token]:
    for match in _EXPRESSION.finditer(whole.value):
        group = cast("str", match.lastgroup)
        if group != "skip":
            index = whole.start_index + match.start()
            try:
                yield Token(*_read(group, match[group], ranges), index, whole.source)
            except ValueError as error:
                raise _error(str(error).rstrip("."), whole.source, index) from None


def _read(group: str, value: str, ranges: bool) -> tuple[str, str]:
    """The library's kind of a token, and its value. Raises ValueError."""
    if group == "quoted":
        return tokens.TOKEN_IDENTSTRING, unquote(value)
    if group == "word" and value in _KEYWORDS:
        return value, value
    if group not in ("operator", "illegal"):
        return group.rstrip("_"), value
    if value == "(" and not ranges:
        raise ValueError("a range (1..5) stands only in a for tag")
    if value not in tokens.operators:
        raise ValueError(f"unexpected {value!r}")
    return (tokens.TOKEN_RANGE_LITERAL if value == "(" else tokens.operators[value]), value


# --- tags -----------------------------------------------------------------------------------------


class _Print(OutputNode):
    def render_to_output(self, context: RenderContext, buffer: TextIO) -> int:
        ours = cast("_Context", context)
        ours.unresolved.clear()  # what conditions looked for in vain was not printed
        words = _words(self.expression.evaluate(ours))
        ours.missing.update(dict.fromkeys(ours.unresolved))
        return buffer.write(escape(words) if ours.autoescape else words)


class _Output(Output):
    node_class = _Print

    def parse(self, stream: TokenStream) -> OutputNode:
        token = stream.eat(tokens.TOKEN_OUTPUT)
        inner = stream.into_inner(tag=token, eat=False)
        return self.node_class(token, FilteredExpression.parse(self.env, inner))


class _For(ForTag):
    def parse(self, stream: TokenStream) -> Node:
        node = super().parse(stream)
        if isinstance(node, ForNode) and isinstance(node.expression.iterable, RangeLiteral):
            loop = node.expression.iterable
            node.expression.iterable = _Range(loop.token, loop.start, loop.stop)
        return node


class _Range(RangeLiteral):
    """A range short enough that reversing or skipping into it costs nothing."""

    def evaluate(self, context: RenderContext) -> range:
        numbers = super().evaluate(context)
        if numbers.stop - numbers.start > ITERATIONS:
            raise _limit(f"a range has at most {ITERATIONS} numbers")
        return numbers


TAGS: Final[tuple[type[Tag], ...]] = (
    *(Literal, _Output, Illegal, IfTag, UnlessTag, CaseTag),
    *(_For, BreakTag, ContinueTag, AssignTag, CaptureTag),
)


class _Liquid(Environment):
    def setup_tags_and_filters(self, *, extra: bool = False) -> None:  # noqa: ARG002 - the library's
        for tag in TAGS:
            self.add_tag(tag)
        self.filters.update(FILTERS)

    def _parse(self, source: str) -> list[Node]:
        return get_parser(self).parse(_Stream(_markup(source), source, len(source)))


# --- rendering ------------------------------------------------------------------------------------


class _Nothing(Undefined):
    """What a path that leads nowhere evaluates to."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        super().__init__(str(path.segments[0]))
        self.path = path


class _Context(RenderContext):
    """One render: our lookups, and the budget that lookups, loops, filters and writes draw on."""

    __slots__ = ("deadline", "exhausted", "held", "iterations", "missing", "unresolved", "written")

    def __init__(self, template: BoundTemplate, facts: Facts) -> None:
        super().__init__(template, globals=facts)
        self.scope = ReadOnlyChainMap(self.locals, self.globals)  # without the library's own clock
        self.deadline = monotonic() + SECONDS
        self.exhausted = thread_time() + SECONDS
        self.iterations = self.written = self.held = 0
        self.unresolved: list[Path] = []
        self.missing: dict[Path, None] = {}

    def spend(self) -> None:
        # The wall's clock is cheap to ask; that the machine stood still is no template's fault.
        if monotonic() > self.deadline and thread_time() > self.exhausted:
            raise _limit(f"rendering takes more than {SECONDS} seconds")

    def get(
        self,
        path: list[object],
        *,
        token: Token | None,  # noqa: ARG002 - the library's
        default: object = UNDEFINED,  # noqa: ARG002 - the library's
    ) -> object:
        self.spend()
        value = self.scope.get(cast("str", path[0]), MISSING)
        for segment in path[1:]:
            value = _followed(value, segment)
        if value is MISSING:
            value = _Nothing(Path(tuple(map(_segment, path))))
        if type(value) is _Nothing:  # also one that was assigned
            self.unresolved.append(value.path)
        return value

    def filter(self, name: str, token: Token | None) -> Callable[..., object]:
        function = super().filter(name, token)

        def bounded(*arguments: object, **named: object) -> object:
            self.spend()
            return _bounded(function(*arguments, **named))

        return bounded

    @contextmanager
    def loop(
        self, namespace: Mapping[str, object], forloop: ForLoop | TableRow
    ) -> Iterator[RenderContext]:
        forloop.it = self._counted(forloop.it)
        with super().loop(namespace, forloop) as context:
            yield context

    def _counted(self, items: Iterator[object]) -> Iterator[object]:
        for item in items:
            self.spend()
            self.iterations += 1
            if self.iterations > ITERATIONS:
                raise _limit(f"loops run more than {ITERATIONS} times in all")
            yield item

    def assign(self, key: str, val: object) -> None:
        self.spend()
        self.held += getsizeof(val) - getsizeof(self.locals.get(key))
        if self.held > OUTPUT:
            raise _limit(f"variables hold more than {OUTPUT} bytes")
        self.locals[key] = val

    def get_buffer(self, buf: TextIO | None = None) -> StringIO:  # noqa: ARG002 - the library's
        return _Buffer(self)


class _Buffer(StringIO):
    def __init__(self, context: _Context) -> None:
        super().__init__()
        self.context = context

    def write(self, text: str) -> int:
        self.context.spend()
        self.context.written += (
            len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
        )
        if self.context.written > OUTPUT:
            raise _limit(f"the output is longer than {OUTPUT} bytes")
        return super().write(text)


def _followed(value: object, segment: object) -> object:
    """One step of a path, with Liquid's own properties where no key can stand."""
    found = follow(value, segment)
    if found is not MISSING or not isinstance(value, list | tuple | str):
        return found
    if isinstance(value, tuple):  # a key and its value, from a loop over an object
        return _followed(list(value), segment)
    if segment == "size":
        return len(value)
    if isinstance(value, list) and value and segment in ("first", "last"):
        return value[0 if segment == "first" else -1]
    return MISSING


def _segment(segment: object) -> str | int:
    whole = isinstance(segment, int) and not isinstance(segment, bool)
    return cast("int", segment) if whole else _words(segment)


def _words(value: object) -> str:
    """What is printed: markup that is already escaped stays markup."""
    if type(value) is Markup:
        return value
    if type(value) is not str and isinstance(value, Undefined | Expression):
        return ""  # an Expression: `empty` and `blank` evaluate to themselves
    return document.text(value)


def _bounded(value: object) -> object:
    if isinstance(value, str):
        _refuse_long(len(value))
    elif isinstance(value, int):
        if value.bit_length() > BITS:
            raise _limit("a number has too many digits")
    elif isinstance(value, float) and not isfinite(value) and not isinstance(value, LiteralFloat):
        raise _limit("a result is not a number")
    return value


def _limit(message: str) -> ResourceLimitError:
    return ResourceLimitError(message, token=None)  # the library adds the node's place


def _refuse_long(length: int) -> None:
    if length > OUTPUT:
        raise _limit(f"a text grows beyond {OUTPUT} characters")


# --- filters --------------------------------------------------------------------------------------

Filter: TypeAlias = Callable[..., object]


def _on_text(function: Filter) -> Filter:
    """Let a filter of text see what would be printed, not Python's own spelling."""

    @wraps(function)
    def spoken(left: object, *arguments: object, **named: object) -> object:
        return function(_words(left), *map(_argument, arguments), **named)

    return spoken


def _argument(value: object) -> object:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number else _words(value)


def _slice(left: object, start: object, length: object = 1) -> object:
    return string.slice_(left if isinstance(left, list) else _words(left), start, length)


def _replace(left: str, old: object, new: object = "") -> object:
    _refuse_long(len(left) + left.count(str(old)) * len(str(new)))
    return string.replace(left, old, new)


def _strip_html(left: str) -> str:
    """Without anything between angle brackets; one pass, so plain text that is escaped again."""
    return _ELEMENT.sub("", left.unescape() if isinstance(left, Markup) else left)


_ELEMENT = re.compile("<[^<>]*>")


@sequence_filter
def _join(left: Iterable[object], separator: object = " ") -> str:
    between, words = _words(separator), [_words(item) for item in _few(left)]
    _refuse_long(sum(map(len, words)) + len(words) * len(between))
    return between.join(words)


@sequence_filter
def _map(left: Iterable[object], key: object) -> list[object]:
    return [_part(item, key) for item in _few(left)]


@sequence_filter
def _uniq(left: Iterable[object], key: object = None) -> list[object]:
    """The first of each; by their JSON, since comparing each with each takes minutes."""
    first: dict[bytes, object] = {}
    for item in _few(left):
        first.setdefault(document.dumps(item if key is None else _part(item, key)), item)
    return list(first.values())


def _few(items: Iterable[object]) -> list[object]:
    few = list(islice(items, ITERATIONS + 1))
    if len(few) > ITERATIONS:
        raise _limit(f"a filter takes at most {ITERATIONS} items")
    return few


def _part(item: object, key: object) -> object:
    found = follow(item, key)
    return None if found is MISSING else found


def _json(left: object) -> str:
    return document.dumps(None if isinstance(left, Undefined) else left).decode()


@with_context
def _default(
    left: object, fallback: object = "", *, context: _Context, allow_false: bool = False
) -> object:
    """The fallback for nothing, null, false and what is empty: then nothing is missing."""
    nothing = left is None or (left is False and not allow_false)
    if nothing or (isinstance(left, str | list | dict | Undefined) and not left):
        context.unresolved[:] = [fallback.path] if isinstance(fallback, _Nothing) else []
        return fallback
    if isinstance(fallback, _Nothing):
        context.unresolved.remove(fallback.path)  # looked up, but not printed
    return left


@with_context
def _date(left: object, pattern: object, *, context: _Context) -> str:
    """strftime, in the time's own offset; `now` is the run's moment, never this machine's."""
    form = str(_words(pattern))
    if len(form) > 100:
        raise _limit("a pattern of date has at most 100 characters")
    moment = _moment(context.get(["now"], token=None) if left in ("now", "today") else left)
    return _words(left) if moment is None else moment.strftime(form)


def _moment(value: object) -> datetime | None:
    """A time, RFC 3339 or RFC 5322 text, or seconds (milliseconds, from 1e11 on) since 1970."""
    if isinstance(value, datetime):
        return value
    with suppress(ValueError, OverflowError, OSError):
        if isinstance(value, int | float) or (isinstance(value, str) and value.isdecimal()):
            seconds = float(value)
            return datetime.fromtimestamp(seconds / 1_000 if seconds >= 1e11 else seconds, UTC)
    if isinstance(value, str) and len(value) <= 64:
        for read in (datetime.fromisoformat, parsedate_to_datetime):
            with suppress(ValueError):
                return read(value)
    return None


_TEXT = (
    "append base64_decode base64_encode capitalize downcase escape escape_once lstrip "
    "newline_to_br prepend remove remove_first remove_last replace_first replace_last rstrip split "
    "squish strip strip_newlines truncate truncatewords upcase url_decode url_encode"
)
_NUMBERS = "abs_ at_least at_most ceil divided_by floor minus modulo plus round_ times"
# Without `concat`: it doubles what a list holds for the price of a pointer.
_LISTS = "compact find first last reverse sort sort_natural sum_ where"

FILTERS: Final[Mapping[str, Filter]] = {
    **{name: _on_text(getattr(string, name)) for name in _TEXT.split()},
    **{name.rstrip("_"): getattr(math, name) for name in _NUMBERS.split()},
    **{name.rstrip("_"): getattr(array, name) for name in _LISTS.split()},
    "date": _date,
    "default": _default,
    "join": _join,
    "json": _json,
    "map": _map,
    "replace": _on_text(_replace),
    "size": misc.size,
    "slice": _slice,
    "strip_html": _on_text(_strip_html),
    "uniq": _uniq,
}
_LIQUID: Final = {html: _Liquid(autoescape=html) for html in (False, True)}
