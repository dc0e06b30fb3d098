"""Open connections: how many there may be, which one makes room, and how long each may wait.

A connection is always in one phase, and every phase that waits for the client ends: in the first
three by the table LIMITS, in `body` by the deadline of the edge. When there are too many, the
one that has waited longest for its client is closed. A client that is being served is never closed
for another: then the new one is refused.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias

from app.config.settings import Settings
from app.runtime.metrics import Metrics
from app.runtime.peers import Peers

Phase: TypeAlias = Literal["head", "idle", "body", "work", "write", "close"]
Cause: TypeAlias = Literal["client", "answer", "timeout", "capacity", "share", "refused", "stop"]

# No complete head yet; nothing asked after an answer; an answer that nobody reads; a closed
# connection whose last bytes nobody takes.
LIMITS: dict[Phase, float] = {"head": 5.0, "idle": 5.0, "write": 30.0, "close": 30.0}
# A router that sends a request in the moment in which its connection is closed answers the sender
# with an error of its own (Heroku's H13). So it closes first: most after 60 s, Heroku's after 90,
# Google's after 600.
IDLE_SECONDS_OF_PROXIES = 620.0
PHASES: tuple[Phase, ...] = ("head", "idle", "body", "work", "write", "close")
ROOM: tuple[Phase, ...] = ("close", "head", "idle", "write", "body")  # closed first, in this order

SWEEP_SECONDS = 0.25
FIRST_REQUEST_SECONDS = 1.0  # when the process stops, for a connection without a request yet
MOST = 2_048  # connections, whatever the descriptors
RESERVED = 200  # descriptors for the database, Redis, outgoing calls, mail servers and files
SETTLED_SECONDS = 1.0  # that one waits before it makes room for another of its address
SHARES = 4  # an address may hold one part in so many, where addresses are known


class Member(Protocol):
    """A connection, as far as it is counted."""

    source: str
    phase: Phase

    def end(self, cause: Cause, *, at_once: bool = False) -> None: ...


def most_connections(settings: Settings, descriptors: int) -> int:
    """A process that has few descriptors keeps half of them for everything else."""
    reserved = min(RESERVED + settings.database_pool_size, descriptors // 2)
    return min(MOST, descriptors - reserved)


class Connections:
    def __init__(
        self, most: int, most_of_one: int, idle_seconds: float, metrics: Metrics, peers: Peers
    ) -> None:
        self.most = most
        self._most_of_one = most_of_one
        self._metrics = metrics
        self._peers = peers
        peers.count(0)
        self._since: dict[Phase, dict[Member, float]] = {phase: {} for phase in PHASES}
        self._of_source: Counter[str] = Counter()
        self._open = 0
        self._limits = {**LIMITS, "idle": idle_seconds}
        self._clock = asyncio.get_running_loop().time

    def __len__(self) -> int:
        return self._open

    def admit(self, new: Member) -> bool:
        """Admit a connection if there is room, or some can be made. Returns whether it was
        admitted."""
        source = new.source
        if self._of_source[source] >= self._most_of_one:
            # One that opens them faster than it uses them is turned away: to accept them would
            # cost the others more than to refuse them.
            settled = self._waiting(self._clock() - SETTLED_SECONDS)
            if not self._end_first((one for one in settled if one.source == source), "share"):
                return self._refuse()
        if len(self) >= self.most and not self.make_room():
            return self._refuse()
        self._of_source[source] += 1
        self._open += 1
        self._peers.count(self._open)
        self._since[new.phase][new] = self._clock()
        return True

    def are_ahead(self) -> bool:
        """Return whether another process should take the next connection."""
        return self._peers.is_ahead()

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its client, if there is one."""
        return self._end_first(self._waiting(), "capacity")

    def enter(self, one: Member, phase: Phase) -> None:
        if self._since[one.phase].pop(one, None) is not None:  # None: it was closed meanwhile
            self._since[phase][one] = self._clock()
            one.phase = phase

    def leave(self, one: Member, cause: Cause) -> None:
        """Remove a connection once it is closed; a second time does nothing."""
        if self._since[one.phase].pop(one, None) is None:
            return
        self._open -= 1
        self._peers.count(self._open)
        self._of_source[one.source] -= 1
        if not self._of_source[one.source]:
            del self._of_source[one.source]
        self._metrics.count("tidings_connections_closed", cause=cause)

    async def sweep_for_ever(self) -> None:
        """Close what has waited too long. Ends by cancellation."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._clock()
            for phase, limit in self._limits.items():
                late = [one for one, since in self._since[phase].items() if since + limit <= now]
                for one in late:
                    one.end("timeout", at_once=phase in ("write", "close"))
            for phase, members in self._since.items():
                self._metrics.set("tidings_connections", len(members), phase=phase)

    def stop(self) -> None:
        """Nobody is waited for any more, but for those who have just come."""
        self._peers.leave()
        self._peers = Peers()
        now, self._limits["idle"] = self._clock(), 0.0
        self._limits["head"] = FIRST_REQUEST_SECONDS
        self._since["head"] = dict.fromkeys(self._since["head"], now)
        for one in list(self._since["idle"]):
            one.end("stop")

    def _waiting(self, since: float = math.inf) -> Iterator[Member]:
        """The connections that have waited for their client since then, who is missed least
        first."""
        for phase in ROOM:
            for one, began in self._since[phase].items():
                if began > since:
                    break  # they stand in the order in which they came
                yield one

    def _end_first(self, found: Iterator[Member], cause: Cause) -> bool:
        one = next(found, None)
        if one is not None:
            one.end(cause, at_once=True)
        return one is not None

    def _refuse(self) -> bool:
        self._metrics.count("tidings_connections_closed", cause="refused")
        return False
