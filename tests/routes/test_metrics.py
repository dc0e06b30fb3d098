"""/metrics: the figures, for whoever has the token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from app.database.db import Handle
from app.process import Process
from app.runtime import sharing
from app.runtime.metrics import FAMILIES
from app.runtime.sharing import Shared
from app.store import counters
from tests import cast as cast_module
from tests.cast import Cast, hook, settle


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no figures: what is asked here is asked twice within a second."""
    monkeypatch.setattr(sharing, "KEPT_SECONDS", 0.0)


async def figures(client: httpx2.AsyncClient) -> dict[str, float]:
    """Sample → its values over all labels, added."""
    response = await client.get("/metrics")
    assert response.status_code == 200
    found: dict[str, float] = {}
    families = list(read(response.text))
    assert {family.name for family in families} == set(FAMILIES)
    for family in families:
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


async def test_an_event_shows_from_its_acceptance_to_its_message(
    cast: Cast, client: httpx2.AsyncClient, process: Process
) -> None:
    url = f"/v1/webhooks/in/{await hook(process, cast.ed.workspace_id)}"
    await cast.ed.made("/contacts", {"email": "ada@acme.test"})
    before = await figures(client)
    assert (before["tidings_due"], before["tidings_deliveries_unknown"]) == (0, 0)
    assert (await client.post(url, json={"email": "ada@acme.test"})).status_code == 202
    waiting = await figures(client)
    assert waiting["tidings_due"] == 1
    assert waiting["tidings_oldest_due_seconds"] > 0
    await settle(process)
    after = await figures(client)
    assert after["tidings_due"] == 0
    for name in (
        "tidings_webhooks_accepted_total",
        "tidings_runs_ended_total",
        "tidings_message_outcomes_total",
        "tidings_acceptance_to_first_step_seconds_count",
        "tidings_acceptance_to_sent_seconds_count",
    ):
        assert after[name] == before.get(name, 0) + 1, name


async def test_work_that_was_given_up_shows_until_it_is_begun_anew(
    cast: Cast, client: httpx2.AsyncClient, process: Process
) -> None:
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    await settle(process)
    assert (await figures(client))["tidings_work_given_up"] == 0
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET reason_code = 'poisoned'")
    assert (await figures(client))["tidings_work_given_up"] == 1
    await cast.ed.patch(f"/segments/{segment['id']}", {"filter": vip})
    assert (await figures(client))["tidings_work_given_up"] == 0


async def test_refusals_are_counted_by_code(client: httpx2.AsyncClient, cast: Cast) -> None:
    await cast.vic.post("/contacts", {})
    text = (await client.get("/metrics")).text
    assert 'tidings_refusals_total{code="forbidden"} 1.0' in text


async def test_in_production_nobody_reads_them_without_a_token(process: Process) -> None:
    live = replace(process, settings=replace(process.settings, environment="production"))
    async with cast_module.client(live) as client:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer None"}):
            response = await client.get("/metrics", headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
            assert "METRICS_TOKEN" in response.json()["detail"]


async def test_many_scrapes_at_once_are_one_query(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = replace(process, exposition=Shared(30.0))
    asked, every = 0, counters.every

    async def counted(db: Handle) -> list[tuple[str, str, float]]:
        nonlocal asked
        asked += 1
        return await every(db)

    monkeypatch.setattr(counters, "every", counted)
    async with cast_module.client(process) as client:
        for _ in range(3):
            answers = await asyncio.gather(*(client.get("/metrics") for _ in range(20)))
            assert {answer.status_code for answer in answers} == {200}
    assert asked == 1


async def test_with_a_token_only_its_bearer_reads(process: Process) -> None:
    guarded = replace(process, settings=replace(process.settings, metrics_token="only for us"))
    async with cast_module.client(guarded) as client:
        for headers in ({}, {"Authorization": "Bearer another"}):
            response = await client.get("/metrics", headers=headers)
            assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
        response = await client.get("/metrics", headers={"Authorization": "Bearer only for us"})
        assert response.status_code == 200
