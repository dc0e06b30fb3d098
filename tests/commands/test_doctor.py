"""The doctor names what is broken, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.commands import doctor
from app.commands.doctor import Finding
from app.config.settings import Settings
from app.database.db import Database
from app.errors import Unavailable
from app.main import database_of, open_process
from tests import provider, resend_server, servers, stripe_server, twilio_server
from tests.conftest import SCHEMA
from tests.deployment import Command
from tests.listener import Listener, says
from tests.receivers import Receiver
from tests.servers import PostgresServer, free_port

KEY = "a secret key that only the tests have"
OTHER = "another secret key of another installation"
PRODUCTION = {
    "ENVIRONMENT": "production",
    "BASE_URL": f"https://127.0.0.1:{free_port()}",
    "MAIL_FROM": "hello@example.com",
    "METRICS_TOKEN": "only for us",
    "REGISTRATION": "invite_only",
    "TRUSTED_HOPS": "1",
}


UNSAFE = ("fsync", "synchronous_commit", "full_page_writes")  # so the tests' own server runs
UNTENDED = ("BASE_URL does not answer", *UNSAFE)  # nobody is at the front door


@pytest.fixture
async def sound(
    postgres_server: PostgresServer, redis_url: str, tmp_path: Path
) -> AsyncIterator[dict[str, str]]:
    """Web and worker on PostgreSQL and Redis, with a mail server; nothing is wrong with it."""
    url = await servers.new_database(postgres_server.url, SCHEMA.read_text())
    async with Receiver(tmp_path / "ledger") as mail:
        environ = {**PRODUCTION, "DATABASE_URL": url, "REDIS_URL": redis_url, "SECRET_KEY": KEY}
        environ["SMTP_URL"] = f"{mail.url}?starttls=off"
        async with open_process(Settings.from_environ(environ)):
            pass
        yield environ


async def found(environ: Mapping[str, str]) -> list[Finding]:
    """Find what is not fine."""
    findings = [one async for one in doctor.examine(Settings.from_environ(environ))]
    return [
        one for one in findings if one.verdict != "ok" and not one.sentence.startswith(UNTENDED)
    ]


async def test_of_a_sound_installation_nothing_is_said(sound: dict[str, str]) -> None:
    assert await found(sound) == []


NOWHERE = f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("changed", "verdict", "subject", "words"),
    [
        ({"BASE_URL": f"http://{NOWHERE}"}, "warn", "settings", "BASE_URL"),
        ({"REGISTRATION": "open"}, "warn", "settings", "REGISTRATION is open"),
        ({"METRICS_TOKEN": ""}, "warn", "settings", "METRICS_TOKEN"),
        ({"TRUSTED_HOPS": "0"}, "warn", "settings", "all senders share"),
        ({"DATABASE_URL": f"postgresql://{NOWHERE}/x"}, "FAIL", "database", "DATABASE_URL"),
        ({"DATABASE_URL": "postgresql://a.invalid/x"}, "FAIL", "database", "DATABASE_URL"),
        ({"SECRET_KEY": OTHER}, "FAIL", "secret key", "No entry of SECRET_KEY"),
        ({"SECRET_KEY": f"{OTHER},{KEY}"}, "warn", "secret key", "rewrap-keys"),
        ({"DATABASE_POOL_SIZE": "400"}, "warn", "connections", "DATABASE_POOL_SIZE"),
        ({"REDIS_URL": f"redis://{NOWHERE}"}, "FAIL", "redis", "REDIS_URL"),
        ({"SMTP_URL": f"smtp://{NOWHERE}"}, "FAIL", "mail", "SMTP_URL"),
        (
            {"OIDC_ISSUER": f"https://{NOWHERE}", "OIDC_CLIENT_ID": "x"},
            "FAIL",
            "sign-on",
            "OIDC_ISSUER",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
async def test_it_names_what_is_broken(
    sound: dict[str, str],
    changed: dict[str, str],
    verdict: str,
    subject: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It waits for a database that is being started.
    monkeypatch.setattr(doctor, "database_of", lambda settings, _: database_of(settings, 0.0))
    [finding] = await found({**sound, **changed})
    assert (finding.verdict, finding.subject) == (verdict, subject)
    assert words in finding.sentence


@pytest.mark.parametrize("whose", ["ROLE narrow", "DATABASE {database}"])
async def test_the_limits_of_the_role_and_of_the_database_count(
    sound: dict[str, str], whose: str
) -> None:
    url = sound["DATABASE_URL"]
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE ROLE narrow LOGIN; GRANT pg_read_all_data TO narrow")
        limited = whose.format(database=urlsplit(url).path[1:])
        await connection.execute(f"ALTER {limited} CONNECTION LIMIT 8")
        environ = {**sound, "DATABASE_URL": url.replace("postgres@", "narrow@")}
        [finding] = [one for one in await found(environ) if one.subject == "connections"]
    finally:
        await connection.execute("DROP ROLE narrow")
        await connection.close()
    assert finding.verdict == "warn"
    assert "up to 10 connections" in finding.sentence
    assert "the server takes 8: lower DATABASE_POOL_SIZE" in finding.sentence


async def test_behind_a_pooler_nobody_is_told_to_use_one(
    sound: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Database, "is_pooled", True)
    assert await found({**sound, "DATABASE_POOL_SIZE": "400"}) == []


async def test_a_database_that_falls_silent_ends_no_other_check(
    sound: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(database: Database) -> list[str]:
        raise Unavailable("It did not answer in time.") from TimeoutError("no answer")

    monkeypatch.setattr(Database, "surroundings", silent)
    database, redis = await found({**sound, "REDIS_URL": f"redis://{NOWHERE}"})
    assert (database.subject, database.verdict) == ("database", "FAIL")
    assert "no answer" in database.sentence
    assert redis.subject == "redis"


async def test_a_database_that_is_not_there_is_named(sound: dict[str, str]) -> None:
    elsewhere = urlsplit(sound["DATABASE_URL"])._replace(path="/nowhere").geturl()
    [finding] = await found({**sound, "DATABASE_URL": elsewhere})
    assert (finding.verdict, finding.subject) == ("FAIL", "database")
    assert "nowhere" in finding.sentence


async def test_a_schema_that_is_missing_is_named(
    sound: dict[str, str], postgres_server: PostgresServer
) -> None:
    empty = await servers.new_database(postgres_server.url, "")
    schema, key = await found({**sound, "DATABASE_URL": empty})
    assert (schema.verdict, key.verdict) == ("FAIL", "warn")
    assert "run python -m app migrate" in schema.sentence


GIVEN_UP = """
    INSERT INTO workspaces (id, name, timezone, suspended, revision, created_at, updated_at)
    VALUES ('ws_acme', 'Acme', 'UTC', FALSE, 1, now(), now());
    INSERT INTO segments (workspace_id, id, name, kind, filter, revision, created_at, updated_at,
                          state, saved_at, starts, fill_to, filled_up_to, rechecked, reason_code)
    VALUES ('ws_acme', 'seg_1', 'Vip', 'live', '{}', 1, now(), now(),
            'filling', now(), FALSE, '', '', FALSE, 'poisoned')
    """


async def test_work_that_was_given_up_is_warned_of(sound: dict[str, str]) -> None:
    connection = await asyncpg.connect(sound["DATABASE_URL"])
    try:
        await connection.execute(GIVEN_UP)
    finally:
        await connection.close()
    [finding] = await found(sound)
    assert (finding.verdict, finding.subject) == ("warn", "work")
    assert finding.sentence.startswith("The work on 1 of the segments, dates and schedules was")


async def test_a_mail_server_that_refuses_the_password_is_named(
    sound: dict[str, str], tmp_path: Path
) -> None:
    async with Receiver(tmp_path / "other", login=("olivia", "right")) as mail:
        url = mail.url.replace("//", "//olivia:wrong@") + "?starttls=off"
        [finding] = await found({**sound, "SMTP_URL": url})
    assert (finding.verdict, finding.subject) == ("FAIL", "mail")
    assert "535" in finding.sentence


TWILIO = {
    "TWILIO_ACCOUNT_SID": twilio_server.SID,
    "TWILIO_AUTH_TOKEN": twilio_server.TOKEN,
    "TWILIO_FROM": twilio_server.NUMBER,
}


async def test_the_operator_s_providers_are_asked_and_told_where_to_tell(
    sound: dict[str, str],
) -> None:
    async with twilio_server.serving() as twilio:
        environ = {**sound, **TWILIO, "TWILIO_BASE_URL": twilio.url}
        assert await found(environ) == []
        listed = [str(one) async for one in doctor.examine(Settings.from_environ(environ))]
        [finding] = await found({**environ, "TWILIO_AUTH_TOKEN": "wrong-canary"})
    [url] = [line for line in listed if "/v1/callbacks/twilio/" in line]
    assert url.startswith("  ok  callbacks")
    assert (finding.verdict, finding.subject) == ("FAIL", "sms")
    assert "Twilio answered 401" in finding.sentence
    assert "canary" not in str(finding)


async def test_mail_whose_bounces_nobody_hears_of_is_warned_of(sound: dict[str, str]) -> None:
    async with resend_server.serving() as resend:
        environ = {name: value for name, value in sound.items() if name != "SMTP_URL"}
        environ |= {
            "MAIL_FROM": "hello@acme.test",
            "RESEND_API_KEY": resend_server.API_KEY,
            "RESEND_BASE_URL": resend.url,
        }
        [finding] = await found(environ)
        assert (finding.verdict, finding.subject) == ("warn", "callbacks")
        assert "/v1/callbacks/resend/" in finding.sentence
        environ["RESEND_WEBHOOK_SECRET"] = resend_server.WEBHOOK_SECRET
        assert await found(environ) == []


async def test_single_sign_on_is_tried(sound: dict[str, str]) -> None:
    async with provider.serving() as idp:
        environ = {**sound, "OIDC_CLIENT_ID": "tidings"}
        # Production takes https alone, which the provider of the tests does not speak.
        sandbox = {**environ, "ENVIRONMENT": "sandbox", "OIDC_ISSUER": idp.issuer}
        assert await found(sandbox) == []
        [finding] = await found({**sandbox, "OIDC_ISSUER": f"{idp.issuer}/elsewhere"})
    assert (finding.verdict, finding.subject) == ("FAIL", "sign-on")
    assert "404" in finding.sentence


async def test_stripe_is_asked_for_what_is_sold(sound: dict[str, str]) -> None:
    async with stripe_server.serving() as stripe:
        environ = {
            **sound,
            "STRIPE_SECRET_KEY": stripe_server.SECRET_KEY,
            "STRIPE_WEBHOOK_SECRET": stripe_server.WEBHOOK_SECRET,
            "STRIPE_PRICE_GROWTH": "price_growth",
            "STRIPE_PRICE_SCALE": "price_scale",
            "STRIPE_BASE_URL": stripe.url,
        }

        async def text(**changed: str) -> list[str]:
            """Read the findings without those of this test alone: a key of test mode, two plans of
            three."""
            findings = [str(one) for one in await found({**environ, **changed})]
            assert "STRIPE_SECRET_KEY is a test mode key" in findings.pop(0)
            assert "STRIPE_PRICE_ENTERPRISE is not set: nobody can buy" in findings.pop(0)
            return findings

        assert await text() == []
        stripe.prices["price_growth"]["unit_amount"] = 5_900
        [finding] = await text()
        assert "STRIPE_PRICE_GROWTH: price_growth is 59.00 USD a month" in finding
        assert "the published price is 49.00 USD a month" in finding
        stripe.prices["price_growth"]["recurring"] = {"interval": "year", "interval_count": 2}
        [finding] = await text()
        assert "59.00 USD every 2 years" in finding
        for field, value, words in (
            ("recurring", None, "59.00 USD once"),
            ("unit_amount", None, "no fixed amount of USD once"),
        ):
            stripe.prices["price_growth"][field] = value
            [finding] = await text()
            assert f"price_growth is {words} at Stripe" in finding
        stripe.prices["price_growth"]["active"] = False
        del stripe.prices["price_scale"]
        archived, unknown = await text()
        assert "FAIL  payments      STRIPE_PRICE_GROWTH: price_growth is archived" in archived
        assert "STRIPE_PRICE_SCALE: the price price_scale does not exist at Stripe" in unknown
        [finding] = await text(STRIPE_SECRET_KEY="sk_test_of_another_shop")
        assert "FAIL  payments      STRIPE_SECRET_KEY: " in finding
        assert "401: Invalid API Key provided" in finding
        stripe.down = True
        [finding] = await text()
        assert "answers 500" in finding


async def test_the_key_is_tried_before_anything_is_sold() -> None:
    async with stripe_server.serving() as stripe:

        async def text(key: str, **more: str) -> str:
            environ = {
                "SECRET_KEY": KEY,
                "STRIPE_SECRET_KEY": key,
                "STRIPE_WEBHOOK_SECRET": stripe_server.WEBHOOK_SECRET,
                "STRIPE_BASE_URL": stripe.url,
            }
            settings = Settings.from_environ({**environ, **more})
            [finding] = [str(one) async for one in doctor._payment_provider(settings)]
            return finding

        wrong = await text("sk_test_of_another_shop")
        assert "FAIL  payments      STRIPE_SECRET_KEY: " in wrong
        assert "401: Invalid API Key provided" in wrong
        right = await text(stripe_server.SECRET_KEY)
        assert "Stripe accepts our key and no price is set" in right
        right = await text(stripe_server.SECRET_KEY, STRIPE_PRICE_SCALE="price_scale")
        assert "Stripe accepts our key and charges the published price for scale" in right


@pytest.mark.parametrize(("minutes", "which"), [(1, "behind"), (-1, "ahead of")])
async def test_clocks_that_are_apart_are_named(tmp_path: Path, minutes: int, which: str) -> None:
    database = Database(f"sqlite:///{tmp_path}/a.db", clock_offset_ms=minutes * 60_000)
    await database.connect()
    finding = await doctor._clock(Settings.from_environ({"SECRET_KEY": KEY}), database)
    await database.disconnect()
    assert finding.verdict == "FAIL"
    assert f"60 s {which} the database" in finding.sentence


async def test_a_server_that_could_lose_what_was_accepted_is_named(sound: dict[str, str]) -> None:
    findings = [one async for one in doctor.examine(Settings.from_environ(sound))]
    unsafe = [one for one in findings if one.sentence.startswith(UNSAFE)]
    assert [one.verdict for one in unsafe] == ["FAIL"] * len(UNSAFE)


async def test_after_rewrapping_the_older_key_may_go(sound: dict[str, str]) -> None:
    environ = {**sound, "SECRET_KEY": f"{OTHER},{KEY}"}
    assert await asyncio.to_thread(command, "rewrap-keys", environ) == (0, "")
    listed = [str(one) async for one in doctor.examine(Settings.from_environ(environ))]
    [line] = [line for line in listed if "secret key" in line]
    assert line.startswith("  ok")
    assert "the others can be removed fifteen minutes after" in line
    assert await found({**sound, "SECRET_KEY": OTHER}) == []


def command(word: str, environ: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and standard error of `python -m app …`."""
    code, _, errors = Command(word, environ=environ).ended()
    return code, errors


