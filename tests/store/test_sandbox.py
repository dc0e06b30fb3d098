"""Captured messages: one for each key, read newest first."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from app.database.db import Database
from app.providers.inbox import Captured
from app.store import sandbox
from tests.present import present

CAPTURED = Captured(
    workspace_id="",
    message_key="key",
    message_id="msg_1",
    attempt_id="att_1",
    run_id="run_1",
    contact_id="con_1",
    channel="email",
    to_address="Ada@acme.test",
    from_address="Zoë <hello@acme.test>",
    subject="100 % Grüße",
    text="Hi\n",
    html="<p>Hi</p>",
    headers={"Message-ID": "<key@acme.test>", "Subject": "100 % Grüße"},
)


async def capture(database: Database, workspace_id: str, key: str = "key", **changes: Any) -> None:
    one = replace(CAPTURED, workspace_id=workspace_id, message_key=key, **changes)
    async with database.write() as db:
        await sandbox.insert(db, one)


async def read(
    database: Database,
    workspace_id: str,
    *,
    before: str | None = None,
    limit: int = 50,
    **filters: Any,
) -> list[sandbox.CapturedMessage]:
    async with database.read() as db:
        rows, _ = await sandbox.page(
            db, workspace_id=workspace_id, filters=filters, before=before, limit=limit
        )
    return rows


async def test_what_is_captured_is_read_back_as_it_was(database: Database, acme: str) -> None:
    began = datetime.now(UTC)
    await capture(database, acme)
    [row] = await read(database, acme)
    assert row.id.startswith("cap_")
    assert abs((row.captured_at - began).total_seconds()) < 60
    assert asdict(row) == {
        "id": row.id,
        "captured_at": row.captured_at,
        "message_id": "msg_1",
        "attempt_id": "att_1",
        "run_id": "run_1",
        "contact_id": "con_1",
        "channel": "email",
        "category": None,
        "to_address": "Ada@acme.test",
        "from_address": "Zoë <hello@acme.test>",
        "subject": "100 % Grüße",
        "text": "Hi\n",
        "html": "<p>Hi</p>",
        "headers": {"Message-ID": "<key@acme.test>", "Subject": "100 % Grüße"},
    }


async def test_the_first_of_two_captures_with_one_key_is_kept(
    database: Database, acme: str
) -> None:
    await capture(database, acme, subject="first")
    await capture(database, acme, subject="second")
    assert [row.subject for row in await read(database, acme)] == ["first"]


async def test_captures_of_one_key_at_once_leave_one(database: Database, acme: str) -> None:
    await asyncio.gather(*(capture(database, acme) for _ in range(8)))
    assert len(await read(database, acme)) == 1


async def test_what_may_be_absent_may_be_absent(database: Database, acme: str) -> None:
    absent = ("run_id", "contact_id", "from_address", "subject", "html")
    nothing: dict[str, Any] = dict.fromkeys(absent)
    await capture(database, acme, **nothing)
    [row] = await read(database, acme)
    assert [getattr(row, name) for name in absent] == [None] * 5


async def test_pages_go_from_the_newest_to_the_oldest(database: Database, acme: str) -> None:
    for number in range(5):
        await capture(database, acme, f"k{number}", subject=str(number))
    first = await read(database, acme, limit=3)
    rest = await read(database, acme, limit=3, before=first[-1].id)
    assert [row.subject for row in first + rest] == ["4", "3", "2", "1", "0"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, {"a", "b", "c"}),
        ({"to": "ada@acme.test"}, {"a", "b"}),
        ({"to": "ADA@ACME.TEST"}, {"a", "b"}),
        ({"to": "ada@acme.tes%"}, set()),
        ({"run_id": "run_2"}, {"b"}),
        ({"contact_id": "con_1"}, {"a", "b"}),
        ({"channel": "email"}, {"a", "b", "c"}),
        ({"channel": "sms"}, set()),
        ({"to": "ada@acme.test", "run_id": "run_2"}, {"b"}),
        ({"created_after": datetime(2020, 1, 1, tzinfo=UTC)}, {"a", "b", "c"}),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, set()),
    ],
)
async def test_filters_narrow_the_list(
    database: Database, acme: str, filters: dict[str, Any], found: set[str]
) -> None:
    await capture(database, acme, "a")
    await capture(database, acme, "b", run_id="run_2")
    await capture(
        database, acme, "c", to_address="bob@acme.test", contact_id="con_2", run_id="run_3"
    )
    rows = await read(database, acme, **filters)
    keys = {"run_1": "a", "run_2": "b", "run_3": "c"}
    assert {keys[present(row.run_id)] for row in rows} == found


async def test_a_workspace_sees_only_its_own(database: Database, acme: str) -> None:
    await capture(database, acme)
    assert await read(database, "ws_other") == []
