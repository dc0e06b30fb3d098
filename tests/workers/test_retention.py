"""Deletion of what is old, in batches, from every table that grows; what is not finished stays."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from app.audit import chain, trail
from app.audit.trail import Where
from app.billing import quotas
from app.database import ids, postgres
from app.database.db import Handle
from app.errors import Unavailable
from app.messages import callbacks as provider_callbacks
from app.messages.providers import Account
from app.process import Process
from app.providers.callbacks import HARD, Report
from app.providers.inbox import Inbox
from app.store import audit_logs, callbacks, expiry, messages, missed_occasions, usage, users
from app.store import retention as store
from app.store.missed_occasions import MissedOccasion
from app.store.retention import Keeping
from tests.broadcasts.test_sending import worked
from tests.cast import Cast, Person, hook, seal, settle, workspace
from tests.conftest import SCHEMA
from tests.outbound.test_events import listening
from tests.test_operating import GUIDE
from tests.test_policy import session
from workers import maintenance, retention

WAITS = {"type": "wait", "duration": "P366D"}
GROWING = ("runs", "run_steps", "delivery_attempts", "broadcast_recipients", *store.RULES)
YEAR_AND_MORE = timedelta(days=400)


@contextmanager
def long_ago(process: Process, back: timedelta = YEAR_AND_MORE) -> Iterator[None]:
    """Have what happens here happen then, by the database's clock and by the ids' clock."""
    with pytest.MonkeyPatch.context() as patch:
        nanoseconds = int(back.total_seconds()) * 10**9
        then = SimpleNamespace(time_ns=lambda: time.time_ns() - nanoseconds)
        patch.setattr(ids, "time", then)
        patch.setattr(ids, "_source", ids._Source())
        with clock_set(process, -back):
            yield


@contextmanager
def clock_set(process: Process, offset: timedelta) -> Iterator[None]:
    """The database's."""
    backend: Any = process.database._databases._backend
    with pytest.MonkeyPatch.context() as patch:
        if process.database.engine == "sqlite":
            patch.setattr(backend, "offset", offset)
        else:
            patch.setattr(backend, "now", postgres._now(int(offset.total_seconds() * 1_000)))
            patch.setattr(backend, "sets", {})  # statements that have the clock in them
        yield


async def went_round(process: Process) -> int:
    """A whole round; how many steps it took."""
    scan, steps = retention.RetentionScan(), 0
    while await scan.run_batch(process):
        steps += 1
    return steps


