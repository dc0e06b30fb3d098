"""Automations and workflows: their rows, changes and lists.

Versions that runs are pinned to are in definition_versions; what starts them is in
definition_starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, Unpack

from app.database.db import Handle
from app.database.sql import columns
from app.machine.check import Shape
from app.store import directory, keyset

State: TypeAlias = Literal["DRAFT", "ACTIVE", "PAUSED", "ARCHIVED"]


@dataclass(frozen=True, slots=True)
class Definition:
    """An automation or a workflow as it is now."""

    id: str
    shape: Shape
    name: str
    state: State
    trigger_config: Mapping[str, Any]
    body: str  # JSON
    version: int  # 0 before its first activation
    secret_last4: str | None
    secret_set: bool
    token: str | None  # of its webhook
    cases_gate: bool
    deactivated_at: datetime | None  # None while it is ACTIVE, and before it ever was
    unwatched_since: datetime | None  # PAUSED: its dates and times since then are missed
    revision: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ListedDefinition:
    """A definition without its trigger and its body, which may be large."""

    id: str
    name: str
    state: State
    version: int
    trigger_source: str
    token: str | None  # of its webhook
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Body:
    """A definition's body as it is now."""

    id: str
    shape: Shape
    body: str  # JSON


COLUMNS = """id, shape, name, state, trigger_config, body, version, secret_last4,
             CAST(COALESCE(length(signing_secret), 0) > 0 AS BOOLEAN) AS secret_set, token,
             cases_gate, deactivated_at, unwatched_since, revision, created_at, updated_at"""


# A template and a topic wherever they stand, in a path or in Liquid, too; a segment as a value.
_MENTIONED = re.compile(r'(?:tpl|top)_\w+|(?<=")seg_\w+(?=")', re.ASCII)
# A letter, a digit or _ of an id, as the JSON string that stands in a path may write it.
_ESCAPED = re.compile(r"\\\\u00([3-7][0-9a-fA-F])")


def _mentions(body: str) -> str:
    plain = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), body)
    found = {*_MENTIONED.findall(body), *_MENTIONED.findall(plain)}
    return " ".join(f'"{id}"' for id in sorted(found))


def _mentioning(id: str) -> str:
    """The pattern of `mentions` that have it."""
    return f'%"{id}"%'


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    shape: str,
    name: str,
    trigger_config: Mapping[str, Any],
    body: str,
) -> Definition:
    return await db.returning_as(
        Definition,
        f"""
        INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, mentions,
                                 body, version, hidden, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :shape, :name, 'DRAFT', :trigger_config, :mentions, :body,
                0, :hidden, 0, :now, :now)
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
        name=name,
        trigger_config=trigger_config,
        mentions=_mentions(body),
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
    cases_gate: bool,
) -> Definition:
    """Raises errors.Duplicate when another has the token."""
    await directory.put(db, "webhook", workspace_id=workspace_id, id=id, key=token)
    return await db.returning_as(
        Definition,
        f"""
        UPDATE definitions
        SET name = :name, state = :state, trigger_config = :trigger_config,
            mentions = :mentions, body = :body, version = :version, token = :token,
            cases_gate = :cases_gate,
            ending = (CAST(:state AS TEXT) = 'ARCHIVED'),
            deactivated_at = CASE WHEN CAST(:state AS TEXT) = 'ACTIVE' THEN NULL
                                  WHEN state = 'ACTIVE' THEN :now
                                  ELSE deactivated_at END,
            revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        name=name,
        state=state,
        trigger_config=trigger_config,
        mentions=_mentions(body),
        body=body,
        version=version,
        token=token,
        cases_gate=cases_gate,
    )


async def set_unwatched(db: Handle, *, workspace_id: str, id: str, since: datetime | None) -> None:
    """Nobody watches for its dates or times since then."""
    await db.execute(
        """
        UPDATE definitions SET unwatched_since = :since
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        since=since,
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


async def set_token(db: Handle, *, workspace_id: str, id: str, token: str) -> Definition:
    """Raises errors.Duplicate when another has the token."""
    await directory.put(db, "webhook", workspace_id=workspace_id, id=id, key=token)
    return await db.returning_as(
        Definition,
        f"""
        UPDATE definitions SET token = :token, revision = revision + 1, updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        RETURNING {COLUMNS}
        """,
        workspace_id=workspace_id,
        id=id,
        token=token,
    )


async def archive(db: Handle, *, workspace_id: str, id: str) -> None:
    """ARCHIVED and shown no more; its runs are still to be ended."""
    await db.execute(
        """
        UPDATE definitions
        SET state = 'ARCHIVED', hidden = :hidden, ending = TRUE, revision = revision + 1,
            updated_at = :now
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        hidden=True,
    )


