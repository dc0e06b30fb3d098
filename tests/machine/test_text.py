"""Which text can be stored, and which is one line."""

from __future__ import annotations

import pytest

from app.machine.text import encodable, is_line, is_storable, replace_unstorable, unescaped


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
