"""Queries over all workspaces at once, for the eyes of the operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar, get_args

from app.database.db import Handle
from app.store import audit_logs, delivery_attempts, keyset, runs
from app.store.health import ENOUGH
from app.store.job_sweep import Key
from app.store.jobs import Kind
from app.store.messages import VISIBLE, MessageStatus
from app.store.runs import RunStatus

RUNS_AT_ONCE = 10_000  # looked at by one statement
RUN = runs.COLUMNS
ATTEMPT = delivery_attempts.COLUMNS


@dataclass(frozen=True, slots=True)
class AnyWorkspace:
    id: str
    name: str
    suspended: bool
    deleted_at: datetime | None
    daily_limit: int | None  # the operator's
    created_at: datetime
    members: int


@dataclass(frozen=True, slots=True)
class AnyUser:
    id: str
    email: str
    name: str
    super_admin: bool
    email_verified_at: datetime | None
    created_at: datetime
    workspaces: int


@dataclass(frozen=True, slots=True)
class AnyRun(runs.Run):
    workspace_id: str


@dataclass(frozen=True, slots=True)
class AnyAttempt(delivery_attempts.Attempt):
    workspace_id: str


WORKSPACE = """w.id, w.name, w.suspended, w.deleted_at, w.daily_limit, w.created_at,
             (SELECT count(*) FROM memberships m WHERE m.workspace_id = w.id) AS members"""
Listed = TypeVar("Listed", AnyRun, AnyAttempt)
WORKSPACES: Mapping[str, str] = {
    "q": "lower(w.name) LIKE :q ESCAPE '!'",
    "suspended": "w.suspended = :suspended",
    "user_id": "w.id IN (SELECT m.workspace_id FROM memberships m WHERE m.user_id = :user_id)",
    "created_after": "w.created_at > :created_after",
    "created_before": "w.created_at < :created_before",
}
USERS: Mapping[str, str] = {
    "q": "u.email_key LIKE :q ESCAPE '!'",
    "workspace_id": """u.id IN (SELECT m.user_id FROM memberships m
                   WHERE m.workspace_id = :workspace_id)""",
    "created_after": "u.created_at > :created_after",
    "created_before": "u.created_at < :created_before",
}
RUN_STATUSES: tuple[str, ...] = get_args(RunStatus)
ATTEMPT_STATUSES: tuple[str, ...] = get_args(MessageStatus)
RUNS: Mapping[str, str] = {
    "workspace_id": "r.workspace_id = :workspace_id",
    "status": "r.status = :status",
    "created_after": "r.created_at > :created_after",
    "created_before": "r.created_at < :created_before",
}
ATTEMPTS: Mapping[str, str] = {
    "workspace_id": "a.workspace_id = :workspace_id",
    "status": "a.status = :status",
    "created_after": "a.created_at > :created_after",
    "created_before": "a.created_at < :created_before",
}
AUDIT: Mapping[str, str] = {
    **audit_logs.CLAUSES,
    "workspace_id": "workspace_id = :workspace_id",
}


def beginning(text: str) -> str:
    """A pattern for LIKE."""
    special = str.maketrans({one: f"!{one}" for one in "!%_"})
    return text.strip().lower().translate(special) + "%"


async def workspaces(
    db: Handle, *, filters: Mapping[str, object], before: str | None, limit: int
) -> list[AnyWorkspace]:
    narrowed, values = keyset.narrowed(WORKSPACES, filters, before, "w.id")
    return await db.fetch_all_as(
        AnyWorkspace,
        f"""
        SELECT {WORKSPACE}
        FROM workspaces w
        WHERE TRUE {narrowed}
        ORDER BY w.id DESC
        LIMIT :limit
        """,
        limit=limit,
        **values,
    )


async def workspace(db: Handle, *, id: str) -> AnyWorkspace | None:
    return await db.fetch_one_as(
        AnyWorkspace, f"SELECT {WORKSPACE} FROM workspaces w WHERE w.id = :id", id=id
    )


async def suspend(db: Handle, *, id: str, suspended: bool) -> bool:
    """False when it is so already. Who parks a message of it holds a share of the row: it waits."""
    changed = await db.fetch_value(
        """
        UPDATE workspaces SET suspended = :suspended
        WHERE id = :id AND suspended <> :suspended
        RETURNING id
        """,
        id=id,
        suspended=suspended,
    )
    return changed is not None


async def users(
    db: Handle, *, filters: Mapping[str, object], before: str | None, limit: int
) -> list[AnyUser]:
    narrowed, values = keyset.narrowed(USERS, filters, before, "u.id")
    found = await db.fetch_all_as(
        AnyUser,
        f"""
        SELECT u.id, u.email, u.name, u.super_admin, u.email_verified_at, u.created_at,
               0 AS workspaces
        FROM users u
        WHERE TRUE {narrowed}
        ORDER BY u.id DESC
        LIMIT :limit
        """,
        limit=limit,
        **values,
    )
    # By itself: a cluster joins no row of a person with those of all workspaces.
    counted = await db.fetch_tuples(
        """
        SELECT user_id, count(*) FROM memberships WHERE user_id = ANY(:ids) GROUP BY user_id
        """,
        ids=[user.id for user in found],
    )
    workspaces = dict(counted)
    return [replace(user, workspaces=workspaces.get(user.id, 0)) for user in found]


async def runs_page(
    db: Handle, *, filters: Mapping[str, object], before: str | None, limit: int
) -> list[AnyRun]:
    async def page(chosen: Mapping[str, object]) -> list[AnyRun]:
        narrowed, values = keyset.narrowed(RUNS, chosen, before, "r.id")
        return await db.fetch_all_as(
            AnyRun,
            f"""
            SELECT r.workspace_id, {RUN}
            FROM runs r
            JOIN definitions d ON d.workspace_id = r.workspace_id AND d.id = r.definition_id
            WHERE TRUE {narrowed}
            ORDER BY r.id DESC
            LIMIT :limit
            """,
            limit=limit,
            **values,
        )

    bounded = await keyset.by_time(db, "run", filters)
    return await _newest(page, bounded, RUN_STATUSES, limit)


async def attempts_page(
    db: Handle, *, filters: Mapping[str, object], before: str | None, limit: int
) -> list[AnyAttempt]:
    """Read a page of delivery attempts of all workspaces, without mails about accounts."""

    async def page(chosen: Mapping[str, object]) -> list[AnyAttempt]:
        narrowed, values = keyset.narrowed(ATTEMPTS, chosen, before, "a.id")
        return await db.fetch_all_as(
            AnyAttempt,
            f"""
            SELECT a.workspace_id, {ATTEMPT}
            FROM delivery_attempts a
            JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id
            WHERE {VISIBLE} {narrowed}
            ORDER BY a.id DESC
            LIMIT :limit
            """,
            limit=limit,
            mails=[],
            reader=None,
            **values,
        )

    bounded = await keyset.by_time(db, "att", filters)
    return await _newest(page, bounded, ATTEMPT_STATUSES, limit)


async def _newest(
    page: Callable[[Mapping[str, Any]], Awaitable[list[Listed]]],
    filters: Mapping[str, object],
    statuses: Sequence[str],
    limit: int,
) -> list[Listed]:
    """The newest rows of a list that is read status by status, unless filters narrow it already:
    its indexes are by status."""
    is_narrowed = bool(filters.keys() & {"workspace_id", "status"})
    each = [filters] if is_narrowed else [{**filters, "status": status} for status in statuses]
    rows = [row for chosen in each for row in await page(chosen)]
    return sorted(rows, key=lambda row: row.id, reverse=True)[:limit]


async def audit_page(
    db: Handle, *, filters: Mapping[str, object], before: str | None, limit: int
) -> list[audit_logs.Entry]:
    narrowed, values = keyset.narrowed(AUDIT, filters, before)
    return await db.fetch_all_as(
        audit_logs.Entry,
        f"""
        SELECT {audit_logs.COLUMNS}
        FROM audit_logs
        WHERE TRUE {narrowed}
        ORDER BY id DESC
        LIMIT :limit
        """,
        limit=limit,
        **values,
    )


# --- how it goes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of what there are few enough to be counted."""

    workspaces: int
    suspended: int
    users: int
    active: int  # definitions


