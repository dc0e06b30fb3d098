"""Comparison of two JSON values."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import compare, document
from tests.examples import examples

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def literal(text: str) -> Any:
    return document.parse(text.encode())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1, 1.0),
        ("83.40", 83.4),
        (83.4, "83.40"),
        (literal("1.10"), "1.1"),
        (literal("1e2"), 100),
        (literal("-0"), 0),
        (literal("123456789012345678901"), literal("123456789012345678901")),
        ("pro", "pro"),
        (None, None),
        (True, True),
        ("2026-11-02T10:20:31+01:00", "2026-11-02T09:20:31Z"),
        ("2026-11-02T09:20:31z", "2026-11-02 09:20:31.000-00:00"),
        ("2026-11-02", "2026-11-02T00:00:00Z"),
        (NOON, "2026-11-02T12:00:00Z"),
    ],
)
def test_the_same(found: Any, expected: Any) -> None:
    assert compare.same(found, expected)
    assert compare.same(expected, found)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("", None),
        ("true", True),
        ("1.10", "1.1"),  # two texts: a version, not a price
        ("Pro", "pro"),
        (7, "007"),
        (1, " 1"),
        (1, "１"),
        (literal("123456789012345678901"), literal("123456789012345678902")),
        (literal("0.1000000000000000055511151231257827"), literal("0.1")),
        (literal("1e400"), literal("1e401")),
        ([1], 1),
        ({}, ""),
        (float("nan"), float("nan")),
        ("2026-02-30", "2026-03-02"),
    ],
)
def test_not_the_same(found: Any, expected: Any) -> None:
    assert not compare.same(found, expected)
    assert not compare.same(expected, found)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        (1, 2),
        ("9", "10"),
        ("9", 10),
        (literal("1e399"), literal("1e400")),
        (literal("123456789012345678901"), literal("123456789012345678902")),
        (-1, "1e-9"),
        ("2026-11-02T12:00:00+02:00", "2026-11-02T12:00:00+01:00"),
        ("2026-11-02", "2026-11-02T00:00:00.001Z"),
        ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"),
        ("2026-11-02T11:59:59Z", NOON),
    ],
)
def test_an_order(less: Any, more: Any) -> None:
    assert compare.order(less, more) == -1
    assert compare.order(more, less) == 1
    assert compare.order(less, less) == 0


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("apple", "pear"),
        ("apple", 1),
        (True, 0),
        (None, 0),
        ([], 0),
        ("2026-11-02", 5),
        ("2026-11-02T12:00:00", "2026-11-01"),  # no zone: no moment
        ("2026-11-02T12:00:00+24:00", "2026-11-01"),
        ("1e9999999999999999999", 1),
        ("1e1000", 1),
        ("9" * 4_301, 1),
    ],
)
def test_no_order(found: Any, expected: int | str) -> None:
    assert compare.order(found, expected) is None
    assert compare.order(expected, found) is None


@pytest.mark.parametrize(
    ("found", "expected", "held"),
    [
        ("vip, wholesale", "vip", True),
        ("vip", "VIP", False),
        ("a5", 5, False),
        (["vip", "lead"], "lead", True),
        (["vip"], "vi", False),
        ([1, 2.0], "2", True),
        (["2.50"], 2.5, True),
        ([True], 1, False),
        ([None], None, True),
        ([["vip"]], "vip", False),
        (["x"] * 1_000_000 + ["vip"], "vip", True),
        ({"vip": 1}, "vip", False),
        (5, 5, False),
    ],
)
def test_contains(found: Any, expected: Any, held: bool) -> None:
    assert compare.contains(found, expected) is held


def test_of_a_stranger_s_list_no_numbers_fall_together() -> None:
    """A thousand of one hash would be compared each with each, for a twentieth of a second."""
    alike = [literal(str(number * (2**61 - 1))) for number in range(1, 101)]
    assert len({hash(compare.number(one)) for one in alike}) == 1
    items = compare.Items(alike)
    assert len({*map(hash, items._numbers)}) == len({*map(hash, items._plain)}) == 100
    assert all(compare.contains(alike, one) and compare.contains(alike, str(one)) for one in alike)
    assert not compare.contains(alike, 1)


@examples(100)
@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(-3, 3))
def test_numbers_are_spelled_alike_when_they_are_the_same(number: Decimal, zeros: int) -> None:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    same = Decimal((sign, (*digits, *[0] * abs(zeros)), exponent - abs(zeros)))
    assert compare._spelled(same) == compare._spelled(number)
    assert (compare._spelled(number + zeros) == compare._spelled(number)) is (
        number + zeros == number
    )


@pytest.mark.parametrize(
    ("found", "held"),
    [
        ("2026-11-02T11:00:00Z", True),
        ("2026-11-02T12:00:00Z", True),
        ("2026-11-02T10:59:59Z", False),
        ("2026-11-02T12:00:01Z", False),  # to come, not past
        ("soon", False),
        (1793610847, False),
        ("0001-01-01", False),
    ],
)
def test_within_the_last_hour(found: int | str, held: bool) -> None:
    assert compare.within_last(found, "PT1H", NOON) is held


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@examples(100)
@given(json_values, json_values)
def test_comparing_never_raises_and_an_order_turns_round(found: Any, expected: Any) -> None:
    assert isinstance(compare.same(found, expected), bool)
    assert isinstance(compare.contains(found, expected), bool)
    order = compare.order(found, expected)
    turned = compare.order(expected, found)
    assert turned == (None if order is None else -order)
    assert compare.within_last(found, "P1D", expected) is False
