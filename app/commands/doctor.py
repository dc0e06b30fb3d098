"""Checks of an installation, one line each: what is wrong, and what to do about it.

Every check runs, so that one run is enough. Each has a deadline, and nothing is changed or sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import httpx2

from app.config import plans
from app.config.settings import Settings
from app.database.db import Database, outstanding
from app.errors import Silent, Unavailable
from app.jobs.hints import SILENCE, connector
from app.main import NotReady, cause_of, database_of, sign_on_of, stripe_of
from app.messages import providers
from app.process import SCHEMA
from app.providers import PROVIDERS, api, kind_of, operators
from app.providers.base import Provider
from app.providers.oidc import Attempt
from app.store import data_keys, health
from app.vault.vault import Vault, VaultError

HEALTHY = '{"status":"ok"}'
PATIENCE_SECONDS = 3.0
LOOK_SECONDS = 15.0
CLOCKS_APART = timedelta(seconds=2)  # a lease and a token's life are measured by both clocks

Verdict: TypeAlias = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.verdict:>4}  {self.subject:<14}{self.sentence}"


def fine(subject: str, sentence: str) -> Finding:
    return Finding("ok", subject, sentence)


def warn(subject: str, sentence: str) -> Finding:
    return Finding("warn", subject, sentence)


def fail(subject: str, sentence: str) -> Finding:
    return Finding("FAIL", subject, sentence)


Findings: TypeAlias = AsyncGenerator[Finding, None]


async def examine(settings: Settings) -> Findings:
    looks = (
        _configuration,
        _front_door,
        _database,
        _redis,
        _providers,
        _payment_provider,
        _single_sign_on,
    )
    for look in looks:
        async with aclosing(look(settings)) as findings:
            async for finding in findings:
                yield finding


async def _configuration(settings: Settings) -> Findings:
    """Findings about settings that are accepted, but that an operator should know of."""
    yield fine("settings", f"{settings.environment}, at {settings.base_url}")
    for note in settings.notes:
        yield warn("settings", note)
    if not settings.production:
        return
    if urlsplit(settings.base_url).scheme != "https":
        sentence = "BASE_URL begins with http: webhook URLs and tokens are sent unencrypted."
        yield warn("settings", sentence)
    elif not settings.trusted_hops:
        sentence = (
            "TRUSTED_HOPS is 0, but https means that a proxy is in front: all senders share its"
            " address and its rate limit. Set the number of proxies that append to X-Forwarded-For."
        )
        yield warn("settings", sentence)
    if settings.registration == "open":
        sentence = "REGISTRATION is open: anyone can create an account and a workspace."
        yield warn("settings", sentence)
    if settings.stripe_secret_key is not None:
        if "_live_" not in settings.stripe_secret_key:
            yield warn("settings", "STRIPE_SECRET_KEY is a test mode key: no money is charged.")
        paid = plans.NAMES[1:]
        unpriced = [name for name in paid if getattr(settings, f"stripe_price_{name}") is None]
        for name in unpriced:
            sentence = f"STRIPE_PRICE_{name.upper()} is not set: nobody can buy the plan {name}."
            yield warn("settings", sentence)
    if settings.metrics_token is None:
        yield warn("settings", "METRICS_TOKEN is not set: nobody can read /metrics.")


async def _front_door(settings: Settings) -> Findings:
    """Check that the public address leads to one of our web processes, through any proxy."""
    if not settings.production:
        return
    url = f"{settings.base_url}/healthz"
    advice = "webhook URLs and links in mail begin with it. Is a web process running behind it?"
    try:
        async with api.client() as client, asyncio.timeout(PATIENCE_SECONDS):
            answer = await client.get(url)
    except (httpx2.HTTPError, TimeoutError) as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        yield warn("front door", f"BASE_URL does not answer at {url} ({cause}); {advice}")
        return
    if answer.status_code == 200 and answer.text == HEALTHY:
        yield fine("front door", f"{settings.base_url} leads to a web process")
    else:
        sentence = f"BASE_URL leads elsewhere: {url} answers {answer.status_code}; {advice}"
        yield warn("front door", sentence)


# --- the database -------------------------------------------------------------------------------


async def _database(settings: Settings) -> Findings:
    if (file := _missing_file(settings)) is not None:
        yield fail("database", f"There is no file at {file}: run python -m app migrate.")
        return
    began = asyncio.get_running_loop().time()
    try:
        async with database_of(settings, PATIENCE_SECONDS) as database:
            milliseconds = (asyncio.get_running_loop().time() - began) * 1000
            yield fine("database", f"{database.engine}, answers in {milliseconds:.0f} ms")
            for look in (_schema, _data_key, _clock, _connections):
                yield await look(settings, database)
            for more in (_callbacks, _given_up):
                async with aclosing(more(settings, database)) as findings:
                    async for finding in findings:
                        yield finding
            for sentence in await database.durability():
                yield fail("database", sentence)
            for remark in await database.surroundings():
                yield Finding(remark.verdict, remark.subject, remark.sentence)
    except NotReady as error:
        yield fail("database", str(error))
    except Unavailable as error:
        yield fail("database", f"It answers no more: {cause_of(error)}.")


def _missing_file(settings: Settings) -> Path | None:
    """Opening it would create it."""
    file = Path(settings.database_url.removeprefix("sqlite:///"))
    return file if settings.sqlite and not file.exists() else None


async def _schema(_settings: Settings, database: Database) -> Finding:
    async with database.read() as db:
        left = await outstanding(db, SCHEMA)
    if left:
        return fail("schema", f"Section {left[0]} is missing: run python -m app migrate.")
    return fine("schema", "up to date")


async def _data_key(settings: Settings, database: Database) -> Finding:
    async with database.read() as db:
        if await outstanding(db, SCHEMA):
            return warn("secret key", "cannot be checked before the schema is applied")
        wrapped = await data_keys.load(db)
    if wrapped is None:
        return fine("secret key", "nothing is encrypted yet")
    try:
        vault = Vault(settings.secret_keys, wrapped)
    except VaultError as error:
        return fail("secret key", str(error))
    if vault.wrapped_by_first(wrapped):
        sentence = "decrypts the data key"
        if len(settings.secret_keys) > 1:  # whose access tokens live for so long
            sentence = (
                "the first entry decrypts the data key: the others can be removed fifteen minutes"
                " after the last process has restarted with it"
            )
        return fine("secret key", sentence)
    sentence = "An older entry of SECRET_KEY decrypts the data key: run python -m app rewrap-keys."
    return warn("secret key", sentence)


async def _callbacks(settings: Settings, database: Database) -> Findings:
    """The URLs to which the operator's providers should report delivery status. The token in the
    URL is derived from the data key."""
    async with database.read() as db:
        wrapped = None if await outstanding(db, SCHEMA) else await data_keys.load(db)
    if wrapped is None:
        return
    try:
        vault = Vault(settings.secret_keys, wrapped)
    except VaultError:
        return  # reported above
    for name, kind in PROVIDERS.items():
        if kind.callbacks is None or not kind.operators(settings):
            continue
        url = providers.operators_url(settings.base_url, vault, name)
        if providers.operators_secret(settings, kind, kind.callbacks) is not None:
            yield fine("callbacks", f"have {name} report delivery status to {url}")
        else:
            yield warn("callbacks", kind.callbacks.advice.format(url=url))


async def _given_up(_settings: Settings, database: Database) -> Findings:
    """Check that work is still done for every segment, date and schedule."""
    try:
        async with database.read() as db:
            if await outstanding(db, SCHEMA):
                return
            count = await health.given_up(db)
    except Unavailable:  # it asks every node of a cluster; a silent one is named below
        return
    if count == 0:
        yield fine("work", "no segment, date or schedule was given up")
        return
    sentence = (
        f"The work on {count} of the segments, dates and schedules was given up, because it ended"
        " its worker every time: the log lines `segment set aside` name them. Their workspaces see"
        " them at GET /troubles, and begin anew by saving the segment's filter again, or by pausing"
        " and activating the definition."
    )
    yield warn("work", sentence)


async def _clock(settings: Settings, database: Database) -> Finding:
    async with database.read() as db:
        theirs = await db.now() - timedelta(milliseconds=settings.clock_offset_ms)
    apart = datetime.now(UTC) - theirs
    if abs(apart) <= CLOCKS_APART:
        return fine("clock", "matches the database's")
    seconds = abs(apart).total_seconds()
    which = "ahead of" if apart > timedelta() else "behind"
    sentence = f"This machine is {seconds:.0f} s {which} the database: synchronise both with NTP."
    return fail("clock", sentence)


async def _connections(settings: Settings, database: Database) -> Finding:
    if database.engine == "sqlite":
        return fine("connections", "SQLite: one process")
    if database.is_pooled:
        return fine("connections", f"{settings.connections_sentence}, to a pooler")
    async with database.read() as db:
        most = await health.most_connections(db)
    wanted, takes = settings.most_connections, "the server takes"
    if database.is_sharded:  # sessions that wait for a silent node stay, and others are opened
        wanted *= 2
        takes = "twice that while a node is silent; the coordinator and each node take at least"
    detail = f"{settings.connections_sentence}; {takes} {most}"
    if wanted <= most:
        return fine("connections", detail)
    advice = (
        "lower DATABASE_POOL_SIZE or WEB_CONCURRENCY, raise what limits them (max_connections, or"
        " CONNECTION LIMIT of our role or database), or use a pooler."
    )
    return warn("connections", f"{detail}: {advice}")


# --- Redis and the providers --------------------------------------------------------------------


async def _redis(settings: Settings) -> Findings:
    connect = connector(settings)
    if connect is None:
        yield fine("redis", "REDIS_URL is not set: queue and rate limits are in this one process")
        return
    redis = connect()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await redis.ping()
        yield fine("redis", "answers")
    except SILENCE as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        yield fail("redis", f"REDIS_URL does not answer ({cause}): work continues, with delays.")
    finally:
        await redis.aclose(close_connection_pool=True)


async def _providers(settings: Settings) -> Findings:
    """Check that each of the operator's providers would accept a message."""
    async with api.client() as client:
        channels = list(operators.channels(settings, client))
        if not any(channel.name == "email" for channel in channels):
            yield fine("mail", "SMTP_URL is not set: the sandbox captures all mail")
        for channel in channels:
            yield await _provider(channel)
            await channel.close()


