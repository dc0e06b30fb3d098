"""Wiring: settings → database, vault, queue, channels → the web application."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from app.accounts.oidc import Provider
from app.billing.sandbox import Sandbox
from app.billing.stripe import Stripe
from app.channels import api, operators
from app.channels.base import Channel
from app.channels.inbox import LOSING, Captured, Inbox
from app.channels.own import Own
from app.channels.telling import Became
from app.config import Settings
from app.egress import Egress
from app.errors import Unavailable
from app.machine.content import CHANNELS
from app.messages import callbacks, providers
from app.process import SCHEMA, Process
from app.queue import Queue, connector
from app.routes import ROUTES, SANDBOX_ROUTES
from app.runtime import metrics, tasks
from app.runtime.batching import BatchKind
from app.store import keys, sandbox, sandbox_faults
from app.store.db import Database, outstanding
from app.vault import Vault
from app.web import reply
from app.web.edge import Edge
from app.web.routing import mount, router
from app.web.throttle import Throttle

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BOOT_SECONDS = 30.0  # a database that starts beside us may take this long
LATE_SECONDS = 5.0  # a database that is well has answered a new process by then
FOR_EVER = math.inf  # a web process answers 503 meanwhile, a worker has nothing else to do


class NotReady(Exception):
    """The process cannot start; the sentence says what to do."""


@asynccontextmanager
async def database_of(
    settings: Settings, patience: float = BOOT_SECONDS
) -> AsyncIterator[Database]:
    """The database, once it answers. Raises NotReady when DATABASE_URL can never be right."""
    database = Database(
        settings.database_url,
        pool_size=settings.database_pool_size,
        clock_offset_ms=settings.clock_offset_ms,
    )
    try:
        await database.connect()
    except (OSError, sqlite3.Error) as error:
        raise NotReady(f"DATABASE_URL names no SQLite file that can be opened: {error}.") from error
    try:
        await _patiently(partial(_answer, database), patience)
        yield database
    finally:
        await database.disconnect()


async def _answer(database: Database) -> None:
    async with database.read() as db:
        await db.now()


async def _patiently(work: Callable[[], Awaitable[Result]], patience: float) -> Result:
    """Do this, again while the database is still starting, or away."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        try:
            return await work()
        except Unavailable as problem:
            cause = problem.__cause__ or problem
            hopeless = isinstance(cause, socket.gaierror) or _state(cause).startswith(HOPELESS)
            if hopeless or asyncio.get_running_loop().time() > deadline:
                raise NotReady(f"DATABASE_URL leads to no database: {cause}.") from problem
            log.warning("waiting for the database", extra={"error": str(cause)})
            await asyncio.sleep(1)


HOPELESS = ("28", "3D")  # SQLSTATE classes: wrong user or password; no such database


