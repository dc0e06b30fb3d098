"""What a restored database says is still to be done, although it may have been done."""

from __future__ import annotations

from app.store.db import Handle, Row


async def park_runs(db: Handle, *, reason_code: str, reason_detail: str, limit: int) -> int:
    """Runs that were about to move, or waited for a message or an answer, have FAILED where they
    stand, up to `limit`; how many. Those that wait for a time to come or for an event go on."""
    rows = await db.fetch_all(
        """
        WITH due AS MATERIALIZED (
            SELECT workspace_id, id FROM runs
            WHERE finished_at IS NULL
              AND (wake_at <= :now OR waiting_for ->> 'kind' IN ('delivery', 'http'))
            LIMIT :limit
            FOR UPDATE
        )
        UPDATE runs
        SET status = 'FAILED', reason_code = :reason_code, reason_detail = :reason_detail,
            waiting_for = NULL, wake_at = NULL, lease_token = lease_token + 1, finished_at = :now
        FROM due
        WHERE runs.workspace_id = due.workspace_id AND runs.id = due.id
        RETURNING runs.workspace_id, runs.id
        """,
        reason_code=reason_code,
        reason_detail=reason_detail,
        limit=limit,
    )
    of = {
        "workspace_ids": sorted({row["workspace_id"] for row in rows}),
        "ids": [row["id"] for row in rows],
    }
    await db.execute(
        """
        UPDATE run_steps SET status = 'FAILED', reason_code = :reason_code, finished_at = :now
        WHERE workspace_id = ANY(:workspace_ids) AND run_id = ANY(:ids) AND finished_at IS NULL
        """,
        reason_code=reason_code,
        **of,
    )
    await db.execute(
        "DELETE FROM calls WHERE workspace_id = ANY(:workspace_ids) AND run_id = ANY(:ids)", **of
    )
    return len(rows)


async def messages_due(db: Handle, *, limit: int) -> list[Row]:
    """Like messages.held, whoever has a claim: what would be sent, or was being sent."""
    return await db.fetch_all(
        """
        SELECT m.workspace_id, m.id, m.run_id, m.contact_id, m.channel, m.status, m.lease_token,
               m.account_mail, m.created_at, a.id AS attempt_id, a.provider, a.tries, a.events
        FROM messages m
        JOIN delivery_attempts a ON a.workspace_id = m.workspace_id AND a.message_id = m.id
        WHERE m.wake_at IS NOT NULL
          AND a.number = (SELECT max(newest.number) FROM delivery_attempts newest
                          WHERE newest.workspace_id = m.workspace_id AND newest.message_id = m.id)
        ORDER BY m.wake_at, m.id
        LIMIT :limit
        FOR UPDATE OF m
        """,
        limit=limit,
    )
