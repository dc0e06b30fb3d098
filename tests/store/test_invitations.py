"""Invitations in the database: one pending for an address, accepted once, however many try."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.database.db import Database, explain_by_index
from app.errors import Duplicate
from app.store import invitations, memberships, users, workspaces

WEEK = timedelta(days=7)


@pytest.fixture
async def workspace(database: Database) -> str:
    async with database.write() as db:
        await users.insert(
            db, id="usr_1", email="o@a.test", email_key="o@a.test", name="O", password_hash="-"
        )
        for id in ("ws_1", "ws_2"):
            await workspaces.insert(db, id=id, name=id, timezone="UTC")
            await memberships.insert(
                db, workspace_id=id, id=f"mem_{id}", user_id="usr_1", role="admin"
            )
    return "ws_1"


async def invite(database: Database, id: str, email: str = "n@a.test", **given: Any) -> None:
    async with database.write() as db:
        await invitations.insert(
            db,
            **{
                "workspace_id": "ws_1",
                "id": id,
                "email": email,
                "email_key": email,
                "role": "viewer",
                "hash": id.encode(),
                "invited_by": "usr_1",
                "expires_at": await db.now() + WEEK,
                **given,
            },
        )


async def statuses(database: Database) -> dict[str, str]:
    async with database.read() as db:
        rows = await invitations.page(db, workspace_id="ws_1", filters={}, before=None, limit=9)
    return {row.id: row.status for row in rows}


async def test_what_was_just_made_is_pending(database: Database, workspace: str) -> None:
    await invite(database, "inv_1")
    async with database.read() as db:
        row = await invitations.by_id(db, workspace_id=workspace, id="inv_1")
    assert row is not None
    assert isinstance(row.expires_at, datetime)
    assert (row.status, row.expires_at - row.created_at) == ("PENDING", WEEK)


async def test_an_address_has_one_pending_invitation_in_a_workspace(
    database: Database, workspace: str
) -> None:
    await invite(database, "inv_1")
    with pytest.raises(Duplicate) as caught:
        await invite(database, "inv_2")
    assert caught.value.constraint == "invitations_pending"
    await invite(database, "inv_3", workspace_id="ws_2")
    async with database.write() as db:
        await invitations.revoke(db, workspace_id=workspace, id="inv_1")
    await invite(database, "inv_4")
    assert await statuses(database) == {"inv_4": "PENDING", "inv_1": "REVOKED"}


@pytest.mark.parametrize("rivals", [2, 8])
async def test_of_many_transactions_that_accept_at_once_one_does(
    database: Database, workspace: str, rivals: int
) -> None:
    await invite(database, "inv_1")
    ready = asyncio.Barrier(1 if database.engine == "sqlite" else rivals)

    async def accept() -> bool:
        async with database.write() as db:
            await ready.wait()  # SQLite has one writer: there they come one after the other
            return await invitations.accept(db, workspace_id=workspace, id="inv_1")

    outcomes = await asyncio.gather(*(accept() for _ in range(rivals)))
    assert sorted(outcomes) == [False] * (rivals - 1) + [True]
    assert await statuses(database) == {"inv_1": "ACCEPTED"}


async def test_an_acceptance_that_is_undone_leaves_it_to_others(
    database: Database, workspace: str
) -> None:
    await invite(database, "inv_1")

    async def accept_and_fail() -> None:
        async with database.write() as db:
            assert await invitations.accept(db, workspace_id=workspace, id="inv_1")
            raise LookupError

    with pytest.raises(LookupError):
        await accept_and_fail()
    async with database.write() as db:
        assert await invitations.accept(db, workspace_id=workspace, id="inv_1")


async def test_revoking_and_accepting_at_once_leaves_one_of_the_two(
    database: Database, workspace: str
) -> None:
    await invite(database, "inv_1")

    async def revoke() -> None:
        async with database.write() as db:
            await invitations.revoke(db, workspace_id=workspace, id="inv_1")

    async def accept() -> bool:
        async with database.write() as db:
            return await invitations.accept(db, workspace_id=workspace, id="inv_1")

    _, accepted = await asyncio.gather(revoke(), accept())
    assert await statuses(database) == {"inv_1": "ACCEPTED" if accepted else "REVOKED"}


async def test_time_expires_it_and_a_later_revocation_does_not_change_that(
    database: Database, workspace: str
) -> None:
    async with database.read() as db:
        now = await db.now()
    await invite(database, "inv_1", expires_at=now - timedelta(seconds=1))
    assert await statuses(database) == {"inv_1": "EXPIRED"}
    async with database.write() as db:
        assert not await invitations.accept(db, workspace_id=workspace, id="inv_1")
        await invitations.revoke(db, workspace_id=workspace, id="inv_1")
    assert await statuses(database) == {"inv_1": "EXPIRED"}


async def test_it_is_found_with_what_its_inviter_is_today(
    database: Database, workspace: str
) -> None:
    await invite(database, "inv_1")

    async def role() -> str | None:
        async with database.read() as db:
            row = await invitations.by_hash(db, workspace_id=workspace, hash=b"inv_1")
            assert await invitations.by_hash(db, workspace_id="ws_2", hash=b"inv_1") is None
        assert row is not None
        found: str | None = row.inviter_role
        return found

    assert await role() == "admin"
    async with database.write() as db:
        await memberships.change_role(db, workspace_id=workspace, id="mem_ws_1", role="viewer")
    assert await role() == "viewer"
    async with database.write() as db:
        await memberships.delete(db, workspace_id=workspace, id="mem_ws_1")
    assert await role() is None


async def test_mail_about_an_account_is_filed_where_its_user_belongs(
    database: Database, workspace: str
) -> None:
    await invite(database, "inv_1")

    async def home(id: str, email: str) -> str | None:
        async with database.read() as db:
            return await users.home(db, id=id, email_key=email)

    assert await home("usr_1", "o@a.test") == "ws_1"
    assert await home("usr_2", "n@a.test") == "ws_1"  # of no workspace, but invited
    assert await home("usr_2", "m@a.test") is None


async def test_a_token_is_found_by_an_index(database: Database, workspace: str) -> None:
    async with database.read() as db:
        plan = await explain_by_index(
            db,
            "SELECT id FROM invitations WHERE workspace_id = :workspace_id AND hash = :hash",
            workspace_id=workspace,
            hash=b"inv_1",
        )
    assert "hash" in plan
    assert "Seq Scan" not in plan
    assert "SCAN invitations" not in plan
