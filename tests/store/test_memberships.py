"""Memberships: the workspace that a user signs in to, and those that they belong to."""

from __future__ import annotations

import pytest

from app.database.db import Database
from app.store import memberships, users, workspaces


@pytest.fixture
async def member(database: Database) -> str:
    """A member of ws_late first and of ws_early second."""
    async with database.write() as db:
        await users.insert(
            db, id="usr_1", email="o@a.test", email_key="o@a.test", name="O", password_hash="-"
        )
        for id in ("ws_early", "ws_late", "ws_other"):
            await workspaces.insert(db, id=id, name=id, timezone="UTC")
        for id, workspace_id in (("mem_1", "ws_late"), ("mem_2", "ws_early")):
            await memberships.insert(
                db, workspace_id=workspace_id, id=id, user_id="usr_1", role="viewer"
            )
    return "usr_1"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, "ws_late"),
        ("ws_late", "ws_late"),
        ("ws_early", "ws_early"),
        ("ws_other", None),
        ("ws_nowhere", None),
    ],
)
async def test_the_workspace_asked_for_or_the_oldest_membership_s(
    database: Database, member: str, asked: str | None, found: str | None
) -> None:
    async with database.read() as db:
        workspace = await memberships.workspace(db, user_id=member, workspace_id=asked)
        stranger = await memberships.workspace(db, user_id="usr_2", workspace_id=asked)
        expected = found and await workspaces.by_id(db, id=found)
    assert workspace == expected
    assert stranger is None


async def test_all_workspaces_of_a_user_are_known(database: Database, member: str) -> None:
    async with database.read() as db:
        assert await memberships.workspace_ids(db, user_id=member) == ["ws_early", "ws_late"]
        assert await memberships.workspace_ids(db, user_id="usr_2") == []
