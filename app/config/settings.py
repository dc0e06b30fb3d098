"""Settings: every environment variable once, with its cast, its default and what it is for."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from app.config import casts, plans

Environment: TypeAlias = Literal["sandbox", "production"]
Registration: TypeAlias = Literal["open", "invite_only", "closed"]

SAFE_LEASE_SECONDS = 10
LOOPBACK = ("127.0.0.1", "::1", "localhost")
KEY_FILE = "secret.key"  # beside the database's file, for it opens that one and no other

# Set by platforms whose router reaches a process only when it listens on every interface.
PLATFORMS = ("DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE")


class ConfigError(Exception):
    """The environment is not one to start in; one sentence a line, each naming its variable."""


# --- defaults that depend on the rest of the environment ------------------------------------------


def _default_host(given: Mapping[str, str]) -> str:
    reached_from_outside = _is_production(given) or any(mark in given for mark in PLATFORMS)
    return "0.0.0.0" if reached_from_outside else "127.0.0.1"  # noqa: S104 - meant, see PLATFORMS


def _default_base_url(given: Mapping[str, str]) -> str:
    return f"http://127.0.0.1:{given.get('PORT', '8000')}"


def _default_hops(given: Mapping[str, str]) -> str:
    return "1" if "DYNO" in given else "0"  # Heroku's router appends exactly one address


def _is_production(given: Mapping[str, str]) -> bool:
    return given.get("ENVIRONMENT", "").lower() == "production"


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """`default` is text as one would set it, None for nothing; `default_in_words` explains it."""

    name: str
    cast: Callable[[str], Any]
    default: str | Callable[[Mapping[str, str]], str] | None
    help: str
    default_in_words: str = ""
    secret: bool = False
    required_in_production: bool = False
    unless: tuple[str, ...] = ()  # one of them is given, which does the same

    def text(self, given: Mapping[str, str]) -> str | None:
        """The value as it was given, else the default."""
        if self.name in given:
            return given[self.name]
        return self.default(given) if callable(self.default) else self.default


MAIL_PROVIDERS = ("SMTP_URL", "RESEND_API_KEY")  # of which an operator sets one

VARIABLES: tuple[Variable, ...] = (
    Variable(
        "ENVIRONMENT",
        casts.one_of("sandbox", "production"),
        "sandbox",
        "sandbox captures messages instead of sending them; production sends them.",
    ),
    Variable(
        "DATABASE_URL",
        casts.database_url,
        "sqlite:///data/tidings.db",
        "The database: postgresql://…, with several hosts if a standby may take over, or"
        " sqlite:///….",
        secret=True,
        required_in_production=True,
        unless=("ALLOW_SQLITE_IN_PRODUCTION",),
    ),
    Variable(
        "ALLOW_SQLITE_IN_PRODUCTION",
        casts.switch,
        "off",
        "Allows a single production process on SQLite, or with the queue in process.",
    ),
    Variable(
        "DATABASE_POOL_SIZE",
        casts.whole(1, 500),
        "5",
        "Maximum PostgreSQL connections per process.",
    ),
    Variable(
        "REDIS_URL",
        casts.redis_url,
        None,
        "Wakes workers at once and shares rate limits between processes: redis://… or rediss://….",
        default_in_words="in process",
        secret=True,
        required_in_production=True,
        unless=("ALLOW_SQLITE_IN_PRODUCTION",),
    ),
    Variable(
        "REDIS_TLS_VERIFY",
        casts.switch,
        "on",
        "Whether to verify the certificate of a rediss:// server; set it to off on Heroku.",
    ),
    Variable(
        "HOST",
        casts.host,
        _default_host,
        "The address to listen on.",
        default_in_words="127.0.0.1; 0.0.0.0 in production and on a platform",
    ),
    Variable("PORT", casts.whole(1, 65_535), "8000", "The port to listen on."),
    Variable(
        "WEB_CONCURRENCY",
        casts.whole(1, 64),
        "1",
        "Number of web processes on the port; more than one needs PostgreSQL and Redis.",
    ),
    Variable(
        "BASE_URL",
        casts.base_url,
        _default_base_url,
        "The public address; webhook URLs and links begin with it.",
        default_in_words="http://127.0.0.1:PORT",
        required_in_production=True,
    ),
    Variable(
        "TRUSTED_HOPS",
        casts.whole(0, 10),
        _default_hops,
        "Number of proxies that append to X-Forwarded-For; the client is that many entries from the"
        " right.",
        default_in_words="0; 1 on Heroku",
    ),
    Variable(
        "MAX_BODY_BYTES",
        casts.whole(1_024, 67_108_864),
        "1048576",
        "The largest accepted request body; a larger one gets a 413.",
    ),
    Variable(
        "CORS_ORIGINS",
        casts.origins,
        "",
        "Origins whose pages may call the API from a browser, separated by commas.",
        default_in_words="none",
    ),
    Variable(
        "CONSOLE",
        casts.switch,
        "on",
        "Whether the web console is served at /console.",
    ),
    Variable(
        "SECRET_KEY",
        casts.secret_keys,
        None,
        "Signs sessions and wraps the data key. To rotate it, list several, separated by commas.",
        default_in_words="generated once and stored beside the database",
        secret=True,
        required_in_production=True,
    ),
    Variable(
        "REGISTRATION",
        casts.one_of("open", "invite_only", "closed"),
        "open",
        "Who may create an account: anyone (open), invited people (invite_only), nobody (closed).",
    ),
    Variable(
        "DEFAULT_PLAN",
        casts.one_of(*plans.NAMES),
        plans.FREE,
        "The plan of a workspace that does not pay.",
    ),
    Variable(
        "OIDC_ISSUER",
        casts.issuer,
        None,
        "The OpenID Connect provider for single sign-on; its redirect URI is"
        " BASE_URL/auth/oidc/callback.",
        default_in_words="none",
    ),
    Variable(
        "OIDC_CLIENT_ID",
        casts.word,
        None,
        "The client ID at that provider; required with OIDC_ISSUER.",
        default_in_words="none",
    ),
    Variable(
        "OIDC_CLIENT_SECRET",
        casts.word,
        None,
        "The client secret; not needed if the provider accepts PKCE alone.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "SMTP_URL",
        casts.smtp_url,
        None,
        "The mail server: smtp://… or smtps://…. STARTTLS is used if offered, and required if there"
        " is a user name and the server is not this machine; ?starttls=required or off says"
        " otherwise.",
        default_in_words="none; the sandbox needs none",
        secret=True,
        required_in_production=True,
        unless=MAIL_PROVIDERS[1:],
    ),
    Variable(
        "RESEND_API_KEY",
        casts.word,
        None,
        "Sends mail through Resend instead of SMTP_URL.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "RESEND_WEBHOOK_SECRET",
        casts.pattern(casts.SIGNING_SECRET, "the endpoint's signing secret, whsec_…"),
        None,
        "Verifies Resend's delivery webhooks; register the URL that doctor prints.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "RESEND_BASE_URL",
        casts.base_url,
        "https://api.resend.com",
        "The base URL of Resend's API.",
    ),
    Variable(
        "TWILIO_ACCOUNT_SID",
        casts.pattern(r"AC[0-9a-f]{32}", "an account's SID: AC and 32 hexadecimal digits"),
        None,
        "The Twilio account for text messages and WhatsApp.",
        default_in_words="none",
    ),
    Variable(
        "TWILIO_AUTH_TOKEN",
        casts.word,
        None,
        "The account's auth token, which also verifies Twilio's callbacks; required with the SID.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "TWILIO_FROM",
        casts.pattern(
            f"{casts.E164}|{casts.SHORT_CODE}|{casts.SENDER_NAME}|{casts.SERVICE}",
            "a number such as +15005550006, a short code, a name, or a messaging service's SID",
        ),
        None,
        "The sender of text messages: a number, short code, name or messaging service (MG…).",
        default_in_words="none; no text messages",
    ),
    Variable(
        "TWILIO_WHATSAPP_FROM",
        casts.pattern(
            f"{casts.E164}|{casts.SERVICE}",
            "a number such as +15005550006, or a messaging service's SID",
        ),
        None,
        "The sender on WhatsApp: a number or messaging service (MG…).",
        default_in_words="none; no WhatsApp",
    ),
    Variable(
        "TWILIO_BASE_URL",
        casts.base_url,
        "https://api.twilio.com",
        "The base URL of Twilio's API.",
    ),
    Variable(
        "MAIL_FROM",
        casts.mail_from,
        "Tidings <hello@tidings.example>",
        "The sender of mail about accounts. Workspaces without an email provider of their own send"
        " from an address of their own on its domain.",
        required_in_production=True,
    ),
    Variable(
        "SHARED_SENDER",
        casts.switch,
        "off",
        "Let every workspace send as `MAIL_FROM`, for a mail server that accepts no other sender;"
        " only where all workspaces are trusted.",
    ),
    Variable(
        "STRIPE_SECRET_KEY",
        casts.word,
        None,
        "Charges for plans through Stripe in production; without it, plans cannot be bought.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "STRIPE_WEBHOOK_SECRET",
        casts.word,
        None,
        "Verifies Stripe's webhooks to BASE_URL/billing/webhooks/stripe; required with the key.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "STRIPE_PRICE_GROWTH",
        casts.word,
        None,
        "Stripe's ID of the monthly price of growth; without it, growth cannot be bought.",
        default_in_words="none",
    ),
    Variable(
        "STRIPE_PRICE_SCALE",
        casts.word,
        None,
        "Stripe's ID of the monthly price of scale; without it, scale cannot be bought.",
        default_in_words="none",
    ),
    Variable(
        "STRIPE_PRICE_ENTERPRISE",
        casts.word,
        None,
        "Stripe's ID of the monthly price of enterprise; without it, enterprise cannot be bought.",
        default_in_words="none",
    ),
    Variable(
        "STRIPE_BASE_URL",
        casts.base_url,
        "https://api.stripe.com",
        "The base URL of Stripe's API.",
    ),
    Variable(
        "EGRESS_ALLOW",
        casts.networks,
        "",
        "Private networks (CIDRs) that HTTP steps and outbound events may reach, on any port.",
        default_in_words="none",
    ),
    Variable(
        "BROADCAST_MAX_BOUNCES",
        casts.whole(1, 1_000),
        "50",
        "A broadcast pauses at so many hard bounces per 1,000 of its last messages.",
    ),
    Variable(
        "BROADCAST_MAX_COMPLAINTS",
        casts.whole(1, 1_000),
        "3",
        "A broadcast pauses at so many spam complaints per 1,000 of its last messages.",
    ),
    Variable(
        "BROADCAST_DOMAIN_PER_MINUTE",
        casts.whole(1, 1_000_000),
        "30000",
        "Messages of a broadcast a minute to one receiving domain.",
    ),
    Variable(
        "RETENTION_DAYS",
        casts.whole(1, 3_650),
        "365",
        "How long history is kept in workspaces without retentionDays of their own.",
    ),
    Variable(
        "LEASE_SECONDS",
        casts.whole(1, 300),
        "15",
        "How long an unresponsive worker keeps its claims before another takes over; at least 10 in"
        " production.",
    ),
    Variable(
        "LOG_LEVEL",
        casts.one_of("debug", "info", "warning", "error"),
        "info",
        "The lowest level to log.",
    ),
    Variable(
        "METRICS_TOKEN",
        casts.word,
        None,
        "The bearer token for /metrics; without it, nobody reads them in production, and anyone"
        " elsewhere.",
        default_in_words="none",
        secret=True,
    ),
    Variable(
        "CLOCK_OFFSET_MS",
        casts.whole(-315_360_000_000, 315_360_000_000),
        "0",
        "Shifts the clock for tests; refused in production.",
    ),
)


def _field(variable: Variable) -> str:
    return "secret_keys" if variable.name == "SECRET_KEY" else variable.name.lower()


_SECRET = tuple(_field(variable) for variable in VARIABLES if variable.secret)


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
        """To PostgreSQL, of all web processes and one worker."""
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
        return cls(**_lowered(values))

    @property
    def production(self) -> bool:
        return self.environment == "production"

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
                case str() as url if name.endswith("_url"):
                    found += sorted(_passwords(urlsplit(url)))
                case str() as word:
                    found.append(word)
                case keys:
                    found += keys
        return tuple(found)

    def __repr__(self) -> str:
        shown = (f"{field.name}={self._shown(field.name)}" for field in fields(self))
        return f"Settings({', '.join(shown)})"

    def _shown(self, name: str) -> str:
        value = getattr(self, name)
        return "***" if name in _SECRET and value is not None else repr(value)


def _read(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Field → value, and a sentence for everything that is bad or missing."""
    values: dict[str, Any] = {}
    faults: list[str] = []
    for variable in VARIABLES:
        names = [variable.name, *variable.unless]
        missing = given.keys().isdisjoint(names)
        if variable.required_in_production and _is_production(given) and missing:
            faults.append(f"{' or '.join(names)} must be set in production. {variable.help}")
            continue
        text = variable.text(given)
        try:
            values[_field(variable)] = None if text is None else variable.cast(text)
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
    mail_providers = [name for name in MAIL_PROVIDERS if values[name.lower()] is not None]
    if len(mail_providers) > 1:
        faults.append(f"{' and '.join(mail_providers)} exclude each other: set one of them.")
    if (values["twilio_account_sid"] is None) != (values["twilio_auth_token"] is None):
        faults.append("TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN are needed together: set both.")
    senders = (values["twilio_from"], values["twilio_whatsapp_from"])
    if values["twilio_account_sid"] is not None and not any(senders):
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


def _lowered(values: Mapping[str, Any]) -> dict[str, Any]:
    """SQLite and the queue in process are for one process."""
    asked = values["web_concurrency"]
    sqlite = values["database_url"].startswith("sqlite:")
    if asked == 1 or (values["redis_url"] is not None and not sqlite):
        return dict(values)
    cause = "DATABASE_URL is SQLite" if sqlite else "REDIS_URL is not set"
    note = f"WEB_CONCURRENCY was lowered from {asked} to 1 because {cause}."
    return {**values, "web_concurrency": 1, "notes": (note,)}


def _passwords(url: SplitResult) -> set[str]:
    spelled = [url.password or ""]
    spelled += [value for name, value in parse_qsl(url.query) if "pass" in name.lower()]
    return {form for word in spelled if word for form in (word, unquote(word))}


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
