"""Judgements of the benchmark of pruning."""

from __future__ import annotations

import asyncpg
import pytest

from lab.bench import pruning
from lab.bench.intake import LEAST_IDLE

BEFORE, AFTER = (10_000, 10_000), (0, 0)


@pytest.mark.parametrize(
    ("accepted", "p99", "slowest", "idle", "words"),
    [
        (400.0, 300.0, 1.0, 0.2, ""),
        (400.0, 300.0, 1.0, 0.19, "the generator of the events was busy"),
        (600.0, 300.0, 1.0, 0.2, "only 1.67 times"),
        (400.0, 301.0, 1.0, 0.2, "p99 of the events was 301 ms"),
        (400.0, 300.0, 1.1, 0.2, "a single run took 1.10 s"),
    ],
)
def test_it_is_to_be_fast_and_to_hold_nobody_up(
    accepted: float, p99: float, slowest: float, idle: float, words: str
) -> None:
    faults = pruning.report(
        {"a_second": accepted, "idle": LEAST_IDLE},
        {"p99_ms": p99, "idle": idle},
        BEFORE,
        AFTER,
        10.0,
        [0.1, 0.1, slowest],
    )
    assert [words in fault for fault in faults] == [True] * bool(words)


def test_dead_rows_are_a_twentieth_of_the_live_or_as_many_as_autovacuum_waits_for() -> None:
    rows = {
        "jobs": (0, 5_000),
        "messages": (100_000, 7_000),
        "delivery_attempts": (100_000, 7_001),
        "runs": (1_000_000, 50_000),
        "run_steps": (1_000_000, 50_001),
    }
    assert pruning.bloated(rows) == [
        "delivery_attempts: 7,001 dead rows, of 100,000 live",
        "run_steps: 50,001 dead rows, of 1,000,000 live",
    ]


@pytest.mark.parametrize(("vacuumed_at", "looks"), [(3, 3), (99, pruning.LOOKS)])
async def test_it_looks_until_autovacuum_has_come_by_or_some_minutes_long(
    monkeypatch: pytest.MonkeyPatch, vacuumed_at: int, looks: int
) -> None:
    seen = 0

    class Connection:
        async def fetch(self, _sql: str) -> list[dict[str, object]]:
            nonlocal seen
            seen += 1
            dead = 0 if seen >= vacuumed_at else 9_000
            return [{"relname": "runs", "live": 1, "dead": dead, "vacuumed": 0, "size": "8 kB"}]

        async def close(self) -> None: ...

    async def connect(_url: str) -> Connection:
        return Connection()

    monkeypatch.setattr(pruning, "NAPTIME_SECONDS", 0)
    monkeypatch.setattr(asyncpg, "connect", connect)
    assert bool(await pruning.left_behind("")) is (vacuumed_at > pruning.LOOKS)
    assert seen == looks
