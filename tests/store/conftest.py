"""A database of a test's own, where the plan of a query is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.database.db import Database
from tests import servers
from tests.conftest import SCHEMA


@pytest.fixture
async def undisturbed(postgres_server: servers.PostgresServer) -> AsyncIterator[Database]:
    """PostgreSQL, with one connection. In the database that tests share, an index that held many
    rows is larger than one that did not, and costs more; SQLite plans without statistics."""
    url = await servers.new_database(postgres_server.url, SCHEMA.read_text(), disturbed=False)
    database = Database(url, pool_size=1)
    await database.connect()
    yield database
    await database.disconnect()
