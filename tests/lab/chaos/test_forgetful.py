"""Workers that forget their own hints really do; what is due is found by the loop all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from app import __main__ as app
from app.jobs.hints import Pair
from app.process import Process
from app.store.claims import FairShare
from app.store.jobs import Job, Kind
from lab.chaos import forgetful
from lab.chaos.campaign import asked
from lab.chaos.forgetful import FORGOTTEN, Forgetful, forgetting
from tests.cast import SEND_HELLO
from tests.deployment import MailServer, Started, made, owner_of, until
from workers.pool import WorkerPool

MOMENT = 0.1  # in which a hint within the process is followed ten times over


@pytest.mark.parametrize("forgets", [True, False])
async def test_a_row_that_a_worker_makes_due_is_claimed_by_its_loop_alone(
    process: Process, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    claimed: list[Sequence[Pair]] = []

    async def claim(
        _process: Process, _kind: Kind, hinted: Sequence[Pair], _limit: int, _share: FairShare
    ) -> list[Job]:
        claimed.append(hinted)
        return []

    async def act(_process: Process, _job: Job) -> None:
        """Nothing was claimed."""

    monkeypatch.setattr(Process, "claim", claim)
    pool = WorkerPool(process, "run", act, concurrency=4)
    process.hints.pools["run"] = pool
    with forgetting() if forgets else nullcontext():
        async with process.database.write() as db:
            process.hints.due(db, "run", "ws_1", "run_1")
        await asyncio.sleep(MOMENT)
        assert bool(claimed) is not forgets
        pool.hint()  # as the loop does
        await asyncio.sleep(MOMENT)
        assert claimed
    await pool.close(MOMENT)


def test_lost_hints_are_lost_in_the_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def main() -> int:
        seen.append(WorkerPool.accept)
        return 0

    monkeypatch.setattr(app, "main", main)
    assert forgetful.main() == 0
    assert seen == [forgetful.forget]
    assert WorkerPool.accept is not forgetful.forget
    assert asked(["--hints", "lost"]).deployed is Forgetful
    assert asked(["--hints", "misdirected"]).deployed is Forgetful
    assert asked(["--promise", "4"]).deployed is Forgetful
    assert asked(["--promise", "4", "--hints", "no Redis"]).deployed is Started
    assert asked([]).deployed is Started


@pytest.mark.drill
def test_a_worker_that_forgets_does_its_work_and_says_so(
    fast_servers: dict[str, str], tmp_path: Path
) -> None:
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    workflow = {"name": "Hello", "state": "ACTIVE", "trigger": trigger, "steps": [SEND_HELLO]}
    with (
        MailServer(tmp_path) as mail,
        Forgetful(tmp_path, **fast_servers, smtp_url=mail.url) as it,
    ):
        it.web()
        worker = it.start("worker")
        with owner_of(it, "Acme") as client:
            path = made(client, "/workflows", workflow)["trigger"]["webhookUrl"]
            made(client, path, {"email": "ada@customer.example"})
        until(lambda: mail.received, "the message is there", worker)
        until(lambda: FORGOTTEN in worker.text, "it says so", worker)
