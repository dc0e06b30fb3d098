"""Quotas: what a plan allows is exact, and what is counted is what there is, whatever happened."""

from __future__ import annotations

import ast
import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from app.audience import upserts, writing
from app.audience.upserts import Entry
from app.audience.workspace_context import WorkspaceContext
from app.billing import quotas
from app.config.plans import PLANS
from app.database.db import Database, Handle, new_id
from app.database.handle import ConnectedHandle
from app.messages import delivery, providers
from app.messages.create import Order
from app.messages.create import create as create_message
from app.process import Process
from app.providers.base import Fault, Message, Receipt, SendError
from app.store import channel_settings, memberships, usage, workspaces
from app.store.held_messages import HeldMessage
from app.store.usage import CONTACTS, DAILY, MESSAGES
from tests import cast as company
from tests.cast import HELLO, Cast, Person, hook, settle
from tests.messages.test_delivery import Provider, accepts, refuses, with_provider
from tests.present import present
from tests.test_layers import ROOT, modules

STARTER = PLANS["starter"]


def held_message(workspace_id: str) -> HeldMessage:
    """A first mail of a workspace that pays nothing, as delivery holds it."""
    columns: dict[str, Any] = dict.fromkeys(field.name for field in fields(HeldMessage))
    columns |= {"workspace_id": workspace_id, "channel": "email", "tries": 0, "plan": "starter"}
    return HeldMessage(**columns)


async def figures(process: Process, workspace_id: str) -> dict[str, int]:
    async with process.database.read() as db:
        return await quotas.used(db, workspace_id)


async def counted(process: Process, workspace_id: str) -> dict[str, int]:
    """Count from the tables themselves, by none of the code that is tested."""
    async with process.database.read() as db:
        row = await db.fetch_one(
            """
            SELECT (SELECT count(*) FROM contacts WHERE workspace_id = :id) AS contacts,
                   (SELECT count(*) FROM delivery_attempts a
                    JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id
                    WHERE a.workspace_id = :id AND a.tries > 0 AND m.account_mail IS NULL
                   ) AS messages,
                   (SELECT count(*) FROM memberships WHERE workspace_id = :id) AS members
            """,
            id=workspace_id,
        )
    assert row is not None
    return {
        "contacts": row["contacts"],
        "messagesPerMonth": row["messages"],
        "members": row["members"],
    }


async def use_up(
    process: Process, workspace_id: str, meter: str, *, left: int, plan: str = "starter"
) -> None:
    """Use up a meter, so that only `left` more are allowed."""
    async with process.database.write() as db:
        await workspaces.change_plan(db, id=workspace_id, plan=plan)
        of_month = meter == MESSAGES
        period = quotas.month(await db.now()) if of_month else ""
        which = {"workspace_id": workspace_id, "meter": meter, "period": period}
        limit = STARTER.messages_per_month if of_month else STARTER.contacts
        assert limit is not None
        used = await usage.used(db, **which)
        await usage.add(db, **which, amount=limit - left - used)


# --- it cannot drift ------------------------------------------------------------------------------


class Undone(Exception):
    """Exception that the caller of a transaction raises."""


