"""Paid plans whose period has ended: each has its turn, whatever fails."""

from __future__ import annotations

from datetime import timedelta

from app.database.db import Database
from app.store import paid_plans
from tests.store.rows import workspace


async def test_what_was_looked_at_longest_ago_comes_first(database: Database) -> None:
    """However long its period is over: what fails each time comes behind what does not."""
    names = [await workspace(database) for _ in range(2)]
    for days, name in enumerate(names, 1):
        async with database.write() as db:
            await paid_plans.begin(
                db, workspace_id=name, provider="stripe", customer_id=f"cus_{days}", plan="growth"
            )
            now = await db.now()
            await db.execute(
                """
                UPDATE paid_plans SET renews_at = :renews_at, updated_at = :updated_at
                WHERE workspace_id = :workspace_id
                """,
                workspace_id=name,
                renews_at=now - timedelta(days=days),
                updated_at=now - timedelta(hours=days),
            )
    async with database.read() as db:
        before = {"looked_before": await db.now() - timedelta(minutes=10)}
        assert await paid_plans.over(db, **before, limit=1) == names[1:]
    async with database.write() as db:
        assert await paid_plans.claim_over(db, workspace_id=names[1], **before)
    async with database.read() as db:
        assert await paid_plans.over(db, **before, limit=1) == names[:1]
        later = await db.now() + timedelta(minutes=1)
        assert await paid_plans.over(db, looked_before=later, limit=2) == names
