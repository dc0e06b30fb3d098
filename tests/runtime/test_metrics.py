"""Metrics: what is counted in one process adds up over all, and reads as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from app.database.db import Database
from app.runtime import metrics
from app.runtime.metrics import Metrics
from app.store import counters


async def shown(database: Database) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Sample and labels → value."""
    async with database.read() as db:
        text = metrics.exposition(await counters.every(db), []).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read(text)
        for sample in family.samples
    }


async def test_two_processes_add_up(database: Database) -> None:
    one, other = Metrics(), Metrics()
    for process in (one, other, one):
        process.count("tidings_runs_ended", status="COMPLETED")
        await counters.add_up(database, process)
    samples = await shown(database)
    assert samples["tidings_runs_ended_total", frozenset({("status", "COMPLETED")})] == 3


async def test_a_histogram_has_every_bucket_and_no_less_in_a_larger_one(database: Database) -> None:
    process = Metrics()
    for seconds in (-0.001, 0.01, 0.02, 9_999):
        process.observe("tidings_acceptance_to_sent_seconds", seconds, channel="email")
    await counters.add_up(database, process)
    samples = await shown(database)
    name, email = "tidings_acceptance_to_sent_seconds", ("channel", "email")
    buckets = [
        samples[f"{name}_bucket", frozenset({email, ("le", bound)})]
        for bound in (*map(str, metrics.SECONDS), "+Inf")
    ]
    assert buckets[:3] == [2, 3, 3]
    assert buckets == sorted(buckets)
    assert buckets[-2:] == [3, 4]
    assert samples[f"{name}_count", frozenset({email})] == 4
    assert samples[f"{name}_sum", frozenset({email})] == pytest.approx(9_999.03)


async def test_figures_outlast_a_database_that_is_away(database: Database) -> None:
    process = Metrics()
    process.count("tidings_webhooks_accepted")
    await database.disconnect()
    await counters.add_up(database, process)  # which says why in the log, whatever it is
    await database.connect()
    await counters.add_up(database, process)
    assert (await shown(database))["tidings_webhooks_accepted_total", frozenset()] == 1


def test_a_label_that_the_family_does_not_have_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="has no label"):
        Metrics().count("tidings_webhooks_accepted", workspace="ws_1")
