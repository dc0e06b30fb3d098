"""The members of workspaces, and their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.store import keyset
from app.store.workspaces import Workspace


@dataclass(frozen=True, slots=True)
class Membership:
    id: str
    user_id: str
    role: str
    sends_broadcasts: bool  # as an editor, too
    revision: int
    created_at: datetime
    email: str
    email_key: str
    name: str


COLUMNS = """m.id, m.user_id, m.role, m.sends_broadcasts, m.revision, m.created_at, u.email,
             u.email_key, u.name"""
WORKSPACE = columns(Workspace, "w")


@dataclass(frozen=True, slots=True)
class JoinedWorkspace(Workspace):
    role: str  # of the user, there


async def insert(db: Handle, *, workspace_id: str, id: str, user_id: str, role: str) -> Membership:
    """Raises errors.Duplicate for a member."""
    await db.execute(
        """
        INSERT INTO memberships (workspace_id, id, user_id, role, created_at)
        VALUES (:workspace_id, :id, :user_id, :role, :now)
        """,
        workspace_id=workspace_id,
        id=id,
        user_id=user_id,
        role=role,
    )
    row = await by_id(db, workspace_id=workspace_id, id=id)
    if row is None:
        raise LookupError("a membership that was just made is there")
    return row


async def workspace(db: Handle, *, user_id: str, workspace_id: str | None) -> Workspace | None:
    """Read this workspace if the user belongs to it; without an id the one joined first."""
    return await db.fetch_one_as(
        Workspace,
        f"""
        SELECT {WORKSPACE}
        FROM memberships m
        JOIN workspaces w ON w.id = m.workspace_id AND w.deleted_at IS NULL
        WHERE m.user_id = :user_id
          AND (CAST(:workspace_id AS TEXT) IS NULL OR m.workspace_id = :workspace_id)
        ORDER BY m.id
        LIMIT 1
        """,
        user_id=user_id,
        workspace_id=workspace_id,
    )


async def workspace_ids(db: Handle, *, user_id: str) -> list[str]:
    """The ids of all that the user belongs to, in one order for whoever locks rows in each."""
    return await db.fetch_values(
        "SELECT workspace_id FROM memberships WHERE user_id = :user_id ORDER BY workspace_id",
        user_id=user_id,
    )


async def has_email(db: Handle, *, workspace_id: str, email_key: str) -> bool:
    """Return whether the address is a member's, and was shown to be."""
    found = await db.fetch_value(
        """
        SELECT m.id
        FROM memberships m
        JOIN users u ON u.id = m.user_id
        WHERE m.workspace_id = :workspace_id AND u.email_key = :email_key
          AND u.email_verified_at IS NOT NULL
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )
    return found is not None


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[Membership]:
    """A page of memberships, the newest first."""
    return await keyset.page(
        db,
        Membership,
        "memberships m JOIN users u ON u.id = m.user_id",
        COLUMNS,
        CLAUSES,
        key="m.id",
        **asked,
    )


CLAUSES = {
    "created_after": "m.created_at > :created_after",
    "created_before": "m.created_at < :created_before",
}


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Membership | None:
    return await db.fetch_one_as(
        Membership,
        f"""
        SELECT {COLUMNS}
        FROM memberships m
        JOIN users u ON u.id = m.user_id
        WHERE m.workspace_id = :workspace_id AND m.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def by_user(db: Handle, *, workspace_id: str, user_id: str) -> Membership | None:
    return await db.fetch_one_as(
        Membership,
        f"""
        SELECT {COLUMNS}
        FROM memberships m
        JOIN users u ON u.id = m.user_id
        WHERE m.workspace_id = :workspace_id AND m.user_id = :user_id
        """,
        workspace_id=workspace_id,
        user_id=user_id,
    )


async def count(db: Handle, *, workspace_id: str) -> int:
    members: int = await db.fetch_value(
        "SELECT count(*) FROM memberships WHERE workspace_id = :workspace_id",
        workspace_id=workspace_id,
    )
    return members


async def count_owned(db: Handle, *, user_id: str) -> int:
    """The workspaces that the user is an owner of."""
    owned: int = await db.fetch_value(
        "SELECT count(*) FROM memberships WHERE user_id = :user_id AND role = 'owner'",
        user_id=user_id,
    )
    return owned


async def owners(db: Handle, *, workspace_id: str) -> list[str]:
    """Ids of the owners' memberships, locked: of two owners who leave at once the second waits,
    and no longer finds the first."""
    return await db.fetch_values(
        """
        SELECT id FROM memberships
        WHERE workspace_id = :workspace_id AND role = 'owner'
        ORDER BY id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Membership | None:
    """The person is read afterwards: they are in no workspace's shard."""
    await db.execute(
        "SELECT id FROM memberships WHERE workspace_id = :workspace_id AND id = :id FOR UPDATE",
        workspace_id=workspace_id,
        id=id,
    )
    return await by_id(db, workspace_id=workspace_id, id=id)


async def change_role(
    db: Handle, *, workspace_id: str, id: str, role: str, sends_broadcasts: bool = False
) -> int:
    """The new revision of one that is locked."""
    revision: int = await db.fetch_value(
        """
        UPDATE memberships
        SET role = :role, sends_broadcasts = :sends_broadcasts, revision = revision + 1
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING revision
        """,
        workspace_id=workspace_id,
        id=id,
        role=role,
        sends_broadcasts=sends_broadcasts,
    )
    return revision


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    await db.execute(
        "DELETE FROM memberships WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def workspaces_of(
    db: Handle, *, user_id: str, filters: Mapping[str, object], before: str | None, limit: int
) -> list[JoinedWorkspace]:
    """The workspaces that a user belongs to, newest first, each with the user's role there."""
    narrowed, values = keyset.narrowed(WORKSPACES, filters, before, "w.id")
    return await db.fetch_all_as(
        JoinedWorkspace,
        f"""
        SELECT {WORKSPACE}, m.role
        FROM memberships m
        JOIN workspaces w ON w.id = m.workspace_id AND w.deleted_at IS NULL
        WHERE m.user_id = :user_id {narrowed}
        ORDER BY w.id DESC
        LIMIT :limit
        """,
        user_id=user_id,
        limit=limit,
        **values,
    )


WORKSPACES = {
    "id": "w.id = :id",
    "created_after": "w.created_at > :created_after",
    "created_before": "w.created_at < :created_before",
    "updated_after": "w.updated_at > :updated_after",
}
