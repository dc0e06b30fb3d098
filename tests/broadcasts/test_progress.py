"""The progress of a broadcast: counted whenever it is asked for, of a large one now and then."""

from __future__ import annotations

from typing import Any

import pytest

from app.broadcasts import progress
from app.messages import delivery
from app.process import Process
from tests.broadcasts.test_control import begun, people, stepped
from tests.broadcasts.test_sending import worked
from tests.cast import Cast

FEW = 3


async def sent(process: Process) -> None:
    """The messages that were made; no more are made meanwhile."""
    for job in await process.claim("message", [], 50):
        await delivery.deliver(process, job)


async def progress_of(cast: Cast, path: str) -> dict[str, int]:
    counts: dict[str, int] = (await cast.vic.read(path))["progress"]
    return {status: count for status, count in counts.items() if count}


async def test_the_progress_of_a_small_broadcast_is_as_of_now(cast: Cast, process: Process) -> None:
    await people(cast, FEW)
    path = await begun(cast, process)
    await stepped(process, 2)
    assert await progress_of(cast, path) == {"total": FEW, "queued": FEW}
    await sent(process)
    assert await progress_of(cast, path) == {"total": FEW, "sent": FEW}


async def test_the_progress_of_a_large_broadcast_is_kept_until_its_state_changes(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LARGE", FEW)
    await people(cast, FEW)
    path = await begun(cast, process)
    assert await progress_of(cast, path) == {}
    await stepped(process, 2)
    queued = {"total": FEW, "queued": FEW}
    assert await progress_of(cast, path) == queued  # with each chunk of its audience
    await sent(process)
    assert await progress_of(cast, path) == queued
    await cast.adam.made(f"{path}/pause", None)
    assert await progress_of(cast, path) == {"total": FEW, "sent": FEW}
    await cast.adam.made(f"{path}/resume", None)
    await worked(process)
    end = await cast.vic.read(path)
    assert (end["state"], end["progress"]["sent"]) == ("SENT", FEW)
    assert end["progress"]["total"] == end["audience"]["frozen"]["total"] == FEW


async def test_a_pause_counts_nobody(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million recipients take a second, in which it would hold the broadcast."""
    await people(cast, FEW)
    path = await begun(cast, process)

    async def counted(*_: Any) -> dict[str, int]:
        raise AssertionError("recipients were counted")

    monkeypatch.setattr(progress, "of", counted)
    for act, state in (("pause", "PAUSED"), ("resume", "SENDING"), ("cancel", "CANCELLED")):
        assert (await cast.adam.made(f"{path}/{act}", None))["state"] == state
