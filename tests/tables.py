"""Tables of rows that leave nothing behind, in one test: most of what such a row takes by itself is
the arrangement, which is the same for all."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, TypeAlias

import pytest

Test: TypeAlias = Callable[..., Awaitable[None]]


def each_row(names: str | Sequence[str], table: Iterable[Any]) -> Callable[[Test], Test]:
    """Parametrize a test so that all rows are tried, and each that fails is named in the
    failure."""
    rows = list(table)
    assert rows, "a table without rows tries nothing"

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)
        named = [names] if isinstance(names, str) else list(names)
        left = [one for name, one in signature.parameters.items() if name not in named]

        @wraps(test)
        async def try_all(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in rows:
                values = [row] if isinstance(names, str) else row
                try:
                    await test(**fixtures, **dict(zip(named, values, strict=True)))
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - raised below
                    failure.add_note(f"in the row {row!r}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)

        try_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return try_all

    return decorate
