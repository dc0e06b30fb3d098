"""A budget for one piece of work: what all the templates that it parses and renders draw on.

Without a budget each render has its own limits (`liquid/limits.py`). With one, they share it. A
budget that `yields` belongs to work in an event loop: beyond it, `Exceeded` ends the work, which is
begun anew where it may take longer (app/runtime/compute.py). Any other is a limit, whose error is
that of the template.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic, thread_time
from typing import Literal, TypeVar

TOKENS = 1_500  # parsed in an event loop: some six milliseconds
ITEMS = 1_000  # of a list that one filter is given there
CHARACTERS = 32 * 1024  # of a text, likewise

Result = TypeVar("Result")


class Exceeded(BaseException):
    """The work needs more than its budget. No handler of strangers' errors may catch this."""


class Budget:
    """`seconds` are CPU time of the thread, so that a stalled host does not count, and without what
    the garbage collector takes, which comes when anybody has made enough objects."""

    __slots__ = ("collecting_since", "deadline", "exhausted", "seconds", "tokens", "yields")

    def __init__(self, seconds: float, *, yields: bool = False) -> None:
        self.seconds = seconds
        self.yields = yields
        self.tokens = TOKENS  # left, when it yields
        self.deadline = monotonic() + seconds
        self.exhausted = thread_time() + seconds
        self.collecting_since = 0.0

    def draw_token(self) -> None:
        """Raises Exceeded."""
        if self.yields:
            self.tokens -= 1
            if self.tokens < 0:
                raise Exceeded

    def refuse_large(self, value: object) -> None:
        """Refuse large input of a filter: one call cannot be interrupted. Raises Exceeded."""
        most = CHARACTERS if isinstance(value, str) else ITEMS
        if self.yields and isinstance(value, str | list | dict) and len(value) > most:
            raise Exceeded


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


def _spare(phase: Literal["start", "stop"], _: Mapping[str, int]) -> None:
    """Give the time of a collection back to the budget in whose midst it came."""
    budget = _current.get()
    if budget is None:
        return
    if phase == "start":
        budget.collecting_since = thread_time()
    else:
        taken = thread_time() - budget.collecting_since
        budget.exhausted += taken
        budget.deadline += taken


gc.callbacks.append(_spare)


def current() -> Budget | None:
    return _current.get()


def yield_beyond(most: int, length: int) -> None:
    """Count work that takes as long as its input and cannot be interrupted. Raises Exceeded."""
    budget = _current.get()
    if budget is not None and budget.yields and length > most:
        raise Exceeded


def is_exhausted() -> bool:
    """Return whether the time of the budget, if there is one, is used up. Raises Exceeded."""
    budget = _current.get()
    if budget is None or monotonic() < budget.deadline or thread_time() < budget.exhausted:
        return False
    if budget.yields:
        raise Exceeded
    return True


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """All renders within take so long together, and then fail. A budget that holds already, and
    yields, stays."""
    outer = _current.get()
    token = _current.set(outer if outer is not None and outer.yields else Budget(seconds))
    try:
        yield
    finally:
        _current.reset(token)


def attempt(seconds: float, work: Callable[[], Result]) -> Result:
    """The result of work in an event loop. Raises Exceeded, and what the work raises."""
    token = _current.set(Budget(seconds, yields=True))
    try:
        return work()
    finally:
        _current.reset(token)
