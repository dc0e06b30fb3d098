"""Three days from now are three days from now: through restarts and a change of the clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.database.db import Database
from app.intake import webhooks
from app.main import open_process
from app.process import Process
from tests import servers
from tests.cast import SEND_HELLO, hook, settle, workspace
from tests.deployment import PATIENCE_SECONDS, Deployment, Part
from tests.present import present
from tests.runs.test_runner import read

# Europe/Berlin sets its clocks back on 25 October 2026, at 01:00 in UTC.
FRIDAY = datetime(2026, 10, 23, 7, tzinfo=UTC)
MORNING = timedelta(hours=1)


@pytest.fixture
async def environ(database: Database, database_url: str) -> dict[str, str]:
    """The environment that every process of this deployment is started with."""
    return {
        "DATABASE_URL": database_url,
        "SECRET_KEY": "a secret key that is kept through every restart",
        "LOG_LEVEL": "error",
    }


@asynccontextmanager
async def started_at(environ: dict[str, str], moment: datetime) -> AsyncIterator[Process]:
    """A process, when the database's clock says this."""
    settings = Settings.from_environ({**environ, "CLOCK_OFFSET_MS": offset_to(moment)})
    async with open_process(settings) as process:
        yield process


def offset_to(moment: datetime) -> str:
    return str(round((moment - datetime.now(UTC)).total_seconds() * 1_000))


def moments(until: datetime) -> Iterator[tuple[datetime, int]]:
    """List when the process is started again, and how many messages each run must have sent by
    then."""
    yield FRIDAY + timedelta(hours=1), 0
    yield FRIDAY + timedelta(days=1), 0
    yield datetime(2026, 10, 25, 1, tzinfo=UTC), 0  # the clocks change
    yield until - timedelta(seconds=30), 0
    yield until + timedelta(seconds=30), 1
    yield until + timedelta(days=3), 1


WAITS: list[tuple[dict[str, Any], datetime]] = [
    ({"duration": "P3D"}, FRIDAY + timedelta(days=3)),
    # Nine in the morning is an hour later by then.
    (
        {"time": "09:00", "days": ["mon"], "timezone": "Europe/Berlin"},
        FRIDAY + timedelta(days=3) + MORNING,
    ),
    (
        {"until": "2026-10-26T09:00", "timezone": "Europe/Berlin"},
        FRIDAY + timedelta(days=3) + MORNING,
    ),
]


@pytest.mark.parametrize(("wait", "due"), WAITS)
async def test_a_wait_of_three_days_ends_once_and_never_early(
    environ: dict[str, str], wait: dict[str, Any], due: datetime
) -> None:
    async with started_at(environ, FRIDAY) as process:
        acme = await workspace(process, "Acme")
        token = await hook(process, acme, [{"id": "wait", "type": "wait", **wait}, SEND_HELLO])
        run_id = await begun(process, token)
        await settle(process)
        run = await read(process, acme, run_id)
        until = datetime.fromisoformat(present(run.waiting_for)["until"])
    assert timedelta(0) <= until - due < timedelta(minutes=1)
    for moment, sent in moments(until):
        async with started_at(environ, moment) as process:
            await settle(process)
            async with process.database.read() as db:
                count = await db.fetch_value("SELECT count(*) FROM captured_messages")
            assert count == sent, moment
            assert (await read(process, acme, run_id)).status == (
                "COMPLETED" if sent else "WAITING"
            )


# When a worker is started, how many of the three waits have ended by then, and how it ends.
LIVES = [
    (FRIDAY, 0, Part.kill),
    (FRIDAY + timedelta(days=1), 0, Part.stop),
    (datetime(2026, 10, 25, 1, tzinfo=UTC), 0, Part.kill),  # the clocks change
    (FRIDAY + timedelta(days=3, minutes=-2), 0, Part.stop),
    (FRIDAY + timedelta(days=3, minutes=2), 1, Part.kill),
    (FRIDAY + timedelta(days=3, hours=1, minutes=2), 3, Part.kill),
    (FRIDAY + timedelta(days=6), 3, Part.stop),
]


@pytest.mark.drill
async def test_so_it_does_while_workers_are_stopped_and_killed(
    postgres_server: servers.PostgresServer | servers.GivenServer, redis_url: str, tmp_path: Path
) -> None:
    """All three at once, through six restarts of a process of its own. What a worker does at once
    shows that it has looked: twice, for the first time it may have looked just before."""
    schema = (Path(__file__).parents[1] / "schema.sql").read_text()
    with Deployment(
        tmp_path,
        database_url=await servers.new_database(postgres_server.url, schema),
        redis_url=redis_url,
        smtp_url="smtp://127.0.0.1:1",
        ENVIRONMENT="sandbox",
    ) as deployment:
        async with started_at(deployment.environ, FRIDAY) as process:
            acme = await workspace(process, "Acme")
            at_once = await hook(process, acme, [{"type": "add_tag", "tag": "seen"}])
            waits = [
                await hook(process, acme, [{"type": "wait", **wait}, SEND_HELLO])
                for wait, _ in WAITS
            ]
            runs = [await begun(process, token) for token in waits]
        for moment, ended, end in LIVES:
            async with started_at(deployment.environ, moment) as process:
                worker = deployment.start("worker", CLOCK_OFFSET_MS=offset_to(moment))
                for _ in range(2):
                    await becomes(process, acme, await begun(process, at_once), "COMPLETED")
                for number, run_id in enumerate(runs):
                    status = "COMPLETED" if number < ended else "WAITING"
                    await becomes(process, acme, run_id, status)
                async with process.database.read() as db:
                    sent = await db.fetch_value("SELECT count(*) FROM captured_messages")
                assert sent == ended, moment
            end(worker)


async def begun(process: Process, token: str) -> str:
    body = b'{"email": "ada@example.com"}'
    return (await webhooks.receive(process, token=token, signatures=[], body=body)).run_id


async def becomes(process: Process, acme: str, run_id: str, status: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await read(process, acme, run_id)).status != status:
            await asyncio.sleep(0.02)
