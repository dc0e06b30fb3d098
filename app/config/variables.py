"""The environment variables: each once, with its cast, its default and what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.config import casts, plans

# Set by platforms whose router reaches a process only when it listens on every interface.
PLATFORMS = ("DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE")


# --- defaults that depend on the rest of the environment ------------------------------------------


def _default_host(given: Mapping[str, str]) -> str:
    reached_from_outside = is_production(given) or any(mark in given for mark in PLATFORMS)
    return "0.0.0.0" if reached_from_outside else "127.0.0.1"  # noqa: S104 - meant, see PLATFORMS


def _default_base_url(given: Mapping[str, str]) -> str:
    return f"http://127.0.0.1:{given.get('PORT', '8000')}"


def _default_hops(given: Mapping[str, str]) -> str:
    return "1" if "DYNO" in given else "0"  # Heroku's router appends exactly one address


def is_production(given: Mapping[str, str]) -> bool:
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
    sends: str | None = None  # the channel, of which an operator has one provider

    def text(self, given: Mapping[str, str]) -> str | None:
        """The value as it was given, else the default."""
        if self.name in given:
            return given[self.name]
        return self.default(given) if callable(self.default) else self.default

    @property
    def field(self) -> str:
        """Its name in Settings."""
        return "secret_keys" if self.name == "SECRET_KEY" else self.name.lower()


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
        "Wakes workers at once and shares rate limits between processes: redis://…, rediss://…"
        " or unix://….",
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
        unless=("RESEND_API_KEY",),
        sends="email",
    ),
    Variable(
        "RESEND_API_KEY",
        casts.word,
        None,
        "Sends mail through Resend instead of SMTP_URL.",
        default_in_words="none",
        secret=True,
        sends="email",
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
        sends="sms",
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
        sends="whatsapp",
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
        "Private networks (CIDRs) that HTTP steps, outbound events and workspaces' own mail servers"
        " may reach, on any port.",
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
