"""The probes themselves: whatever one raises, the others are asked."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from lab.chaos import probes
from lab.chaos.probes import Probed
from lab.chaos.stage import Stage


async def test_a_probe_that_times_out_is_a_finding_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(_stage: Stage, _probed: Probed) -> int:
        raise TimeoutError

    async def fine(_stage: Stage, _probed: Probed) -> int:
        return 1

    monkeypatch.setattr(probes, "ALWAYS", (silent, fine))
    probed, enough = Probed(), asyncio.Event()
    asking = asyncio.create_task(probes.until_enough(cast("Stage", None), probed, 0, enough))
    async with asyncio.timeout(5):
        while probed.made["fine"] < 2:
            await asyncio.sleep(0)
        enough.set()
        await asking
    assert probed.findings[0] == "silent: TimeoutError: "
