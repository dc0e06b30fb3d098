"""What has expired goes, whatever else is going on."""

from __future__ import annotations

from datetime import timedelta

from app.process import Process
from app.store import idempotency
from workers import chores


async def test_what_has_expired_is_swept_however_much_it_is(process: Process, acme: str):
    async with process.database.write() as db:
        now = await db.now()
        for number in range(chores.SWEPT_AT_ONCE + 2):
            await idempotency.insert(
                db,
                workspace_id=acme,
                id=number.to_bytes(32, "big"),
                asked=b"",
                only_for=None,
                answer=b"",
                expires_at=now + timedelta(hours=-1 if number else 1),
            )
    await chores.sweep(process)
    async with process.database.read() as db:
        assert await db.fetch_value("SELECT count(*) FROM idempotency_keys") == 1
