"""Work that the tests have computed in the compute process, which imports no more for it. The
tests' own module brings all of the service with it, in seconds of a core, and in memory."""

from __future__ import annotations

import os
from typing import Any

from app.errors import Problem


def last_of(given: Any) -> str:
    return str(given.trigger["a"][-1])


def burn() -> None:
    while True:
        pass


def hoard() -> int:
    return len(bytearray(4 << 30))


def die() -> None:
    os._exit(3)


def wide(length: int, _: int) -> str:
    return "x" * length


def raising() -> None:
    raise Problem("invalid", "What is wrong.", headers={"a": "b"}, extra=1)
