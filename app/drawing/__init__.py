"""A definition as a picture: sketch what is there, arrange it in layers, and write it as SVG.

sketch      what any body says, right or wrong, as boxes and links
ports       what leads through a port
ways        which way links lead
chart       rows and columns, by a layout library
layout      where boxes stand and links run
lettering   how wide a text is, and where it breaks
looks       how each kind looks
cards       the boxes
svg         the document: self-contained, light and dark, nothing in it that runs
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
