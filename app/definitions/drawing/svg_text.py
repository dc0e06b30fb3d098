"""Text elements and numbers of an SVG."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from app.definitions.drawing.text_metrics import known, width


def write_text(
    parent: Element,
    text: str,
    x: float,
    y: float,
    *,
    size: float,
    style: str,
    bold: bool = False,
    middle: bool = False,
) -> None:
    if not text:
        return
    about = {"class": style, "x": short(x), "y": short(y), "font-size": f"{size:g}"}
    if middle:
        about["text-anchor"] = "middle"
    if known(text):  # another font than was measured is squeezed to the same width
        about["textLength"] = short(width(text, size, bold=bold))
        about["lengthAdjust"] = "spacingAndGlyphs"
    SubElement(parent, "text", about).text = text


def short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
