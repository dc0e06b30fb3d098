"""Who belongs to which workspace, in which role."""

from __future__ import annotations

from app.store.db import Handle, Row


async def insert(db: Handle, *, workspace_id: str, id: str, user_id: str, role: str) -> None:
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


async def workspace(db: Handle, *, user_id: str, workspace_id: str | None) -> Row | None:
    """This workspace if the user belongs to it; without an id the one of the oldest membership."""
    return await db.fetch_one(
        """
        SELECT w.id, w.name, w.timezone, w.country, w.suspended, w.revision, w.created_at,
               w.updated_at
        FROM memberships m
        JOIN workspaces w ON w.id = m.workspace_id
        WHERE m.user_id = :user_id
          AND (CAST(:workspace_id AS TEXT) IS NULL OR m.workspace_id = :workspace_id)
        ORDER BY m.id
        LIMIT 1
        """,
        user_id=user_id,
        workspace_id=workspace_id,
    )


async def has_email(db: Handle, *, workspace_id: str, email_key: str) -> bool:
    """Whether a member has this address."""
    found = await db.fetch_value(
        """
        SELECT m.id
        FROM memberships m
        JOIN users u ON u.id = m.user_id
        WHERE m.workspace_id = :workspace_id AND u.email_key = :email_key
        """,
        workspace_id=workspace_id,
        email_key=email_key,
    )
    return found is not None
