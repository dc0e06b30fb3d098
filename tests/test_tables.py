"""Tables of rows in one test."""

from __future__ import annotations

import inspect

import pytest

from tests.tables import each_row

TRIED: list[tuple[str, int]] = []


@each_row(("word", "number"), [("one", 1), ("two", 3), ("three", 4), ("four", 4)])
async def compared(lengths: dict[str, int], word: str, number: int) -> None:
    TRIED.append((word, number))
    if number == 4:
        with pytest.raises(KeyError):
            raise KeyError if word == "four" else ValueError
    else:
        assert lengths[word] == number


async def test_all_rows_are_tried_and_each_that_fails_is_named() -> None:
    assert list(inspect.signature(compared).parameters) == ["lengths"]
    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as failed:
        await compared(lengths={"one": 1, "two": 2})
    assert [word for word, _ in TRIED] == ["one", "two", "three", "four"]
    assert [one.__notes__ for one in failed.value.exceptions] == [
        ["in the row ('two', 3)"],
        ["in the row ('three', 4)"],
    ]


@each_row("word", ["none"])
async def silent(word: str) -> None:
    with pytest.raises(KeyError):
        assert word


async def test_a_row_that_does_not_raise_what_it_should_is_named_too() -> None:
    with pytest.raises(BaseExceptionGroup) as failed:
        await silent()
    assert failed.value.exceptions[0].__notes__ == ["in the row 'none'"]


def test_a_table_without_rows_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="tries nothing"):
        each_row("word", [])
