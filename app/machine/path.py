"""Dot-paths (`data.items[0]["any key"]`): parse once, look up many times."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Final, TypeAlias

from app.machine.program import Json
from app.machine.spelling import Pairs, alike, pairs
from app.machine.text import UNSTORABLE

Segments: TypeAlias = tuple[str | int, ...]

SEGMENTS = 32
CHARACTERS = 512
NODES = 200  # looked at for a suggestion: some 20 µs each
JUDGED = 50  # of those, whether they would do


class BadPath(ValueError):
    """The text is not a path; says why."""


class Missing(Enum):
    MISSING = "missing"


MISSING: Final = Missing.MISSING  # what a path that leads nowhere finds; null is a value


@dataclass(frozen=True, slots=True)
class Path:
    """Keys (str) and indexes (int), in order."""

    segments: tuple[str | int, ...]

    def find(self, document: Json) -> Json | Missing:
        """Follow the path through keys and indexes, never attributes."""
        value = document
        for segment in self.segments:
            value = follow(value, segment)
            if value is MISSING:
                break
        return value

    def __str__(self) -> str:
        """The path as it can be written here and in a template."""
        return "".join(map(_written, self.segments)).removeprefix(".")


def follow(value: Json, segment: object) -> Json | Missing:
    """One step: a key of an object or an index of an array."""
    if isinstance(segment, str):
        if type(value) is dict or isinstance(value, Mapping):
            return value.get(segment, MISSING)
    elif (
        isinstance(segment, int)
        and not isinstance(segment, bool)  # which Python would take for 0 or 1
        and isinstance(value, list)
        and 0 <= segment < len(value)
    ):
        return value[segment]
    return MISSING


# In quotes, what cannot be stored is written as an escape.
_BARE = rf"[^.\[\]\s{UNSTORABLE}]+"
_STEP = re.compile(
    rf"""(?P<dot>\.)?(?P<key>{_BARE})
    | \[(?P<index>0|[1-9][0-9]*)\]
    | \[(?P<quoted>"(?:[^"\\{UNSTORABLE}]|\\.)*")\]""",
    re.VERBOSE,
)
# What a template reads after a dot: Liquid goes on at a filter, an argument or a comparison.
IN_LIQUID = r"""(?:[^.\[\]\s|,:=<>!()]|!(?!=)|:(?!["'\s]|$))+"""
_plain = re.compile(rf"(?!.*(?:[!}}]|-$))(?={_BARE}$){IN_LIQUID}").fullmatch
_UNREADABLE = re.compile(r"[}\ud800-\udfff]")  # a brace would end the tag that reads the path
_strings = json.JSONDecoder(strict=False)


@lru_cache(maxsize=1_024)  # some 10 KB each at most
def parse(text: str) -> Path:
    """Read `a.b[0]["any key"]`, quotes holding a JSON string. Raises BadPath."""
    if len(text) > CHARACTERS:
        raise BadPath(f"The path is longer than {CHARACTERS} characters.")
    if not text:
        raise BadPath("The path is empty.")
    segments: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or (match["key"] is not None and bool(match["dot"]) != bool(segments)):
            raise BadPath(
                f"The path cannot be read from character {position + 1}, {text[position:][:20]!r}:"
                ' write data.items[0].name, and ["any key"] for a key with a dot, a bracket or a'
                " space."
            )
        if match["index"] is not None:
            segments.append(int(match["index"]))
        else:
            segments.append(match["key"] if match["quoted"] is None else unquote(match["quoted"]))
        position = match.end()
    if len(segments) > SEGMENTS:
        raise BadPath(f"The path has more than {SEGMENTS} segments.")
    return Path(tuple(segments))


def unquote(quoted: str) -> str:
    """The key in `"any key"`, a JSON string. Raises BadPath."""
    try:
        return str(_strings.decode(quoted))
    except ValueError:
        raise BadPath(f"{quoted} is not a JSON string.") from None


def _written(segment: str | int) -> str:
    if isinstance(segment, int):
        return f"[{segment}]"
    if _plain(segment):
        return f".{segment}"
    quoted = json.dumps(segment, ensure_ascii=False)
    return f"[{_UNREADABLE.sub(_escaped, quoted)}]"


def _escaped(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


# --- did you mean ---------------------------------------------------------------------------------


def near(
    document: Json, path: Path, limit: int = 3, *, fits: Callable[[Json], bool] | None = None
) -> list[str]:
    """The paths of existing values that read most like this one, nearest first.

    When some of the values `fit`, only theirs; so many of the nearest are asked.
    """
    wanted = _likeness(str(path))
    leaves = (
        (Path(segments), value)
        for segments, value in leaves_of(document, nodes=NODES)
        if value not in (None, "") and not isinstance(value, dict | list)
    )
    there = ((str(leaf), value) for leaf, value in leaves if leaf != path)
    ranked = sorted(
        ((text, value) for text, value in there if len(text) <= CHARACTERS),
        key=lambda one: -sum(map(alike, wanted, _likeness(one[0]))),  # in path and in name
    )
    fitting = (text for text, value in ranked[:JUDGED] if fits is not None and fits(value))
    return list(islice(fitting, limit)) or [text for text, _ in ranked[:limit]]


def leaves_of(
    document: Json, *, nodes: int, items: int | None = None
) -> Iterator[tuple[Segments, Json]]:
    """The values that are not looked into, breadth first: those that hold no others, and what lies
    too deep, or beyond so many nodes. Of an array the first `items` are looked at."""
    waiting: deque[tuple[Segments, Json]] = deque([((), document)])
    left = nodes
    while waiting:
        segments, value = waiting.popleft()
        found: Iterable[tuple[str | int, Json]] = ()
        if isinstance(value, dict):
            found = ((key, child) for key, child in value.items() if len(key) <= CHARACTERS)
        elif isinstance(value, list):
            found = enumerate(islice(value, items))
        children = list(islice(found, left))
        left -= len(children)
        if children and len(segments) < SEGMENTS:
            waiting.extend(((*segments, key), child) for key, child in children)
        elif segments:
            yield segments, value


def _likeness(text: str) -> tuple[Pairs, Pairs]:
    """The likeness of the path's end, and of its last name."""
    whole = text[-64:]
    name = re.split(r"[.\[\]]+", whole.rstrip("]"))[-1]
    return pairs(whole), pairs(name)
