"""Broadcasts: a message to an audience, from its draft to its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, TypeAlias, TypedDict, Unpack

from app.database.db import Handle
from app.database.sql import columns, named_values, values
from app.store import jobs, keyset
from app.store.row_keys import RowKey

State: TypeAlias = Literal["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED"]


@dataclass(frozen=True, slots=True)
class Written:
    """The part of a broadcast that its author writes."""

    name: str
    segment_id: str | None
    filter: str | None  # JSON
    mentions: str | None  # ids that the filter names
    tag: str | None
    template_id: str
    topic_id: str | None  # in place of the template's
    send_at: datetime | None
    local_time: str | None  # HH:MM
    per_minute: int | None


@dataclass(frozen=True, slots=True)
class Broadcast(Written):
    workspace_id: str
    id: str
    state: State
    reason_code: str | None
    reason_detail: str | None
    previewed: Mapping[str, int] | None  # reason → contacts; "" is none: they can be written to
    frozen: Mapping[str, int]
    frozen_at: datetime | None
    frozen_until: str | None
    is_frozen: bool
    paced_at: datetime | None
    paced_from: datetime | None
    domain_slots: Mapping[str, str]
    judged_from: str
    goes_on_at: datetime | None
    resumed_at: datetime | None
    ending: bool
    revision: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Work(TypedDict, total=False):
    """Columns that say how far the work on a broadcast has come, which no revision tells of."""

    frozen: dict[str, int]
    frozen_until: str | None
    is_frozen: bool
    paced_at: datetime | None
    paced_from: datetime | None
    domain_slots: dict[str, str]
    goes_on_at: datetime
    resumed_at: datetime
    ending: bool
    finished_at: datetime | None


class Beside(Work, total=False):
    """Columns that may change together with the state."""

    previewed: dict[str, int] | None
    frozen_at: datetime
    started_at: datetime
    judged_from: str


COLUMNS = columns(Broadcast)
ALL_WRITTEN = ", ".join(f"{field.name} = :{field.name}" for field in fields(Written))


async def insert(db: Handle, *, workspace_id: str, id: str, written: Written) -> Broadcast:
    return await db.returning_as(
        Broadcast,
        f"""
        INSERT INTO broadcasts (workspace_id, id, {columns(Written)}, state, revision, created_at,
                                updated_at)
        VALUES (:workspace_id, :id, {values(Written)}, 'DRAFT', 1, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        **named_values(written),
    )