async def _provider(channel: Provider) -> Finding:
    kind = kind_of(channel.provider)
    assert kind is not None  # noqa: S101  it is an operator's
    subject = "mail" if channel.name == "email" else channel.name
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            faults = await channel.verify()
    except TimeoutError:
        sentence = (
            f"{kind.settings_named}: the provider did not answer within {LOOK_SECONDS:.0f} seconds."
        )
        return fail(subject, sentence)
    if not faults:
        return fine(subject, f"the provider of {kind.settings_named} accepts our credentials")
    detail = " ".join(fault.message for fault in faults)
    verdict = fail if any(fault.severity == "error" for fault in faults) else warn
    return verdict(subject, f"{kind.settings_named}: {detail}")


async def _payment_provider(settings: Settings) -> Findings:
    """Check that Stripe accepts our key, and sells each plan at the price that we publish."""
    stripe = stripe_of(settings)
    if stripe is None:
        return
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            mistakes = await stripe.check_prices()
    except TimeoutError:
        sentence = f"Stripe did not answer within {LOOK_SECONDS:.0f} seconds."
        yield fail("payments", f"STRIPE_SECRET_KEY: {sentence}")
    except Silent as error:
        yield fail("payments", f"STRIPE_SECRET_KEY: {error.cause}")
    else:
        for sentence in mistakes:
            yield fail("payments", sentence)
        if not mistakes:
            asked = f"charges the published price for {', '.join(stripe.sold)}"
            known = f"and {asked}" if stripe.sold else "and no price is set"
            yield fine("payments", f"Stripe accepts our key {known}")
    finally:
        await stripe.close()


async def _single_sign_on(settings: Settings) -> Findings:
    """Check that somebody could sign in through the provider."""
    provider = sign_on_of(settings)
    if provider is None:
        return
    try:
        await provider.authorization_url(Attempt.new())
        yield fine("sign-on", f"{settings.oidc_issuer} answers with its sign-in page")
    except Silent as error:
        yield fail("sign-on", f"OIDC_ISSUER: {error.cause}")
