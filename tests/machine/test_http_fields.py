"""Which names and values HTTP can carry (RFC 9110 §5)."""

from __future__ import annotations

import pytest

from app.machine.http_fields import FIELD_NAME, UNSENDABLE


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("X-Order", True),
        ("!#$%&'*+.^_`|~09AZaz-", True),
        ("a" * 100, True),
        ("a" * 101, False),
        ("", False),
        ("X Order", False),
        ("X-Order:", False),
        ("X-Order\n", False),
        ("X-Ördnung", False),
    ],
)
def test_a_field_name_is_a_token(name: str, is_one: bool) -> None:
    assert bool(FIELD_NAME.fullmatch(name)) == is_one


@pytest.mark.parametrize(
    ("value", "is_sendable"),
    [
        ("", True),
        ("a b\tc", True),
        ("\xe4\xff", True),  # obs-text, one octet each
        ("a\r\nX-Forged: 1", False),
        ("a\x00", False),
        ("a\x7f", False),
        ("a\x80", True),
        ("\u0100", False),
    ],
)
def test_a_field_value_holds_no_control_characters(value: str, is_sendable: bool) -> None:
    assert (UNSENDABLE.search(value) is None) == is_sendable
