"""Text that can be stored, and text that is one line."""

from __future__ import annotations

import pytest

from app.machine.text import (
    composed,
    encodable,
    is_line,
    is_storable,
    replace_unstorable,
    unescaped,
)


@pytest.mark.parametrize(
    ("text", "storable", "line"),
    [
        ("", True, True),
        ("Zoë \U0001f600", True, True),
        ("a\x80\u2028\ufffd", True, True),
        ("a\tb", True, False),
        ("a\r\nb", True, False),
        ("a\x1f", True, False),
        ("a\x7f", True, False),
        ("a\0b", False, False),
        ("a\ud800", False, False),
        ("\udfffa", False, False),
    ],
    ids=range(10),
)
def test_what_text_may_hold(text: str, storable: bool, line: bool) -> None:
    assert (is_storable(text), is_line(text)) == (storable, line)
    assert (replace_unstorable(text) == text) == storable


def test_what_cannot_be_stored_is_replaced_character_by_character() -> None:
    assert replace_unstorable("a\0b\ud83d\ude00c") == "a\ufffdb\ufffd\ufffdc"


def test_what_cannot_be_encoded_is_escaped() -> None:
    assert encodable("a\0\ud83d\u00e9") == "a\0\\ud83d\u00e9"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("Zo&euml; &amp; &#68;&#x41;", "Zo\u00eb & DA"),
        ("&#0000000065;&#00000000;", "A\ufffd"),
        (f"&#{'0' * 9_000}65;", "A"),
        (f"a&#{'9' * 9_000};b&#{'1' * 8}c", "a\ufffdb\ufffdc"),
        (f"&#x{'f' * 90_000};", "\ufffd"),
    ],
)
def test_entities_are_read_however_long_their_numbers_are(markup: str, text: str) -> None:
    """Python's own reader raises ValueError for one of 4,301 digits."""
    assert unescaped(markup) == text


ACUTE, BELOW, BOTH = "\u0301", "\u0323", "\u0f73"  # a mark above, one below, two in one


@pytest.mark.parametrize(
    ("text", "composition"),
    [
        ("Zoe\u0308", "Zo\u00eb"),
        ("u\u031b\u0301", "\u1ee9"),
        ("Zo\u00eb \U0001f600" * 20, "Zo\u00eb \U0001f600" * 20),
        ("\U0001f600" * 50 + "e" + ACUTE, "\U0001f600" * 50 + "\u00e9"),
        ("a" + ACUTE * 15 + BELOW * 15, "\u1ea1" + BELOW * 14 + ACUTE * 15),
        ("e" + ACUTE + "a" + ACUTE * 31, None),
        ("e" + ACUTE + "a" + BOTH * 31, None),
    ],
)
def test_text_is_composed_unless_a_letter_has_more_marks_than_are_written(
    text: str, composition: str | None
) -> None:
    assert composed(text) == (text if composition is None else composition)


@pytest.mark.parametrize("marks", [ACUTE + BELOW, BOTH, "\u05bf\u05b0", "\U0001d165\U0001d16d"])
def test_a_text_of_nothing_but_marks_is_left_as_it_is(marks: str) -> None:
    """At once: to put so many in order would take longer than any test may."""
    for text in ("a" + marks[:1] * 200_000 + marks[1:] * 200_000, "a" + marks * 200_000):
        assert composed(text) == text
