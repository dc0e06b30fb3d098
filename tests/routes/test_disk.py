"""A full disk: told in words, at once and once a minute, and the process is not ready."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest

from app.database import disk
from app.database.db import Handle
from app.errors import DiskFull
from app.process import Process
from tests.cast import Cast
from tests.conftest import Records

SQLSTATE = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database; of SQLite a file of its own, for a shared one has room from earlier
    tests."""
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_url")
        return url
    file = shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "tidings.db")
    return f"sqlite:///{file}"


async def fill(process: Process) -> Callable[[], Awaitable[None]]:
    """SQLite's file may not grow from now on; what makes room again."""

    async def most_pages(count: int) -> None:
        async with process.database.write() as db:
            await db.use(lambda link: link.run(f"PRAGMA max_page_count = {count}", {}))

    await most_pages(1)  # it is as large as it is

    async def make_room() -> None:
        await most_pages(1_000_000)

    return make_room


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_full_disk_is_told_in_words(
    process: Process,
    cast: Cast,
    client: httpx2.AsyncClient,
    records: Records,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_room = await fill(process)
    full = {"metadata": dict.fromkeys("abcd", "y" * 500)}
    responses = []
    for number in range(150):
        body = {**full, "email": f"ada{number}@acme.test"}
        responses.append(await cast.ed.post("/contacts", body))
    refused = [response for response in responses if response.status_code != 201]
    assert refused
    assert {response.status_code for response in refused} == {503}, refused[0].text
    assert "disk is full" in refused[0].json()["detail"]
    assert int(refused[0].headers["retry-after"]) == 30
    listed = [line for line in records() if "disk is full" in line["event"]]
    assert [line["level"] for line in listed] == ["error"]
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["code"]) == (503, "unavailable")
    assert "disk is full" in ready.json()["detail"]
    await make_room()
    monkeypatch.setattr(disk, "REMEMBERED_SECONDS", 0.0)
    await cast.ed.made("/contacts", {**full, "email": "bob@acme.test"})
    assert (await client.get("/readyz")).status_code == 200
    assert any("has room again" in line["event"] for line in records())


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_what_postgresql_says_of_a_full_disk_is_understood(
    process: Process, client: httpx2.AsyncClient
) -> None:
    async def fail(db: Handle) -> None:
        await db.use(lambda link: link.run_script(SQLSTATE))

    with pytest.raises(DiskFull):
        async with process.database.write() as db:
            await fail(db)
    assert (await client.get("/readyz")).status_code == 503
