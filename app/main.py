"""Wiring: settings → database, vault, hints, channels → the web application."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from app.config.settings import Settings
from app.database.db import Database, outstanding
from app.errors import Unavailable
from app.jobs.hints import Hints, connector
from app.messages import capturing, providers
from app.net.egress import Egress
from app.process import SCHEMA, Process
from app.providers import api, operators
from app.providers.base import Channel
from app.providers.oidc import IdentityProvider
from app.providers.own import Own
from app.providers.sandbox_payments import Sandbox
from app.providers.stripe import Stripe
from app.routes import CONSOLE_ROUTES, ROUTES, SANDBOX_ROUTES
from app.runtime import tasks
from app.runtime.batching import Batches
from app.runtime.compute import Compute
from app.runtime.metrics import Metrics
from app.store import counters, data_keys
from app.vault.vault import Vault
from app.web.edge import Edge
from app.web.routing import mount, router
from app.web.throttle import Throttle

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BOOT_SECONDS = 30.0  # for a database that is started at the same time
RETRY_SECONDS = 1.0
FOR_EVER = math.inf  # a web process answers 503 meanwhile, a worker has nothing else to do


class NotReady(Exception):
    """The process cannot start; the sentence says what to do."""


@asynccontextmanager
async def database_of(
    settings: Settings, wait_seconds: float = BOOT_SECONDS
) -> AsyncIterator[Database]:
    """The database, once it answers. Raises NotReady when DATABASE_URL can never be right."""
    try:
        database = Database(
            settings.database_url,
            pool_size=settings.database_pool_size,
            clock_offset_ms=settings.clock_offset_ms,
        )
        await database.connect()
    except (OSError, sqlite3.Error) as error:
        raise NotReady(f"DATABASE_URL names no SQLite file that can be opened: {error}.") from error
    except (ValueError, RuntimeError) as error:  # its own sentences, of a URL and of an old SQLite
        raise NotReady(f"DATABASE_URL cannot be used. {error}") from error
    try:
        await _retry(partial(_answer, database), settings, wait_seconds)
        yield database
    finally:
        await database.disconnect()


async def _answer(database: Database) -> None:
    try:
        async with database.read() as db:
            await db.now()
    except ValueError as error:  # asyncpg's, which reads the rest of the URL when it connects
        raise NotReady(f"DATABASE_URL cannot be used: {error}.") from error


async def _retry(
    work: Callable[[], Awaitable[Result]], settings: Settings, wait_seconds: float
) -> Result:
    """Retry each second, up to `wait_seconds`, while the database is starting or unavailable, or
    nothing has its name: a container's name comes and goes with it."""
    deadline = asyncio.get_running_loop().time() + wait_seconds
    hosts = urlsplit(settings.database_url).netloc.rpartition("@")[2]
    while True:
        try:
            return await work()
        except Unavailable as problem:
            cause = problem.__cause__ or problem
            state = str(getattr(cause, "sqlstate", None) or "")
            if state.startswith(PERMANENT) or asyncio.get_running_loop().time() > deadline:
                sentence = f"DATABASE_URL leads to no database: {cause_of(problem)}."
                raise NotReady(sentence) from problem
            # By EAI_AGAIN no name server has answered; whoever mistyped the name should see so.
            is_unknown = isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN
            sentence = WAITING_FOR_NAME if is_unknown else WAITING
            log.warning(sentence, extra={"host": hosts, "error": cause_of(problem)})
            await asyncio.sleep(RETRY_SECONDS)


def cause_of(problem: Unavailable) -> str:
    """The cause in its own words, for an operator."""
    cause = problem.__cause__ or problem
    return " ".join(str(cause).split()).removesuffix(".") or type(cause).__name__


PERMANENT = ("28", "3D")  # SQLSTATE classes: wrong user or password; no such database
WAITING = "waiting for the database"
WAITING_FOR_NAME = "waiting for the database: no host has the name in DATABASE_URL, is it right?"