class Anything:
    """Random operations, each as its caller does it."""

    def __init__(self, process: Process, cast: Cast, token: str, seed: int) -> None:
        self.process, self.cast, self.token = process, cast, token
        self.random = random.Random(seed)
        self.workspace = WorkspaceContext(cast.ed.workspace_id, None, process.vault)

    def email(self) -> str:
        return f"p{self.random.randrange(25)}@example.com"

    async def some(self) -> None:
        operations = (
            self.create, self.imported, self.events, self.event, self.erase,
            self.undone, self.fold,
        )  # fmt: skip
        await self.random.choice(operations)()

    async def create(self) -> None:
        response = await self.cast.ed.post("/contacts", {"email": self.email()})
        assert response.status_code in (201, 409)

    async def imported(self) -> None:
        async with self.process.database.write() as db:
            entries = [Entry.read(None, {"email": self.email()}) for _ in range(5)]
            await upserts.upsert(db, self.workspace, entries)

    async def events(self) -> None:
        await asyncio.gather(*(self.event() for _ in range(4)))

    async def event(self) -> None:
        body = {"email": self.email(), "word": "ja"}
        response = await self.cast.client.post(f"/v1/webhooks/in/{self.token}", json=body)
        assert response.status_code == 202

    async def erase(self) -> None:
        found = await self.cast.ed.read(f"/contacts?email={self.email()}")
        for contact in found["data"]:
            assert (await self.cast.ed.delete(f"/contacts/{contact['id']}")).status_code == 204

    async def undone(self) -> None:
        with pytest.raises(Undone):
            await self._make_and_undo()

    async def _make_and_undo(self) -> None:
        async with self.process.database.write() as db:
            await writing.create(db, self.workspace, {"email": f"{new_id('x')}@example.com"})
            raise Undone

    async def fold(self) -> None:
        await quotas.fold_batch(self.process)


@pytest.mark.parametrize("seed", [1])
async def test_what_is_counted_is_what_there_is_after_anything(
    process: Process, cast: Cast, seed: int
) -> None:
    token = await hook(process, cast.ed.workspace_id)
    anything = Anything(process, cast, token, seed)
    for _ in range(40):
        await anything.some()
    await settle(process)
    there = await counted(process, cast.ed.workspace_id)
    assert min(there.values()) > 0
    assert await figures(process, cast.ed.workspace_id) == there
    await quotas.fold_batch(process)
    assert await figures(process, cast.ed.workspace_id) == there
    nothing = {"contacts": 0, "messagesPerMonth": 0, "members": 1}
    assert await figures(process, cast.mallory.workspace_id) == nothing


async def test_two_who_fold_at_once_lose_and_double_nothing(process: Process, acme: str) -> None:
    for _ in range(30):
        async with process.database.write() as db:
            await usage.add(db, workspace_id=acme, meter=CONTACTS)
    await asyncio.gather(*(quotas.fold_batch(process) for _ in range(3)))
    async with process.database.read() as db:
        assert await usage.used(db, workspace_id=acme, meter=CONTACTS) == 30
        assert not await usage.any_changes(db)


def test_whatever_makes_or_deletes_contacts_counts_them() -> None:
    writes = re.compile(r"\b(INSERT INTO|DELETE FROM) contacts\b")
    uncounted = [
        f"{path.relative_to(ROOT)}: {function.name}"
        for path in modules("app/store")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.AsyncFunctionDef)
        if writes.search(text := ast.unparse(function)) and "usage.add" not in text
    ]
    assert uncounted == []


# --- contacts -------------------------------------------------------------------------------------


async def test_a_contact_too_many_is_refused_and_an_event_never_is(
    process: Process, cast: Cast
) -> None:
    await use_up(process, cast.ed.workspace_id, CONTACTS, left=1)
    assert (await cast.ed.post("/contacts", {"email": "a@example.com"})).status_code == 201
    refused = await cast.ed.post("/contacts", {"email": "b@example.com"})
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    known = await cast.ed.post("/contacts", {"email": "a@example.com"})
    assert known.status_code == 409
    assert (await cast.ed.read("/contacts?email=b@example.com"))["data"] == []
    token = await hook(process, cast.ed.workspace_id)
    event = {"email": "c@example.com"}
    accepted = await cast.client.post(f"/v1/webhooks/in/{token}", json=event)
    assert accepted.status_code == 202
    await settle(process)
    assert (await cast.ed.read(f"/runs/{accepted.json()['runId']}"))["status"] == "COMPLETED"
    used = await figures(process, cast.ed.workspace_id)
    assert STARTER.contacts is not None
    assert used["contacts"] == STARTER.contacts + 1


