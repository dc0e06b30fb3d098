"""Boxes: an outline by kind, and lines that were measured to fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement

from app.definitions.drawing import kind_styles, sketch
from app.definitions.drawing.chart import Point
from app.definitions.drawing.kind_styles import KindStyle
from app.definitions.drawing.sketch import Box
from app.definitions.drawing.svg_text import short, write_text
from app.definitions.drawing.text_metrics import clean, cut, wrap

BOX = 224.0
PADDING = 9.0
INSET = 20.0  # from a box's sides: what the narrowest outline leaves
SLANT = 14.0
FOLD = 14.0
TITLE, NAME, SMALL = 12.0, 13.0, 11.0
LINE = 16.0


@dataclass(frozen=True, slots=True)
class Count:
    """Runs that stand at a node now, and visits that have passed it."""

    here: int = 0
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    """A box with its lines set: each a text, its size and its class."""

    box: Box
    style: KindStyle
    lines: tuple[tuple[str, float, str], ...]
    count: Count | None

    @classmethod
    def of(cls, box: Box, count: Count | None) -> Card:
        style = kind_styles.MISSING if box.kind == sketch.MISSING else kind_styles.of(box.kind)
        room = BOX - 2 * INSET
        lines = [(cut(clean(style.title), room, TITLE, bold=True), TITLE, "kind")]
        lines += [(line, NAME, "name") for line in wrap(clean(box.name), room, NAME, 2)]
        lines += [(line, SMALL, "says") for line in wrap(clean(box.summary), room, SMALL, 2)]
        if count:
            counted = f"{count.here:,} here now · {count.passed:,} passed"
            lines.append((cut(counted, room, SMALL, bold=True), SMALL, "count"))
        return cls(box, style, tuple(lines), count)

    @property
    def height(self) -> float:
        return 2 * PADDING + LINE * len(self.lines)

    def draw(self, parent: Element, place: Point) -> None:
        x, y = place[0] - BOX / 2, place[1]
        group = SubElement(
            parent,
            "g",
            {"class": f"box {self.style.tone}", "transform": f"translate({short(x)} {short(y)})"},
        )
        SubElement(group, "title").text = clean(
            f"{self.style.title} {self.box.name} {self.box.summary}"
        )
        outline, height = self.style.outline, self.height
        if outline in ("pill", "card"):
            corner = short(min(height / 2 if outline == "pill" else 4.0, INSET))
            shape = {"width": f"{BOX:g}", "height": short(height), "rx": corner}
            SubElement(group, "rect", {"class": "outline", **shape})
        else:
            for index, corners in enumerate(_corners(outline, height)):
                points = " ".join(f"{short(px)},{short(py)}" for px, py in corners)
                tag = "polyline" if index else "polygon"
                SubElement(group, tag, {"class": "outline", "points": points})
        # An inner picture clips: a font wider than the table never spills over its box.
        inner = SubElement(
            group,
            "svg",
            {"x": f"{INSET:g}", "width": f"{BOX - 2 * INSET:g}", "height": short(height)},
        )
        for index, (line, size, style) in enumerate(self.lines):
            baseline = PADDING + LINE * index + LINE * 0.75
            bold = style in ("kind", "count")
            write_text(inner, line, 0, baseline, size=size, style=style, bold=bold)


def _corners(outline: str, height: float) -> Sequence[Sequence[Point]]:
    """The outline's corners, then the strokes inside it."""
    w, h = BOX, height
    match outline:
        case "folded":
            edge = [(0, 0), (w - FOLD, 0), (w, FOLD), (w, h), (0, h)]
            return [edge, [(w - FOLD, 0), (w - FOLD, FOLD), (w, FOLD)]]
        case "hexagon":
            return [
                [(SLANT, 0), (w - SLANT, 0), (w, h / 2), (w - SLANT, h), (SLANT, h), (0, h / 2)]
            ]
        case "octagon":
            c = 10.0
            return [
                [(c, 0), (w - c, 0), (w, c), (w, h - c), (w - c, h), (c, h), (0, h - c), (0, c)]
            ]
        case "slanted":
            return [[(SLANT, 0), (w, 0), (w - SLANT, h), (0, h)]]
        case _:  # barred
            bars = [[(x, 0.0), (x, h)] for x in (7.0, w - 7.0)]
            return [[(0, 0), (w, 0), (w, h), (0, h)], *bars]
