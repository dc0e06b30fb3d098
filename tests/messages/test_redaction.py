"""Redaction of a message for who may not act as its contact. By a route:
tests/routes/test_messages.py."""

from __future__ import annotations

import time

import pytest

from app.messages.redaction import ACTING_LINK, without_tokens


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Stop: https://x.test/u/{'a-_9' * 20}.", "Stop: https://x.test/u/…."),
        (f"<https://x.test/app/confirm/{'A' * 54}>", "<https://x.test/app/confirm/…>"),
        (f"t.test/?to=x.test%2Fu%2f{'A' * 54}&b", "t.test/?to=x.test%2Fu%2f…&b"),
        (f"/u/{'a' * 54} /u/{'b' * 54}", "/u/… /u/…"),
        ("https://x.test/u/example and https://shop.test/u/ada", None),
        (f"https://x.test/menu/{'a' * 54}", None),
    ],
)
def test_of_a_link_that_acts_its_place_is_left(text: str, left: str | None) -> None:
    assert ACTING_LINK.sub(r"\1…", text) == (text if left is None else left)


@pytest.mark.alone
def test_a_long_text_is_looked_through_at_once() -> None:
    words = "<p style='color: red'>Hello</p>\n" * 30_000
    for text in (words, "d3Nf " * 200_000, ("a" * 60 + "d3Nf ") * 15_000):
        began = time.thread_time()
        assert without_tokens(text) == text
        assert time.thread_time() - began < 0.1
    confirms = f"{'a-_9' * 18}d3Nfxyz"
    assert without_tokens(f"by={confirms}.") == f"by={confirms[:8]}…."
