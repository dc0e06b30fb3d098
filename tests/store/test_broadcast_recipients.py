"""Recipients of broadcasts: found by their key, whatever a planner knows."""

from __future__ import annotations

from app.database.db import Database, explain, new_id
from tests.store.test_jobs import workspace

RECIPIENTS = 5_000


async def test_a_recipient_is_found_by_its_key_though_nobody_has_counted_them(
    undisturbed: Database,
) -> None:
    database = undisturbed
    acme, id = await workspace(database), new_id("bro")
    async with database.write() as db:
        await db.execute(
            """
            INSERT INTO broadcasts (workspace_id, id, name, tag, template_id, state, revision,
                                    created_at, updated_at)
            VALUES (:acme, :id, 'B', 'vip', 'tpl_1', 'SENDING', 1, :now, :now)
            """,
            acme=acme,
            id=id,
        )
        await db.execute("ANALYZE broadcast_recipients")
        await db.execute(
            """
            INSERT INTO broadcast_recipients (workspace_id, broadcast_id, contact_id, status,
                                              due_at)
            SELECT :acme, :id, given.value, 'PENDING', :now
            FROM unnest(CAST(:contacts AS TEXT[])) AS given (value)
            """,
            acme=acme,
            id=id,
            contacts=[f"con_{n:06}" for n in range(RECIPIENTS)],
        )
        plan = await explain(
            db,
            """
            UPDATE broadcast_recipients SET status = 'SENT'
            WHERE workspace_id = :acme AND broadcast_id = :id AND contact_id = 'con_002500'
            """,
            acme=acme,
            id=id,
        )
        assert "broadcast_recipients_pkey" in plan, plan
