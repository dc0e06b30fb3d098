"""Recorded bodies → the paths that lead into them: what they hold, how often, and an example."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from app.machine import document
from app.machine.path import CHARACTERS, Path, Segments, leaves_of
from app.machine.program import Json

NODES = 1_000  # looked at in one body, the shallow ones first
ITEMS = 20  # of one array
PATHS = 500  # shown
EXAMPLE = 200  # characters
TOGETHER = 4 * 1024 * 1024  # bytes of all bodies

Values: TypeAlias = Mapping[int, Json]  # by the number of the body, the newest is 0


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the bodies."""

    path: str
    types: Sequence[str]
    presence: float  # the share of bodies that have it
    example: Json


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of each place, in the order of the newest body."""

    bodies: int
    values: Mapping[Segments, Values]

    def places(self) -> list[Place]:
        """Arrays folded: what their items have in common is shown once, for the first of them.
        Where the items are labelled, as the fields of a form are, each is shown."""
        # The arrays where an item's place means the same in every body: a text within it, such as
        # the field's name, is never another there, and is another at every other place.
        columns: defaultdict[tuple[Segments, str | int], list[Values]] = defaultdict(list)
        for segments, given in self.values.items():
            if len(segments) > 2 and isinstance(segments[-2], int):
                columns[segments[:-2], segments[-1]].append(given)
        labelled = {array for (array, _), places in columns.items() if _labels(places)}
        alike: defaultdict[Segments, list[Segments]] = defaultdict(list)
        for segments in self.values:
            folded = tuple(
                0 if isinstance(segment, int) and segments[:place] not in labelled else segment
                for place, segment in enumerate(segments)
            )
            alike[folded].append(segments)
        shown: list[Place] = []
        for members in islice(alike.values(), PATHS):
            # One for all, written like the one that is there most often.
            usual = max(members, key=lambda segments: len(self.values[segments]))
            values = self.values[usual]
            types = {_type(value) for one in members for value in self.values[one].values()}
            filled = (value for value in values.values() if value not in (None, ""))
            example = next(filled, next(iter(values.values())))
            text = document.text(example)
            place = Place(
                path=str(Path(usual)),
                types=sorted(types),
                presence=round(len(values) / self.bodies, 3),
                example=example if len(text) <= EXAMPLE else f"{text[: EXAMPLE - 1]}…",
            )
            shown.append(place)
        return shown

    def common(self, share: float) -> Iterator[tuple[Path, Values]]:
        """Every path, no array folded, that leads to something in so many of the bodies."""
        for segments, values in self.values.items():
            if len(values) >= share * self.bodies:
                yield Path(segments), values


def objects(bodies: Iterable[bytes]) -> Iterator[Mapping[str, Json]]:
    """The objects that say anything, until they are too much to look at."""
    left = TOGETHER
    for body in bodies:
        left -= len(body)
        if left < 0:
            return
        try:
            value = document.parse(body)
        except document.MalformedJson:
            continue
        if value and isinstance(value, dict):
            yield value


def read(bodies: Iterable[Json]) -> Sample:
    """Read bodies that are objects, newest first."""
    found: dict[Segments, dict[int, Json]] = {}
    count = 0
    for number, body in enumerate(bodies):
        count += 1
        for segments, value in leaves_of(body, nodes=NODES, items=ITEMS):
            # All that a message can print: of objects and arrays the empty ones.
            holds_others = value and isinstance(value, dict | list)
            if not holds_others and len(str(Path(segments))) <= CHARACTERS:
                found.setdefault(segments, {})[number] = value
    return Sample(count, found)


# --- arrays ---------------------------------------------------------------------------------------


def _labels(places: Sequence[Values]) -> bool:
    texts = [{document.text(value) for value in given.values()} for given in places]
    seen_again = sum(len(given) > 1 for given in places)
    return seen_again > 1 and len(set[str]().union(*texts)) == sum(map(len, texts)) == len(texts)


# --- values ---------------------------------------------------------------------------------------


def _type(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"
