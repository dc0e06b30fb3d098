"""Settings: what the environment says, read, and refused with every fault at once."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from app.config import casts
from app.config.variables import VARIABLES, is_production

Environment: TypeAlias = Literal["sandbox", "production"]
Registration: TypeAlias = Literal["open", "invite_only", "closed"]

SAFE_LEASE_SECONDS = 10
LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEY_FILE = "secret.key"  # beside the database's file, for it opens that one and no other


class ConfigError(Exception):
    """The environment is not one to start in; one sentence a line, each naming its variable."""


_SECRET = tuple(variable.field for variable in VARIABLES if variable.secret)


@dataclass(frozen=True, slots=True, repr=False)
class Settings:
    environment: Environment
    database_url: str
    allow_sqlite_in_production: bool
    database_pool_size: int
    redis_url: str | None  # None: the queue and the limits live in this process
    redis_tls_verify: bool
    host: str
    port: int
    web_concurrency: int
    base_url: str
    trusted_hops: int
    max_body_bytes: int
    cors_origins: tuple[str, ...]
    console: bool
    secret_keys: tuple[str, ...]  # the first signs, every one verifies
    registration: Registration
    default_plan: str
    oidc_issuer: str | None  # None: there is no single sign-on
    oidc_client_id: str | None
    oidc_client_secret: str | None
    smtp_url: str | None
    resend_api_key: str | None
    resend_webhook_secret: str | None
    resend_base_url: str
    twilio_account_sid: str | None
    twilio_auth_token: str | None
    twilio_from: str | None
    twilio_whatsapp_from: str | None
    twilio_base_url: str
    mail_from: str
    shared_sender: bool
    stripe_secret_key: str | None  # None: in production plans cannot be bought
    stripe_webhook_secret: str | None
    stripe_price_growth: str | None
    stripe_price_scale: str | None
    stripe_price_enterprise: str | None
    stripe_base_url: str
    egress_allow: tuple[IPv4Network | IPv6Network, ...]
    broadcast_max_bounces: int
    broadcast_max_complaints: int
    broadcast_domain_per_minute: int
    retention_days: int
    lease_seconds: int
    log_level: str
    metrics_token: str | None
    clock_offset_ms: int
    notes: tuple[str, ...] = ()  # what was changed on the way in, one sentence each, to be logged

    @property
    def most_connections(self) -> int:
        """Number of connections to PostgreSQL that all web processes and one worker may open."""
        return self.database_pool_size * (self.web_concurrency + 1)

    @property
    def connections_sentence(self) -> str:
        each, web = self.database_pool_size, self.web_concurrency
        return (
            f"up to {self.most_connections} connections to PostgreSQL: DATABASE_POOL_SIZE, {each},"
            f" for each of {web} web and one worker process; each further worker opens {each} more"
        )

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], *, secret_key_file: Path | None = None
    ) -> Settings:
        """Raises ConfigError with every fault at once. May make the secret key file."""
        given = {name: text.strip() for name, text in environ.items() if text.strip()}
        values, faults = _read(given)
        faults = faults or [*_incomplete(values), *_unsafe(values)]
        if faults:
            raise ConfigError("\n".join(faults))
        if values["secret_keys"] is None:
            path = secret_key_file or place_of_key(values["database_url"])
            try:
                values["secret_keys"] = (_kept_secret_key(path),)
            except OSError as error:
                raise ConfigError(
                    f"SECRET_KEY must be set, or DATABASE_URL changed: {path} cannot be stored:"
                    f" {error.strerror}."
                ) from error
        asked, sqlite = values["web_concurrency"], values["database_url"].startswith("sqlite:")
        if asked != 1 and (sqlite or values["redis_url"] is None):
            # SQLite and the queue in process are for one process.
            cause = "DATABASE_URL is SQLite" if sqlite else "REDIS_URL is not set"
            note = f"WEB_CONCURRENCY was lowered from {asked} to 1 because {cause}."
            values |= {"web_concurrency": 1, "notes": (note,)}
        return cls(**values)

    @property
    def production(self) -> bool:
        return self.environment == "production"

    @property
    def is_https(self) -> bool:
        return self.base_url.startswith("https:")

    @property
    def sqlite(self) -> bool:
        return self.database_url.startswith("sqlite:")

    def secrets(self) -> tuple[str, ...]:
        """The texts that must never be printed: the keys, and the passwords in URLs as both are
        spelled."""
        found: list[str] = []
        for name in _SECRET:
            match getattr(self, name):
                case None:
                    pass
                case str() as text if name.endswith("_url"):
                    url = urlsplit(text)
                    queried = [word for key, word in parse_qsl(url.query) if "pass" in key.lower()]
                    words = filter(None, [url.password, *queried])
                    found += sorted({form for word in words for form in (word, unquote(word))})
                case str() as word:
                    found.append(word)
                case keys:
                    found += keys
        return tuple(found)

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            is_hidden = field.name in _SECRET and value is not None
            shown.append(f"{field.name}={'***' if is_hidden else repr(value)}")
        return f"Settings({', '.join(shown)})"


def _read(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Field → value, and a sentence for everything that is bad or missing."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for variable in VARIABLES:
        names = [variable.name, *variable.unless]
        missing = given.keys().isdisjoint(names)
        if variable.required_in_production and is_production(given) and missing:
            faults.append(f"{' or '.join(names)} must be set in production. {variable.help}")
            continue
        text = variable.text(given)
        try:
            values[variable.field] = None if text is None else variable.cast(text)
        except ValueError as error:
            if variable.name in given:  # else a default, spoiled by a variable that is told of
                got = "" if variable.secret else f", not {text!r:.100}"
                faults.append(f"{variable.name} must be {error}{got}.")
    return values, faults


def _incomplete(values: Mapping[str, Any]) -> list[str]:
    """The settings that make sense only together."""
    faults = []
    if values["oidc_issuer"] is not None and values["oidc_client_id"] is None:
        faults.append("OIDC_CLIENT_ID must be set with OIDC_ISSUER: the provider issues it.")
    if values["stripe_secret_key"] is not None and values["stripe_webhook_secret"] is None:
        faults.append(
            "STRIPE_WEBHOOK_SECRET must be set with STRIPE_SECRET_KEY: without it, payments are not"
            " noticed."
        )
    senders: dict[str, list[str]] = {}
    for variable in VARIABLES:
        if variable.sends is not None and values[variable.field] is not None:
            senders.setdefault(variable.sends, []).append(variable.name)
    for names in senders.values():
        if len(names) > 1:
            faults.append(f"{' and '.join(names)} exclude each other: set one of them.")
    if (values["twilio_account_sid"] is None) != (values["twilio_auth_token"] is None):
        faults.append("TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN are needed together: set both.")
    twilio = (values["twilio_from"], values["twilio_whatsapp_from"])
    if values["twilio_account_sid"] is not None and not any(twilio):
        faults.append(
            "TWILIO_FROM or TWILIO_WHATSAPP_FROM must be set with TWILIO_ACCOUNT_SID: a message"
            " needs a sender."
        )
    return faults


def _unsafe(values: Mapping[str, Any]) -> list[str]:
    """The settings that production refuses."""
    if values["environment"] != "production":
        return []
    faults = []
    if values["clock_offset_ms"]:
        faults.append("CLOCK_OFFSET_MS must be 0 in production: it is for tests.")
    here_alone = urlsplit(values["base_url"]).hostname in LOOPBACK
    if values["lease_seconds"] < SAFE_LEASE_SECONDS and not here_alone:
        faults.append(
            f"LEASE_SECONDS must be {SAFE_LEASE_SECONDS} or more in production: a worker that is"
            " busy for longer loses its claim."
        )
    for name in (name for name in values if name.endswith("_base_url")):
        url = urlsplit(values[name])
        if url.scheme == "http" and url.hostname not in LOOPBACK:
            faults.append(
                f"{name.upper()} must be https://… in production: it receives the secret key."
            )
    if (values["oidc_issuer"] or "").startswith("http:"):
        faults.append("OIDC_ISSUER must be https://… in production: it identifies people.")
    if values["allow_sqlite_in_production"]:
        return faults
    if values["database_url"].startswith("sqlite:"):
        faults.append(
            "DATABASE_URL must be postgresql://… in production. To run a single process on"
            " SQLite, set ALLOW_SQLITE_IN_PRODUCTION=1."
        )
    if values["redis_url"] is None:
        faults.append(
            "REDIS_URL must be redis://… or rediss://… in production. To run a single process"
            " without Redis, set ALLOW_SQLITE_IN_PRODUCTION=1."
        )
    return faults


def place_of_key(database_url: str) -> Path:
    _, is_sqlite, file = database_url.partition("sqlite:///")
    return (Path(file).parent if is_sqlite else Path("data")) / KEY_FILE


def _kept_secret_key(path: Path) -> str:
    """The key of an installation that was given none: made once, by whichever process is first."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".secret.key.")  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_urlsafe(48) + "\n")
            os.link(draft, path)  # refuses to overwrite: the second of two processes loses
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    key = path.read_text().strip()
    if len(key) < casts.SECRET_KEY_CHARACTERS:
        raise ConfigError(f"SECRET_KEY must be set, because {path} contains no usable key.")
    return key
