"""Work that strangers make long: on the event loop for a few milliseconds, else in a process.

Rendering, parsing, checking, simulating and drawing are pure: data in, data out. `here` tries such
work on the loop, under a budget of 5 ms. What exceeds it has changed nothing and is begun anew in
the compute process (`compute_child.py`), which is started when it is first needed, does one
computation at a time, and is killed when that does not end. Computations wait in one queue for each
workspace, and the workspaces take turns.

A transaction waits for no computation: inside one, `here` raises Heavy, the transaction is rolled
back, the computation is done by `within`, and the transaction, begun anew, finds its result, which
is held until it has ended.

A computation that did not fit or could not be begun is Busy, to be tried again. It is Unfinished,
for good, only when it has used up its time or memory itself, or has ended two processes.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import pickle
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from time import monotonic
from typing import Any, Generic, TypeVar, cast

from pydantic import BaseModel

from app.errors import CODES, Problem, Unavailable
from app.machine import document, effort
from app.machine.program import Json
from app.runtime import compute_child, tasks
from app.runtime.compute_child import TooLong
from app.runtime.compute_process import ComputeProcess
from app.runtime.metrics import Metrics
from app.runtime.outages import Outage

log = logging.getLogger(__name__)

HEAVY_SECONDS = 5.0  # that a workspace is remembered for whose work was too much
HERE_SECONDS = 0.005  # of CPU time on the loop
WASTE_SECONDS = 0.05  # spent on the loop in vain for one workspace …
WASTE_REFILL = 0.01  # … which has so much of it again each second
SECONDS = 0.5  # of CPU time for a computation that does not say
PATIENCE = 10.0  # how long a computation waits for its turn
WAITING_SECONDS = 6.0  # that the waiting computations of one workspace may take
ALL_WAITING_SECONDS = 60.0
# Of all that may wait and be held: the rest is for those who have nothing there yet, so that a few
# workspaces cannot shut out all others.
SHARED = 0.75
WAITING_BYTES = 8 * 1024 * 1024  # of the computations of one workspace, and so of one
ALL_WAITING_BYTES = 32 * 1024 * 1024
IDLE_SECONDS = 30.0  # then the process ends
LATER_SECONDS = 10  # until a worker tries again what found its share of the queue used up
HELD_BYTES = 8 * 1024 * 1024  # of one workspace's results, for transactions that are begun anew
ALL_HELD_BYTES = 32 * 1024 * 1024
MOST_COMPUTATIONS = 16  # for one transaction
MOST_MARKED = 1_000  # workspaces: then marks that have expired are deleted

Result = TypeVar("Result")


class Busy(Unavailable):
    """More work waits than may; none of this was begun."""


class Unfinished(Problem):
    """The work took too long, or too much memory, and was ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            "invalid",
            f"This takes more than {seconds:g} seconds to compute, or too much memory.",
        )


@dataclass(slots=True, eq=False)
class Computation(Generic[Result]):
    """Work on a workspace's content, and what it is given. `same` makes what is compared with what
    is held, in JSON: by default the arguments. Computations that are `urgent` take turns with all
    others, and have a queue of their own."""

    workspace_id: str
    work: Callable[..., Result]
    given: tuple[Any, ...]
    seconds: float = SECONDS
    same: Callable[[], Json] | None = None
    urgent: bool = False

    @property
    def key(self) -> bytes:
        name = f"{self.work.__module__}.{self.work.__qualname__}"
        compared = self.given if self.same is None else self.same()
        written = document.dumps([self.workspace_id, name, compared])
        return hashlib.sha256(written).digest()


class Heavy(Exception):
    """The computation is more than the event loop should do; nothing was done yet. `large`: that
    was known before it was tried."""

    def __init__(self, computation: Computation[Any], *, large: bool = False) -> None:
        super().__init__(computation.work.__qualname__)
        self.computation = computation
        self.large = large


