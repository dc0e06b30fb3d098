"""Batches: work that costs hardly more for many items than for one.

No timer collects them. An item that finds no batch running is processed at once, with whatever else
came in the same turn of the event loop. Items that wait while a batch runs form the next; each
workspace contributes in turn, so that one's many hold up no other's single one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from app.errors import Unavailable
from app.runtime import tasks

log = logging.getLogger(__name__)

CLOSING_SECONDS = 2.0  # for the batches that run when the process ends
TURNS = 4  # of the loop, from a readable socket to an item: reader, parser, application, handler
MOST_QUEUES = 1_000  # before those in which nothing is done are dropped
RETRIED_AT_ONCE = 8  # items of a failed batch
RETRY_SECONDS = 1.5  # in which they begin; a locked table would have each wait for its own deadline

NOT_BEGUN = "The database does not answer. Nothing was changed; send it again."

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class BatchKind(Generic[Context, Item, Result]):
    """Kind of items, and how they are processed. `work` returns a result for each item, in order;
    an exception among the results is raised to whoever submitted that item.

    When `work` itself raises, each item is retried alone, so that one bad item fails no other. The
    exception is a database that does not respond: then the items in the queue fail as well, for
    their batch would wait as long. So do those that would be retried after RETRY_SECONDS, if one
    was not answered in time by then.
    """

    work: Callable[[Context, Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
    max_items: int = 64  # of a batch
    weigh: Callable[[Item], int] = lambda _: 0  # in bytes
    whose: Callable[[Item], str] = lambda _: ""  # the workspace
    max_weight: int = 4 * 1024 * 1024  # of a batch, unless one item alone exceeds it
    concurrency: int = 1  # batches that run at a time
    max_backlog: int = 1_000  # queued items, for run_later

    def one_by_one(self) -> BatchKind[Context, Item, Result]:
        """A kind of its own whose batches have one item each."""
        return replace(self, max_items=1)


class _Decorator(Protocol):
    def __call__(
        self, work: Callable[[Context, Sequence[Item]], Awaitable[Sequence[Result | Exception]]], /
    ) -> BatchKind[Context, Item, Result]: ...


def batched(
    *,
    whose: Callable[[Any], str] = lambda _: "",
    max_items: int = 64,
    weigh: Callable[[Any], int] = lambda _: 0,
    concurrency: int = 1,
) -> _Decorator:
    """Make a function that processes many items a kind of batch: `batches.run(it, context, item)`
    calls it with the items that were given meanwhile."""

    def decorate(
        work: Callable[[Context, Sequence[Item]], Awaitable[Sequence[Result | Exception]]], /
    ) -> BatchKind[Context, Item, Result]:
        return BatchKind(
            work, max_items=max_items, weigh=weigh, whose=whose, concurrency=concurrency
        )

    return decorate


async def coalesce() -> None:
    """Wait TURNS turns of the event loop: the requests of a burst arrive in that time, and a single
    one is delayed by some microseconds only."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Batches:
    """All batches of one process. Not thread-safe: to be used from one event loop."""

    def __init__(self, *, apart: bool = False) -> None:
        """`apart`: a batch has items of one workspace, as a sharded database wants it."""
        self._apart = apart
        self._queues: dict[tuple[object, ...], _Queue[Any, Any, Any]] = {}

    async def run(
        self, kind: BatchKind[Context, Item, Result], context: Context, item: Item
    ) -> Result:
        """The result of the item. Raises its exception. Cancelling the caller cancels no batch."""
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue_of(kind, context, item).put(item, result)
        return await result

    def run_later(
        self, kind: BatchKind[Context, Item, Result], context: Context, item: Item
    ) -> bool:
        """Queue the item, whose result is dropped. False when the queue is full."""
        queue = self._queue_of(kind, context, item)
        if queue.is_full:
            return False
        queue.put(item, None)
        return True

    async def close(self) -> None:
        """Wait until everything submitted is done, for CLOSING_SECONDS at most."""
        tasks = [task for queue in self._queues.values() for task in queue.tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSING_SECONDS)

    def _queue_of(
        self, kind: BatchKind[Context, Item, Result], context: Context, item: Item
    ) -> _Queue[Context, Item, Result]:
        # The queue keeps the context alive, and so its id unique.
        key = (kind, id(context), kind.whose(item) if self._apart else "")
        if key not in self._queues:
            if len(self._queues) >= MOST_QUEUES:
                self._queues = {key: one for key, one in self._queues.items() if one.tasks}
            self._queues[key] = _Queue(kind, context)
        return cast("_Queue[Context, Item, Result]", self._queues[key])


