"""Texts are measured, cut and wrapped so that they fit."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.definitions.drawing import text_metrics
from app.definitions.drawing.cards import BOX, INSET, NAME, SMALL
from tests.definitions.drawing.pictures import DEFINITIONS, SVG, boxes, picture, texts
from tests.examples import examples

ROOM = BOX - 2 * INSET


@examples(100)
@example("0000@MMMMM\x08\x08\u0d45\u0e5c\u0e5c\u0e5c\u0e5c\U0001f8b20", SMALL, 2)
@given(st.text(max_size=300), st.sampled_from([NAME, SMALL]), st.integers(1, 3))
def test_every_line_fits_and_none_is_empty(text: str, size: float, most: int) -> None:
    lines = text_metrics.wrap(text_metrics.clean(text), ROOM, size, most)
    assert len(lines) <= most
    for line in lines:
        assert line
        assert text_metrics.width(line, size) <= ROOM + 0.1


@examples(100)
@given(st.text(alphabet="ab c-./_", max_size=200))
def test_wrapping_loses_nothing_but_space_until_the_ellipsis(text: str) -> None:
    cleaned = text_metrics.clean(text)
    kept = "".join(text_metrics.wrap(cleaned, ROOM, NAME, 2)).replace(" ", "")
    whole = cleaned.replace(" ", "")
    assert kept == whole or (kept.endswith("…") and whole.startswith(kept[:-1]))


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_line_of_every_box_fits(name: str) -> None:
    for rectangle, group in boxes(picture(*DEFINITIONS[name])).items():
        lines = list(texts(group))
        assert lines
        for text in group.iter(f"{SVG}text"):
            size, bold = float(text.attrib["font-size"]), text.attrib["class"] in ("kind", "count")
            assert text_metrics.width(text.text or "", size, bold=bold) <= ROOM + 0.1
        assert len(lines) * 16 < rectangle.bottom - rectangle.top


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("", 0), ("i", 222), ("W", 944), ("é", 556), ("Hello", 722 + 556 + 222 + 222 + 556)],
)
def test_widths_are_those_of_helvetica(text: str, thousandths: int) -> None:
    assert text_metrics.width(text, 1_000) == thousandths


def test_a_guess_is_known_as_one() -> None:
    assert text_metrics.known("Hello, “you”…")
    assert not text_metrics.known("日本")
