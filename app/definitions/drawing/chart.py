"""Rows and columns for boxes and links, by fast-sugiyama, and how often links cross in them."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fast_sugiyama import from_edges

from app.definitions.drawing.links import Link

Point: TypeAlias = tuple[float, float]
Spot: TypeAlias = tuple[float, int]  # a column's centre and a row
Minimizer: TypeAlias = Literal["barycenter", "median"]

PASSAGE = 0.15  # of a column, kept for a link that passes a row


@dataclass(slots=True)
class Chart:
    """Every vertex's spot, passages included, and what stands above and below each."""

    boxes: int
    spots: dict[int, Spot] = field(default_factory=dict)
    above: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    below: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def chain(self, middle: int) -> list[int]:
        """A link from the box above, through its passages and its middle, to the box below."""
        up, down = self._followed(self.above, middle), self._followed(self.below, middle)
        return [*reversed(up), middle, *down]

    def _followed(self, ways: Mapping[int, list[int]], vertex: int) -> list[int]:
        met: list[int] = []
        while ways.get(vertex):
            vertex = ways[vertex][0]
            met.append(vertex)
            if vertex < self.boxes:
                break
        return met

    def crossings(self) -> int:
        gaps: dict[int, list[Point]] = defaultdict(list)
        for upper, lowers in self.below.items():
            x, row = self.spots[upper]
            gaps[row] += [(x, self.spots[lower][0]) for lower in lowers]
        return sum(map(_inversions, gaps.values()))


def _inversions(pairs: Sequence[Point]) -> int:
    """Count the lines between two rows that cross."""
    crossed = 0
    seen: list[float] = []
    for _, x in sorted(pairs):
        crossed += len(seen) - bisect_right(seen, x)
        insort(seen, x)
    return crossed


Part: TypeAlias = tuple[Mapping[int, Point], Sequence[Link]]


def parts_of(edges: Sequence[Link], column: float, minimizer: Minimizer) -> Iterator[Part]:
    """Each connected part as the library lays it out, y growing upwards."""
    if not edges:
        return
    for positions, _, _, laid in from_edges(
        edges,
        minimum_length=1,
        vertex_spacing=column,
        dummy_vertices=True,
        dummy_size=PASSAGE,
        ranking_type="up",
        crossing_minimization=minimizer,
        transpose=True,
    ):
        # Mirrored: the library puts what it met first on the right.
        places = {int(vertex): (-x, y) for vertex, (x, y) in positions}
        yield places, [(int(upper), int(lower)) for upper, lower in laid or ()]


def charted(boxes: int, vertices: int, found: Sequence[Part], column: float) -> Chart:
    """The parts side by side, and boxes without a link beside them."""
    chart = Chart(boxes)
    linked = {vertex for places, _ in found for vertex in places}
    alone: list[Part] = [({box: (0.0, 0.0)}, ()) for box in range(boxes) if box not in linked]
    passages, left = vertices, column / 2
    for places, laid in sorted([*found, *alone], key=lambda part: min(part[0])):
        names = {vertex: vertex for vertex in places if vertex < vertices}
        for vertex in places.keys() - names.keys():
            names[vertex] = passages  # the library counts them anew in every part
            passages += 1
        west = min(x for x, _ in places.values())
        top = max(y for _, y in places.values())
        for vertex, (x, y) in places.items():
            chart.spots[names[vertex]] = (x - west + left, round((top - y) / column))
        for upper, lower in laid:
            chart.below[names[upper]].append(names[lower])
            chart.above[names[lower]].append(names[upper])
        left += max(x for x, _ in places.values()) - west + column
    return chart