@dataclass(slots=True, eq=False)
class _Held:
    """The result of a computation, or what it raised, and how many calls of `within` need it."""

    workspace_id: str
    found: Exception | tuple[Any]
    weight: int
    users: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A computation in the queue."""

    whose: tuple[str, bool]  # the workspace, and whether it is urgent
    request: bytes
    seconds: float
    answer: asyncio.Future[bytes]


class Compute:
    """The compute process of one process of ours, and the queue before it. Not thread-safe."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._queues: OrderedDict[tuple[str, bool], deque[_Waiting]] = OrderedDict()
        self._was_urgent = False  # the last computation that was begun
        self._seconds = 0.0  # of all that wait
        self._bytes = 0
        self._wasted: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds, and when
        self._held: dict[bytes, _Held] = {}
        self._heavy_until: dict[str, float] = {}  # by workspace
        self._serving: asyncio.Task[None] | None = None
        self._child: ComputeProcess | None = None
        self._outage = Outage(
            "compute process does not start: its computations are tried again later",
            "compute process starts again",
        )
        self._metrics = metrics or Metrics()
        self._closed = False

    # --- on the loop ------------------------------------------------------------------------------

    def here(self, computation: Computation[Result], *, large: bool = False) -> Result:
        """The result of work on the loop, or of a computation that `within` has done. `large`: it
        is known to be too much. Raises Heavy, and what the work raises."""
        if any(held.workspace_id == computation.workspace_id for held in self._held.values()):
            held = self._held.get(computation.key)
            if held is not None:
                if isinstance(held.found, Exception):
                    raise held.found.with_traceback(None)
                return cast("Result", held.found[0])
        return self.attempt(computation, large=large)

    def attempt(self, computation: Computation[Result], *, large: bool = False) -> Result:
        """Try work like `here`, where its result need not be held."""
        seconds, at = self._wasted.get(computation.workspace_id, (0.0, 0.0))
        is_wasteful = seconds - WASTE_REFILL * (monotonic() - at) > WASTE_SECONDS
        if large or is_wasteful:
            raise Heavy(computation, large=large)
        began = monotonic()
        try:
            return effort.attempt(HERE_SECONDS, lambda: computation.work(*computation.given))
        except effort.Exceeded:
            now = monotonic()
            more = min(max(HERE_SECONDS, now - began), 4 * HERE_SECONDS)
            wasted = max(0.0, seconds - WASTE_REFILL * (now - at)) + more
            self._wasted[computation.workspace_id] = (wasted, now)
            self._wasted.move_to_end(computation.workspace_id)
            if len(self._wasted) > MOST_MARKED:
                self._wasted.popitem(last=False)
            raise Heavy(computation) from None

    def is_heavy(self, workspace_id: str) -> bool:
        """Return whether work of this workspace was too much lately where it was tried alone. An
        overrun among others may be the machine's, and then each of its runs and messages would have
        a transaction of its own for seconds."""
        return self._heavy_until.get(workspace_id, 0.0) > monotonic()

    def refuse_full(self, workspace_id: str) -> None:
        """Refuse work for a heavy workspace that would find its share of the queue used up. Raises
        Busy."""
        queue = self._queues.get((workspace_id, False), ())
        if sum(one.seconds for one in queue) + SECONDS > WAITING_SECONDS:
            self.mark(workspace_id)  # by what waits, it is not by chance
            raise _share_used_up(retry_after_seconds=LATER_SECONDS)

    def mark(self, workspace_id: str) -> None:
        """Mark the workspace as one whose work is too much for the loop."""
        now = monotonic()
        if len(self._heavy_until) >= MOST_MARKED:
            self._heavy_until = {id: at for id, at in self._heavy_until.items() if at > now}
        self._heavy_until[workspace_id] = now + HEAVY_SECONDS

    # --- beside it --------------------------------------------------------------------------------

    async def call(self, computation: Computation[Result], *, large: bool = False) -> Result:
        """The result, of work on the loop or in the process. Not within a transaction. Raises Busy,
        Unfinished, and what the work raises."""
        try:
            return self.attempt(computation, large=large)
        except Heavy:
            return await self.apart(computation)

    async def apart(
        self, computation: Computation[Result], *, patience: float = PATIENCE
    ) -> Result:
        """The result of the computation in the process. Raises as `call` does."""
        result, _ = await self._asked(computation, patience)
        return result

    async def within(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """The result of work that opens transactions: computations that are too heavy in there are
        done, their results are held for it, and it is begun anew. Their workspace is marked for
        what was tried in vain; what is known to be large may be done once, as reading a definition
        is. Raises as `call` does."""
        mine: list[bytes] = []
        try:
            for _ in range(MOST_COMPUTATIONS):
                try:
                    return await work()
                except Heavy as heavy:
                    if not heavy.large:
                        self.mark(heavy.computation.workspace_id)
                    await self._hold(heavy.computation, mine)
        finally:
            for key in mine:
                held = self._held[key]
                held.users -= 1
                if not held.users:
                    del self._held[key]
        raise Unavailable(
            f"This took more than {MOST_COMPUTATIONS} computations, or what it is about kept"
            " changing; retry the request."
        )

    async def _hold(self, computation: Computation[Any], mine: list[bytes]) -> None:
        """Raises Busy."""
        key = computation.key
        if key not in self._held:
            self._refuse_held(computation.workspace_id, mine, 0)
            found: Exception | tuple[Any]
            try:
                result, weight = await self._asked(computation, PATIENCE)
                found = (result,)
            except Busy:
                raise
            except Exception as error:  # noqa: BLE001 - raised where the result is looked for
                found, weight = error, 1
            if key not in self._held:
                self._refuse_held(computation.workspace_id, mine, weight)
                self._held[key] = _Held(computation.workspace_id, found, weight)
        self._held[key].users += 1
        mine.append(key)

    def _refuse_held(self, workspace_id: str, mine: Sequence[bytes], weight: int) -> None:
        """Refuse work while too much is held, for a result stays until its user is done. Whoever
        comes when others hold much comes again. Raises Busy."""
        others = [held for key, held in self._held.items() if key not in mine]
        theirs = sum(held.weight for held in others if held.workspace_id == workspace_id)
        if theirs and theirs + weight > HELD_BYTES:
            raise _share_used_up(f"Results of more than {HELD_BYTES >> 20} MiB")
        total = sum(held.weight for held in others)
        if total and total + weight > ALL_HELD_BYTES * (SHARED if theirs else 1):
            raise _busy()

    async def _asked(self, computation: Computation[Result], patience: float) -> tuple[Result, int]:
        began = monotonic()
        outcome = "ended"
        try:
            answer = await self._queued(computation, patience)
            kind, *values = pickle.loads(answer)  # noqa: S301 - of our own child, which runs our code
            if kind == "returned":
                outcome = "done"
                return values[0], len(answer)
            outcome = "failed"
            raise _failure(computation.seconds, *values)
        except Busy:
            outcome = "refused"
            raise
        finally:
            self._metrics.count("tidings_compute_jobs", outcome=outcome)
            self._metrics.observe("tidings_compute_seconds", monotonic() - began)

    async def _queued(self, computation: Computation[Any], patience: float) -> bytes:
        whose = (computation.workspace_id, computation.urgent)
        self._refuse_more(
            whose, computation.seconds, 0
        )  # before it costs anything to write it down
        request = _request(computation)
        self._refuse_more(whose, computation.seconds, len(request))
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(whose, request, computation.seconds, answer)
        self._queues.setdefault(whose, deque()).append(waiting)
        self._seconds += waiting.seconds
        self._bytes += len(request)
        if self._serving is None:
            self._serving = tasks.spawn_detached(self._serve())
        try:
            done, _ = await asyncio.wait({answer}, timeout=patience)
            if not done and self._take(waiting):
                raise _busy()
            return await answer  # its turn has come, and that has its own deadline
        finally:
            self._take(waiting)  # of one whose caller has left, or has run out of patience

    def _refuse_more(self, whose: tuple[str, bool], seconds: float, length: int) -> None:
        """Raises Busy."""
        if self._closed:
            raise Busy("The process ends.")
        queue = self._queues.get(whose, ())
        if queue and (
            sum(one.seconds for one in queue) + seconds > WAITING_SECONDS
            or sum(len(one.request) for one in queue) + length > WAITING_BYTES
        ):
            raise _share_used_up()
        share = SHARED if queue else 1
        if self._seconds + seconds > ALL_WAITING_SECONDS * share or (
            self._bytes + length > ALL_WAITING_BYTES * share
        ):
            raise _busy()

    def _take(self, waiting: _Waiting) -> bool:
        """Take an entry out of the queue; returns whether it was in there."""
        queue = self._queues.get(waiting.whose)
        if queue is None or waiting not in queue:
            return False
        queue.remove(waiting)
        if not queue:
            del self._queues[waiting.whose]
        self._seconds -= waiting.seconds
        self._bytes -= len(waiting.request)
        return True

    async def _serve(self) -> None:
        """Serve the queue until the process has had nothing to do for a while."""
        try:
            while self._queues:
                # The oldest of the workspace whose turn it is, which then goes behind the others;
                # urgent ones and others alternate.
                due = not self._was_urgent
                first = next(iter(self._queues))
                whose = next((one for one in self._queues if one[1] is due), first)
                self._queues.move_to_end(whose)
                waiting = self._queues[whose][0]
                self._was_urgent = whose[1]
                self._take(waiting)
                try:
                    answer = await self._ask_child(waiting)
                except Problem as problem:
                    await self._end_child()
                    _settle(waiting, problem)
                except BaseException:
                    await self._end_child()
                    _settle(waiting, Busy("The process ends."))
                    raise
                else:
                    _settle(waiting, answer)
        finally:
            self._serving = None
            if self._child is not None and not self._closed:
                self._child.end_after(IDLE_SECONDS)

    async def _ask_child(self, waiting: _Waiting) -> bytes:
        """A child that is gone may have been ended by others, such as a system out of memory: then
        another one is asked, once. Raises Busy and Unfinished."""
        for is_last in (False, True):
            child = await self._fit_child()
            began = child.used()
            try:
                return await child.ask(waiting.request, waiting.seconds)
            except TimeoutError:
                used = child.used() - began
                log.warning("compute process killed: it gave no answer", extra={"used": used})
                if used >= waiting.seconds:
                    raise Unfinished(waiting.seconds) from None
                raise _busy() from None  # the host stalls: the computation has hardly run
            except (OSError, EOFError, ValueError) as error:
                log.warning("compute process ended", extra={"cause": repr(error)})
                await self._end_child()
                if is_last:
                    raise Unfinished(waiting.seconds) from None
        raise AssertionError("the last one answers or raises")

    async def _fit_child(self) -> ComputeProcess:
        """Raises Busy."""
        if self._child is None or not self._child.is_fit:
            await self._end_child()
            self._metrics.count("tidings_compute_processes_started")
            try:
                self._child = await ComputeProcess.start()
            except Exception as error:  # noqa: BLE001 - whatever the system lacks
                self._outage.failed(error)
                raise Busy("The compute process cannot start; retry in some seconds.") from None
            self._outage.worked()
        return self._child

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end()

    async def close(self) -> None:
        self._closed = True
        if self._serving is not None:
            await tasks.end(self._serving)
        for queue in list(self._queues.values()):
            for waiting in list(queue):
                _settle(waiting, Busy("The process ends."))
        await self._end_child()


class _Bounded(BytesIO):
    """A request as it is written. Raises MemoryError for one too large."""

    def write(self, some: Any, /) -> int:
        if self.tell() + len(some) > WAITING_BYTES:
            raise MemoryError
        return super().write(some)


def _request(computation: Computation[Any]) -> bytes:
    """Raises Unfinished."""
    given = tuple(map(_shortened, computation.given))
    into = _Bounded()
    try:
        compute_child.Pickler(into, pickle.HIGHEST_PROTOCOL).dump(
            (computation.work, given, computation.seconds)
        )
    except MemoryError:
        raise Unfinished(computation.seconds) from None
    return into.getvalue()


def _shortened(value: Any) -> Any:
    """Facts, or a model, with its trigger as JSON, which is written several times as fast."""
    is_model = isinstance(value, BaseModel)
    members = vars(value) if is_model else value
    trigger = members.get("trigger") if type(members) is dict else None
    if not trigger or not isinstance(trigger, dict | list):
        return value
    written = {"trigger": compute_child.Written(document.dumps(trigger))}
    return value.model_copy(update=written) if is_model else {**value, **written}


def _busy() -> Busy:
    return Busy("Too much is being computed at the moment; retry in some seconds.")


def _share_used_up(what: str = "", retry_after_seconds: int = 2) -> Busy:
    """429: nobody else is refused for it."""
    what = what or f"Work for {WAITING_SECONDS:g} seconds"
    busy = Busy(
        f"{what} of this workspace waits to be computed already; retry in some seconds.",
        retry_after_seconds=retry_after_seconds,
    )
    busy.code = "rate_limited"
    busy.status, busy.title = CODES["rate_limited"]
    return busy


def _settle(waiting: _Waiting, answer: bytes | Exception) -> None:
    if waiting.answer.done():  # the caller has left
        return
    if isinstance(answer, Exception):
        waiting.answer.set_exception(answer)
    else:
        waiting.answer.set_result(answer)


def _failure(
    seconds: float, kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> Exception:
    """The exception as the child saw it."""
    if issubclass(kind, TooLong | MemoryError):
        return Unfinished(seconds)
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
