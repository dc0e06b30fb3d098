"""Work that a restored database says is still to be done, although it may have been done."""

from __future__ import annotations

from app.database.db import Handle
from app.machine import segment_changes
from app.store import calls, jobs, run_steps, segment_members


async def park_runs(db: Handle, *, reason_code: str, reason_detail: str, limit: int) -> int:
    """Runs that were about to move, or waited for a message or an answer, have FAILED where they
    stand, up to `limit` of a workspace; how many. Those that wait for a time to come, or their
    message does, or for an event go on."""
    workspace_id = await db.fetch_value(
        f"SELECT r.workspace_id FROM runs r WHERE {ABOUT_TO_MOVE} LIMIT 1"
    )
    if workspace_id is None:
        return 0
    rows = await db.fetch_tuples(
        f"""
        WITH due AS MATERIALIZED (
            SELECT r.id FROM runs r
            WHERE r.workspace_id = :workspace_id AND {ABOUT_TO_MOVE_OF_ONE}
            LIMIT :limit
            FOR UPDATE
        )
        UPDATE runs
        SET status = 'FAILED', reason_code = :reason_code, reason_detail = :reason_detail,
            waiting_for = NULL, finished_at = :now
        FROM due
        WHERE runs.workspace_id = :workspace_id AND runs.id = due.id
        RETURNING runs.id, runs.contact_id, runs.definition_id
        """,
        workspace_id=workspace_id,
        reason_code=reason_code,
        reason_detail=reason_detail,
        limit=limit,
    )
    ids = [run_id for run_id, _, _ in rows]
    await jobs.delete(db, "run", workspace_id=workspace_id, ids=ids)
    await run_steps.end_open(
        db, workspace_id=workspace_id, run_ids=ids, status="FAILED", reason_code=reason_code
    )
    await calls.delete_of_runs(db, workspace_id=workspace_id, run_ids=ids)
    changed = {(segment_changes.run(definition), contact) for _, contact, definition in rows}
    await segment_members.touch_named(db, workspace_id=workspace_id, changed=changed)
    return len(ids)


# Of a message: its own time, or the end of quiet hours, is still to come, so nobody can have sent
# it since the backup. What waits for its provider or its next try may have been woken before.
NOT_YET_DUE = "m.waits_until > :now"

# No worker runs, so nobody waits for anybody, in whatever order they are locked.
ABOUT_TO_MOVE = f"""r.finished_at IS NULL
              AND (r.waiting_for ->> 'kind' = 'http'
                   OR (r.waiting_for ->> 'kind' = 'delivery'
                       AND NOT EXISTS (SELECT 1 FROM messages m
                                       WHERE m.workspace_id = r.workspace_id
                                         AND m.id = (r.waiting_for ->> 'messageId')
                                         AND {NOT_YET_DUE}))
                   OR EXISTS (SELECT 1 FROM jobs j
                              WHERE j.workspace_id = r.workspace_id AND j.kind = 'run'
                                AND j.id = r.id
                                AND (j.wake_at <= :now OR j.lease_token <> 0)))"""
# A workspace that comes out of a row names no shard, and none may be locked that is not named.
ABOUT_TO_MOVE_OF_ONE = ABOUT_TO_MOVE.replace("r.workspace_id", ":workspace_id")


async def broadcasts_due(db: Handle, *, limit: int) -> list[tuple[str, str]]:
    """(workspace_id, id) of broadcasts that would go on, or would begin, at once."""
    rows = await db.fetch_tuples(
        """
        SELECT b.workspace_id, b.id FROM broadcasts b
        JOIN jobs j ON j.workspace_id = b.workspace_id AND j.kind = 'broadcast' AND j.id = b.id
        WHERE b.state = 'SENDING'
           OR (b.state = 'SCHEDULED' AND (j.wake_at <= :now OR j.lease_token <> 0))
        ORDER BY b.workspace_id, b.id
        LIMIT :limit
        """,
        limit=limit,
    )
    return [(workspace_id, id) for workspace_id, id in rows]


async def segments_due(db: Handle, *, workspace_id: str) -> list[str]:
    """The live segments of the workspace that somebody would enter or leave by what the backup says
    is due, which would start flows again. Not those that are to be filled from the beginning."""
    return await db.fetch_values(
        """
        SELECT s.id FROM segments s
        WHERE s.workspace_id = :workspace_id AND s.kind = 'live' AND s.state <> 'removing'
          AND s.reason_code IS NULL
          AND (s.state = 'filling' AND s.starts
               OR NOT (s.state = 'filling' AND s.filled_up_to = '')
               AND (EXISTS (SELECT 1 FROM segment_members m
                            WHERE m.workspace_id = :workspace_id AND m.segment_id = s.id
                              AND m.next_at <= :now)
                    OR EXISTS (SELECT 1 FROM segment_touches t
                               WHERE t.workspace_id = :workspace_id AND t.segment_id = s.id)))
        ORDER BY s.id
        """,
        workspace_id=workspace_id,
    )


async def messages_due(db: Handle, *, limit: int) -> tuple[str, list[str]] | None:
    """One workspace's id, and the ids of its messages that would be sent, or were being sent."""
    rows = await db.fetch_tuples(
        f"""
        SELECT j.workspace_id, j.id FROM jobs j
        WHERE j.kind = 'message'
          AND NOT EXISTS (SELECT 1 FROM messages m
                          WHERE m.workspace_id = j.workspace_id AND m.id = j.id AND {NOT_YET_DUE})
        ORDER BY j.workspace_id, j.wake_at
        LIMIT :limit
        """,
        limit=limit,
    )
    if not rows:
        return None
    first = rows[0][0]
    return first, [id for workspace_id, id in rows if workspace_id == first]
