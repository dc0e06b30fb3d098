"""The drill of dates and schedules, a short one; and an oracle that sees what it is there for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from lab.chaos import occasions
from lab.chaos.occasions import StartedRun
from tests import servers
from tests.conftest import SCHEMA

CONTACTS = 2_000
EVERY = 0.5  # seconds: workers die before even a fast machine has started them all


@pytest.mark.timeout(300)
async def test_three_workers_killed_in_turn_start_one_run_for_each_occasion(
    tmp_path: Path,
) -> None:
    if next(servers.postgres_binaries(), None) is None:
        pytest.skip("PG_URL names a server that others use")
    postgres, redis = servers.postgres_server(), servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = await servers.new_database(postgres.url, SCHEMA.read_text())
        urls = {"database_url": url, "redis_url": redis.url}
        found = await asyncio.to_thread(occasions.drill, tmp_path, urls, CONTACTS, EVERY, 7)
    finally:
        redis.remove()
        postgres.remove()
    assert found.faults == []
    assert found.runs == 2 * CONTACTS
    assert found.set_aside < CONTACTS / 2
    assert found.kills > 2
    assert found.under_way > 0


FLOWS = {"wfl_1": "date", "wfl_2": "schedule"}
NINE = "2026-11-25T09:00:00.000Z"
GOOD = [
    StartedRun(flow, contact, NINE, "COMPLETED") for flow in FLOWS for contact in ("con_1", "con_2")
]


@pytest.mark.parametrize(
    ("runs", "fault"),
    [
        ([*GOOD, GOOD[0]], "date started 2 runs for con_1"),
        (GOOD[:-1], "schedule started 0 runs for con_2"),
        (
            [*GOOD[:-1], replace(GOOD[-1], at="2026-11-25T10:00:00.000Z")],
            "2026-11-25T10:00:00.000Z was the occasion of 1",
        ),
        ([*GOOD[:-1], replace(GOOD[-1], status="QUEUED")], "schedule is QUEUED for con_2"),
        ([*GOOD[:-1], replace(GOOD[-1], status="FAILED")], "schedule is FAILED for con_2"),
    ],
)
def test_the_oracle_finds(runs: list[StartedRun], fault: str) -> None:
    assert occasions.judge(runs, {"con_1", "con_2"}, FLOWS) == [fault]


def test_what_is_true_has_no_faults_nor_has_what_killed_workers_had_in_hand_time_and_again() -> (
    None
):
    assert occasions.judge(GOOD, {"con_1", "con_2"}, FLOWS) == []
    aside = [*GOOD[:-1], replace(GOOD[-1], status="FAILED", reason="poisoned")]
    assert occasions.judge(aside, {"con_1", "con_2"}, FLOWS) == []
