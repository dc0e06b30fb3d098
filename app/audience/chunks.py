"""The size of chunks of contacts, by the time that they take.

Who has done thousands of things takes some 30 ms to judge, and others some microseconds: a thousand
of the former may outlast the five seconds of a statement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.errors import Contended

FIRST = 8  # contacts of the first chunk
AIM_SECONDS = 0.5  # that the next one is to take; of one that took longer at least half are left,
MOST_GROWTH = 8.0  # and after one that took less it has so many times as many at the most
SHORTEST_SECONDS = 0.001  # that are reckoned with


class CutOff(Contended):
    """A chunk has taken too long, or others were in its way: the next one, which begins with the
    same contacts, has a single one."""


@dataclass(slots=True)
class ChunkSize:
    """How many contacts the next chunk has. The single one of a chunk that was cut off is judged
    `by_machine`, by a bounded part of the past."""

    contacts: int = field(default_factory=lambda: FIRST)
    is_cut: bool = False  # the last chunk was cut off
    by_machine: bool = False

    def within(self, most: int) -> int:
        self.contacts = min(self.contacts, most)
        return self.contacts

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Let the block, which is a chunk's, decide on the next one. Raises CutOff."""
        began = time.monotonic()
        try:
            yield
        except Contended as error:
            if self.by_machine:
                raise
            self.is_cut, self.by_machine, self.contacts = True, self.contacts == 1, 1
            raise CutOff(error.detail) from error
        self.is_cut = self.by_machine = False
        seconds = max(SHORTEST_SECONDS, time.monotonic() - began)
        times = min(MOST_GROWTH, max(0.5, AIM_SECONDS / seconds))
        self.contacts = max(1, int(self.contacts * times))
