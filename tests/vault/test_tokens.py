"""Tokens: drawn from all of base62, or derived and then always the same."""

from __future__ import annotations

import pytest

from app.vault import tokens

SEED = bytes(range(32))


def test_a_drawn_token_is_another_every_time() -> None:
    drawn = {tokens.drawn() for _ in range(1_000)}
    assert len(drawn) == 1_000
    assert {len(token) for token in drawn} == {30}
    assert set().union(*drawn) == set(tokens.BASE62)
    assert len(set(tokens.BASE62)) == 62


def test_a_derived_token_never_changes() -> None:
    """Demo keys and callback URLs that people have written down are made of these."""
    assert tokens.derived(SEED, 32) == "flDIBkGwcRKRL9GXCgaFM3UNu2jQTClj"
    by_letters = tokens.derived(SEED, alphabet=tokens.LETTERS_FIRST)
    assert by_letters == "PVnslUq6MBuBvjqHmQKpwdEx4cTADm"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a" * 30, True),
        (tokens.derived(SEED), True),
        ("a" * 29, False),
        ("a" * 31, False),
        ("a" * 30 + "\n", False),
        ("a" * 29 + "_", False),
        ("\u0663" * 30, False),  # digits, but none of ASCII
    ],
)
def test_a_token_is_known_by_its_length_and_letters(text: str, is_one: bool) -> None:
    assert tokens.is_well_formed(text) == is_one
    assert (tokens.workspace_of(f"ws_1-{text}") == "ws_1") == is_one
    assert tokens.workspace_of(text) is None


def test_a_token_drawn_for_a_workspace_says_which_one() -> None:
    token = tokens.drawn_for("ws_01ja")
    assert tokens.workspace_of(token) == "ws_01ja"
    assert token != tokens.drawn_for("ws_01ja")
    assert not tokens.is_well_formed(token)
    for shown in (f"{token}\n", f"-{token}", token.replace("ws_01ja", "ws_\x00"), "ws_01ja-", ""):
        assert tokens.workspace_of(shown) is None
