"""The size of chunks of contacts, by the time that they take.

Who has done thousands of things takes some 30 ms to judge, and others some microseconds: a thousand
of the former may outlast the five seconds of a statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from app.errors import Contended

# Contacts of the first chunk, and the fewest of one to which none that was cut off leads: on a slow
# network a chunk takes long whoever is in it, and would take no less with fewer.
FIRST = 8
MOST = 5_000  # contacts of any
AIM_SECONDS = 0.5  # that the next chunk is to take; one that took longer leaves half at least
MOST_GROWTH = 8.0  # times as many contacts as in the last chunk, at the most
SHORTEST_SECONDS = 0.001  # that a chunk is taken to take


class CutOff(Contended):
    """A chunk has taken too long, or others were in its way: the next one, which begins with the
    same contacts, has a single one."""

    def __init__(self, error: Contended, contacts: int) -> None:
        super().__init__(error.detail)
        self.contacts = contacts  # that it had
        self.reason = str(error.__cause__ or error)  # what the database has said


@dataclass(slots=True)
class ChunkSize:
    """How many contacts the next chunk has. The single one of a chunk that was cut off is judged
    `by_machine`, by a bounded part of the past."""

    contacts: int = field(default_factory=lambda: FIRST)  # as it is by then: tests change it
    by_machine: bool = False

    def limit_to(self, most: int) -> int:
        """Have no more than `most` contacts, from now on; how many."""
        self.contacts = min(self.contacts, most)
        return self.contacts

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time the block; the next chunk's size follows from it. Raises CutOff."""
        began = monotonic()
        try:
            yield
        except Contended as error:
            if self.by_machine:
                raise
            cut_off = CutOff(error, self.contacts)
            self.by_machine, self.contacts = self.contacts == 1, 1
            raise cut_off from error
        self.by_machine = False
        seconds = max(SHORTEST_SECONDS, monotonic() - began)
        times = min(MOST_GROWTH, max(0.5, AIM_SECONDS / seconds))
        fewest = min(FIRST, 2 * self.contacts)
        self.contacts = min(MOST, max(fewest, int(self.contacts * times)))
