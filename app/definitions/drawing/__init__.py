"""A definition as a picture: sketch what is there, arrange it in layers, and write it as SVG.

sketch        boxes and links of any body, valid or not
ports         the label of each port
links         which links lead back, and which are drawn
chart         rows and columns, by a layout library
layout        positions of boxes, paths of links
text_metrics  text widths and line breaks
kind_styles   title, outline and colours of each node kind
cards         the boxes
svg_text      text elements
svg           the document: self-contained, light and dark, without scripts
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from app.definitions.drawing.cards import Count
from app.definitions.drawing.sketch import Sketch, of_graph, of_steps
from app.definitions.drawing.svg import Caption, positions, write
from app.machine import document
from app.machine.graph import TRIGGER
from app.machine.program import Json

__all__ = ["SHAPES", "Caption", "Count", "Sketch", "of_graph", "of_steps", "svg_of", "write"]

Sketcher: TypeAlias = Callable[[Json, Mapping[str, Json], Mapping[str, str]], Sketch]

SHAPES: Mapping[str, Sketcher] = {"graph": of_graph, "steps": of_steps}


def svg_of(  # noqa: PLR0917 - the arguments of a job
    shape: str,
    body: str,
    trigger: Mapping[str, Json],
    names: Mapping[str, str],
    caption: Caption,
    counts: Mapping[str, Count],
) -> bytes:
    """The document of a stored body."""
    sketch = SHAPES[shape](document.parse(body.encode()), trigger, names)
    return write(sketch, caption, counts).encode()


def positions_of(
    shape: str, body: Json, trigger: Mapping[str, Json]
) -> dict[str, tuple[float, float]]:
    """The place of each node in the picture, by its ID; a workflow's trigger is `trigger`."""
    sketch = SHAPES[shape](body, trigger, {})
    if shape == "graph":
        nodes = body.get("nodes") if isinstance(body, dict) else None
        names = [str(one.get("id")) for one in nodes or () if isinstance(one, dict)]
    else:
        names = [box.name or TRIGGER for box in sketch.boxes]
    return dict(zip(names, positions(sketch), strict=False))