class _Queue(Generic[Context, Item, Result]):
    """The items of one kind that wait for a batch."""

    def __init__(self, kind: BatchKind[Context, Item, Result], context: Context) -> None:
        self._kind = kind
        self._context = context
        # By workspace, in the order of their turns.
        self._waiting: dict[str, deque[tuple[Item, asyncio.Future[Result] | None]]] = {}
        self._number = 0
        self._weight = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        kind = self._kind
        return self._number >= kind.max_backlog or self._weight >= 4 * kind.max_weight

    def put(self, item: Item, result: asyncio.Future[Result] | None) -> None:
        self._waiting.setdefault(self._kind.whose(item), deque()).append((item, result))
        self._number += 1
        self._weight += self._kind.weigh(item)
        if len(self.tasks) < self._kind.concurrency:
            task = tasks.spawn_detached(self._run())
            self.tasks.add(task)

    async def _run(self) -> None:
        try:
            while self._waiting:
                await coalesce()
                if not self._waiting:
                    return  # a concurrent batch has taken all items
                items, futures = zip(*self._next_batch(), strict=True)
                for future, result in zip(futures, await self._process(items), strict=True):
                    _resolve(future, result)
        finally:
            self.tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result] | None]]:
        """The oldest items of each workspace in turns, as many as one batch may have."""
        batch: list[tuple[Item, asyncio.Future[Result] | None]] = []
        weight = 0
        while self._waiting and len(batch) < self._kind.max_items:
            whose, waiting = next(iter(self._waiting.items()))
            more = self._kind.weigh(waiting[0][0])
            if batch and weight + more > self._kind.max_weight:
                break
            weight += more
            batch.append(waiting.popleft())
            del self._waiting[whose]
            if waiting:
                self._waiting[whose] = waiting  # behind all others
        self._number -= len(batch)
        self._weight -= weight
        return batch

    async def _process(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        try:
            return await self._kind.work(self._context, items)
        except Exception as error:  # noqa: BLE001  raised by `run`
            if isinstance(error, Unavailable) and error.unanswered:
                self._fail_waiting()
                return [error for _ in items]
            if len(items) == 1:
                return [error]
            log.info("a batch failed, each is tried alone: %r", error)
            return await self._retry_each(items)

    def _fail_waiting(self) -> None:
        waiting = [one for each in self._waiting.values() for one in each]
        self._waiting, self._number, self._weight = {}, 0, 0
        for item, future in waiting:
            if future is None:
                self.put(item, None)  # nobody waits for the result: it may stay
            else:
                _resolve(future, Unavailable(NOT_BEGUN))

    async def _retry_each(self, items: Sequence[Item]) -> Sequence[Result | Exception]:
        """Give up when every item of a round fails with Unavailable, for then it is no single
        item's fault, and when RETRY_SECONDS are over after one did."""
        ends = asyncio.get_running_loop().time() + RETRY_SECONDS
        results: list[Result | Exception] = []
        for first in range(0, len(items), RETRIED_AT_ONCE):
            some = items[first : first + RETRIED_AT_ONCE]
            outcomes = await asyncio.gather(*(self._process([item]) for item in some))
            results += [result for [result] in outcomes]
            failed = [isinstance(result, Unavailable) for result in results]
            is_over = asyncio.get_running_loop().time() >= ends
            if all(failed[first:]) or (is_over and any(failed)):
                break
        return [*results, *[Unavailable(NOT_BEGUN)] * (len(items) - len(results))]


def _resolve(future: asyncio.Future[Result] | None, result: Result | Exception) -> None:
    if future is None:
        if isinstance(result, Exception):
            log.warning("background item failed: %r", result)
    elif not future.done():  # done: the caller was cancelled
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