async def test_the_command_fails_when_something_is_broken(sound: dict[str, str]) -> None:
    assert await asyncio.to_thread(command, "doctor", sound) == (1, "")  # the server is unsafe


@pytest.mark.parametrize(
    ("answers", "verdict", "words"),
    [
        (says({"status": "ok"}), "ok", "leads to a web process"),
        (says({"status": "ok", "by": "another"}), "warn", "leads elsewhere"),
        (says(status="302 Found", Location="/parking"), "warn", "answers 302"),
        (None, "warn", "does not answer"),
    ],
)
async def test_a_front_door_that_leads_elsewhere_is_named(
    sound: dict[str, str], answers: Any, verdict: str, words: str
) -> None:
    async with Listener(answers) as listener:
        url = listener.url.rstrip("/") if answers else f"http://{NOWHERE}"
        settings = Settings.from_environ({**sound, "BASE_URL": url})
        found = [one async for one in doctor.examine(settings) if one.subject == "front door"]
    [finding] = found
    assert finding.verdict == verdict
    assert words in finding.sentence


def test_two_providers_of_a_channel_are_refused_as_at_the_start() -> None:
    two = {"SMTP_URL": "smtp://mail", "RESEND_API_KEY": "re_key"}
    for word in ("doctor", "web", "worker"):
        code, output, errors = Command(word, environ=two).ended()
        assert code != 0
        assert "SMTP_URL and RESEND_API_KEY exclude each other: set one of them." in output + errors


def test_it_makes_no_database_no_key_and_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "none" / "x.db"
    environ = {"DATABASE_URL": f"sqlite:///{file}"}
    status, shown = report(environ)
    assert status == 1
    assert f"There is no file at {file}: run python -m app migrate." in shown
    assert list(tmp_path.iterdir()) == []


async def test_its_report_is_free_of_log_lines(sound: dict[str, str]) -> None:
    away = urlsplit(sound["DATABASE_URL"])._replace(netloc=f"x:y@127.0.0.1:{free_port()}").geturl()
    status, shown = await asyncio.to_thread(report, {**sound, "DATABASE_URL": away})
    assert status == 1
    assert "DATABASE_URL leads to no database" in shown
    assert "{" not in shown


def report(environ: Mapping[str, str]) -> tuple[int, str]:
    """Read what is printed, by either way out."""
    code, output, errors = Command("doctor", environ=environ).ended()
    return code, output + errors