async def update(
    db: Handle, *, workspace_id: str, id: str, written: Written, reason_code: str | None
) -> Broadcast:
    """Make it a draft again: what is changed was not looked at by whoever scheduled it. It says
    `reason_code` of itself from now on, in place of what it said."""
    return await db.returning_as(
        Broadcast,
        f"""
        UPDATE broadcasts
        SET {ALL_WRITTEN}, state = 'DRAFT',
            previewed = NULL, reason_code = :reason_code, reason_detail = NULL,
            revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        reason_code=reason_code,
        **named_values(written),
    )


async def delete(db: Handle, *, workspace_id: str, id: str) -> None:
    """One of which nothing was frozen; its job is held."""
    await db.execute(
        "DELETE FROM broadcasts WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    await jobs.delete(db, "broadcast", workspace_id=workspace_id, ids=[id])


async def by_id(db: Handle, *, workspace_id: str, id: str) -> Broadcast | None:
    return await db.fetch_one_as(
        Broadcast,
        f"SELECT {COLUMNS} FROM broadcasts WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )


async def locked(db: Handle, *, workspace_id: str, id: str) -> Broadcast | None:
    """Its job is held first, whoever has a claim: nobody works on it until the transaction ends."""
    await jobs.hold(db, "broadcast", workspace_id=workspace_id, ids=[id])
    return await db.fetch_one_as(
        Broadcast,
        f"""
        SELECT {COLUMNS} FROM broadcasts
        WHERE workspace_id = :workspace_id AND id = :id
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def held(db: Handle, *, workspace_id: str, id: str) -> Broadcast | None:
    """The broadcast whose job is held; None when its workspace was deleted, or it is gone."""
    return await db.fetch_one_as(
        Broadcast,
        f"""
        SELECT {columns(Broadcast, "b")} FROM broadcasts b
        JOIN workspaces w ON w.id = b.workspace_id AND w.deleted_at IS NULL
        WHERE b.workspace_id = :workspace_id AND b.id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def page(db: Handle, **asked: Unpack[keyset.Page]) -> list[Broadcast]:
    """A page of broadcasts, the newest first."""
    return await keyset.page(db, Broadcast, "broadcasts", COLUMNS, CLAUSES, **asked)


CLAUSES = {
    "state": "state = :state",
    "name": "name = :name",  # without an index: a name that is not there reads all of a workspace
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": "updated_at > :updated_after",
}


async def existing(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> set[str]:
    found = await db.fetch_values(
        "SELECT id FROM broadcasts WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return set(found)


async def lock_room(db: Handle, *, workspace_id: str) -> None:
    """Have no other broadcast of the workspace take of its quotas until the transaction ends."""
    await db.lock_name(_room(workspace_id))


async def try_lock_room(db: Handle, *, workspace_id: str) -> bool:
    """Lock the workspace's quotas for broadcasts without waiting; False when another has them."""
    return await db.try_lock_name(_room(workspace_id))


def _room(workspace_id: str) -> str:
    return f"broadcasts|{workspace_id}"


UNFINISHED = "COALESCE(state IN ('DRAFT', 'SCHEDULED', 'SENDING', 'PAUSED'), FALSE)"


@dataclass(frozen=True, slots=True)
class Naming:
    """A broadcast by what it names."""

    id: str
    name: str
    state: State
    is_frozen: bool
    template_id: str
    segment_id: str | None
    topic_id: str | None
    mentions: str | None


async def unfinished(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> list[Naming]:
    """All that are written and have not ended, as far as they may name one of these ids: nothing
    that they name may go. Their filters, of up to 16 KB each, are not read, nor what those of
    others mention."""
    return await db.fetch_all_as(
        Naming,
        f"""
        SELECT {columns(Naming)} FROM broadcasts
        WHERE workspace_id = :workspace_id AND {UNFINISHED}
          AND (template_id = ANY(:ids) OR segment_id = ANY(:ids) OR topic_id = ANY(:ids)
               OR EXISTS (SELECT 1 FROM unnest(CAST(:ids AS TEXT[])) AS given (value)
                          WHERE mentions LIKE '%' || given.value || '%'))
        ORDER BY id
        """,
        workspace_id=workspace_id,
        ids=[id for id in ids if id],
    )


async def count_unfinished(db: Handle, *, workspace_id: str, most: int) -> int:
    """Count the broadcasts that are written and have not ended, up to `most`."""
    return await db.count(
        f"SELECT id FROM broadcasts WHERE workspace_id = :workspace_id AND {UNFINISHED}",
        most=most,
        workspace_id=workspace_id,
    )


@dataclass(frozen=True, slots=True)
class Asking:
    id: str
    name: str
    filter: str
    mentions: str | None


async def asking(db: Handle, *, workspace_id: str, after: str, limit: int) -> list[Asking]:
    """The next unfinished ones, by their ids, whose audience is a filter and not frozen yet."""
    return await db.fetch_all_as(
        Asking,
        f"""
        SELECT {columns(Asking)} FROM broadcasts
        WHERE workspace_id = :workspace_id AND {UNFINISHED} AND id > :after
          AND filter IS NOT NULL AND NOT is_frozen
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        limit=limit,
    )


# --- from state to state --------------------------------------------------------------------------


async def move(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    state: State,
    reason_code: str | None = None,
    reason_detail: str | None = None,
    wake_at: datetime | None = None,
    **beside: Unpack[Beside],
) -> Broadcast:
    """Another state, and its reason, and columns `beside` it. Its job is due at `wake_at`, at once
    where that is past; without one nobody works on it any more."""
    named = "".join(f", {name} = :{name}" for name in beside)
    moved = await db.returning_as(
        Broadcast,
        f"""
        UPDATE broadcasts
        SET state = :state, reason_code = :reason_code, reason_detail = :reason_detail,
            revision = revision + 1, updated_at = :now{named}
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        state=state,
        reason_code=reason_code,
        reason_detail=reason_detail,
        **beside,
    )
    whose: RowKey = {"workspace_id": workspace_id, "id": id}
    if wake_at is None:
        await jobs.delete(db, "broadcast", workspace_id=workspace_id, ids=[id])
    else:
        await jobs.take(db, "broadcast", **whose)
        await jobs.rest(db, "broadcast", **whose, wake_at=wake_at)
    return moved


async def note(db: Handle, *, workspace_id: str, id: str, **work: Unpack[Work]) -> None:
    """Record how far a broadcast's work has come. Its job is held."""
    named = ", ".join(f"{name} = :{name}" for name in work)
    await db.execute(
        f"""
        UPDATE broadcasts SET {named}
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        **work,
    )


async def rest(db: Handle, *, workspace_id: str, id: str, until: datetime) -> None:
    """Its work goes on then. Only of one with a local time, for others nobody asks: each message
    that leaves holds the row for a moment."""
    await db.execute(
        """
        UPDATE broadcasts SET goes_on_at = :until
        WHERE workspace_id = :workspace_id AND id = :id AND local_time IS NOT NULL
        """,
        workspace_id=workspace_id,
        id=id,
        until=until,
    )


async def state_of(db: Handle, *, workspace_id: str, id: str) -> str | None:
    """The state, which nobody changes before the transaction ends."""
    state: str | None = await db.fetch_value(
        """
        SELECT state FROM broadcasts
        WHERE workspace_id = :workspace_id AND id = :id
        FOR SHARE
        """,
        workspace_id=workspace_id,
        id=id,
    )
    return state
