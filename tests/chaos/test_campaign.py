"""The campaign, short: one of each kind of fault that costs little time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import Plan, campaign

QUICK = (
    "kill -9 a web process",
    "kill -9 a worker",
    "every backend terminated",
    "FLUSHALL",
    "a web COMMIT cut after",
    "a worker's COMMIT cut after",
    "the final dot cut before",
    "the final dot cut after",
)


@pytest.mark.timeout(240)
async def test_nothing_is_lost_or_doubled_whatever_breaks(tmp_path: Path):
    plan = Plan(
        events=200,
        rate=20,
        faults=len(QUICK),
        lease_seconds=1,
        seed=20261122,
        gap_seconds=0.3,
        kinds=QUICK,
        after_seconds=60,
    )
    found, figures = await campaign(plan, tmp_path)
    assert found == []
    assert figures["accepted"] > 100, figures
    assert len(figures["of each"]) == len(QUICK), figures
