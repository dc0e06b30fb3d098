"""Automations and workflows, and the versions that their runs are pinned to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.store import keyset
from app.store.db import Handle, Row

COLUMNS = """id, shape, name, state, trigger_config, body, version, secret_last4,
             CAST(COALESCE(length(signing_secret), 0) > 0 AS BOOLEAN) AS secret_set, token,
             revision, created_at, updated_at"""


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    shape: str,
    name: str,
    trigger_config: Mapping[str, Any],
    body: str,
) -> Row:
    return await db.returning(
        f"""
        INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body,
                                 version, hidden, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :shape, :name, 'DRAFT', :trigger_config, :body,
                0, :hidden, 0, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
        name=name,
        trigger_config=trigger_config,
        body=body,
        hidden=False,
    )


async def update(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    name: str,
    state: str,
    trigger_config: Mapping[str, Any],
    body: str,
    version: int,
    token: str | None,
) -> Row:
    return await db.returning(
        f"""
        UPDATE definitions
        SET name = :name, state = :state, trigger_config = :trigger_config, body = :body,
            version = :version, token = :token, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        state=state,
        trigger_config=trigger_config,
        body=body,
        version=version,
        token=token,
    )


async def set_secret(
    db: Handle, *, workspace_id: str, id: str, signing_secret: bytes | None, last4: str | None
) -> None:
    """`signing_secret` is encrypted; None removes it."""
    await db.execute(
        """
        UPDATE definitions SET signing_secret = :signing_secret, secret_last4 = :last4
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        signing_secret=signing_secret,
        last4=last4,
    )


async def archive(db: Handle, *, workspace_id: str, id: str) -> None:
    """ARCHIVED and shown no more."""
    await db.execute(
        """
        UPDATE definitions
        SET state = 'ARCHIVED', hidden = :hidden, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        hidden=True,
    )


async def by_id(db: Handle, *, workspace_id: str, shape: str, id: str) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS} FROM definitions
        WHERE workspace_id = :workspace_id AND id = :id AND shape = :shape AND NOT hidden
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
    )


async def locked(db: Handle, *, workspace_id: str, shape: str, id: str) -> Row | None:
    return await db.fetch_one(
        f"""
        SELECT {COLUMNS} FROM definitions
        WHERE workspace_id = :workspace_id AND id = :id AND shape = :shape AND NOT hidden
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
    )


async def by_token(db: Handle, *, token: str) -> Row | None:
    """What a webhook token opens: an ACTIVE definition with a webhook trigger, workspace included.

    The one query without a workspace: the token is what tells it.
    """
    return await db.fetch_one(
        """
        SELECT d.workspace_id, d.id, d.trigger_config, d.signing_secret, w.country
        FROM definitions d
        JOIN workspaces w ON w.id = d.workspace_id
        WHERE d.token = :token AND d.state = 'ACTIVE' AND NOT w.suspended
          AND d.trigger_config ->> 'source' = 'inbound_webhook'
        """,
        token=token,
    )


async def page(
    db: Handle,
    *,
    workspace_id: str,
    shape: str,
    filters: Mapping[str, Any],
    before: str | None,
    limit: int,
) -> list[Row]:
    """Filters: see CLAUSES."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before)
    return await db.fetch_all(
        f"""
        SELECT {COLUMNS} FROM definitions
        WHERE workspace_id = :workspace_id AND shape = :shape AND NOT hidden {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        shape=shape,
        limit=limit,
        **values,
    )


CLAUSES = {
    "state": "state = :state",
    "name": "name = :name",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


async def naming_template(db: Handle, *, workspace_id: str, template_id: str) -> list[str]:
    """Ids of definitions, ARCHIVED ones aside, whose body mentions the template."""
    rows = await db.fetch_all(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND state <> 'ARCHIVED' AND body LIKE :pattern
        ORDER BY id
        """,
        workspace_id=workspace_id,
        pattern=f'%"{template_id}"%',
    )
    return [row["id"] for row in rows]


async def pin(
    db: Handle,
    *,
    workspace_id: str,
    definition_id: str,
    version: int,
    trigger_config: Mapping[str, Any],
    body: str,
) -> None:
    await db.execute(
        """
        INSERT INTO definition_versions (workspace_id, definition_id, version, trigger_config,
                                         body, created_at)
        VALUES (:workspace_id, :definition_id, :version, :trigger_config, :body, :now)
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        version=version,
        trigger_config=trigger_config,
        body=body,
    )


async def pinned(db: Handle, *, workspace_id: str, definition_id: str, version: int) -> Row:
    return await db.returning(
        """
        SELECT d.shape, v.body
        FROM definition_versions v
        JOIN definitions d ON d.workspace_id = v.workspace_id AND d.id = v.definition_id
        WHERE v.workspace_id = :workspace_id AND v.definition_id = :definition_id
          AND v.version = :version
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        version=version,
    )
