"""Outbound events, stored in the transaction of the change; app/outbound/deliver.py delivers them.

An event holds ids and codes, no personal data: receivers read the rest from the API, in its current
state, and an erasure has nothing to remove here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from app.database.db import Handle, new_id
from app.machine import document
from app.machine.program import Json
from app.store import outbound_events

Type: TypeAlias = Literal[
    "contact.created",
    "contact.updated",
    "contact.deleted",
    "contact.unsubscribed",
    "run.completed",
    "run.failed",
    "message.sent",
    "message.delivered",
    "message.bounced",
    "message.complained",
    "message.failed",
    "message.unknown",
    "broadcast.paused",
    "broadcast.sent",
]
TYPES: frozenset[str] = frozenset(get_args(Type))


async def record(db: Handle, workspace_id: str, type: str, *about: Mapping[str, Json]) -> None:
    """One event for each; one look at the workspace's endpoints when none subscribes to it.

    A disabled endpoint gets none, but what it missed can be replayed to it. What is due the
    workers' heartbeat finds.
    """
    endpoints = await outbound_events.listening(db, workspace_id=workspace_id) if about else []
    wanted = [row for row in endpoints if not row.types or type in row.types]
    if not wanted:
        return
    made = [(new_id("evt"), document.dumps(data).decode()) for data in about]
    await outbound_events.insert(db, workspace_id=workspace_id, type=type, made=made)
    endpoint_ids = [row.id for row in wanted if row.disabled_reason is None]
    await outbound_events.insert_attempts(
        db,
        workspace_id=workspace_id,
        rows=[(new_id("eva"), endpoint_id, id) for id, _ in made for endpoint_id in endpoint_ids],
    )
