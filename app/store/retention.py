"""Deletion of what is too old, oldest first, a batch at a time. What is not finished stays.

Ids tell their age, so that a primary key finds what is old; of a run and of a message, which may
wait for months, the end counts. What is in no table of these stays, and docs/operating.md says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.ids import first_id
from app.machine import segment_changes
from app.store import clocks, definition_entries, jobs, segment_members


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """The id prefix of a table, and a further condition on a row, `t`, before it may be deleted.

    What else hangs on a row is asked for as a single value, row by row: of NOT EXISTS a planner
    makes a join, and to delete five hundred messages reads the attempts of all."""

    prefix: str
    narrowed: str = ""
    named: str = ""  # what is returned of a row whose contact is judged again for segments


NAMED_MESSAGE = f", contact_id, '{segment_changes.MESSAGE}' AS name"
NAMED_EVENT = f", contact_id, '{segment_changes.event('')}' || name AS name"

# Before what they hang on: an event goes when no attempt is left.
RULES: Mapping[str, RetentionRule] = {
    # It may have waited for months; what its provider reports comes after it has left.
    "messages": RetentionRule(
        "msg",
        """AND t.status NOT IN ('QUEUED', 'SENDING')
          AND (SELECT a.id FROM delivery_attempts a
               WHERE a.workspace_id = :workspace_id AND a.message_id = t.id
                 AND a.finished_at >= :moment LIMIT 1) IS NULL""",
        NAMED_MESSAGE,
    ),
    "captured_messages": RetentionRule("cap"),
    "broadcasts": RetentionRule(
        "bro",
        """AND t.finished_at < :moment
          AND (SELECT r.contact_id FROM broadcast_recipients r
               WHERE r.workspace_id = :workspace_id AND r.broadcast_id = t.id LIMIT 1) IS NULL""",
    ),
    "webhook_requests": RetentionRule("req"),
    "missed_occasions": RetentionRule("mis"),
    "contact_events": RetentionRule("evt", named=NAMED_EVENT),
    "event_attempts": RetentionRule("eva", "AND t.finished_at IS NOT NULL"),
    "events": RetentionRule(
        "evt",
        """AND (SELECT a.id FROM event_attempts a
                WHERE a.workspace_id = :workspace_id AND a.event_id = t.id LIMIT 1) IS NULL""",
    ),
    "invitations": RetentionRule("inv", "AND t.expires_at < :moment"),
    "api_keys": RetentionRule("key", "AND t.revoked_at < :moment"),
}


@dataclass(frozen=True, slots=True)
class Keeping:
    """A workspace, and for how many days it keeps things."""

    id: str
    retention_days: int | None


async def next_workspaces(db: Handle, after: str, *, limit: int) -> list[Keeping]:
    """The next ones that are not being deleted."""
    return await db.fetch_all_as(
        Keeping,
        """
        SELECT id, retention_days FROM workspaces
        WHERE id > :after AND deleted_at IS NULL
        ORDER BY id
        LIMIT :limit
        """,
        after=after,
        limit=limit,
    )


@dataclass(frozen=True, slots=True)
class Deleted:
    """Number of deleted rows, and by table the id up to which it was looked at, kept or not."""

    rows: int
    up_to: Mapping[str, str]


async def delete_old(
    db: Handle, *, workspace_id: str, moment: datetime, limit: int, after: Mapping[str, str]
) -> Deleted:
    """Delete at most `limit` rows that are older than the moment, and what hangs on them: by table
    those after an id, up to which it was looked at before."""
    left = limit - await _delete_runs(db, workspace_id, moment, limit)
    while left > 0 and (deleted := await _delete_recipients(db, workspace_id, moment, left)):
        left -= deleted
    up_to = dict(after)
    # An id has the time of whoever made it; the moment is the database's.
    moved = await db.now() - await clocks.agreed(db)
    for table, rule in RULES.items():
        if left > 0:
            bound = first_id(rule.prefix, moment, moved)
            between = {"after": after.get(table, ""), "bound": bound}
            ids = await _delete(db, table, workspace_id, moment, left, **between)
            up_to[table] = max(ids) if len(ids) == left else bound
            left -= len(ids)
    return Deleted(limit - left, up_to)


async def _delete_runs(db: Handle, workspace_id: str, moment: datetime, limit: int) -> int:
    """Delete the oldest finished runs with their steps."""
    deleted = await db.fetch_tuples(
        """
        WITH oldest AS MATERIALIZED (
            SELECT id FROM runs
            WHERE workspace_id = :workspace_id AND finished_at < :moment
            ORDER BY finished_at
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM runs
        WHERE workspace_id = :workspace_id AND id IN (SELECT id FROM oldest)
        RETURNING id, contact_id, definition_id, COALESCE(state, '') = ''
        """,
        workspace_id=workspace_id,
        moment=moment,
        limit=limit,
    )
    changed = {
        (segment_changes.run(definition_id), contact_id)
        for _, contact_id, definition_id, _ in deleted
    }
    if changed:
        await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)
    unbegun = [
        {"run_id": id, "contact_id": contact_id, "definition_id": definition_id}
        for id, contact_id, definition_id, is_unbegun in deleted
        if is_unbegun
    ]
    if unbegun:
        await definition_entries.delete_many(db, workspace_id=workspace_id, entries=unbegun)
    await _delete_jobs(db, "runs", workspace_id, [id for id, *_ in deleted])
    return len(deleted)


async def _delete_recipients(db: Handle, workspace_id: str, moment: datetime, limit: int) -> int:
    """Delete recipients of the oldest broadcast that ended before the moment, in the order of their
    contacts, on which an explanation relies; the broadcast goes when none is left."""
    broadcast_id = await db.fetch_value(
        """
        SELECT b.id FROM broadcasts b
        WHERE b.workspace_id = :workspace_id AND b.finished_at < :moment
          AND EXISTS (SELECT 1 FROM broadcast_recipients r
                      WHERE r.workspace_id = b.workspace_id AND r.broadcast_id = b.id)
        ORDER BY b.id
        LIMIT 1
        """,
        workspace_id=workspace_id,
        moment=moment,
    )
    if broadcast_id is None:
        return 0
    deleted = await db.fetch_all(
        """
        DELETE FROM broadcast_recipients
        WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id AND contact_id IN (
            SELECT contact_id FROM broadcast_recipients
            WHERE workspace_id = :workspace_id AND broadcast_id = :broadcast_id
            ORDER BY contact_id
            LIMIT :limit)
        RETURNING contact_id
        """,
        workspace_id=workspace_id,
        broadcast_id=broadcast_id,
        limit=limit,
    )
    return len(deleted)


async def _delete_jobs(db: Handle, table: str, workspace_id: str, ids: Sequence[str]) -> None:
    """Delete the jobs that were woken just as their rows ended."""
    for kind, work in jobs.KINDS.items():
        if work.table == table:
            await jobs.delete(db, kind, workspace_id=workspace_id, ids=list(ids))


async def _delete(
    db: Handle,
    table: str,
    workspace_id: str,
    moment: datetime,
    limit: int,
    *,
    after: str,
    bound: str,
) -> list[str]:
    """Delete those after one id and before another; the ids."""
    rule = RULES[table]
    narrowed, named = rule.narrowed, rule.named
    values = {"moment": moment} if ":moment" in narrowed else {}
    deleted = await db.fetch_tuples(
        f"""
        WITH oldest AS MATERIALIZED (
            SELECT t.id FROM {table} t
            WHERE t.workspace_id = :workspace_id AND t.id > :after AND t.id < :bound {narrowed}
            ORDER BY t.id
            LIMIT :limit
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM {table}
        WHERE workspace_id = :workspace_id AND id IN (SELECT id FROM oldest)
        RETURNING id {named}
        """,
        workspace_id=workspace_id,
        after=after,
        bound=bound,
        limit=limit,
        **values,
    )
    ids = [id for id, *_ in deleted]
    await _delete_jobs(db, table, workspace_id, ids)
    if rule.named and deleted:
        changed = {(name, contact_id) for _, contact_id, name in deleted if contact_id}
        await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)
    return ids