async def test_of_many_at_once_no_more_are_made_than_there_is_room_for(
    process: Process, cast: Cast
) -> None:
    await use_up(process, cast.ed.workspace_id, CONTACTS, left=3)
    emails = [f"p{i}@example.com" for i in range(8)]
    made = await asyncio.gather(*(cast.ed.post("/contacts", {"email": one}) for one in emails))
    assert sorted(one.status_code for one in made) == [201] * 3 + [403] * 5


async def imported(cast: Cast, query: str = "") -> list[dict[str, Any]]:
    file = "email\n" + "".join(f"p{i}@example.com\n" for i in range(4))
    response = await cast.ed.call(
        "POST", f"/contacts/import{query}", content=file, headers={"Content-Type": "text/csv"}
    )
    assert response.status_code == 200
    return [json.loads(line) for line in response.text.splitlines()]


async def test_an_import_makes_what_there_is_room_for_and_names_the_other_rows(
    process: Process, cast: Cast
) -> None:
    await use_up(process, cast.ed.workspace_id, CONTACTS, left=2)
    for query in ("?dryRun=true", ""):
        *errors, totals = await imported(cast, query)
        assert [error["row"] for error in errors] == [4, 5]
        assert "allows no more contacts" in errors[0]["message"]
        assert (totals["created"], totals["failed"]) == (2, 2)
    *errors, totals = await imported(cast)
    assert (len(errors), totals["unchanged"], totals["failed"]) == (2, 2, 2)


# --- messages -------------------------------------------------------------------------------------


async def attempts(cast: Cast) -> Sequence[tuple[str, str | None]]:
    data = (await cast.ed.read("/messages/delivery-attempts"))["data"]
    return sorted((one["status"], one["reason"] and one["reason"]["code"]) for one in data)


async def test_a_message_too_many_is_suppressed_and_its_run_goes_on(
    process: Process, cast: Cast
) -> None:
    await use_up(process, cast.ed.workspace_id, MESSAGES, left=1)
    token = await hook(process, cast.ed.workspace_id)
    accepted = [
        await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": f"{one}@example.com"})
        for one in "abc"
    ]
    assert [one.status_code for one in accepted] == [202] * 3
    await settle(process)
    suppressed = ("SUPPRESSED", "suppressed_quota")
    assert await attempts(cast) == [("SENT", None), suppressed, suppressed]
    for one in accepted:
        assert (await cast.ed.read(f"/runs/{one.json()['runId']}"))["status"] == "COMPLETED"
    async with process.database.write() as db:  # paid for more
        await workspaces.change_plan(db, id=cast.ed.workspace_id, plan="enterprise")
    await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "d@example.com"})
    await settle(process)
    assert (await attempts(cast)).count(("SENT", None)) == 2


async def test_mail_about_accounts_goes_out_whatever_is_used_up(
    process: Process, cast: Cast
) -> None:
    await use_up(process, cast.olivia.workspace_id, MESSAGES, left=0)
    before = await figures(process, cast.olivia.workspace_id)
    invitation = {"email": "new@example.com", "role": "viewer"}
    assert (await cast.olivia.post("/memberships/invitations", invitation)).status_code == 201
    await settle(process)
    assert len((await cast.olivia.read("/sandbox/messages?to=new@example.com"))["data"]) == 1
    assert await figures(process, cast.olivia.workspace_id) == before


async def test_a_message_that_is_tried_again_counts_once(process: Process, cast: Cast) -> None:
    answers = [SendError("not_accepted", "provider_throttled", "Later.")]

    async def moody(_message: Message) -> Receipt:
        if answers:
            raise answers.pop()
        return Receipt("1")

    await cast.ed.made("/messages/test-email", {"to": "ada@example.com", **HELLO})
    process, provider = with_provider(process, moody)
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE jobs SET wake_at = :now")
    await settle(process)
    assert len(provider.given) == 2
    assert await attempts(cast) == [("SENT", None)]
    assert (await figures(process, cast.ed.workspace_id))["messagesPerMonth"] == 1