async def by_id(db: Handle, *, workspace_id: str, shape: str, id: str) -> Definition | None:
    return await db.fetch_one_as(
        Definition,
        f"""
        SELECT {COLUMNS} FROM definitions
        WHERE workspace_id = :workspace_id AND id = :id AND shape = :shape AND NOT hidden
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
    )


async def locked(db: Handle, *, workspace_id: str, shape: str, id: str) -> Definition | None:
    return await db.fetch_one_as(
        Definition,
        f"""
        SELECT {COLUMNS} FROM definitions
        WHERE workspace_id = :workspace_id AND id = :id AND shape = :shape AND NOT hidden
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
        shape=shape,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDefinition:
    """A definition, the name that people know it by, and its name in files."""

    id: str
    shape: str
    name: str
    state: str
    key: str | None


NAMED = columns(NamedDefinition)
MOST_NAMED = 10_000


async def named(db: Handle, *, workspace_id: str, ids: Sequence[str] = ()) -> list[NamedDefinition]:
    """Read these definitions and all that are not archived. Of too many, the newest from no
    file are left out."""
    return await db.fetch_all_as(
        NamedDefinition,
        f"""
        SELECT {NAMED} FROM definitions
        WHERE workspace_id = :workspace_id AND (state <> 'ARCHIVED' OR id = ANY(:ids))
        ORDER BY id = ANY(:ids) DESC, key IS NULL, id
        LIMIT {MOST_NAMED}
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )


@dataclass(frozen=True, slots=True)
class Filed:
    """Its name in files, and the rest of its file: JSON with its literals."""

    key: str | None
    beside: str | None


async def filed(db: Handle, *, workspace_id: str, id: str) -> Filed:
    """Read a definition's name in files and the rest of its file; both None when it has none."""
    found = await db.fetch_one_as(
        Filed,
        "SELECT key, beside FROM definitions WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return found or Filed(None, None)


async def insert_stand_ins(
    db: Handle,
    *,
    workspace_id: str,
    named: Sequence[tuple[str, str, str, str]],
    trigger_config: Mapping[str, Any],
) -> None:
    """DRAFTs of these IDs, keys, which are their names too, shapes and bodies."""
    await db.execute_many(
        """
        INSERT INTO definitions (workspace_id, id, shape, name, key, state, trigger_config,
                                 mentions, body, version, hidden, revision, created_at, updated_at)
        VALUES (:workspace_id, :id, :shape, :key, :key, 'DRAFT', :trigger_config, :mentions, :body,
                0, :hidden, 0, :now, :now)
        """,
        [
            {
                "workspace_id": workspace_id,
                "id": id,
                "shape": shape,
                "key": key,
                "trigger_config": trigger_config,
                "mentions": _mentions(body),
                "body": body,
                "hidden": False,
            }
            for id, key, shape, body in named
        ],
    )


async def set_file(db: Handle, *, workspace_id: str, id: str, filed: Filed) -> None:
    await db.execute(
        """
        UPDATE definitions SET key = :key, beside = :beside
        WHERE workspace_id = :workspace_id AND id = :id
        """,
        workspace_id=workspace_id,
        id=id,
        key=filed.key,
        beside=filed.beside,
    )


async def naming_segment(db: Handle, *, workspace_id: str, segment_id: str) -> list[str]:
    """The ids of those that may still run and whose trigger or body names it."""
    return await db.fetch_values(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND state <> 'ARCHIVED'
          AND (trigger_config ->> 'segmentId' = :segment_id OR mentions LIKE :mentioned)
        ORDER BY id
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        mentioned=_mentioning(segment_id),
    )


async def following_segment(db: Handle, *, workspace_id: str, segment_id: str) -> list[str]:
    """The names of those that may still run, and start or go on when somebody enters the segment or
    leaves it: a body names one in what it waits for alone."""
    return await db.fetch_values(
        """
        SELECT name FROM definitions
        WHERE workspace_id = :workspace_id AND state <> 'ARCHIVED'
          AND ((trigger_config ->> 'segmentId' = :segment_id
                AND trigger_config ->> 'source' <> 'schedule')
               OR mentions LIKE :mentioned)
        ORDER BY id
        """,
        workspace_id=workspace_id,
        segment_id=segment_id,
        mentioned=_mentioning(segment_id),
    )


async def existing(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> set[str]:
    found = await db.fetch_values(
        "SELECT id FROM definitions WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
    return set(found)


async def ending(
    db: Handle, after: tuple[str, str] = ("", ""), *, limit: int
) -> list[tuple[str, str]]:
    """The workspaces and ids of ARCHIVED ones whose runs may not all have ended. Without a lock:
    asked often, and nearly always none."""
    found = await db.fetch_tuples(
        """
        SELECT workspace_id, id FROM definitions
        WHERE ending AND (workspace_id, id) > (:whose, :id)
        ORDER BY workspace_id, id
        LIMIT :limit
        """,
        whose=after[0],
        id=after[1],
        limit=limit,
    )
    return [(workspace_id, id) for workspace_id, id in found]


async def lock_ending(db: Handle, *, workspace_id: str, id: str) -> bool:
    """Lock a definition for whoever ends its runs; False when another does, or they have ended."""
    locked = await db.fetch_value(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND id = :id AND ending
        FOR UPDATE SKIP LOCKED
        """,
        workspace_id=workspace_id,
        id=id,
    )
    return locked is not None


async def clear_ending(db: Handle, *, workspace_id: str, id: str) -> None:
    """Record that the ending of a definition's runs is done, when no run of it is left."""
    await db.execute(
        """
        UPDATE definitions SET ending = FALSE
        WHERE workspace_id = :workspace_id AND id = :id
          AND NOT EXISTS (SELECT 1 FROM runs r
                          WHERE r.workspace_id = :workspace_id AND r.definition_id = :id
                            AND r.finished_at IS NULL)
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def signing_secret(db: Handle, *, workspace_id: str, id: str) -> bytes | None:
    """Encrypted."""
    secret: bytes | None = await db.fetch_value(
        "SELECT signing_secret FROM definitions WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    return secret


# The bounds of each shape's ids: a page of one shape does not walk past all of the other.
IDS = {"graph": ("aut", "auu"), "steps": ("wfl", "wfm")}


async def page(db: Handle, *, shape: str, **asked: Unpack[keyset.Page]) -> list[ListedDefinition]:
    first, beyond = IDS[shape]
    own = {"shape": shape, "id_from": first, "id_until": beyond}
    asked["filters"] = {**asked["filters"], **own}
    return await keyset.page(
        db,
        ListedDefinition,
        "definitions",
        """id, name, state, version, trigger_config ->> 'source' AS trigger_source, token,
           created_at, updated_at""",
        CLAUSES,
        condition="AND NOT hidden",
        **asked,
    )


CLAUSES = {
    "shape": "shape = :shape",
    "state": "state = :state",
    "name": "name = :name",
    "created_after": "created_at > :created_after",
    "created_before": "created_at < :created_before",
    "updated_after": """id IN (SELECT u.id FROM definitions u
                               WHERE u.workspace_id = :workspace_id
                                 AND u.updated_at > :updated_after)""",
}


async def mentioning(db: Handle, *, workspace_id: str, id: str) -> list[str]:
    """Ids of definitions, ARCHIVED ones aside, whose body mentions a template or a topic: as a
    member, in the path of a condition, or in Liquid."""
    return await db.fetch_values(
        """
        SELECT id FROM definitions
        WHERE workspace_id = :workspace_id AND state <> 'ARCHIVED' AND mentions LIKE :pattern
        ORDER BY id
        """,
        workspace_id=workspace_id,
        pattern=_mentioning(id),
    )


async def bodies_mentioning(
    db: Handle, *, workspace_id: str, id: str, after: str, limit: int
) -> list[Body]:
    """The first bodies that mention this id, of definitions whose ids come after `after`."""
    return await db.fetch_all_as(
        Body,
        """
        SELECT id, shape, body FROM definitions
        WHERE workspace_id = :workspace_id AND id > :after AND state <> 'ARCHIVED'
          AND mentions LIKE :pattern
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        pattern=_mentioning(id),
        limit=limit,
    )
