"""Three days from now are three days from now: through restarts and a change of the clocks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app import intake
from app.config import Settings
from app.main import opened
from app.process import Process
from app.store.db import Database
from tests.cast import SEND_HELLO, hook, settle, workspace
from tests.test_runner import read

# Europe/Berlin sets its clocks back on 25 October 2026, at 01:00 in UTC.
FRIDAY = datetime(2026, 10, 23, 7, tzinfo=UTC)
MORNING = timedelta(hours=1)


@pytest.fixture
async def environ(database: Database, database_url: str) -> dict[str, str]:
    """What every process of this deployment is started with."""
    return {
        "DATABASE_URL": database_url,
        "SECRET_KEY": "a secret key that is kept through every restart",
        "LOG_LEVEL": "error",
    }


@asynccontextmanager
async def started_at(environ: dict[str, str], moment: datetime) -> AsyncIterator[Process]:
    """A process, when the database's clock says this."""
    offset = round((moment - datetime.now(UTC)).total_seconds() * 1_000)
    settings = Settings.from_environ({**environ, "CLOCK_OFFSET_MS": str(offset)})
    async with opened(settings) as process:
        yield process


@pytest.mark.parametrize(
    ("wait", "due"),
    [
        ({"duration": "P3D"}, FRIDAY + timedelta(days=3)),
        # Nine in the morning is an hour later by then.
        ({"time": "09:00", "days": ["mon"], "timezone": "Europe/Berlin"}, None),
        ({"until": "2026-10-26T09:00", "timezone": "Europe/Berlin"}, None),
    ],
)
async def test_a_wait_of_three_days_ends_once_and_never_early(
    environ: dict[str, str], wait: dict[str, Any], due: datetime | None
):
    async with started_at(environ, FRIDAY) as process:
        acme = await workspace(process, "Acme")
        token = await hook(process, acme, [{"id": "wait", "type": "wait", **wait}, SEND_HELLO])
        body = b'{"email": "ada@example.com"}'
        run_id = (await intake.receive(process, token=token, signatures=[], body=body)).run_id
        await settle(process)
        run = await read(process, acme, run_id)
        until = datetime.fromisoformat(run["waiting_for"]["until"])
    expected = due or FRIDAY + timedelta(days=3) + MORNING
    assert timedelta(0) <= until - expected < timedelta(minutes=1)
    for moment, sent in (
        (FRIDAY + timedelta(hours=1), 0),
        (FRIDAY + timedelta(days=1), 0),
        (datetime(2026, 10, 25, 1, tzinfo=UTC), 0),
        (until - timedelta(seconds=30), 0),
        (until, 1),
        (until + timedelta(days=3), 1),
    ):
        async with started_at(environ, moment) as process:
            await settle(process)
            async with process.database.read() as db:
                count = await db.fetch_value("SELECT count(*) FROM captured_messages")
            assert count == sent, moment
            assert (await read(process, acme, run_id))["status"] == (
                "COMPLETED" if sent else "WAITING"
            )