async def counts(db: Handle) -> Counts:
    return await db.returning_as(
        Counts,
        """
        SELECT (SELECT count(*) FROM workspaces WHERE deleted_at IS NULL) AS workspaces,
               (SELECT count(*) FROM workspaces WHERE suspended) AS suspended,
               (SELECT count(*) FROM users) AS users,
               (SELECT count(*) FROM definitions WHERE state = 'ACTIVE') AS active
        """,
    )


async def overdue(db: Handle, kind: Kind, *, late: datetime) -> int:
    """Count the jobs that have been due since `late`, up to ENOUGH: nobody is going to do them."""
    sql = "SELECT 1 AS one FROM jobs WHERE kind = :kind AND wake_at < :late"
    return await db.count(sql, most=ENOUGH, kind=kind, late=late)


async def unchained(db: Handle, *, late: datetime) -> int:
    """Entries of the audit trail that nobody has chained since `late`, up to ENOUGH."""
    sql = "SELECT 1 AS one FROM audit_logs WHERE sequence IS NULL AND created_at < :late"
    return await db.count(sql, most=ENOUGH, late=late)


UNFINISHED = """FROM runs
             WHERE finished_at IS NULL
               AND (workspace_id, definition_id, id) > (:workspace_id, :definition_id, :id)
             ORDER BY workspace_id, definition_id, id"""


