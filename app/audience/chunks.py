"""Work in chunks of contacts: how many they have, by the time that they take, and for how long a
claim, or a look through contacts, goes on with them.

Who has done thousands of things takes some 30 ms to judge, and others some microseconds: a thousand
of the former may outlast the five seconds of a statement.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from app.database.db import Handle
from app.errors import Contended
from app.jobs.leases import Lease
from app.process import Process
from app.runtime.turns import WAIT_SECONDS, NoTurn
from app.store.jobs import Job

log = logging.getLogger(__name__)

SPELL_SECONDS = 2.0  # of one claim, whose worker then looks for others,
SLOW_SPELL_SECONDS = 10.0  # and of one that a statement has been cut off in, after five
# Contacts of the first chunk. No other has fewer, but after one that was cut off: on a slow network
# a chunk takes long whoever is in it, and would take no less with fewer.
FIRST = 8
MOST = 5_000  # contacts of any chunk: as many as a statement of a preview looks at
AIM_SECONDS = 0.5  # that the next chunk is to take; it has at least half as many as the last,
MOST_GROWTH = 8.0  # and at most so many times as many
SHORTEST_SECONDS = 0.001  # a chunk that took less counts as this long
LONG_SECONDS = 2.0  # after a chunk that took longer, twice as many may outlast a statement
WHOLE_SECONDS = 15.0  # of a look with its waits, which a router gives up on after 30


class CutOff(Contended):
    """A chunk has taken too long, or others were in its way: the next one, which begins with the
    same contacts, has a single one."""

    def __init__(self, error: Contended, contacts: int) -> None:
        super().__init__(error.detail)
        self.contacts = contacts  # that it had
        self.reason = str(error.__cause__ or error)  # what the database has said


@dataclass(slots=True)
class ChunkSize:
    """Number of contacts in the next chunk. The single one of a chunk that was cut off is judged
    `by_machine`, by a bounded part of the past."""

    contacts: int = field(default_factory=lambda: FIRST)  # read now, so that tests can change it
    by_machine: bool = False
    chunks_done: int = 0  # of a spell, but for those that were cut off

    def limit_to(self, most: int) -> int:
        """Reduce the size to at most `most` contacts, from now on; returns the size."""
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
        fewest = min(FIRST, 2 * self.contacts) if seconds <= LONG_SECONDS else 1
        self.contacts = min(MOST, max(fewest, int(self.contacts * times)))


@dataclass(slots=True)
class LookingTime:
    """Time for a look through the contacts of a workspace, step by step: so many seconds of
    looking, for which waits between the steps count nothing, and WHOLE_SECONDS in all."""

    seconds: float
    has_looked: bool = False  # set by who has; before that no time is up
    _ends: float = field(default_factory=lambda: monotonic() + WHOLE_SECONDS)

    @asynccontextmanager
    async def step(self, process: Process, workspace_id: str) -> AsyncIterator[Handle | None]:
        """A connection for the next step; others get theirs between. None when time is up. Raises
        NoTurn where not even the first has come."""
        left = min(WAIT_SECONDS, self._ends - monotonic()) if self.has_looked else WAIT_SECONDS
        async with AsyncExitStack() as held:
            db = None
            if not self.has_looked or (self.seconds > 0 and left > 0):
                try:
                    looking = process.evaluating(workspace_id, left)
                    db = await held.enter_async_context(looking)
                except NoTurn:
                    if not self.has_looked:
                        raise
            began = monotonic()
            yield db
            self.seconds -= monotonic() - began


async def work_in_chunks(
    lease: Lease, job: Job, chunk: Callable[[ChunkSize], Awaitable[bool]]
) -> bool:
    """Work on a claimed job for a spell, a `chunk` at a time: each says whether there is more to be
    done now, and is asked again while the answer of its COMMIT is lost, unless it is cut off. True
    when more is left: the caller then gives the claim back, so that others have the slot, for a
    large audience takes minutes."""
    began, size = monotonic(), ChunkSize()
    ends, goes_on, is_cut_off = began + SPELL_SECONDS, True, False
    while goes_on and lease.is_held and (is_cut_off or monotonic() < ends):
        done = await lease.until_known(partial(_unless_cut_off, chunk, size))
        if isinstance(done, CutOff):
            extra = {**job.logged, "contacts": done.contacts, "error": done.reason}
            log.warning("a chunk of contacts was cut off", extra=extra)
            # It goes on in this claim, with one contact: the next begins with those again who took
            # too long together.
            ends, is_cut_off = began + SLOW_SPELL_SECONDS, True
        else:
            goes_on, is_cut_off = done, False
            size.chunks_done += 1
    return goes_on


async def _unless_cut_off(
    chunk: Callable[[ChunkSize], Awaitable[bool]], size: ChunkSize
) -> bool | CutOff:
    """The answer of a chunk, or how it was cut off, which is known just as well."""
    try:
        return await chunk(size)
    except CutOff as error:
        return error
