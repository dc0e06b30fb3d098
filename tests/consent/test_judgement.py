"""The judgement at the intent: what an opt-out forbids, and that an intent waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from app.audience import upserts
from app.audience.upserts import Entry
from app.audience.workspace_context import WorkspaceContext
from app.consent import consent
from app.database.db import Handle
from app.process import Process
from app.store import suppressions
from tests.cast import settle, suppress
from tests.consent.test_consent import ADA, order, status_of
from tests.messages.test_delivery import accepts, with_provider

OptOut: TypeAlias = Callable[[Process, Handle, str], Awaitable[None]]


async def test_what_each_reason_forbids(process: Process, acme: str) -> None:
    """By the category of the message; a test email asks only whether there is a door."""
    process, _ = with_provider(process, accepts)
    allowed: dict[suppressions.Reason, list[str]] = {
        "unsubscribed": ["transactional", "test"],
        "stopped": ["test"],
        "manual": ["test"],
        "erased": ["test"],
        "complained": ["test"],
        "bounced": [],
    }
    made = {}
    for reason in allowed:
        await suppress(process, acme, reason, f"{reason}@example.com")
        for category in ("transactional", "marketing", "test"):
            made[reason, category] = await order(process, acme, category, f"{reason}@example.com")
    await settle(process)
    found = {key: await status_of(process, acme, id) for key, id in made.items()}
    for (reason, category), ended in found.items():
        sent = category in allowed[reason]
        assert ended == (("SENT", None) if sent else ("SUPPRESSED", f"suppressed_{reason}"))


async def by_link(process: Process, db: Handle, acme: str) -> None:
    """Ada opts out, who is no contact: there is no row to lock."""
    await consent.suppress(
        process,
        db,
        workspace_id=acme,
        channel="email",
        address=ADA,
        reason="unsubscribed",
        source="link",
    )


async def by_file(process: Process, db: Handle, acme: str) -> None:
    entry = Entry.read(None, {"email": ADA, "subscriptions": {"email": "unsubscribed"}})
    workspace = WorkspaceContext(acme, None, process.vault)
    assert await upserts.upsert(db, workspace, [entry]) == ["created"]


@pytest.mark.parametrize("opt_out", [by_link, by_file])
async def test_an_intent_waits_for_an_opt_out_under_way_and_obeys_it(
    process: Process, acme: str, opt_out: OptOut
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's one writer makes every transaction wait for every other")
    process, provider = with_provider(process, accepts)
    id = await order(process, acme, "marketing")
    async with process.database.write() as db:
        await opt_out(process, db, acme)
        sends = asyncio.create_task(settle(process))
        await asyncio.wait([sends], timeout=0.3)  # time enough to send, were it not waiting
        assert provider.given == []
    await sends
    assert await status_of(process, acme, id) == ("SUPPRESSED", "suppressed_unsubscribed")
