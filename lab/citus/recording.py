"""A plugin of pytest: every statement that the suite has sent, and how Citus answers it.

pytest -p lab.citus.recording with ENGINES=citus: each distinct statement is recorded with the
values that it was first sent with, and explained at the end, on a database of its own. CITUS_RECORD
names the file that the findings are written to.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.database import postgres
from app.database.postgres import PostgresConnection
from app.database.sql import Statement, essence
from tests import servers
from tests.conftest import SCHEMA

TASKS = re.compile(r"Task Count: (\d+)")
sent: dict[str, list[Any]] = {}  # by text: the values that came first
refused: dict[str, str] = {}
latest = [""]


def pytest_configure() -> None:
    ordered = postgres._ordered

    def recorded(statement: Statement, each: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
        arguments = ordered(statement, each)
        sent.setdefault(statement.text, arguments[0])
        latest[0] = statement.text
        return arguments

    understood = PostgresConnection.understood

    async def noted(self: PostgresConnection, error: Exception, stage: Any) -> Exception:
        if isinstance(error, asyncpg.FeatureNotSupportedError):
            note_refusal(str(error))
        return await understood(self, error, stage)

    postgres._ordered = recorded
    PostgresConnection.understood = noted  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def findings(postgres_server: servers.Citus) -> Any:
    yield
    url = asyncio.run(servers.new_database(postgres_server.url, SCHEMA.read_text()))
    found = asyncio.run(explained(url, sent))
    Path(os.environ["CITUS_RECORD"]).write_text(json.dumps(found, indent=1))


def note_refusal(error: str) -> None:
    """Of the statement that was sent last."""
    text = latest[0]
    refused.setdefault(text, error)
    with Path(os.environ["CITUS_RECORD"] + ".refused").open("a") as file:
        file.write(json.dumps({"error": error, "sql": essence(text)}) + "\n")


async def explained(url: str, statements: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    await postgres._read_documents(connection)
    found = []
    for text, values in statements.items():
        error, lines = refused.get(text), []
        try:
            lines = [row[0] for row in await connection.fetch(f"EXPLAIN {text}", *values)]
        except asyncpg.PostgresError as problem:
            error = error or f"{type(problem).__name__}: {problem}"
        tasks = [int(n) for line in lines for n in TASKS.findall(line)]
        found.append(
            {
                "sql": essence(text),
                "error": error,
                "tasks": tasks,
                "subplans": sum("Distributed Subplan" in line for line in lines),
            }
        )
    await connection.close()
    return found
