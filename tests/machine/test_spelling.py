"""The known word that reads most like an unknown one."""

from __future__ import annotations

import pytest

from app.machine import spelling

FIELDS = ["email", "phone", "firstName", "lastName", "timezone", "locale", "metadata", "tags"]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("emial", "email"),
        ("e-mail", "email"),
        ("Email", "email"),
        ("first_name", "firstName"),
        ("FIRSTNAME", "firstName"),
        ("lastname", "lastName"),
        ("meta", "metadata"),
        ("tag", "tags"),
        ("timeZone", "timezone"),
        ("age", None),
        ("", None),
        ("x" * 101, None),
        ("\u540d\u524d", None),
    ],
)
def test_the_nearest_word_is_found_if_any_is_near(word: str, near: str | None) -> None:
    assert spelling.nearest(word, FIELDS) == near


def test_of_no_words_none_is_near() -> None:
    assert spelling.nearest("email", []) is None
    assert spelling.hint("email", []) == ""
    assert spelling.hint("emial", FIELDS) == " Did you mean email?"
