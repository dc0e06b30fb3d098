"""A migration adds columns while the code before it still runs: no query asks for columns that it
does not name, so no write fails for one more, and no answer shows it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.accounts import registration
from app.process import Process
from tests import servers, test_tenants
from tests.conftest import SCHEMA, SharedPostgres
from tests.test_policy import name, session
from tests.test_tenants import EVERY, World, path_of, prefix_in_path

ADDED = "added_by_a_later_migration"
TABLES = re.findall(r"^CREATE TABLE (\w+)", SCHEMA.read_text(), re.MULTILINE)
WIDENED = f"{SCHEMA.read_text()}\n-- section 9999: a later one\n\n" + "".join(
    f"ALTER TABLE {table} ADD COLUMN {ADDED} TEXT NOT NULL DEFAULT '{ADDED}';\n" for table in TABLES
)

world = test_tenants.world


@pytest.fixture(scope="module")
def postgres_url(postgres_server: SharedPostgres) -> str:
    return asyncio.run(servers.new_database(postgres_server.url, WIDENED))


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("widened") / "template.db"
    return asyncio.run(servers.new_file(path, WIDENED))


async def test_a_column_added_to_every_table_changes_no_answer(
    world: World, process: Process
) -> None:
    """One of everything was made on such tables; whatever can be read of it is read, by somebody
    who may read all. Each answer keeps to the document, to which a field more is an error."""
    async with process.database.read() as db:
        for table in TABLES:
            assert await db.fetch_value(f"SELECT count({ADDED}) FROM {table}") is not None
    owner = world.cast.olivia
    assert await registration.grant_super_admin(process, owner.email)
    owner = replace(owner, key=await session(process, owner))
    answered = []
    for endpoint in EVERY:
        if endpoint.method == "GET":
            whose = world.id(prefix_in_path(endpoint)) if "{id}" in endpoint.path else ""
            response = await owner.get(path_of(endpoint, whose))
            assert response.status_code < 500, (name(endpoint), response.text)
            assert ADDED not in response.text, name(endpoint)
            if response.status_code == 200:
                answered.append(name(endpoint))
    assert len(answered) > 80
