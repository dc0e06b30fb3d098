"""Workspaces whose templates are slow to render, and a thread that keeps them off the event loop.

A worker moves the runs of many workspaces in one event loop, several of them in one transaction.
A render takes microseconds as a rule and half a second at most, but there may be many. A workspace
that has used SLOW_SECONDS in one piece of work is marked as slow for MARKED_SECONDS: until then
its work goes through a queue of its own, one item at a time, in a thread beside the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic, thread_time
from typing import ParamSpec, TypeVar

SLOW_SECONDS = 0.1  # thread CPU time, so that a stalled host does not count
MARKED_SECONDS = 60.0
MAX_MARKED = 1_000  # marks that have expired are deleted when there are so many

Result = TypeVar("Result")
Given = ParamSpec("Given")

# One thread: each more would take its share of the interpreter from the loop.
_executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="slow-workspaces")
_marked_until: dict[str, float] = {}  # by workspace id, on the monotonic clock


def is_slow(workspace_id: str) -> bool:
    return _marked_until.get(workspace_id, 0.0) > monotonic()


def mark_slow(workspace_id: str) -> None:
    now = monotonic()
    if len(_marked_until) >= MAX_MARKED:
        for expired in [id for id, until in list(_marked_until.items()) if until < now]:
            _marked_until.pop(expired, None)
    _marked_until[workspace_id] = now + MARKED_SECONDS


@dataclass(slots=True)
class Meter:
    """The CPU time of one piece of work, summed over its parts; marks the workspace when it is too
    much."""

    workspace_id: str
    spent: float = 0.0  # seconds

    def run(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        began = thread_time()
        try:
            return work(*given, **named)
        finally:
            self.spent += thread_time() - began
            if self.spent > SLOW_SECONDS:
                mark_slow(self.workspace_id)

    async def run_in_thread(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """Like `run`, but without blocking the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_executor, partial(self.run, work, *given, **named))
