"""The picture itself: an SVG that needs nothing else, in light and dark, whose texts are only text.

ElementTree writes it, so that whatever somebody called something is escaped by construction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from xml.etree.ElementTree import Element, SubElement, tostring

from app.definitions.drawing import kind_styles
from app.definitions.drawing.cards import BOX, LINE, NAME, PADDING, SMALL, Card, Count
from app.definitions.drawing.chart import Point
from app.definitions.drawing.layout import Layout, Route, arrange
from app.definitions.drawing.sketch import Link, Sketch
from app.definitions.drawing.style import STYLE
from app.definitions.drawing.svg_text import short, write_text
from app.definitions.drawing.text_metrics import clean, cut, width

COLUMN = BOX + 28.0
MARGIN = 24.0
HEADING = 17.0
PORT_HEIGHT = 18.0
LEAST_WIDTH = 360.0
ARROW = 5.0


@dataclass(frozen=True, slots=True)
class Caption:
    """The texts above and below the picture, and the one of an empty picture."""

    title: str
    state: str
    counted: str = ""
    empty: str = "Nothing is here yet."


def positions(drawn: Sketch) -> list[tuple[float, float]]:
    """The upper left corners of the boxes, as they are in the picture."""
    cards = [Card.of(box, None) for box in drawn.boxes]
    return [(x - BOX / 2, y) for x, y in _arranged(drawn, cards).places]


def _arranged(drawn: Sketch, cards: list[Card]) -> Layout:
    return arrange(
        [card.height for card in cards],
        [(link.source, link.target) for link in drawn.links],
        [PORT_HEIGHT if _port(link) else 0.0 for link in drawn.links],
        COLUMN,
    )


def write(drawn: Sketch, caption: Caption, counts: Mapping[str, Count]) -> str:
    cards = [Card.of(box, counts.get(box.name)) for box in drawn.boxes]
    ports = [_port(link) for link in drawn.links]
    layout = _arranged(drawn, cards)
    if left_out := layout.routes.count(None):
        note = f"{left_out:,} links are too long to draw and are left out."
        caption = replace(caption, counted=f"{note} {caption.counted}".strip())
    across = max(layout.width + 2 * MARGIN - (COLUMN - BOX) / 2, LEAST_WIDTH)
    root, body = _document(drawn, caption, across, layout.height)
    if not cards:
        write_text(
            body,
            clean(caption.empty),
            across / 2 - MARGIN,
            NAME,
            size=NAME,
            style="quiet",
            middle=True,
        )
    shift = (
        (across - 2 * MARGIN - layout.width) / 2 if across == LEAST_WIDTH else -(COLUMN - BOX) / 2
    )
    picture = SubElement(body, "g", {"transform": f"translate({short(shift)} 0)"})
    links = list(zip(drawn.links, layout.routes, ports, strict=True))
    for link, route, _ in links:
        if route:
            _line(picture, link, route)
    for card, place in zip(cards, layout.places, strict=True):
        card.draw(picture, place)
    for _, route, port in links:
        if route and port:
            _sign(picture, port, route.label)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")


# --- the document -------------------------------------------------------------------------------


def _document(
    drawn: Sketch, caption: Caption, across: float, height: float
) -> tuple[Element, Element]:
    below = 2 * SMALL if caption.counted else 0.0
    above = MARGIN + HEADING + LINE + MARGIN
    down = above + max(height, 2 * NAME) + MARGIN + below
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {short(across)} {short(down)}",
            "width": short(across),
            "height": short(down),
            "role": "img",
            "aria-labelledby": "title desc",
        },
    )
    SubElement(root, "title", {"id": "title"}).text = clean(caption.title)
    SubElement(root, "desc", {"id": "desc"}).text = _described(drawn, caption)
    SubElement(root, "style").text = STYLE
    SubElement(root, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    room = across - 2 * MARGIN
    heading = cut(clean(caption.title), room, HEADING, bold=True)
    write_text(
        root, heading, MARGIN, MARGIN + HEADING * 0.8, size=HEADING, style="heading", bold=True
    )
    state = cut(clean(caption.state), room, SMALL)
    write_text(root, state, MARGIN, MARGIN + HEADING + LINE * 0.8, size=SMALL, style="quiet")
    if caption.counted:
        counted = cut(clean(caption.counted), room, SMALL)
        write_text(root, counted, MARGIN, down - MARGIN / 2, size=SMALL, style="quiet")
    return root, SubElement(root, "g", {"transform": f"translate({MARGIN:g} {above:g})"})


def _described(drawn: Sketch, caption: Caption) -> str:
    """The picture in words: every box, and where it leads."""
    if not drawn.boxes:
        return clean(caption.empty)
    called = [clean(f"{kind_styles.of(box.kind).title} {box.name}") for box in drawn.boxes]
    ways: dict[int, list[str]] = {}
    for link in drawn.links:
        because = f" ({link.label})" if link.label else ""
        way = f"{clean(link.port + because)} to {called[link.target]}"
        ways.setdefault(link.source, []).append(way)
    sentences = (
        f"{name}: {', '.join(ways.get(index, ['ends']))}." for index, name in enumerate(called)
    )
    return " ".join(sentences)


# --- links --------------------------------------------------------------------------------------


def _port(link: Link) -> str:
    """The label of a link: none on the plain way on."""
    name = "" if link.port == "next" else link.port
    label = f"{name}: {link.label}" if link.label not in ("", name) else name
    return cut(clean(label), BOX - 2 * PADDING, SMALL)


def _line(parent: Element, link: Link, route: Route) -> None:
    """Curves that leave and arrive upright, and an arrowhead; a link to its own box swings through
    its label."""
    style = "broken" if link.broken else "back" if route.back else "onward"
    group = SubElement(parent, "g", {"class": f"link {style}"})
    path = [f"M{_spots(route.points[0])}"]
    if len(route.points) == 3 and route.points[0][1] == route.points[2][1]:
        (sx, sy), (mx, my), (tx, ty) = route.points
        path.append(f"C{_spots((sx, my), (mx - 20, my), (mx, my))}")
        path.append(f"C{_spots((mx + 20, my), (tx, my), (tx, ty))}")
    else:
        for (sx, sy), (tx, ty) in pairwise(route.points):
            half = (sy + ty) / 2
            curve = f"C{_spots((sx, half), (tx, half), (tx, ty))}"
            path.append(f"V{short(ty)}" if sx == tx else curve)
    SubElement(group, "path", {"d": "".join(path)})
    (x, y), before = route.points[-1], route.points[-2]
    tip = -ARROW if y > before[1] else ARROW
    corners = [(x, y), (x - ARROW * 0.8, y + 1.6 * tip), (x + ARROW * 0.8, y + 1.6 * tip)]
    points = " ".join(f"{short(px)},{short(py)}" for px, py in corners)
    SubElement(group, "polygon", {"points": points})


def _spots(*points: Point) -> str:
    return " ".join(f"{short(x)} {short(y)}" for x, y in points)


def _sign(parent: Element, port: str, place: Point) -> None:
    across = width(port, SMALL) + 12
    x, y = place
    SubElement(
        parent,
        "rect",
        {
            "class": "sign",
            "x": short(x - across / 2),
            "y": short(y - PORT_HEIGHT / 2),
            "width": short(across),
            "height": f"{PORT_HEIGHT:g}",
            "rx": "6",
        },
    )
    write_text(parent, port, x, y + SMALL * 0.36, size=SMALL, style="port", middle=True)
