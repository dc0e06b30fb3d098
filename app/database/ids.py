"""Ids: a UUIDv7 (RFC 9562), strictly increasing within a process, written as a TypeID."""

from __future__ import annotations

import os
import secrets
import threading
import time
import uuid
from datetime import datetime, timedelta

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base32, lower case
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BITS = 74  # rand_a (12) and rand_b (62) of RFC 9562 §5.7, one counter here (§6.2, method 2)


class _Source:
    """The last id given out: its milliseconds and the 74 bits below them.

    A forked child goes on from its parent's, but by steps of its own choice.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = 0
        self._rest = 0

    def next(self) -> tuple[int, int]:
        with self._lock:
            milliseconds = time.time_ns() // 1_000_000
            counted = self._rest + 1 + int.from_bytes(os.urandom(4))
            if milliseconds <= self._milliseconds and counted >> _RANDOM_BITS == 0:
                self._rest = counted  # the same millisecond, or a clock that was set back
            else:
                self._milliseconds = max(milliseconds, self._milliseconds + 1)
                # The top bit starts clear: room to count up within the millisecond.
                self._rest = secrets.randbits(_RANDOM_BITS - 1)
            return self._milliseconds, self._rest


_source = _Source()


def uuid7() -> uuid.UUID:
    return uuid.UUID(int=_number())


def _number() -> int:
    milliseconds, rest = _source.next()
    high = milliseconds << 16 | 0x7 << 12 | rest >> 62
    low = 0b10 << 62 | rest & (1 << 62) - 1
    return high << 64 | low


def new_id(prefix: str) -> str:
    """`con` → `con_01jd…`: the prefix and 26 characters; as text in the order of making."""
    return _written(prefix, _number())


def first_id(prefix: str, moment: datetime, earlier: timedelta) -> str:
    """Make an id below every one made at the moment or later, by a clock that is `earlier`
    behind."""
    milliseconds = int(moment.timestamp() * 1000 - earlier.total_seconds() * 1000)
    return _written(prefix, min(max(milliseconds, 0), 2**48 - 1) << 80)


def id_bytes(id: str) -> bytes:
    """The sixteen bytes of an id, without its prefix."""
    value = 0
    for digit in id.rpartition("_")[2]:
        value = value << 5 | _ALPHABET.index(digit)
    return value.to_bytes(16, "big")


def id_of(prefix: str, octets: bytes) -> str:
    """The id of these sixteen bytes."""
    return _written(prefix, int.from_bytes(octets, "big"))


def _written(prefix: str, value: int) -> str:
    digits = "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])
    return f"{prefix}_{digits}"
