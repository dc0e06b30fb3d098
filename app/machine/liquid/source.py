"""Reading a template's source, in one pass and linear time.

The library's own patterns backtrack: 64 KiB of spaces after "{{" would take minutes. The dots and
brackets of a path mean here what they mean everywhere else (`path.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import cast

from liquid import Token, TokenStream
from liquid import token as tokens
from liquid.exceptions import LiquidSyntaxError

from app.machine import effort
from app.machine.path import IN_LIQUID, unquote

_OPENING = re.compile(r"\{([{%])(-?)")
_NAME = re.compile(r"\s*(#|\w*)\s*")
_END_OF_RAW = re.compile(r"\{%-?\s*endraw\s*(-?)%\}")
_COMMENT = re.compile(r"\{%-?\s*(end)?comment\b[^%]*?(-?)%\}")

_EXPRESSION = re.compile(  # groups are named after the library's tokens, twins with an underscore
    rf"""(?P<skip>\s+)
    | "(?P<string>[^"]*)" | '(?P<string_>[^']*)'
    | \[\s*(?P<identindex>0|[1-9][0-9]*)\s*\] | (?P<misplaced>\[\s*-?[0-9]+\s*\])
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


class Count:
    """The tokens of one template so far."""

    __slots__ = ("budget", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.budget = effort.current()

    def of(self, found: Iterable[Token]) -> Iterator[Token]:
        """The same tokens. Raises effort.Exceeded."""
        for token in found:
            self.tokens += 1
            if self.budget is not None:
                self.budget.draw_token()
            yield token


def markup(source: str) -> Iterator[Token]:
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
            ending = _END_OF_RAW.search(source, position)
            if ending is None:
                raise _error("{% raw %} is never closed by {% endraw %}", source, position)
            yield from _content(source, position, ending.start(), False, False)
            position, trim = ending.end(), bool(ending[1])
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


def _after_comment(source: str, start: int) -> tuple[int, bool]:
    depth = 1
    for mark in _COMMENT.finditer(source, start):
        depth += -1 if mark[1] else 1
        if not depth:
            return mark.end(), bool(mark[2])
    raise _error("{% comment %} is never closed by {% endcomment %}", source, start)


def _error(message: str, source: str, index: int) -> LiquidSyntaxError:
    return LiquidSyntaxError(message, token=Token(tokens.TOKEN_ILLEGAL, "", index, source))


class Stream(TokenStream):
    """The library's stream over our tokens, whose end has a place too."""

    def __init__(self, found: Iterable[Token], source: str, end: int, count: Count) -> None:
        super().__init__(count.of(found))
        self.count = count
        self.eof = Token(tokens.TOKEN_EOF, tokens.TOKEN_EOF, end, source)

    def into_inner(self, *, tag: Token | None = None, eat: bool = True) -> TokenStream:
        whole = self.current
        if whole.kind != tokens.TOKEN_EXPRESSION:
            raise LiquidSyntaxError("something is missing here", token=tag or whole)
        if eat:
            next(self)
        ranges = tag is not None and tag.value == "for"
        end = whole.start_index + len(whole.value)
        return Stream(_expression(whole, ranges), whole.source, end, self.count)


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
    if group == "misplaced":
        raise ValueError(f"{value} is not an index: write 0, 1, 2 and so on")
    if group not in ("operator", "illegal"):
        return group.rstrip("_"), value
    if value == "(" and not ranges:
        raise ValueError("a range (1..5) is only allowed in a for tag")
    if value not in tokens.operators:
        raise ValueError(f"unexpected {value!r}")
    return (tokens.TOKEN_RANGE_LITERAL if value == "(" else tokens.operators[value]), value
