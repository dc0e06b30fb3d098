"""Workspaces whose templates take long: what they do next is done apart, and nobody waits for it.

A worker moves the runs of many workspaces in one event loop, some of them in one transaction. What
they render takes microseconds as a rule and half a second at the most, but many times over. Who has
used up LONG_SECONDS at a time is known for a while: until then the work goes through a line of its
own, one after the other, in a thread beside the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic, thread_time
from typing import ParamSpec, TypeVar

LONG_SECONDS = 0.1  # of this thread's own time: that the machine stood still is nobody's fault
KNOWN_SECONDS = 60.0
MOST = 1_000  # are remembered, before those are forgotten whose time is over

Result = TypeVar("Result")
Given = ParamSpec("Given")

# One thread: each more would take its share of the interpreter from the loop.
_aside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="heavy")
_until: dict[str, float] = {}


def known(workspace_id: str) -> bool:
    return _until.get(workspace_id, 0.0) > monotonic()


def note(workspace_id: str) -> None:
    now = monotonic()
    if len(_until) >= MOST:
        for over in [id for id, until in list(_until.items()) if until < now]:
            _until.pop(over, None)
    _until[workspace_id] = now + KNOWN_SECONDS


@dataclass(slots=True)
class Meter:
    """What one piece of work takes, in all its parts."""

    workspace_id: str
    spent: float = 0.0

    def run(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        began = thread_time()
        try:
            return work(*given, **named)
        finally:
            self.spent += thread_time() - began
            if self.spent > LONG_SECONDS:
                note(self.workspace_id)

    async def aside(
        self, work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """The same, while the loop goes on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(_aside, partial(self.run, work, *given, **named))