@asynccontextmanager
async def open_process(
    settings: Settings, wait_seconds: float = BOOT_SECONDS, metrics: Metrics | None = None
) -> AsyncIterator[Process]:
    """A process with all that it holds open, closed again at the end. Waits up to `wait_seconds`
    for the database. Raises NotReady, VaultError."""
    async with (
        database_of(settings, wait_seconds) as database,
        build_process(database, settings, wait_seconds, metrics) as process,
    ):
        # What start-up made is not collected, and the oldest generation less often: a full
        # collection stopped a process for a tenth of a second, in the midst of requests.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 50)
        yield process


async def _vault(database: Database, settings: Settings) -> Vault:
    vault = Vault(settings.secret_keys)
    async with database.write() as db:
        left = await outstanding(db, SCHEMA)
        if left:
            raise NotReady(
                f"The database lacks section {left[0]} of schema.sql:"
                " run python -m app migrate first."
            )
        vault.open(await data_keys.load_or_create(db, wrapped=vault.new_data_key()))
    return vault


@asynccontextmanager
async def build_process(
    database: Database,
    settings: Settings,
    wait_seconds: float = BOOT_SECONDS,
    metrics: Metrics | None = None,
) -> AsyncIterator[Process]:
    """A process on this connected database. Raises NotReady when its schema is old, VaultError."""
    # The database may have gone away since it was connected.
    vault = await _retry(partial(_vault, database, settings), settings, wait_seconds)
    hints = Hints(connector(settings))
    egress = Egress(settings.egress_allow)
    if settings.egress_allow:
        networks = [str(network) for network in settings.egress_allow]
        log.warning("HTTP may reach private networks", extra={"networks": networks})
    client = api.client()
    callback_url = partial(providers.operators_url, settings.base_url, vault)
    channels: dict[str, Channel] = {}
    if settings.production:
        offered = operators.channels(settings, client, callback_url)
        channels = {channel.name: channel for channel in offered}
    own = Own(settings, client, egress)
    stripe = stripe_of(settings)
    figures = metrics or Metrics()
    process = Process(
        settings,
        database,
        vault,
        hints,
        channels,
        own,
        egress,
        figures,
        compute=Compute(figures),
        single_sign_on=sign_on_of(settings),
        billing=stripe if settings.production else Sandbox(settings.base_url),
        stripe=stripe,
        batches=Batches(apart=database.is_sharded),
    )
    if not settings.production:
        process = replace(process, channels=capturing.channels(process))
    adding = asyncio.create_task(counters.add_up_for_ever(database, process.metrics))
    try:
        yield process
    finally:
        await process.compute.close()
        await process.batches.close()
        await asyncio.gather(
            own.close(), *(channel.close() for channel in process.channels.values())
        )
        await tasks.end(adding)
        await hints.close()
        await egress.close()
        if stripe is not None:
            await stripe.close()
        await client.aclose()


def web(process: Process) -> Edge:
    """The API behind its edge."""
    throttle = Throttle(process.hints.redis if process.settings.redis_url else None)
    routes = ROUTES if process.settings.production else [*ROUTES, *SANDBOX_ROUTES]
    if process.settings.console:
        routes = [*routes, *CONSOLE_ROUTES]

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        await throttle.open()
        yield
        await throttle.close()

    application = router(mount(routes, process, throttle), lifespan)
    return Edge(application, process.settings, process.metrics)


def sign_on_of(settings: Settings) -> IdentityProvider | None:
    """The provider that people sign in with by OIDC_…, if any."""
    if settings.oidc_issuer is None or settings.oidc_client_id is None:
        return None
    return IdentityProvider(
        settings.oidc_issuer,
        settings.oidc_client_id,
        settings.oidc_client_secret,
        f"{settings.base_url}/auth/oidc/callback",
    )


def stripe_of(settings: Settings) -> Stripe | None:
    """The payments provider by STRIPE_…, if any."""
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
