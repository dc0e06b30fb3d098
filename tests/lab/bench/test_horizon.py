"""The benchmark of claims beside an open transaction: what it counts, and when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import asyncpg
import pytest

from app.store.jobs import Kind
from lab.bench import horizon
from lab.bench.horizon import AT_ONCE, BACKLOG, KINDS, Churn, measure
from tests import servers
from tests.conftest import SCHEMA

SECONDS = 3.0


@pytest.mark.parametrize(("rate", "is_valid"), [(AT_ONCE / SECONDS, True), (1_000_000, False)])
@pytest.mark.parametrize("wanted", [1_000, 0])
async def test_each_run_has_three_jobs_and_too_few_of_them_are_no_figure(
    postgres_server: servers.PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rate: float,
    is_valid: bool,
    wanted: float,
) -> None:
    monkeypatch.setattr(horizon, "BEFORE_SECONDS", 1.0)
    monkeypatch.setattr(horizon, "WANTED", wanted)  # how fast is for the laboratory
    ledger = tmp_path / "figures.jsonl"
    monkeypatch.setenv("BENCH_LEDGER", str(ledger))
    added: list[Kind] = []
    add = Churn.add

    async def counted(self: Churn, kind: Kind, count: int) -> None:
        added.append(kind)
        await add(self, kind, count)

    monkeypatch.setattr(Churn, "add", counted)
    url = await servers.new_database(postgres_server.url, SCHEMA.read_text())
    assert await measure(url, [url], SECONDS, rate) is (wanted > 1 and is_valid)
    assert added.count("run") - 1 == 2 * (added.count("message") - 1) > 0
    connection = await asyncpg.connect(url)
    left = await connection.fetch("SELECT kind, count(*) FROM jobs GROUP BY kind")
    await connection.close()
    assert dict(map(tuple, left)) == dict.fromkeys(KINDS, BACKLOG)
    [line] = map(json.loads, ledger.read_text().splitlines())
    assert line["figure"] == "claims"
    assert (line["rounds"] == [None]) is (wanted > 1 and not is_valid)
