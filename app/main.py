"""Wiring: settings → database, vault, queue, channels → the web application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from app.channels.base import Channel
from app.channels.email import EmailChannel
from app.channels.inbox import Captured, Inbox
from app.config import Settings
from app.errors import Unavailable
from app.process import SCHEMA, Process
from app.queue import Queue, connector
from app.routes import ROUTES, SANDBOX_ROUTES
from app.store import keys, sandbox
from app.store.db import Database, outstanding
from app.vault import Vault
from app.web.edge import Edge
from app.web.routing import mount, router
from app.web.throttle import Throttle

log = logging.getLogger(__name__)

BOOT_SECONDS = 30.0  # a database that starts beside us may take this long


class NotReady(Exception):
    """The process cannot start; the sentence says what to do."""


def database_of(settings: Settings) -> Database:
    return Database(
        settings.database_url,
        pool_size=settings.database_pool_size,
        clock_offset_ms=settings.clock_offset_ms,
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Process]:
    """Everything one process holds open, closed again at the end. Raises NotReady, VaultError."""
    database = database_of(settings)
    await database.connect()
    try:
        await _schema_current(database)
        vault = Vault(settings.secret_keys)
        async with database.write() as db:
            vault.open(await keys.load_or_create(db, wrapped=vault.new_data_key()))
        queue = Queue(connector(settings))
        process = Process(settings, database, vault, queue, _channels(settings, database))
        try:
            yield process
        finally:
            await queue.close()
            await asyncio.gather(*(channel.close() for channel in process.channels.values()))
    finally:
        await database.disconnect()


def web(process: Process) -> ASGIApp:
    """The API behind its edge."""
    throttle = Throttle(process.queue.redis if process.settings.redis_url else None)
    routes = ROUTES if process.settings.production else [*ROUTES, *SANDBOX_ROUTES]
    return Edge(router(mount(routes, process, throttle)), process.settings)


def _channels(settings: Settings, database: Database) -> Mapping[str, Channel]:
    if settings.production and settings.smtp_url is not None:
        return {"email": EmailChannel(settings.smtp_url, settings.mail_from)}

    async def capture(captured: Captured) -> None:
        async with database.write() as db:
            await sandbox.insert(db, captured)

    return {"email": Inbox(capture, settings.mail_from)}


async def _schema_current(database: Database) -> None:
    """Wait a while for a database that is still starting; its schema must be there."""
    deadline = asyncio.get_running_loop().time() + BOOT_SECONDS
    while True:
        try:
            async with database.read() as db:
                left = await outstanding(db, SCHEMA)
            break
        except Unavailable as problem:
            if asyncio.get_running_loop().time() > deadline:
                raise NotReady(f"DATABASE_URL cannot be reached: {problem.detail}") from problem
            log.warning("waiting for the database", extra={"error": problem.detail})
            await asyncio.sleep(1)
    if left:
        raise NotReady(
            f"The database lacks section {left[0]} of schema.sql: run python -m app migrate first."
        )