def _state(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", None) or "")


@asynccontextmanager
async def opened(settings: Settings, patience: float = BOOT_SECONDS) -> AsyncIterator[Process]:
    """Everything one process holds open, closed again at the end. Raises NotReady, VaultError."""
    async with (
        database_of(settings, patience) as database,
        upon(database, settings, patience) as process,
    ):
        _spare_the_collector()
        yield process


def _spare_the_collector() -> None:
    """Exclude what start-up made from garbage collection, and collect the oldest generation less
    often: a full collection stopped a process for a tenth of a second, in the midst of requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


async def _vault(database: Database, settings: Settings) -> Vault:
    vault = Vault(settings.secret_keys)
    async with database.write() as db:
        left = await outstanding(db, SCHEMA)
        if left:
            raise NotReady(
                f"The database lacks section {left[0]} of schema.sql:"
                " run python -m app migrate first."
            )
        vault.open(await keys.load_or_create(db, wrapped=vault.new_data_key()))
    return vault


@asynccontextmanager
async def upon(
    database: Database, settings: Settings, patience: float = BOOT_SECONDS
) -> AsyncIterator[Process]:
    """Everything else. Raises NotReady when the schema is behind, VaultError."""
    # Since it answered it may have gone away again.
    vault = await _patiently(partial(_vault, database, settings), patience)
    queue = Queue(connector(settings))
    egress = Egress(settings.egress_allow)
    if settings.egress_allow:
        networks = [str(network) for network in settings.egress_allow]
        log.warning("HTTP may reach private networks", extra={"networks": networks})
    client = api.client()
    told_at = providers.operators_url(settings.base_url, vault, "twilio")
    channels = _operators(settings, client, told_at) if settings.production else {}
    own = Own(settings, client, egress)
    stripe = stripe_of(settings)
    process = Process(
        settings,
        database,
        vault,
        queue,
        channels,
        own,
        egress,
        provider=sign_on_of(settings),
        billing=stripe if settings.production else Sandbox(settings.base_url),
        stripe=stripe,
    )
    if not settings.production:
        process = replace(process, channels=_sandbox(process))
    adding = asyncio.create_task(metrics.add_up_for_ever(database, process.metrics))
    try:
        yield process
    finally:
        await process.batches.close()
        await asyncio.gather(own.close(), *(way.close() for way in process.channels.values()))
        await tasks.end(adding)
        await queue.close()
        await egress.close()
        if stripe is not None:
            await stripe.close()
        await client.aclose()


class Front:
    """Answers 503 while the database keeps it waiting, then as the application."""

    def __init__(self, settings: Settings) -> None:
        self._waiting = self._answering = Edge(Router(default=_not_yet), settings)
        self.opened = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The application's own lifespan is begun and ended by `open`.
        told = self._waiting if scope["type"] == "lifespan" else self._answering
        await told(scope, receive, send)

    async def is_worth_asking(self, stop: asyncio.Event) -> None:
        """Returns once it is open, or late, or told to `stop`. Until then it had better not listen:
        who finds nobody here asks another process, or once more, and is not sent away."""
        events = [asyncio.create_task(event.wait()) for event in (self.opened, stop)]
        await asyncio.wait(events, timeout=LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await tasks.end(*events)

    async def open(self, settings: Settings, served: asyncio.Event) -> None:
        """Hold everything open until what came in has been `served`."""
        async with opened(settings, FOR_EVER) as process:
            edge = web(process)
            assert isinstance(edge.app, Router)  # noqa: S101 - web made it so
            async with edge.app.lifespan_context(edge.app):
                self._answering = edge
                self.opened.set()
                log.info("web process is ready")
                await served.wait()


async def _not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] != "/healthz":
        raise Unavailable("This process has just started and is waiting for the database.")
    await reply.ok({"status": "ok"})(scope, receive, send)


def web(process: Process) -> Edge:
    """The API behind its edge."""
    throttle = Throttle(process.queue.redis if process.settings.redis_url else None)
    routes = ROUTES if process.settings.production else [*ROUTES, *SANDBOX_ROUTES]

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        await throttle.open()
        yield
        await throttle.close()

    application = router(mount(routes, process, throttle), lifespan)
    return Edge(application, process.settings, process.metrics)


async def _capture_some(database: Database, captured: Sequence[Captured]) -> Sequence[str | None]:
    """The fault that befell each."""
    async with database.write() as db:
        faults = await sandbox_faults.befalling(db, captured)
        kept = [one for one, fault in zip(captured, faults, strict=True) if fault not in LOSING]
        await sandbox.insert_each(db, kept)
    return faults


CAPTURES = BatchKind(_capture_some)


def _operators(settings: Settings, client: api.Client, told_at: str) -> Mapping[str, Channel]:
    return {channel.name: channel for channel in operators.channels(settings, client, told_at)}


def _sandbox(process: Process) -> Mapping[str, Channel]:
    """Every channel captures."""

    async def capture(captured: Captured) -> str | None:
        return await process.batches.submit(CAPTURES, process.database, captured)

    async def report(captured: Captured, became: Became) -> None:
        try:
            await callbacks.captured(process, captured, became)
        except Unavailable:
            log.warning("callback was lost", extra={"message_id": captured.message_id})

    return {
        name: Inbox(capture, process.settings.mail_from, name, report=report) for name in CHANNELS
    }


def sign_on_of(settings: Settings) -> Provider | None:
    """Where people sign in by OIDC_…, if they do."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None:
        return None
    return Provider(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_client_secret,
        f"{settings.base_url}/auth/oidc/callback",
    )


def stripe_of(settings: Settings) -> Stripe | None:
    """Where plans are paid for by STRIPE_…, if they are."""
    if settings.stripe_secret_key is None or settings.stripe_webhook_secret is None:
        return None
    prices = {
        "growth": settings.stripe_price_growth,
        "scale": settings.stripe_price_scale,
        "enterprise": settings.stripe_price_enterprise,
    }
    return Stripe(
        settings.stripe_secret_key,
        settings.stripe_webhook_secret,
        {plan: price for plan, price in prices.items() if price is not None},
        settings.stripe_base_url,
    )
