"""Place of a test when its time runs out, and a run that ends though that has ended its process."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import cached_property, partial

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

BEFORE_THE_END = 5.0  # seconds before the process is ended

_stderr: list[int] = []  # the descriptor as it was before pytest captured it


def keep_stderr() -> None:
    _stderr.append(os.dup(2))


def _awaits(awaitable: object) -> Iterator[str]:
    """The frames of one that waits, from the outermost to what it waits for."""
    while isinstance(awaitable, Coroutine | AsyncGenerator):
        kind = "ag" if isinstance(awaitable, AsyncGenerator) else "cr"
        yield from traceback.format_stack(getattr(awaitable, f"{kind}_frame"), limit=1)
        awaitable = getattr(awaitable, f"{kind}_await")
        if type(awaitable).__name__ == "async_generator_asend":  # which does not say whose it is
            generators = (o for o in gc.get_referents(awaitable) if isinstance(o, AsyncGenerator))
            awaitable = next(generators, awaitable)
    yield f"  for {awaitable!r}\n"


def tell(nodeid: str, main_thread: int) -> None:
    """Prints where the thread that runs the tests and every task are: pytest-timeout prints the
    threads' stacks alone, and in one of xdist's processes to nowhere."""
    lines = [f"\n{nodeid} has not ended; where it is:\n"]
    lines += traceback.format_stack(sys._current_frames()[main_thread])[-8:]
    for task in gc.get_objects():
        if isinstance(task, asyncio.Task) and not task.done():
            lines += [f"{task!r}\n", *_awaits(task.get_coro())]
    os.write(_stderr[-1], "".join(lines).encode())


class Watch:
    """Watch that calls something when a test has taken so long. One thread looks now and then, for
    all of them, where pytest-timeout begins one for each test and waits for its end."""

    LOOKS_EVERY = 0.5  # seconds

    def __init__(self) -> None:
        self._due: tuple[tuple[float, Callable[[], object]], ...] = ()
        self._thread: threading.Thread | None = None

    def begin(self, nodeid: str, seconds: float, end: Callable[[], object]) -> None:
        """Tell where the test is a while before `end` is called."""
        now, where = time.monotonic(), partial(tell, nodeid, threading.get_ident())
        self._due = ((now + seconds - BEFORE_THE_END, where), (now + seconds, end))
        if self._thread is None:
            self._thread = threading.Thread(target=self._look_for_ever, daemon=True)
            self._thread.start()

    def leave(self) -> None:
        self._due = ()

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(self.LOOKS_EVERY)
            due = self._due
            if due and due[0][0] <= time.monotonic():
                self._due = due[1:]
                due[0][1]()


class Scheduler(LoadFileScheduling):
    """One whose run ends after a test process has died. xdist 3.8 would run the test that ended it
    again, hand out its files, those that were done among them, one at a time, each when a test of
    the one before ends, and so wait for ever behind a file without any."""

    def remove_node(self, node: WorkerController) -> str | None:
        units = self.assigned_work[node]
        left = ((unit, test) for unit in units.values() for test in unit if not unit[test])
        found = next(left, None)
        if found is not None:
            unit, culprit = found
            unit[culprit] = True  # it has failed
        for name in [name for name, unit in units.items() if all(unit.values())]:
            del units[name]
        super().remove_node(node)
        return None if found is None else found[1]

    def schedule(self) -> None:
        has_begun = self.collection is not None
        super().schedule()
        if has_begun:  # then a process has come in place of a dead one
            for node in filter(self._has_collected, self.nodes):
                while self.workqueue and not node.shutting_down:
                    self._assign_work_unit(node)
            for node in self.nodes:
                node.shutdown()

    def _has_collected(self, node: WorkerController) -> bool:
        """Return whether the node has collected: not yet, when it has come in place of a dead
        one."""
        return node in self.registered_collections

    def _reschedule(self, node: WorkerController) -> None:
        if self._has_collected(node):
            super()._reschedule(node)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {test: place for place, test in enumerate(self.collection or ())}

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign work by a table: xdist looks through thirteen thousand names for each of them."""
        name, unit = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[name] = unit
        node.send_runtest_some([self._places[test] for test in unit if not unit[test]])
