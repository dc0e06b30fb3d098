"""The limits of one render's cost, and the errors that say so."""

from __future__ import annotations

from math import isfinite

from liquid.exceptions import ResourceLimitError

from app.machine.document import LiteralFloat

SECONDS = 0.5  # of work for one render
ITERATIONS = 10_000  # of all loops of one render together
OUTPUT = 1_000_000  # bytes printed and captured, held by variables, or given by one filter
BITS = 14_284  # of a whole number, or 4,300 digits: Python prints no more


def bounded(value: object) -> object:
    if isinstance(value, str):
        refuse_long(len(value))
    elif isinstance(value, int):
        if value.bit_length() > BITS:
            raise limit("a number has too many digits")
    elif isinstance(value, float) and not isfinite(value) and not isinstance(value, LiteralFloat):
        raise limit("a result is not a number")
    return value


def limit(message: str) -> ResourceLimitError:
    return ResourceLimitError(message, token=None)  # the library adds the node's place


def refuse_long(length: int) -> None:
    if length > OUTPUT:
        raise limit(f"a text grows beyond {OUTPUT} characters")
