"""The environment, read: every variable, its default, and what is refused."""

from __future__ import annotations

import stat
import threading
from dataclasses import fields, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import ConfigError, Settings
from app.config.variables import VARIABLES, Variable

KEY = "0123456789abcdef0123456789abcdef"
PRODUCTION = {
    "ENVIRONMENT": "production",
    "DATABASE_URL": "postgres://u:dbpassword@db/tidings",
    "REDIS_URL": "rediss://:redispassword@redis:6380",
    "BASE_URL": "https://tidings.example.com/",
    "SECRET_KEY": KEY,
    "SMTP_URL": "smtp://u:smtp%20password@mail:587?starttls=required",
    "MAIL_FROM": "Acme <hello@acme.example>",
}


def settings(**environ: str) -> Settings:
    return Settings.from_environ({"SECRET_KEY": KEY, **environ})


def production(**changes: str) -> Settings:
    return Settings.from_environ({**PRODUCTION, **changes})


def test_nothing_needs_to_be_set(tmp_path: Path) -> None:
    found = Settings.from_environ({}, secret_key_file=tmp_path / "data" / "secret.key")
    assert found == Settings(
        environment="sandbox",
        database_url="sqlite:///data/tidings.db",
        allow_sqlite_in_production=False,
        database_pool_size=5,
        redis_url=None,
        redis_tls_verify=True,
        host="127.0.0.1",
        port=8000,
        web_concurrency=1,
        base_url="http://127.0.0.1:8000",
        trusted_hops=0,
        max_body_bytes=1_048_576,
        cors_origins=(),
        console=True,
        secret_keys=found.secret_keys,
        registration="open",
        default_plan="starter",
        oidc_issuer=None,
        oidc_client_id=None,
        oidc_client_secret=None,
        smtp_url=None,
        resend_api_key=None,
        resend_webhook_secret=None,
        resend_base_url="https://api.resend.com",
        twilio_account_sid=None,
        twilio_auth_token=None,
        twilio_from=None,
        twilio_whatsapp_from=None,
        twilio_base_url="https://api.twilio.com",
        mail_from="Tidings <hello@tidings.example>",
        shared_sender=False,
        stripe_secret_key=None,
        stripe_webhook_secret=None,
        stripe_price_growth=None,
        stripe_price_scale=None,
        stripe_price_enterprise=None,
        stripe_base_url="https://api.stripe.com",
        egress_allow=(),
        broadcast_max_bounces=50,
        broadcast_max_complaints=3,
        broadcast_domain_per_minute=30_000,
        retention_days=365,
        lease_seconds=15,
        log_level="info",
        metrics_token=None,
        clock_offset_ms=0,
    )
    assert found.sqlite
    assert not found.production


def test_production_is_what_is_set() -> None:
    found = production()
    assert found.production
    assert found.database_url == "postgresql://u:dbpassword@db/tidings"
    assert found.base_url == "https://tidings.example.com"
    assert found.host == "0.0.0.0"


def test_every_variable_is_a_field_and_every_field_a_variable() -> None:
    named = [variable.field for variable in VARIABLES]
    assert sorted(named) == sorted({field.name for field in fields(Settings)} - {"notes"})


def test_what_a_platform_sets_is_understood() -> None:
    heroku = settings(DYNO="web.1", PORT="4711")
    assert (heroku.host, heroku.port, heroku.trusted_hops) == ("0.0.0.0", 4711, 1)
    assert heroku.base_url == "http://127.0.0.1:4711"
    assert settings(PORT="4711").host == "127.0.0.1"  # somebody's own machine
    assert settings(RENDER="true").host == "0.0.0.0"
    assert settings(DYNO="web.1", HOST="::", TRUSTED_HOPS="2").trusted_hops == 2


