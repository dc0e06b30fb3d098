"""API keys: made, known by their form, and by the hash that is kept of them."""

from __future__ import annotations

import asyncio
import re
import zlib
from contextlib import suppress
from datetime import datetime, timedelta

from app.database.db import Handle, new_id
from app.errors import Problem
from app.identity import roles
from app.process import Process
from app.store import api_keys
from app.store.sessions import Bearer
from app.vault import tokens
from app.vault.vault import digest

KEY_PREFIXES = {"production": "td_live_", "sandbox": "td_test_"}
TOUCH_EVERY = timedelta(minutes=1)
TOUCH_SECONDS = 0.1


def new_key(environment: str, random: str | None = None) -> str:
    """Prefix, 30 random characters, CRC32 of these in base62: GitHub's scheme, which lets scanners
    of leaked secrets know one of ours without asking us."""
    random = random or tokens.drawn()
    return KEY_PREFIXES[environment] + random + _checksum(random)


async def create(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    made_by: str,
    name: str,
    role: str,
    expires_at: datetime | None = None,
    key: str | None = None,
) -> tuple[api_keys.ApiKey, str]:
    """The row and the key itself, which is never seen again."""
    key = key or new_key(process.settings.environment)
    row = await api_keys.insert(
        db,
        workspace_id=workspace_id,
        id=new_id("key"),
        name=name,
        role=role,
        hash=digest(key),
        last4=key[-4:],
        made_by=made_by,
        expires_at=expires_at,
    )
    return row, key


async def bearer(process: Process, key: str) -> Bearer | None:
    """The bearer of the key; its use is noted, at most once a minute."""
    prefix = re.escape(KEY_PREFIXES[process.settings.environment])
    match = re.fullmatch(rf"{prefix}({tokens.PATTERN})([0-9A-Za-z]{{6}})", key)
    if match is None or match[2] != _checksum(match[1]):
        return None
    async with process.database.read() as db:
        row = await api_keys.bearer(db, hash=digest(key))
    if row is None:
        return None
    used, unused_since = row.last_used_at, row.now - TOUCH_EVERY
    if used is None or used <= unused_since:
        # A database too busy for it must not hold up the call.
        with suppress(TimeoutError, Problem):
            async with asyncio.timeout(TOUCH_SECONDS), process.database.write() as db:
                await api_keys.touch(
                    db, workspace_id=row.workspace_id, id=row.via_id, unused_since=unused_since
                )
    return Bearer(
        via_id=row.via_id,
        workspace_id=row.workspace_id,
        user_id=row.user_id,
        name=row.name,
        super_admin=False,
        role=roles.lower(row.role, row.maker_role),
        sends_broadcasts=row.sends_broadcasts,
        suspended=row.suspended,
        plan=row.plan,
    )


def _checksum(random: str) -> str:
    number = zlib.crc32(random.encode())
    return "".join(tokens.BASE62[number // 62**place % 62] for place in range(5, -1, -1))