async def test_of_many_at_once_no_more_are_sent_than_are_left(process: Process, cast: Cast) -> None:
    await use_up(process, cast.ed.workspace_id, MESSAGES, left=2)
    for one in "abcde":
        await cast.ed.made("/messages/test-email", {"to": f"{one}@example.com", **HELLO})
    claimed = await process.claim("message", [], 50)
    await asyncio.gather(*(delivery.deliver(process, row) for row in claimed))
    statuses = [status for status, _ in await attempts(cast)]
    assert statuses == ["SENT"] * 2 + ["SUPPRESSED"] * 3


# --- members --------------------------------------------------------------------------------------


async def test_a_member_too_many_is_refused(
    process: Process, cast: Cast, database: Database
) -> None:
    workspace_id = cast.olivia.workspace_id
    assert STARTER.members is not None
    async with database.write() as db:
        await workspaces.change_plan(db, id=workspace_id, plan="starter")
        await db.execute(
            """
            INSERT INTO users (id, email, email_key, name, password_hash, super_admin, created_at,
                               email_verified_at)
            VALUES ('usr_new', 'new@example.com', 'new@example.com', 'New', '', FALSE, :now, :now)
            """
        )
        for i in range(STARTER.members - 4):
            await db.execute(
                """
                INSERT INTO users (id, email, email_key, name, password_hash, super_admin,
                                   created_at)
                VALUES (:id, :id, :id, 'One', '', FALSE, :now)
                """,
                id=f"usr_{i}",
            )
            await db.execute(
                """
                INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
                VALUES (:workspace_id, :id, :id, 'viewer', :now)
                """,
                workspace_id=workspace_id,
                id=f"usr_{i}",
            )
    for path in ("/memberships", "/memberships/invitations"):
        for email in ("new@example.com", "unknown@example.com"):
            refused = await cast.adam.post(path, {"email": email, "role": "viewer"})
            assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    left = await database_count(database, workspace_id)
    assert left == STARTER.members


async def database_count(database: Database, workspace_id: str) -> int:
    async with database.read() as db:
        count: int = await db.fetch_value(
            "SELECT count(*) FROM memberships WHERE workspace_id = :id", id=workspace_id
        )
        return count


# --- sending is earned ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Newcomers:
    """A workspace of today that pays nothing, in production, and what its provider was given."""

    process: Process
    provider: Provider
    person: Person

    @property
    def given(self) -> list[str]:
        return sorted(message.to for message in self.provider.given)

    async def write(self, *names: str) -> list[str]:
        """Write to strangers of these names, and work until nothing is due; the ids."""
        ids = []
        for name in names:
            message = {"channel": "email", "to": f"{name}@example.com", "content": HELLO}
            ids.append((await self.person.made("/messages", message))["messageId"])
        await settle(self.process)
        return ids

    async def ends(self) -> list[tuple[str, str | None]]:
        rows = (await self.person.read("/messages"))["data"]
        return [(row["status"], row["reason"] and row["reason"]["code"]) for row in rows[::-1]]

    async def sending(self) -> dict[str, Any]:
        sending: dict[str, Any] = (await self.person.read("/billing/plan"))["sending"]
        return sending

    async def set(self, table: str, **values: Any) -> None:
        """Columns of their workspace, or of all users."""
        async with self.process.database.write() as db:
            for column, value in values.items():
                await db.execute(f"UPDATE {table} SET {column} = :value", value=value)


@pytest.fixture
async def newcomers(process: Process, client: httpx2.AsyncClient) -> AsyncIterator[Newcomers]:
    changed = replace(process, settings=replace(process.settings, environment="production"))
    live, provider = with_provider(changed, accepts)
    workspace_id = await company.workspace(live, "Newcomers")
    person = await company.person(live, client, workspace_id, "nina", "editor")
    async with company.client(live) as own:
        made = Newcomers(live, provider, replace(person, client=own))
        await made.set("workspaces", plan="starter")
        yield made