def test_blank_is_unset() -> None:
    assert settings(REDIS_URL=" ", PORT="").redis_url is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("DATABASE_URL", "postgresql://postgres@/postgres?host=/tmp/pg", None),
        ("DATABASE_URL", "postgresql://u:p%40@db1:5432,db2,[::1]:5433/tidings", None),
        ("DATABASE_URL", "postgresql://db1,db2/tidings?target_session_attrs=read-write", None),
        ("DATABASE_URL", "sqlite:////var/lib/tidings.db", None),
        ("REDIS_URL", "redis://localhost", None),
        ("REDIS_URL", "unix:///tmp/redis.sock?db=1", None),
        ("REDIS_TLS_VERIFY", "off", False),
        ("REDIS_TLS_VERIFY", "No", False),
        ("ALLOW_SQLITE_IN_PRODUCTION", "1", True),
        ("LOG_LEVEL", "WARNING", "warning"),
        ("CLOCK_OFFSET_MS", "-86400000", -86_400_000),
        ("SMTP_URL", "smtps://mail.example.com", None),
        ("SMTP_URL", "smtp://127.0.0.1:2525?starttls=off", None),
        ("HOST", "::1", None),
        (
            "CORS_ORIGINS",
            "https://App.example.com/ ,http://localhost:3000,",
            ("https://app.example.com", "http://localhost:3000"),
        ),
        ("CORS_ORIGINS", "https://a.example:443", ("https://a.example",)),
        (
            "CORS_ORIGINS",
            "http://[::1]:80, http://a.example:443",
            ("http://[::1]", "http://a.example:443"),
        ),
        ("REGISTRATION", "closed", None),
        ("MAIL_FROM", "hello@example.com", None),
        (
            "EGRESS_ALLOW",
            "10.1.2.0/24, fd00:1::/64,127.0.0.1",
            (ip_network("10.1.2.0/24"), ip_network("fd00:1::/64"), ip_network("127.0.0.1/32")),
        ),
    ],
)
def test_a_good_value_is_taken(name: str, text: str, value: object) -> None:
    found = getattr(settings(**{name: text}), name.lower())
    assert found == (text if value is None else value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ENVIRONMENT", "prod"),
        ("EGRESS_ALLOW", "0.0.0.0/0"),
        ("EGRESS_ALLOW", "::/0"),
        ("EGRESS_ALLOW", "10.0.0.1/8"),
        ("EGRESS_ALLOW", "intranet.example"),
        ("CORS_ORIGINS", "*"),
        ("CORS_ORIGINS", "null"),
        ("CORS_ORIGINS", "app.example.com"),
        ("CORS_ORIGINS", "https://*.example.com"),
        ("CORS_ORIGINS", "https://app.example.com/path"),
        ("CORS_ORIGINS", "https://a.example https://b.example"),
        ("DATABASE_URL", "mysql://db/tidings"),
        ("DATABASE_URL", "postgresql://db"),
        ("DATABASE_URL", "postgresql+asyncpg://db/tidings"),
        ("DATABASE_URL", "sqlite://"),
        ("DATABASE_URL", "sqlite://tidings.db"),
        ("DATABASE_URL", "sqlite:///:memory:"),
        ("DATABASE_URL", "sqlite:///tidings.db?mode=ro"),
        ("DATABASE_URL", "postgresql://db:port/tidings"),
        ("DATABASE_URL", "postgresql://[/tidings"),
        ("DATABASE_URL", "postgresql://db1,/tidings"),
        ("DATABASE_URL", "postgresql://db1:5432,db2:port/tidings"),
        ("DATABASE_URL", "postgresql://db1,db 2/tidings"),
        ("DATABASE_URL", "postgresql://db/tid ings"),
        ("DATABASE_POOL_SIZE", "0"),
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "http://localhost"),
        ("REDIS_URL", "redis://"),
        ("REDIS_TLS_VERIFY", "maybe"),
        ("HOST", "http://0.0.0.0"),
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "8_000"),
        ("PORT", "٨٠٠٠"),
        ("PORT", "8000.0"),
        ("WEB_CONCURRENCY", "-1"),
        ("BASE_URL", "tidings.example.com"),
        ("BASE_URL", "ftp://tidings.example.com"),
        ("BASE_URL", "https://u:p@tidings.example.com"),
        ("BASE_URL", "https://tidings.example.com/?a=b"),
        ("BASE_URL", "https://tidings.example.com/#a"),
        ("BASE_URL", "https://tidings.example.com/\nX"),
        ("TRUSTED_HOPS", "all"),
        ("MAX_BODY_BYTES", "1MB"),
        ("MAX_BODY_BYTES", "100"),
        ("SECRET_KEY", "too short"),
        ("SECRET_KEY", KEY + ",too short"),
        ("SECRET_KEY", KEY + ","),
        ("REGISTRATION", "perhaps"),
        ("SMTP_URL", "mail.example.com:587"),
        ("SMTP_URL", "smtp://"),
        ("SMTP_URL", "smtp://mail?starttls=perhaps"),
        ("SMTP_URL", "smtp://mail?tls=1"),
        ("MAIL_FROM", "nobody"),
        ("MAIL_FROM", "a@b\nBcc: c@d"),
        ("LEASE_SECONDS", "0"),
        ("RETENTION_DAYS", "0"),
        ("RETENTION_DAYS", "for ever"),
        ("LOG_LEVEL", "loud"),
        ("CLOCK_OFFSET_MS", "1e3"),
    ],
)
def test_a_bad_value_is_a_sentence_that_names_its_variable(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**{name: text})
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(f"{name} must be ")
    assert sentence.endswith(".")


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        Settings.from_environ({"ENVIRONMENT": "production", "PORT": "x"})
    listed = [sentence.split()[0] for sentence in str(refused.value).splitlines()]
    assert listed == [
        *("DATABASE_URL", "REDIS_URL", "PORT", "BASE_URL", "SECRET_KEY", "SMTP_URL", "MAIL_FROM")
    ]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"CLOCK_OFFSET_MS": "1"}, "CLOCK_OFFSET_MS"),
        ({"DATABASE_URL": "sqlite:///data/tidings.db"}, "DATABASE_URL"),
        ({"REDIS_URL": ""}, "REDIS_URL"),
        ({"SECRET_KEY": ""}, "SECRET_KEY"),
        ({"SMTP_URL": ""}, "SMTP_URL"),
    ],
)
def test_production_refuses_what_is_unsafe(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        production(**changes)
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(named)


TWILIO = {"TWILIO_ACCOUNT_SID": "AC" + "5" * 32, "TWILIO_AUTH_TOKEN": "twiliotoken"}


def test_mail_may_go_out_through_resend_instead() -> None:
    found = production(SMTP_URL="", RESEND_API_KEY="re_key")
    assert (found.smtp_url, found.resend_api_key) == (None, "re_key")
    assert "re_key" in found.secrets()


@pytest.mark.parametrize(
    ("sender", "is_one"),
    [
        ("+15005550006", True),
        ("MG" + "a" * 32, True),
        ("12345", True),
        ("Acme Inc", True),
        ("15005550006", False),
        ("whatsapp:+15005550006", False),
        ("A name that is too long", False),
    ],
)
def test_a_sender_of_text_messages_is_what_twilio_takes(sender: str, is_one: bool) -> None:
    if is_one:
        assert production(**TWILIO, TWILIO_FROM=sender).twilio_from == sender
        return
    with pytest.raises(ConfigError, match="TWILIO_FROM must be a number"):
        production(**TWILIO, TWILIO_FROM=sender)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RESEND_API_KEY": "re_key"}, "SMTP_URL and RESEND_API_KEY"),
        ({**TWILIO, "TWILIO_AUTH_TOKEN": "", "TWILIO_FROM": "12345"}, "TWILIO_ACCOUNT_SID and"),
        (TWILIO, "TWILIO_FROM or TWILIO_WHATSAPP_FROM"),
        ({"TWILIO_BASE_URL": "http://twilio.example"}, "TWILIO_BASE_URL must be https"),
        ({"RESEND_BASE_URL": "http://resend.example"}, "RESEND_BASE_URL must be https"),
    ],
)
def test_a_provider_is_set_up_whole_or_not_at_all(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        production(**environ)
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(named)


@pytest.mark.parametrize("other", ["TWILIO_FROM", "TWILIO_WHATSAPP_FROM"])
def test_a_second_provider_of_a_channel_is_refused(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [known] = [one for one in VARIABLES if one.name == other]
    added = replace(known, name="OTHER_FROM")
    monkeypatch.setattr("app.config.settings.VARIABLES", (*VARIABLES, added))
    with pytest.raises(ConfigError) as refused:
        production(**TWILIO, **{other: "+15005550006"}, OTHER_FROM="+15005550007")
    assert str(refused.value) == f"{other} and OTHER_FROM exclude each other: set one of them."


def test_a_lease_that_a_busy_worker_outsleeps_is_for_tests_on_this_machine() -> None:
    with pytest.raises(ConfigError, match="LEASE_SECONDS must be 10 or more"):
        production(LEASE_SECONDS="9")
    assert production(LEASE_SECONDS="10").lease_seconds == 10
    assert production(LEASE_SECONDS="1", BASE_URL="http://127.0.0.1:8000").lease_seconds == 1
    assert Settings.from_environ({**OWN_KEY, "LEASE_SECONDS": "1"}).lease_seconds == 1


OWN_KEY = {"SECRET_KEY": "k" * 40}


def test_production_may_be_one_process_when_that_is_meant() -> None:
    found = production(DATABASE_URL="", REDIS_URL="", ALLOW_SQLITE_IN_PRODUCTION="1")
    assert found.sqlite
    assert found.redis_url is None


@pytest.mark.parametrize(
    ("environ", "processes", "cause"),
    [
        ({}, 1, "DATABASE_URL is SQLite"),
        ({"REDIS_URL": "redis://redis"}, 1, "DATABASE_URL is SQLite"),
        ({"DATABASE_URL": "postgresql://db/tidings"}, 1, "REDIS_URL is not set"),
        ({"DATABASE_URL": "postgresql://db/tidings", "REDIS_URL": "redis://redis"}, 4, None),
    ],
)
def test_what_is_for_one_process_gets_one(
    environ: dict[str, Any], processes: int, cause: str | None
) -> None:
    found = settings(**environ, WEB_CONCURRENCY="4")
    assert found.web_concurrency == processes
    expected = (f"WEB_CONCURRENCY was lowered from 4 to 1 because {cause}.",) if cause else ()
    assert found.notes == expected


# --- secrets --------------------------------------------------------------------------------------


def test_the_first_of_several_secret_keys_is_the_newest() -> None:
    assert settings(SECRET_KEY=f"{'n' * 32} , {'o' * 32}").secret_keys == ("n" * 32, "o" * 32)


def test_no_secret_is_printed() -> None:
    found = production()
    secrets = [KEY, "dbpassword", "redispassword", "smtp%20password", "smtp password"]
    assert set(secrets) == set(found.secrets())
    for printed in (repr(found), str(found), f"{found}"):
        assert not any(secret in printed for secret in secrets)
    assert "port=8000" in repr(found)


@pytest.mark.parametrize(
    "variable", [each for each in VARIABLES if each.secret], ids=lambda each: each.name
)
def test_whatever_is_marked_as_secret_is_kept_out_of_logs(variable: Variable) -> None:
    """By its row alone: there is no second list."""
    examples = {
        "DATABASE_URL": "postgresql://u:canary-7@db/tidings",
        "REDIS_URL": "redis://:canary-7@redis",
        "SMTP_URL": "smtp://u:canary-7@mail",
        "SECRET_KEY": "canary-7" * 4,
        "RESEND_WEBHOOK_SECRET": f"whsec_{'A' * 32}",
    }
    given = {variable.name: examples.get(variable.name, "canary-7")}
    needed = {
        "TWILIO_AUTH_TOKEN": {**TWILIO, "TWILIO_FROM": "12345"},
        "STRIPE_SECRET_KEY": {"STRIPE_WEBHOOK_SECRET": "whsec_1"},
    }
    found = settings(**{**needed.get(variable.name, {}), **given})
    secret = "canary-7" if "canary-7" in given[variable.name] else given[variable.name]
    assert any(secret in word for word in found.secrets())
    assert secret not in repr(found)


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SMTP_URL"])
def test_no_secret_is_quoted_when_it_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(**{name: "x://user:canary@host"})
    assert "canary" not in str(refused.value)


def test_a_secret_key_is_made_once_and_kept_to_oneself(tmp_path: Path) -> None:
    file = tmp_path / "data" / "secret.key"
    first = Settings.from_environ({}, secret_key_file=file)
    again = Settings.from_environ({}, secret_key_file=file)
    assert first.secret_keys == again.secret_keys
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["secret.key"]


def test_processes_that_start_together_agree_on_the_secret_key(tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    found: list[str] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        found.extend(Settings.from_environ({}, secret_key_file=file).secret_keys)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_spoiled_secret_key_file_is_not_built_on(tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    file.write_text("short\n")
    with pytest.raises(ConfigError, match=r"SECRET_KEY must be set, because .*secret\.key"):
        Settings.from_environ({}, secret_key_file=file)


def test_it_is_said_how_many_connections_they_may_open() -> None:
    found = production(DATABASE_POOL_SIZE="7", WEB_CONCURRENCY="4")
    assert found.most_connections == 35
    assert "up to 35 connections" in found.connections_sentence
    assert "each further worker opens 7 more" in found.connections_sentence