async def test_workspaces_with_nothing_to_delete_are_read_a_page_at_a_time(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, read = 0, store.next_workspaces

    async def counted(db: Handle, after: str, *, limit: int) -> list[Keeping]:
        nonlocal looks
        looks += 1
        return await read(db, after, limit=limit)

    for number in range(5):
        await workspace(process, f"Workspace {number}")
    monkeypatch.setattr(store, "next_workspaces", counted)
    monkeypatch.setattr(retention, "PAGE_SECONDS", 60.0)
    await went_round(process)
    assert looks == 2  # the second finds no more


ENDED = {"api_keys": "AND revoked_at IS NOT NULL"}  # of these only they grow without end


async def counts(
    process: Process, workspace_id: str, tables: Collection[str] = GROWING
) -> dict[str, int]:
    async with process.database.read() as db:
        return {
            table: await db.fetch_value(
                f"SELECT count(*) FROM {table} WHERE workspace_id = :id {ENDED.get(table, '')}",
                id=workspace_id,
            )
            for table in tables
        }


async def one_of_each(who: Person, process: Process) -> None:
    await listening(who)
    token = await hook(process, who.workspace_id)
    await who.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
    [contact] = (await who.read("/contacts"))["data"]
    await who.made(f"/contacts/{contact['id']}/events", {"name": "seen"})
    await who.made("/memberships/invitations", {"email": "eve@x.test", "role": "viewer"})
    key = await who.made("/settings/api-keys", {"name": "K", "role": "viewer"})
    assert (await who.delete(f"/settings/api-keys/{key['id']}")).status_code == 204
    await who.patch("/event-endpoints/" + await _endpoint(who), {"enabled": False})
    await _broadcast(who, contact["id"])
    async with process.database.write() as db:
        at = await db.now()
        missed = MissedOccasion("wfl_1", contact["id"], "date", "late", at, at)
        await missed_occasions.insert_many(db, workspace_id=who.workspace_id, missed=[missed])
    await worked(process)


async def _broadcast(who: Person, contact_id: str) -> None:
    await who.made(f"/contacts/{contact_id}/tags", {"tags": ["vip"]})
    content = {"subject": "S", "html": "H"}
    template = await who.made("/templates", {"name": "T", "channel": "email", "content": content})
    new = {"name": "B", "tag": "vip", "templateId": template["id"]}
    made = await who.made("/broadcasts", new)
    await who.made(f"/broadcasts/{made['id']}/schedule", None)


async def test_recipients_of_every_old_broadcast_go_in_one_round(
    cast: Cast, process: Process
) -> None:
    with long_ago(process):
        contact = await cast.olivia.made("/contacts", {"email": "ada@x.test"})
        for _ in range(3):
            await _broadcast(cast.olivia, contact["id"])
        await worked(process)
    whose = cast.olivia.workspace_id
    tables = ("broadcast_recipients", "broadcasts")
    assert await counts(process, whose, tables) == {"broadcast_recipients": 3, "broadcasts": 3}
    await went_round(process)
    assert await counts(process, whose, tables) == dict.fromkeys(tables, 0)


async def _endpoint(who: Person) -> str:
    return str((await who.read("/event-endpoints"))["data"][0]["id"])


async def test_what_is_old_goes_from_every_table_that_grows(cast: Cast, process: Process) -> None:
    with long_ago(process):
        await one_of_each(cast.olivia, process)
        await one_of_each(cast.mallory, process)
    async with process.database.write() as db:
        patient = "UPDATE workspaces SET retention_days = 3650 WHERE id = :id"
        await db.execute(patient, id=cast.mallory.workspace_id)
    before = await counts(process, cast.mallory.workspace_id)
    assert min(before.values()) > 0, before
    assert await counts(process, cast.olivia.workspace_id) == before
    await went_round(process)
    assert await counts(process, cast.olivia.workspace_id) == dict.fromkeys(GROWING, 0)
    assert await counts(process, cast.mallory.workspace_id) == before
    assert len((await cast.olivia.read("/contacts"))["data"]) == 1  # who was there, is


# --- every table ----------------------------------------------------------------------------------

TABLES = re.findall(r"^CREATE TABLE (\w+) \((.*?)^\);", SCHEMA.read_text(), re.M | re.S)
GONE_WITH = {  # table → that with whose rows its own go
    table: re.findall(r"REFERENCES (\w+) \([\w, ]+\) ON DELETE CASCADE", columns)
    for table, columns in TABLES
}


def documented() -> dict[str, set[str]]:
    """Read what each table's rows are deleted by, as the guide has it."""
    section = GUIDE.split("## Retention")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+`) \| (\w+) \| .+ \|$", section, re.M)
    found: dict[str, set[str]] = {}
    for tables, cause in rows:
        named = re.findall(r"`(\w+)`", tables)
        assert not {*named} & {one for before in found.values() for one in before}, named
        found.setdefault(cause, set()).update(named)
    return found


def test_every_table_is_swept_or_the_guide_says_why_it_stays() -> None:
    by_age = {"runs", "audit_logs", *store.RULES}
    by_age |= {table for table, others in GONE_WITH.items() if by_age & {*others}}
    by_expiry = {*expiry.KEYS, "usage_changes"}  # the latter by quotas.fold_batch
    every = {table for table, _ in TABLES}
    assert documented() == {
        "age": by_age,
        "expiry": by_expiry,
        "never": every - by_age - by_expiry,
    }


async def one_of_each_that_expires(who: Person, process: Process) -> None:
    headers = {"Idempotency-Key": "once"}
    throttle = {"id": "t", "type": "throttle", "limit": 9, "window": "PT1H"}
    token = await hook(process, who.workspace_id, [throttle])
    url = f"/v1/webhooks/in/{token}"
    event = {"email": "ada@x.test"}
    assert (await who.client.post(url, json=event, headers=headers)).status_code == 202
    await settle(process)
    template = {"name": "T", "channel": "sms", "content": {"text": "T"}}
    assert (await who.post("/templates", template, headers=headers)).status_code == 201
    checkout_page = {
        "plan": "scale",
        "successUrl": "https://a.example",
        "cancelUrl": "https://b.example",
    }
    await who.made("/billing/checkout", checkout_page)
    await session(process, who)
    async with process.database.write() as db:
        until = await db.now() + timedelta(days=1)
        assert await callbacks.record(db, workspace_id=who.workspace_id, id="1", expires_at=until)


async def test_what_expires_goes_and_nothing_else(cast: Cast, process: Process) -> None:
    with clock_set(process, -YEAR_AND_MORE):
        await one_of_each_that_expires(cast.olivia, process)
    await one_of_each_that_expires(cast.mallory, process)
    tables = sorted(expiry.KEYS)
    fresh = await counts(process, cast.mallory.workspace_id, tables)
    assert min(fresh.values()) > 0, fresh
    old = await counts(process, cast.olivia.workspace_id, tables)
    assert min(old.values()) > 0, old
    await maintenance.sweep(process)
    assert await counts(process, cast.mallory.workspace_id, tables) == fresh
    assert await counts(process, cast.olivia.workspace_id, tables) == dict.fromkeys(tables, 0)


# --- what stays -----------------------------------------------------------------------------------


async def test_what_is_younger_stays(cast: Cast, process: Process) -> None:
    with long_ago(process, timedelta(days=3)):
        await one_of_each(cast.olivia, process)
    before = await counts(process, cast.olivia.workspace_id)
    await went_round(process)
    assert await counts(process, cast.olivia.workspace_id) == before
    await cast.olivia.patch("/settings/workspace", {"retentionDays": 2})
    await went_round(process)
    after = await counts(process, cast.olivia.workspace_id)
    assert after.pop("invitations") == before["invitations"]  # it can still be accepted
    assert set(after.values()) == {0}


async def test_a_worker_whose_clock_is_ahead_removes_nothing_that_is_younger(
    cast: Cast, process: Process
) -> None:
    """Ours is more than a year ahead of the database's, and of those who made the rows."""
    with long_ago(process):
        await one_of_each(cast.olivia, process)
    before = await counts(process, cast.olivia.workspace_id)
    with clock_set(process, -YEAR_AND_MORE):
        await went_round(process)
    assert await counts(process, cast.olivia.workspace_id) == before


@pytest.mark.parametrize("ahead", [timedelta(hours=2), -timedelta(hours=2)])
async def test_nothing_is_removed_while_the_clocks_differ(
    cast: Cast, process: Process, caplog: pytest.LogCaptureFixture, ahead: timedelta
) -> None:
    with long_ago(process):
        await one_of_each(cast.olivia, process)
    before = await counts(process, cast.olivia.workspace_id)
    serving = replace(process, settings=replace(process.settings, environment="production"))
    with clock_set(process, ahead):
        await went_round(serving)
    assert await counts(process, cast.olivia.workspace_id) == before
    errors = [line.message for line in caplog.records if line.levelname == "ERROR"]
    assert errors == ["nothing is removed: the clocks differ"]
    await went_round(serving)
    assert await counts(process, cast.olivia.workspace_id) == dict.fromkeys(GROWING, 0)


async def test_what_is_not_finished_stays_however_old_it_is(cast: Cast, process: Process) -> None:
    with long_ago(process):
        await listening(cast.olivia)
        token = await hook(process, cast.olivia.workspace_id, [WAITS])
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
        await cast.olivia.patch("/settings/workspace", {"sendingPaused": True})
        content = {"subject": "S", "html": "<p>H</p>"}
        await cast.olivia.made(
            "/messages", {"channel": "email", "to": "a@x.test", "content": content}
        )
        await settle(process)
    before = await counts(process, cast.olivia.workspace_id)
    assert (before["runs"], before["messages"]) == (1, 1)
    assert before["event_attempts"] > 0
    await went_round(process)
    after = await counts(process, cast.olivia.workspace_id)
    unfinished = ("runs", "run_steps", "messages", "delivery_attempts", "event_attempts", "events")
    assert {name: after[name] for name in unfinished} == {name: before[name] for name in unfinished}


async def test_a_message_that_waited_long_is_kept_as_long_as_others_once_it_has_left(
    cast: Cast, process: Process
) -> None:
    olivia, content = cast.olivia, {"subject": "S", "html": "<p>H</p>"}
    with long_ago(process, timedelta(days=3)):
        await olivia.patch("/settings/workspace", {"sendingPaused": True, "retentionDays": 2})
        order = {"channel": "email", "to": "a@x.test", "content": content}
        message = await olivia.made("/messages", order)
        await settle(process)
    await olivia.patch("/settings/workspace", {"sendingPaused": False})
    await settle(process)
    await went_round(process)
    assert (await olivia.read(f"/messages/{message['messageId']}"))["status"] == "SENT"
    [attempt] = (await olivia.read("/messages/delivery-attempts"))["data"]
    account = Account(Inbox.provider, olivia.workspace_id, "")
    report = Report("late", olivia.workspace_id, attempt["id"], None, HARD, None)
    await provider_callbacks.report(process, account, report)
    [suppression] = (await olivia.read("/suppressions"))["data"]
    assert suppression["reason"] == "bounced"
    with clock_set(process, timedelta(days=3)):
        await went_round(process)
    assert (await olivia.get(f"/messages/{message['messageId']}")).status_code == 404


async def test_the_audit_trail_is_pruned_and_stays_valid(cast: Cast, process: Process) -> None:
    with long_ago(process):
        async with process.database.write() as db:
            olivia = await users.by_id(db, id=cast.olivia.user_id)
            assert olivia is not None
            founder = Where(None, "founding").user(olivia)
            await trail.begin(
                db, process.vault, founder, workspace_id=cast.olivia.workspace_id, after={}
            )
        for name in "abc":
            await cast.olivia.made("/contacts", {"email": f"{name}@x.test"})
        await seal(process)
    await cast.olivia.made("/contacts", {"email": "new@x.test"})
    await seal(process)
    await went_round(process)
    [entry] = (await cast.olivia.read("/audit-logs"))["data"]
    assert entry["action"] == "contact.created"
    verdict = await chain.verify(process, cast.olivia.workspace_id)
    assert (verdict.fault, verdict.entries) == (None, 1)


async def test_a_lot_goes_a_batch_at_a_time(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    with long_ago(process):
        token = await hook(process, cast.olivia.workspace_id, [])
        for number in range(5):
            event = {"email": f"n{number}@x.test"}
            await cast.client.post(f"/v1/webhooks/in/{token}", json=event)
        await settle(process)
    assert await went_round(process) >= 5  # five runs and five requests, two at a time
    assert set((await counts(process, cast.olivia.workspace_id)).values()) == {0}


async def test_what_a_batch_has_kept_is_not_looked_at_again_in_the_same_round(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    olivia, content = cast.olivia, {"subject": "S", "html": "<p>H</p>"}
    with long_ago(process):
        await olivia.patch("/settings/workspace", {"sendingPaused": True})
        order = {"channel": "email", "to": "a@x.test", "content": content}
        await olivia.made("/messages", order)
        token = await hook(process, olivia.workspace_id, [])
        for _ in range(5):
            await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@x.test"})
        await settle(process)
    scan = retention.RetentionScan()
    while (await counts(process, olivia.workspace_id))["webhook_requests"] == 5:
        assert await scan.run_batch(process)
    async with process.database.write() as db:  # as if it had ended amid the round
        await db.execute("UPDATE messages SET status = 'SENT'")
        await db.execute("DELETE FROM jobs")
    while await scan.run_batch(process):
        pass
    left = await counts(process, olivia.workspace_id)
    assert (left["webhook_requests"], left["messages"]) == (0, 1)
    await went_round(process)
    assert (await counts(process, olivia.workspace_id))["messages"] == 0


async def test_a_workspace_of_which_nothing_can_be_removed_holds_up_no_other(
    cast: Cast, process: Process
) -> None:
    first, second = sorted((cast.olivia, cast.mallory), key=lambda who: who.workspace_id)
    with long_ago(process):
        await one_of_each(first, process)
        await one_of_each(second, process)
    async with process.database.write() as db:
        before_all_time = "UPDATE workspaces SET retention_days = 2000000000 WHERE id = :id"
        await db.execute(before_all_time, id=first.workspace_id)
    before = await counts(process, first.workspace_id)
    await went_round(process)
    assert await counts(process, first.workspace_id) == before
    assert await counts(process, second.workspace_id) == dict.fromkeys(GROWING, 0)


async def test_an_audit_trail_that_the_database_cannot_reach_is_left_for_the_next_scan(
    cast: Cast,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("The database is away.")

    with long_ago(process):
        await one_of_each(cast.olivia, process)
    monkeypatch.setattr(audit_logs, "head_locked", away)
    await went_round(process)
    assert await counts(process, cast.olivia.workspace_id) == dict.fromkeys(GROWING, 0)
    assert "removal of old data postponed" in caplog.messages
    assert [line for line in caplog.records if line.levelname == "ERROR"] == []


async def test_addresses_that_cannot_be_forgotten_now_hold_up_no_other_batch(
    cast: Cast,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def away(*_: Any, **__: Any) -> int:
        raise Unavailable("The database is away.")

    monkeypatch.setattr(retention, "BATCH", 1)
    with long_ago(process):
        await one_of_each(cast.olivia, process)
        await one_of_each(cast.olivia, process)
    monkeypatch.setattr(messages, "forget_addresses", away)
    await went_round(process)
    assert await counts(process, cast.olivia.workspace_id) == dict.fromkeys(GROWING, 0)
    assert "removal of old data postponed" in caplog.messages


async def test_a_round_is_due_once_an_hour(cast: Cast, process: Process) -> None:
    scan = retention.RetentionScan()
    while await scan.run_batch(process):
        pass
    with long_ago(process):
        await one_of_each(cast.olivia, process)
    assert not await scan.run_batch(process)
    scan._started_at -= retention.SCAN_SECONDS
    assert await scan.run_batch(process)


async def test_sessions_go_when_they_have_expired(cast: Cast, process: Process) -> None:
    async with process.database.write() as db:
        now = await db.now()
        for number, expires_at in enumerate((now - timedelta(days=1), now + timedelta(days=1))):
            await db.execute(
                """
                INSERT INTO sessions (id, user_id, workspace_id, refresh_hash, created_at,
                                      expires_at)
                VALUES (:id, :user_id, :workspace_id, :hash, :now, :expires_at)
                """,
                id=f"ses_{number}",
                user_id=cast.ed.user_id,
                workspace_id=cast.ed.workspace_id,
                hash=bytes([number]),
                expires_at=expires_at,
            )
        assert await expiry.delete_expired(db, "sessions", limit=10) == 1
        assert await db.fetch_value("SELECT id FROM sessions") == "ses_1"


async def test_counts_of_a_day_go_when_nobody_asks_for_them_any_more(
    process: Process, acme: str
) -> None:
    async with process.database.write() as db:
        today = quotas.day(await db.now())
        for period in ("2020-01-01", today):
            await usage.add(db, workspace_id=acme, meter=usage.DAILY, period=period)
        await usage.add(db, workspace_id=acme, meter=usage.MESSAGES, period="2020-01")
    await quotas.fold_batch(process)
    await went_round(process)
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT period FROM usage_totals ORDER BY period")
    assert [row["period"] for row in rows] == ["2020-01", today]


def test_no_rule_takes_the_workspace_out_of_a_row() -> None:
    """By that, a database that is sharded finds no shard."""
    assert [name for name, rule in store.RULES.items() if "t.workspace_id" in rule.narrowed] == []


async def test_who_was_in_a_segment_by_what_retention_deletes_leaves_it(
    cast: Cast, process: Process
) -> None:
    segment = await cast.ed.made("/segments", {"name": "S", "filter": {"event": "seen"}})
    with long_ago(process):
        ada = (await cast.ed.made("/contacts", {"email": "ada@x.test"}))["id"]
        await cast.ed.made(f"/contacts/{ada}/events", {"name": "seen"})
        await settle(process)
    await settle(process)
    path = f"/segments/{segment['id']}"
    assert (await cast.vic.read(path))["count"] == 1
    await went_round(process)
    await settle(process)
    assert (await cast.vic.read(path))["count"] == 0