async def test_a_process_looks_once_in_a_while_where_a_new_workspace_s_messages_are_counted(
    newcomers: Newcomers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a sharded database all shards are asked for that."""
    await newcomers.set("memberships", role="owner")
    process, whose, looks = newcomers.process, newcomers.person.workspace_id, 0
    fetch_value = Handle.fetch_value

    async def counting(self: Handle, sql: str, /, **values: object) -> object:
        nonlocal looks
        looks += "JOIN workspaces" in sql
        return await fetch_value(self, sql, **values)

    monkeypatch.setattr(Handle, "fetch_value", counting)
    monkeypatch.setattr(ConnectedHandle, "is_sharded", True)
    for _ in range(3):
        async with process.database.read() as db:
            judged = await quotas._judged(process, db, whose)
        assert judged is not None
        assert judged.allowance_of == whose
    assert looks == 1


async def test_nothing_reaches_outsiders_before_an_owner_verified_their_address(
    newcomers: Newcomers,
) -> None:
    async with newcomers.process.database.write() as db:
        await db.execute(
            "UPDATE users SET email_verified_at = NULL WHERE id <> :id",
            id=newcomers.person.user_id,
        )
    assert (await newcomers.sending())["verified"] is False
    own = {"to": newcomers.person.email, **HELLO}
    assert (await newcomers.person.post("/messages/test-email", own)).status_code == 202
    [held] = await newcomers.write("ada")
    assert newcomers.given == [newcomers.person.email]
    assert (await newcomers.ends())[1] == ("SUPPRESSED", "suppressed_unverified")
    reason = (await newcomers.person.read(f"/messages/{held}"))["reason"]
    assert "verified their email address" in reason["detail"]

    now = datetime.now(UTC)
    await newcomers.set("users", email_verified_at=now)
    assert (await newcomers.sending())["verified"] is True
    assert (await newcomers.person.post(f"/messages/{held}/resend")).status_code == 202
    await settle(newcomers.process)
    assert newcomers.given == ["ada@example.com", newcomers.person.email]
    again = await newcomers.person.post(f"/messages/{held}/resend")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_a_run_goes_on_when_its_workspace_may_not_send(newcomers: Newcomers) -> None:
    await newcomers.set("users", email_verified_at=None)
    token = await hook(newcomers.process, newcomers.person.workspace_id)
    sent = await newcomers.person.client.post(
        f"/v1/webhooks/in/{token}", json={"email": "ada@example.com"}
    )
    assert sent.status_code == 202
    await settle(newcomers.process)
    assert newcomers.given == []
    run = await newcomers.person.read(f"/runs/{sent.json()['runId']}")
    assert run["status"] == "COMPLETED"


async def test_a_text_message_has_no_insiders(newcomers: Newcomers) -> None:
    await newcomers.set("users", email_verified_at=None)
    live = replace(newcomers.process, channels={"sms": newcomers.provider})
    async with live.database.write() as db:
        order = Order(
            workspace_id=newcomers.person.workspace_id, channel="sms", contact_id=None,
            to="+4915112345678", template_id=None, content={"text": "Hello"},
        )  # fmt: skip
        await create_message(live, db, order)
    await settle(live)
    assert await newcomers.ends() == [("SUPPRESSED", "suppressed_unverified")]


async def test_a_new_workspace_sends_two_hundred_messages_a_day(newcomers: Newcomers) -> None:
    id = newcomers.person.workspace_id
    async with newcomers.process.database.write() as db:
        await usage.add(
            db, workspace_id=id, meter=DAILY, amount=198, period=quotas.day(await db.now())
        )
    await newcomers.write("a", "b", "c")
    assert newcomers.given == ["a@example.com", "b@example.com"]
    too_many = ("SUPPRESSED", "suppressed_daily_limit")
    assert await newcomers.ends() == [("SENT", None)] * 2 + [too_many]
    sending = await newcomers.sending()
    assert datetime.fromisoformat(sending.pop("limitedUntil")) > datetime.now(UTC)
    assert sending == {"verified": True, "dailyLimit": 200, "sentToday": 200}

    async with newcomers.process.database.write() as db:  # what counted was yesterday's
        await db.execute(
            "UPDATE usage_changes SET period = '2020-01-01' WHERE meter = :daily", daily=DAILY
        )
    await newcomers.write("d")
    assert (await newcomers.ends())[-1] == ("SENT", None)


async def test_what_the_month_refuses_uses_up_nothing_of_the_day(newcomers: Newcomers) -> None:
    id, limit = newcomers.person.workspace_id, present(STARTER.messages_per_month)
    async with newcomers.process.database.write() as db:
        period = quotas.month(await db.now())
        await usage.add(db, workspace_id=id, meter=MESSAGES, amount=limit, period=period)
    await newcomers.write("a", "b")
    assert await newcomers.ends() == [("SUPPRESSED", "suppressed_quota")] * 2
    assert (await newcomers.sending())["sentToday"] == 0


async def test_all_new_workspaces_of_one_person_share_one_allowance(newcomers: Newcomers) -> None:
    person, process = newcomers.person, newcomers.process
    second = new_id("ws")
    async with process.database.write() as db:
        owner = await db.fetch_value("SELECT user_id FROM memberships WHERE role = 'owner'")
        await workspaces.insert(db, id=second, name="Second", timezone="UTC")
        await memberships.insert(
            db, workspace_id=second, id=new_id("mem"), user_id=owner, role="owner"
        )
        today = quotas.day(await db.now())
        await usage.add(db, workspace_id=person.workspace_id, meter=DAILY, amount=199, period=today)
        message = held_message(second)
        taken = [
            await quotas.take_message(process, db, message, to="a@example.com", is_operators=True)
            for _ in range(2)
        ]
    assert taken == [None, "suppressed_daily_limit"]
    assert (await newcomers.sending())["sentToday"] == 200
    await newcomers.set("workspaces", plan="growth")  # whichever pays has no part in it
    await newcomers.write("b")
    assert newcomers.given == ["b@example.com"]


@pytest.mark.parametrize(
    ("column", "value"), [("plan", "growth"), ("created_at", datetime(2020, 1, 1, tzinfo=UTC))]
)
async def test_the_day_s_count_goes_on_when_the_oldest_workspace_is_no_longer_new(
    newcomers: Newcomers, column: str, value: object
) -> None:
    person, process = newcomers.person, newcomers.process
    second = new_id("ws")
    async with process.database.write() as db:
        owner = await db.fetch_value("SELECT user_id FROM memberships WHERE role = 'owner'")
        await workspaces.insert(db, id=second, name="Second", timezone="UTC")
        await memberships.insert(
            db, workspace_id=second, id=new_id("mem"), user_id=owner, role="owner"
        )
        today = quotas.day(await db.now())
        await usage.add(db, workspace_id=person.workspace_id, meter=DAILY, amount=200, period=today)
        await db.execute(
            f"UPDATE workspaces SET {column} = :value WHERE id = :id",
            value=value,
            id=person.workspace_id,
        )
        taken = await quotas.take_message(
            process, db, held_message(second), to="a@example.com", is_operators=True
        )
    assert taken == "suppressed_daily_limit"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("plan", "growth"),
        ("daily_limit", 300),
        ("created_at", datetime(2020, 1, 1, tzinfo=UTC)),
    ],
)
async def test_the_limit_of_new_workspaces_is_lifted(
    newcomers: Newcomers, column: str, value: object
) -> None:
    id = newcomers.person.workspace_id
    async with newcomers.process.database.write() as db:
        await usage.add(
            db, workspace_id=id, meter=DAILY, amount=200, period=quotas.day(await db.now())
        )
    await newcomers.set("workspaces", **{column: value})
    await newcomers.write("a")
    assert newcomers.given == ["a@example.com"]
    limit = 300 if column == "daily_limit" else None
    sending = await newcomers.sending()
    assert (sending["dailyLimit"], sending["limitedUntil"]) == (limit, None)


async def test_an_operator_s_limit_holds_for_old_workspaces_too(newcomers: Newcomers) -> None:
    old = datetime(2020, 1, 1, tzinfo=UTC)
    await newcomers.set("workspaces", created_at=old, plan="growth", daily_limit=1)
    await newcomers.write("a", "b")
    assert newcomers.given == ["a@example.com"]
    await newcomers.set("workspaces", daily_limit=None)
    await newcomers.write("c")
    assert newcomers.given == ["a@example.com", "c@example.com"]


async def test_of_many_at_once_no_more_are_sent_than_the_day_has(newcomers: Newcomers) -> None:
    await newcomers.set("workspaces", daily_limit=2)
    for name in "abcde":
        message = {"channel": "email", "to": f"{name}@example.com", "content": HELLO}
        await newcomers.person.made("/messages", message)
    claimed = await newcomers.process.claim("message", [], 50)
    await asyncio.gather(*(delivery.deliver(newcomers.process, row) for row in claimed))
    assert len(newcomers.given) == 2
    statuses = sorted(status for status, _ in await newcomers.ends())
    assert statuses == ["SENT"] * 2 + ["SUPPRESSED"] * 3


async def test_what_goes_through_a_provider_of_its_own_is_not_limited_by_the_day(
    newcomers: Newcomers,
) -> None:
    await newcomers.set("workspaces", daily_limit=0)
    message = held_message(newcomers.person.workspace_id)
    await newcomers.set("users", email_verified_at=datetime.now(UTC))
    async with newcomers.process.database.write() as db:
        for is_operators, reason in ((False, None), (True, "suppressed_daily_limit")):
            taken = await quotas.take_message(
                newcomers.process, db, message, to="a@example.com", is_operators=is_operators
            )
            assert taken == reason


@dataclass(slots=True)
class OwnProvider(Provider):
    """A workspace's own, which it has set up."""

    async def verify(self) -> list[Fault]:
        return []


async def test_what_a_provider_of_its_own_put_off_counts_when_it_goes_through_the_operator_s(
    newcomers: Newcomers,
) -> None:
    process, id = newcomers.process, newcomers.person.workspace_id
    await newcomers.set("workspaces", daily_limit=2)
    async with process.database.write() as db:
        row = await providers.keep(process, db, id, "email", {"provider": "smtp"})
    later = SendError("not_accepted", "recipient_deferred", "Later.")
    own = OwnProvider(refuses(later))
    process.workspace_channels.kept(row.sealed, lambda: own)
    await newcomers.write("a", "b", "c")
    assert len(own.given) == 3
    assert (await newcomers.sending())["sentToday"] == 0

    async with process.database.write() as db:
        await channel_settings.delete(db, workspace_id=id, channel="email")
    for answer in (refuses(later), accepts):
        newcomers.provider.answer = answer
        await newcomers.set("jobs", wake_at=datetime.now(UTC))
        await settle(process)
    assert len(newcomers.given) == 4  # two of them, twice
    assert (await newcomers.sending())["sentToday"] == 2
    too_many = ("SUPPRESSED", "suppressed_daily_limit")
    assert sorted(await newcomers.ends()) == [("SENT", None)] * 2 + [too_many]
    assert (await figures(process, id))["messagesPerMonth"] == 3


async def test_the_sandbox_asks_for_none_of_it(process: Process, cast: Cast) -> None:
    async with process.database.write() as db:
        await db.execute("UPDATE users SET email_verified_at = NULL")
        await db.execute("UPDATE workspaces SET plan = 'starter', daily_limit = 0")
    message = {"channel": "email", "to": "ada@example.com", "content": HELLO}
    await cast.ed.made("/messages", message)
    await settle(process)
    assert await attempts(cast) == [("SENT", None)]
    assert (await cast.ed.read("/billing/plan"))["sending"]["dailyLimit"] is None
