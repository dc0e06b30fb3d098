"""The processes that share a listening socket, and how many connections each of them has.

The kernel wakes all of them for each connection, and the one that it wakes first takes it: of two
processes that wait, time and again the same one. So one that has more than another leaves the next
connection to that for a moment (Envoy calls this exact balance).
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field

GONE = 2**63  # connections of one that takes none: nobody waits for it
AHEAD_BY = 1


def shared(processes: int) -> list[Peers]:
    """Create the counts that so many processes share once forked, and each one's view of them."""
    counts = memoryview(mmap.mmap(-1, 8 * processes)).cast("Q")
    for number in range(processes):
        counts[number] = GONE
    return [Peers(counts, number) for number in range(processes)]


@dataclass(frozen=True, slots=True)
class Peers:
    """One of the processes among the others; by default it is alone."""

    _counts: memoryview = field(default_factory=lambda: memoryview(bytearray(8)).cast("Q"))
    _number: int = 0

    def count(self, connections: int) -> None:
        """Record how many connections this process has now."""
        self._counts[self._number] = connections

    def leave(self) -> None:
        """Record that this process takes no more connections."""
        self._counts[self._number] = GONE

    def is_ahead(self) -> bool:
        """Return whether another process should take the next connection."""
        return self._counts[self._number] > min(self._counts) + AHEAD_BY
