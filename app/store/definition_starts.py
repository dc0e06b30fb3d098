"""Automations and workflows by what starts them: a webhook, an event, a tag, a segment or a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.database.db import Handle
from app.machine.check import Shape
from app.store import directory
from app.store.directory import Place


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A definition and its workspace, as far as the intake needs them."""

    workspace_id: str
    id: str
    state: str
    revision: int
    trigger_config: Mapping[str, Any]
    signing_secret: bytes | None  # encrypted
    token: str
    country: str | None
    suspended: bool


async def by_tokens(
    db: Handle, *, tokens: Sequence[str], known: Mapping[str, Place] | None = None
) -> list[TargetRow]:
    """The definitions that webhook tokens belong to, in whatever state, with what the intake needs
    of them; one statement for each workspace, in one trip.

    The places of tokens that are `known` are not looked up: such a token never moves to another
    definition, but may be replaced there, so that a row has another token than was asked for.
    """
    places = dict(known or {})
    unknown = [token for token in tokens if token not in places]
    if unknown:
        places |= await directory.find(db, "webhook", keys=unknown)
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for place in places.values():
        ids[place.workspace_id].append(place.id)
    if not ids:
        return []
    found = await db.fetch_each(
        f"""
        SELECT {TARGET_COLUMNS}
        FROM definitions d
        JOIN workspaces w ON w.id = d.workspace_id
        WHERE d.workspace_id = :workspace_id AND d.id = ANY(:ids)
        """,
        [{"workspace_id": workspace_id, "ids": some} for workspace_id, some in ids.items()],
    )
    return [TargetRow(**row) for rows in found for row in rows]


async def webhook_target(db: Handle, *, workspace_id: str, id: str) -> TargetRow | None:
    """The same of one definition, by its id."""
    return await db.fetch_one_as(
        TargetRow,
        f"""
        SELECT {TARGET_COLUMNS}
        FROM definitions d
        JOIN workspaces w ON w.id = d.workspace_id
        WHERE d.workspace_id = :workspace_id AND d.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


TARGET_COLUMNS = """d.workspace_id, d.id, d.state, d.revision, d.trigger_config, d.signing_secret,
               d.token, w.country, w.suspended"""


@dataclass(frozen=True, slots=True)
class Started:
    """The ids of what something starts, and of the segments to judge its contacts for."""

    definitions: Sequence[str]
    segments: Sequence[str]


async def started_by(
    db: Handle, *, workspace_id: str, source: str, key: str, names: Sequence[str] = ()
) -> Started:
    """The ACTIVE ones whose trigger this is; `key` is the tag or the event's name. The segments
    that have one of the names come by the same statement: most workspaces have none."""
    ids = await db.fetch_values(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND state = 'ACTIVE'
          AND trigger_config ->> 'source' = :source
          AND CASE trigger_config ->> 'source' WHEN 'tag_added' THEN trigger_config ->> 'tag'
                                               WHEN 'event' THEN trigger_config ->> 'name'
                                               ELSE '' END = :key
        UNION ALL
        SELECT segment_id FROM segment_names
        WHERE workspace_id = :workspace_id AND name = ANY(:names)
        """,
        workspace_id=workspace_id,
        source=source,
        key=key,
        names=list(names),
    )
    ids = sorted(set(ids))
    return Started(
        [id for id in ids if not id.startswith("seg_")],
        [id for id in ids if id.startswith("seg_")],
    )


async def moved_by(
    db: Handle, *, workspace_id: str, source: str, segment_id: str
) -> tuple[list[str], list[str]]:
    """The ones that an entry into the segment or an exit starts; and those that it would start,
    were they not PAUSED."""
    rows = await db.fetch_tuples(
        """
        SELECT id, state FROM definitions
        WHERE workspace_id = :workspace_id AND state = 'ACTIVE'
          AND trigger_config ->> 'source' = :source
          AND trigger_config ->> 'segmentId' = :segment_id
        UNION ALL
        SELECT id, state FROM definitions
        WHERE workspace_id = :workspace_id AND state = 'PAUSED'
          AND trigger_config ->> 'source' = :source
          AND trigger_config ->> 'segmentId' = :segment_id
        """,
        workspace_id=workspace_id,
        source=source,
        segment_id=segment_id,
    )
    active = sorted(id for id, state in rows if state == "ACTIVE")
    return active, sorted(id for id, state in rows if state == "PAUSED")


@dataclass(frozen=True, slots=True)
class StartedDefinition:
    """A definition as it is read to check another one that starts it."""

    id: str
    shape: Shape
    state: str
    body: str | None  # JSON; None where it and those before it have more than MOST_BYTES


# Of the bodies that are read together: half of what a job of compute takes.
MOST_BYTES = 4 * 1024 * 1024


async def started(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[StartedDefinition]:
    """The definitions as they are now, with as many bodies as have MOST_BYTES together."""
    return await db.fetch_all_as(
        StartedDefinition,
        """
        SELECT id, shape, state,
               CASE WHEN SUM(octet_length(body)) OVER (ORDER BY id) <= :most_bytes
                    THEN body END AS body
        FROM definitions
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND NOT hidden
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        most_bytes=MOST_BYTES,
    )


async def active(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[str]:
    """The ids of these that are ACTIVE."""
    return await db.fetch_values(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND id = ANY(:ids) AND state = 'ACTIVE' AND NOT hidden
        ORDER BY id
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )
