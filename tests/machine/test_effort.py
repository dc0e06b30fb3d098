"""A budget of CPU time: what counts, and what does not."""

from __future__ import annotations

import gc
from time import thread_time

import pytest

from app.machine import effort


def collect() -> float:
    """A collection of all that there is; the CPU seconds that it took."""
    began = thread_time()
    gc.collect()
    return thread_time() - began


def burn(seconds: float) -> float:
    until = thread_time() + seconds
    while thread_time() < until:
        effort.is_exhausted()
    return seconds


def test_work_that_takes_longer_than_its_budget_is_ended() -> None:
    with pytest.raises(effort.Exceeded):
        effort.attempt(0.01, lambda: burn(0.1))


def test_a_garbage_collection_in_its_midst_is_not_counted() -> None:
    kept = [[n] for n in range(100_000)]  # noqa: F841  what the collector walks through
    seconds = collect() / 2
    assert effort.attempt(seconds, lambda: (collect(), effort.is_exhausted())[1]) is False
    with pytest.raises(effort.Exceeded):
        effort.attempt(seconds, lambda: (collect(), burn(2 * seconds)))
