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

from app.drawing.cards import Count
from app.drawing.sketch import Sketch, of_graph, of_steps
from app.drawing.svg import Caption, write
from app.machine.program import Json

__all__ = ["SHAPES", "Caption", "Count", "Sketch", "of_graph", "of_steps", "write"]

Sketcher: TypeAlias = Callable[[Json, Mapping[str, Json], Mapping[str, str]], Sketch]

SHAPES: Mapping[str, Sketcher] = {"graph": of_graph, "steps": of_steps}
