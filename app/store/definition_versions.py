"""The versions of automations and workflows, each as it was activated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.machine.check import Shape
from app.store import keyset


@dataclass(frozen=True, slots=True)
class Pinned:
    """A version, with the shape that it has."""

    shape: Shape
    trigger_config: Mapping[str, Any]
    body: str  # JSON


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """A version without its trigger and its body, which may be large."""

    id: str  # the version as text, for cursors
    version: int
    trigger_source: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Version:
    version: int
    trigger_config: Mapping[str, Any]
    body: str  # JSON
    created_at: datetime


async def pin(
    db: Handle,
    *,
    workspace_id: str,
    definition_id: str,
    version: int,
    trigger_config: Mapping[str, Any],
    body: str,
) -> None:
    """Keep a version as it is activated; runs go by it from then on."""
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


async def pinned(db: Handle, *, workspace_id: str, definition_id: str, version: int) -> Pinned:
    return await db.returning_as(
        Pinned,
        """
        SELECT d.shape, v.trigger_config, v.body
        FROM definition_versions v
        JOIN definitions d ON d.workspace_id = v.workspace_id AND d.id = v.definition_id
        WHERE v.workspace_id = :workspace_id AND v.definition_id = :definition_id
          AND v.version = :version
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        version=version,
    )


async def page(
    db: Handle,
    *,
    workspace_id: str,
    definition_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
) -> list[VersionSummary]:
    """A page of versions, the newest first. `id` is the version as text, for cursors."""
    given = dict(filters) if before is None else {**filters, "older_than": int(before)}
    narrowed, values = keyset.narrowed(CLAUSES, given, None)
    return await db.fetch_all_as(
        VersionSummary,
        f"""
        SELECT CAST(version AS TEXT) AS id, version,
               trigger_config ->> 'source' AS trigger_source, created_at
        FROM definition_versions
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id {narrowed}
        ORDER BY version DESC
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        limit=limit,
        **values,
    )


CLAUSES = {
    "older_than": "version < :older_than",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
}


async def by_number(
    db: Handle, *, workspace_id: str, definition_id: str, version: int
) -> Version | None:
    return await db.fetch_one_as(
        Version,
        """
        SELECT version, trigger_config, body, created_at
        FROM definition_versions
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
          AND version = :version
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        version=version,
    )
