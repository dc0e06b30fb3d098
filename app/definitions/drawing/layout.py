"""Layout of boxes and links: rows and columns by fast-sugiyama, curves between the rows.

Every link has a vertex of its own in the middle, where its label stands: so labels get room as
boxes do, and two links between the same boxes run apart. Links that lead back up are laid out the
other way round, which leaves no cycles. A vertex takes one column, so nothing can overlap; curves
bend only between rows, and pass a row straight down the column that the library kept for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from app.definitions.drawing.chart import Chart, Minimizer, Point, charted, parts_of
from app.definitions.drawing.links import Link, back_links, lengths_of, short_enough

GAP = 22.0  # between rows, at the least
STEEPEST = 0.07  # of how far a curve goes sideways, added to the gap it crosses
WIDEST_GAP = 96.0
ASIDE = 26.0  # between the doors of a box
MOST_TRIED = 400  # links of a picture for which other orders are tried
MINIMIZERS: Sequence[Minimizer] = ("barycenter", "median")
TRIES: Sequence[tuple[Minimizer, int]] = [
    (minimizer, seed) for seed in range(8) for minimizer in MINIMIZERS
]


@dataclass(frozen=True, slots=True)
class Route:
    """A link's points from its source on, and where its label stands; `back` leads up."""

    points: tuple[Point, ...]
    label: Point
    back: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """Centres of the boxes' upper edges, and the links' routes, None for one too long to draw."""

    places: tuple[Point, ...]
    routes: tuple[Route | None, ...]
    width: float
    height: float


def arrange(
    heights: Sequence[float], links: Sequence[Link], labels: Sequence[float], column: float
) -> Layout:
    """Boxes of these heights and links with labels of those, each `column` wide at the most."""
    return _Arrangement(heights, links, labels, column).layout()


class _Arrangement:
    """One picture's boxes and links on their way to a layout."""

    def __init__(
        self,
        heights: Sequence[float],
        links: Sequence[Link],
        labels: Sequence[float],
        column: float,
    ) -> None:
        self.heights, self.links, self.labels, self.column = heights, links, labels, column
        self.boxes = len(heights)
        self.back = back_links(self.boxes, links)
        down = [(t, s) if index in self.back else (s, t) for index, (s, t) in enumerate(links)]
        self.drawn = short_enough(lengths_of(self.boxes, down))
        self.chart = self._best(down)
        self.rows = self._rows()
        self.doors = self._doors()

    def layout(self) -> Layout:
        spots = self.chart.spots
        return Layout(
            tuple((spots[box][0], self._top(box)) for box in range(self.boxes)),
            tuple(self._route(index) for index in range(len(self.links))),
            max((x for x, _ in spots.values()), default=0) + self.column / 2,
            max((bottom for _, bottom in self.rows.values()), default=0),
        )

    def _best(self, down: Sequence[Link]) -> Chart:
        """The chart with the fewest crossings of those that some orders of the links give."""
        edges: list[Link] = []
        for index in sorted(self.drawn):
            upper, lower = down[index]
            edges.append((upper, self._middle(index)))
            if upper != lower:
                edges.append((self._middle(index), lower))
        best, fewest = None, -1
        for minimizer, seed in TRIES:
            order = Random(seed).sample(edges, len(edges)) if seed else edges  # noqa: S311 - a shuffle, no secret
            parts = list(parts_of(order, self.column, minimizer))
            chart = charted(self.boxes, self.boxes + len(self.links), parts, self.column)
            crossings = chart.crossings()
            if best is None or crossings < fewest:
                best, fewest = chart, crossings
            if not crossings or len(self.links) > MOST_TRIED:
                break
        return best or Chart(self.boxes)

    def _rows(self) -> dict[int, Point]:
        """Top and bottom of each row; the gap above grows with how far its curves go sideways."""
        spots = self.chart.spots
        tall: dict[int, float] = defaultdict(float)
        for vertex, height in enumerate([*self.heights, *self.labels]):
            if vertex in spots:
                tall[spots[vertex][1]] = max(tall[spots[vertex][1]], height)
        aside: dict[int, float] = defaultdict(float)
        for lower, uppers in self.chart.above.items():
            x, row = spots[lower]
            aside[row] = max([aside[row], *(abs(x - spots[upper][0]) for upper in uppers)])
        rows: dict[int, Point] = {}
        bottom = 0.0
        for row in range(max((row for _, row in spots.values()), default=-1) + 1):
            top = bottom + (min(GAP + STEEPEST * aside[row], WIDEST_GAP) if row else 0)
            bottom = top + tall[row]
            rows[row] = (top, bottom)
        return rows

    def _doors(self) -> dict[tuple[int, str], float]:
        """The place of each end of a link along its boxes' edges, in the order that links fan out.

        Above a box they arrive in one point, unless one leads back from there.
        """
        fans: dict[tuple[int, str], list[tuple[float, int, str]]] = defaultdict(list)
        apart: set[tuple[int, str]] = set()
        spots = self.chart.spots
        for index in self.drawn:
            chain = self.chart.chain(self._middle(index))
            x = spots[chain[1]][0]
            if self._loops(index):
                x = spots[self._middle(index)][0]
                fans[chain[0], "bottom"] += [(x - 1, index, "from"), (x + 1, index, "to")]
            else:
                fans[chain[0], "bottom"].append((x, index, "upper"))
                fans[chain[-1], "top"].append((spots[chain[-2]][0], index, "lower"))
                if index in self.back:
                    apart.add((chain[-1], "top"))
        doors: dict[tuple[int, str], float] = {}
        for (box, edge), fan in fans.items():
            between = min(ASIDE, self.column * 0.55 / max(len(fan) - 1, 1))
            if edge == "top" and (box, edge) not in apart:
                between = 0
            for place, (_, index, end) in enumerate(sorted(fan)):
                doors[index, end] = spots[box][0] + between * (place - (len(fan) - 1) / 2)
        return doors

    def _route(self, index: int) -> Route | None:
        if index not in self.drawn:
            return None
        x, row = self.chart.spots[self._middle(index)]
        label = (x, sum(self.rows[row]) / 2)
        if self._loops(index):
            bottom = self._bottom(self.links[index][0])
            ends = [(self.doors[index, end], bottom) for end in ("from", "to")]
            return Route((ends[0], label, ends[1]), label, back=True)
        upper, *between, lower = self.chart.chain(self._middle(index))
        door = self.doors[index, "upper"]
        points = [(door, self._bottom(upper)), (door, self._row(upper)[1])]
        for vertex in between:
            points += [(self.chart.spots[vertex][0], y) for y in self._row(vertex)]
        points.append((self.doors[index, "lower"], self._top(lower)))
        back = index in self.back
        return Route(tuple(reversed(points) if back else points), label, back)

    def _middle(self, index: int) -> int:
        return self.boxes + index

    def _loops(self, index: int) -> bool:
        return self.links[index][0] == self.links[index][1]

    def _row(self, vertex: int) -> Point:
        return self.rows[self.chart.spots[vertex][1]]

    def _top(self, box: int) -> float:
        return self._row(box)[0]

    def _bottom(self, box: int) -> float:
        return self._top(box) + self.heights[box]