# Of an unfinished run `r`: it has no job, and what it waits for is over or gone.
ORPHANED = """COALESCE(r.waiting_for ->> 'kind', '') <> 'event'
              AND NOT EXISTS (
                  SELECT 1 FROM jobs j
                  WHERE j.workspace_id = r.workspace_id AND j.kind = 'run' AND j.id = r.id)
              AND NOT EXISTS (
                  SELECT 1 FROM messages m
                  WHERE m.workspace_id = r.workspace_id AND m.id = r.waiting_for ->> 'messageId'
                    AND m.status IN ('QUEUED', 'SENDING'))
              AND NOT EXISTS (
                  SELECT 1 FROM calls c
                  WHERE c.workspace_id = r.workspace_id AND c.id = r.waiting_for ->> 'callId'
                    AND c.status <> 'ANSWERED')"""


async def orphans(db: Handle, *, after: Key | None) -> tuple[int, Key | None]:
    """The next RUNS_AT_ONCE unfinished runs, of them those that nobody will ever move. And the last
    of the next; None when there are fewer.

    By one statement: of two, each sees another end when a run finishes or starts between them.
    """
    begin = dict(zip(("workspace_id", "definition_id", "id"), after or ("", "", ""), strict=True))
    if db.is_sharded:
        return await _orphans_of_shards(db, begin)
    [(found, *last)] = await db.fetch_tuples(
        f"""
        SELECT (
            SELECT count(*)
            FROM (SELECT workspace_id, id, waiting_for {UNFINISHED} LIMIT :at_once) AS r
            WHERE {ORPHANED}
        ) AS found, last.workspace_id, last.definition_id, last.id
        FROM (SELECT 1 AS one) AS once
        LEFT JOIN (
            SELECT workspace_id, definition_id, id {UNFINISHED} LIMIT 1 OFFSET :others
        ) AS last ON TRUE
        """,
        **begin,
        at_once=RUNS_AT_ONCE,
        others=RUNS_AT_ONCE - 1,
    )
    workspace_id, definition_id, id = last
    return int(found), None if id is None else (workspace_id, definition_id, id)


async def _orphans_of_shards(db: Handle, begin: Mapping[str, str]) -> tuple[int, Key | None]:
    """The same in a look at all shards and one at each workspace: a cluster cuts no query off
    whose rows it is to compare with those of other tables."""
    keys = await db.fetch_tuples(
        f"SELECT workspace_id, definition_id, id {UNFINISHED} LIMIT :at_once",
        **begin,
        at_once=RUNS_AT_ONCE,
    )
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for workspace_id, _, id in keys:
        whose[workspace_id].append(id)
    found = 0
    for workspace_id, ids in whose.items():
        found += await db.fetch_value(
            f"""
            SELECT count(*) FROM runs r
            WHERE r.workspace_id = :workspace_id AND r.id = ANY(:ids) AND r.finished_at IS NULL
              AND {ORPHANED}
            """,
            workspace_id=workspace_id,
            ids=ids,
        )
    last = tuple(keys[-1]) if len(keys) == RUNS_AT_ONCE else None
    return found, last
