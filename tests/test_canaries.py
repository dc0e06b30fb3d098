"""Forty secrets are planted the way secrets come in, and then looked for wherever somebody could
look: in every answer, in error pages, logs, Redis, and in the text of the database."""

from __future__ import annotations

import io
import logging
import re
import secrets
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from app.config.settings import Settings
from app.database.db import Database
from app.main import build_process
from app.net.egress import Egress
from app.process import Process
from app.routes import ROUTES
from app.runtime import logs
from app.web.routing import ADMIN, PUBLIC
from tests.cast import any_address, caller, settle, started
from tests.listener import Listener, says
from tests.receivers import Receiver, read_ledger
from tests.test_tenants import prefix_in_path

ENOUGH = 40
PEOPLE = ("olivia@acme.test", "ed@acme.test", "ada@x.test", "+4915112345678")
JSON = "application/json"


@dataclass(slots=True)
class Canaries:
    """Canaries: what was planted, by name, and everything that was answered meanwhile and since."""

    planted: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[str, str]] = field(default_factory=list)  # what was asked, and told
    shown: dict[str, set[str]] = field(default_factory=dict)  # secret → the requests that show it
    # What a member writes into a step is read where the step is: see the last assertions.
    in_a_definition: str = field(default_factory=lambda: f"canary{secrets.token_hex(16)}")
    in_a_url: str = field(default_factory=lambda: f"canary{secrets.token_hex(16)}")  # an endpoint's

    def plant(self, name: str, prefix: str = "") -> str:
        """One of our own making."""
        return self.keep(name, f"{prefix}canary{secrets.token_hex(16)}")

    def keep(self, name: str, secret: str, shown_by: str = "") -> str:
        assert len(secret) >= 12, name
        assert name not in self.planted
        self.planted[name] = secret
        self.shown.setdefault(secret, set()).add(shown_by)  # two tokens of one second are one
        return secret

    def found_in(self, text: str, asked: str = "") -> list[str]:
        return [
            name
            for name, secret in self.planted.items()
            if secret in text and not (asked and asked in self.shown[secret])
        ]


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Every line of the logs, of the finest level."""
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    yield stream
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


@pytest.fixture
async def mail(tmp_path: Path, canaries: Canaries) -> AsyncIterator[Receiver]:
    password = canaries.plant("SMTP password")
    async with Receiver(tmp_path / "ledger", login=("olivia", password)) as mail:
        yield mail


@pytest.fixture
async def process(
    database: Database,
    request: pytest.FixtureRequest,
    written: io.StringIO,
    canaries: Canaries,
    mail: Receiver,
) -> AsyncIterator[Process]:
    """A process in production, with every secret that its environment may hold."""
    smtp = mail.url.replace("//", f"//olivia:{canaries.planted['SMTP password']}@")
    environ = {
        "ENVIRONMENT": "production",
        "BASE_URL": "http://127.0.0.1:8000",
        "DATABASE_URL": request.getfixturevalue("database_url"),
        "REDIS_URL": request.getfixturevalue("redis_url"),
        "ALLOW_SQLITE_IN_PRODUCTION": "on" if database.engine == "sqlite" else "",
        "SECRET_KEY": f"{canaries.plant('SECRET_KEY')},{canaries.plant('older SECRET_KEY')}",
        "SMTP_URL": f"{smtp}?starttls=off",
        "MAIL_FROM": "Acme <hello@acme.test>",
        "METRICS_TOKEN": canaries.plant("METRICS_TOKEN"),
        "STRIPE_SECRET_KEY": canaries.plant("STRIPE_SECRET_KEY", "sk_live_"),
        "STRIPE_WEBHOOK_SECRET": canaries.plant("STRIPE_WEBHOOK_SECRET", "whsec_"),
        "TWILIO_ACCOUNT_SID": "AC" + "0" * 32,
        "TWILIO_AUTH_TOKEN": canaries.plant("TWILIO_AUTH_TOKEN"),
        "TWILIO_FROM": "+15005550006",
        "OIDC_ISSUER": "https://login.example",
        "OIDC_CLIENT_ID": "tidings",
        "OIDC_CLIENT_SECRET": canaries.plant("OIDC_CLIENT_SECRET"),
        "DEFAULT_PLAN": "enterprise",
        "LOG_LEVEL": "debug",
    }
    settings = Settings.from_environ(environ)
    logs.configure(settings, stream=written)
    logging.getLogger("mail.log").setLevel("ERROR")  # the receiver's, which is not ours
    egress = Egress([ip_network("127.0.0.0/8")])
    async with build_process(database, settings) as process:
        logging.getLogger("app").warning("settings", extra={"settings": repr(settings)})
        yield replace(process, egress=egress)
    await egress.close()


class Visitor:
    """Somebody at the API, each call from another address; keeps what it is told."""

    def __init__(self, canaries: Canaries, process: Process, edge: Any) -> None:
        self.canaries, self._process, self._edge = canaries, process, edge
        self.bearer: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The answer's JSON, if it is JSON. Headers with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with caller(self._process, self._edge, any_address()) as client:
            content = {"content": body} if isinstance(body, bytes) else {"json": body}
            options = {} if body is None else content
            sent = {**self.bearer, **named}
            response: httpx2.Response = await client.request(method, path, headers=sent, **options)
        output = f"{response.headers} {response.text}"
        self.canaries.answers.append((f"{method} {path}", output))
        return response.json() if response.headers.get("content-type") == JSON else None

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return await self.call("POST", path, body, **headers)


def letter_to(mail: Receiver, address: str) -> str:
    """The token in the newest letter."""
    for received in reversed(read_ledger(mail.ledger)):
        if address in str(received.recipients):
            body = received.mail.get_body(("plain",))
            assert body is not None
            return str(re.findall(r"[#&]token=([\w-]+)", body.get_content())[-1])
    raise AssertionError(f"no letter to {address}")


# --- planting -------------------------------------------------------------------------------------


async def plant_people(
    canaries: Canaries, process: Process, mail: Receiver, visitor: Visitor
) -> None:
    first, second, third = (
        canaries.plant(f"{name} password") for name in ("first", "new", "reset")
    )
    who = {"email": "olivia@acme.test", "password": first, "name": "O", "workspaceName": "Acme"}
    made = await visitor.post("/auth/register", who)
    canaries.keep("access token", made["accessToken"], "POST /auth/register")
    canaries.keep("refresh token", made["refreshToken"], "POST /auth/register")
    await settle(process)
    token = canaries.keep("verification token", letter_to(mail, who["email"]))
    await visitor.post("/auth/email/verify", {"token": token})
    fresh = await visitor.post("/auth/refresh", {"refreshToken": made["refreshToken"]})
    canaries.keep("rotated access token", fresh["accessToken"], "POST /auth/refresh")
    canaries.keep("rotated refresh token", fresh["refreshToken"], "POST /auth/refresh")
    visitor.bearer = {"Authorization": f"Bearer {fresh['accessToken']}"}
    change = {"currentPassword": first, "newPassword": second}
    await visitor.call("PATCH", "/auth/password", change)
    wrong = canaries.plant("mistyped password")
    await visitor.post("/auth/token", {"email": who["email"], "password": wrong})
    await visitor.post("/auth/password/forgot", {"email": who["email"]})
    await settle(process)
    token = canaries.keep("reset token", letter_to(mail, who["email"]))
    await visitor.post("/auth/password/reset", {"token": token, "password": third})
    again = await visitor.post("/auth/token", {"email": who["email"], "password": third})
    canaries.keep("third access token", again["accessToken"], "POST /auth/token")
    canaries.keep("third refresh token", again["refreshToken"], "POST /auth/token")
    visitor.bearer = {"Authorization": f"Bearer {again['accessToken']}"}
    await visitor.post("/memberships/invitations", {"email": "ed@acme.test", "role": "editor"})
    await settle(process)
    token = canaries.keep("invitation token", letter_to(mail, "ed@acme.test"))
    new = {"token": token, "name": "Ed", "password": canaries.plant("invited password")}
    signed_in, visitor.bearer = visitor.bearer, {}  # Ed's browser is not Olivia's
    joined = await visitor.post("/memberships/invitations/accept", new)
    canaries.keep("joined token", joined["accessToken"], "POST /memberships/invitations/accept")
    visitor.bearer = signed_in


async def plant_credentials(canaries: Canaries, visitor: Visitor) -> None:
    """Plant credentials, and a key's answer, which is kept for its copies."""
    path = "/settings/api-keys"
    for name in ("API key", "second API key"):
        key = await visitor.post(path, {"name": name, "role": "owner"}, Idempotency_Key=name)
        canaries.keep(name, key["key"], f"POST {path}")
    await visitor.post(path, {"name": "API key", "role": "owner"}, Idempotency_Key="API key")


async def plant_definitions(
    canaries: Canaries, process: Process, visitor: Visitor, listener: Listener
) -> None:
    path = "/event-endpoints"
    told_at = {"url": f"{listener.url}/events?token={canaries.in_a_url}"}
    endpoint = await visitor.post(path, told_at, Idempotency_Key="e")
    canaries.keep("endpoint secret", endpoint["secret"], f"POST {path}")
    rotate = f"{path}/{endpoint['id']}/rotate"
    rotated = await visitor.post(rotate)
    canaries.keep("rotated endpoint secret", rotated["secret"], f"POST {rotate}")
    trigger = {
        "source": "inbound_webhook",
        "contactLookup": "email",
        "createContact": True,
        "signingSecret": canaries.plant("signing secret"),
    }
    calls_out = {
        "id": "ask",
        "type": "http_request",
        "method": "POST",
        "url": f"{listener.url}/ask?api_key={{{{trigger.apiKey}}}}",
        "headers": {
            "Authorization": "Bearer {{trigger.bearer}}",
            "X-Api-Key": "{{trigger.apiKey}}",
        },
        "body": {"for": "{{contact.email}}"},
    }
    literal = {"X-Api-Key": canaries.in_a_definition}
    url = f"{listener.url}/too?key={canaries.in_a_definition}"
    calls_too = {**calls_out, "id": "too", "headers": literal, "url": url}
    steps = [calls_out, calls_too]
    definition = {"name": "W", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    workflow = await visitor.post("/workflows", definition)
    url = httpx2.URL(workflow["trigger"]["webhookUrl"]).path
    one = f"/workflows/{workflow['id']}"
    second = {"trigger": {"signingSecret": canaries.plant("second signing secret")}}
    await visitor.call("PATCH", one, second)
    await visitor.call("PATCH", one, {"trigger": {"signingSecret": None}})
    dead = url.rpartition("/")[2]
    await visitor.post(f"{one}/webhook/rotate")
    payload = {f"GET {one}", "POST /workflows", f"PATCH {one}"}
    canaries.answers = [(asked, text) for asked, text in canaries.answers if asked not in payload]
    canaries.keep("dead webhook token", dead)
    live = httpx2.URL((await visitor.get(one))["trigger"]["webhookUrl"]).path
    canaries.answers.pop()  # whoever may read the definition is told its URL
    sender = {
        "Authorization": f"Bearer {canaries.plant('sender bearer')}",
        "Cookie": f"session={canaries.plant('sender cookie')}",
        "X_Api_Key": canaries.plant("sender key"),
        "X_Auth_Token": canaries.plant("sender token"),
        "X_Service_Signature": canaries.plant("sender signature"),
        "X_Hub_Signature": canaries.plant("another signature"),
        "Proxy_Authorization": f"Basic {canaries.plant('proxy credentials')}",
    }
    # The body is the sender's own and is shown to members as it came; its values are not secrets.
    await visitor.post(live, {"email": "ada@x.test", "bearer": "b", "apiKey": "k"}, **sender)
    await visitor.post(url, {"email": "ada@x.test"}, **sender)
    await visitor.post(live, {"email": 1}, **sender)
    await visitor.post("/contacts", {"phone": PEOPLE[-1]})
    await settle(process)


async def plant_mistakes(canaries: Canaries, visitor: Visitor) -> None:
    """Plant what people send to the wrong place: it must not come back, nor be written down."""
    body = {"email": "a@x.test", "password": canaries.plant("stray password"), "nonsense": 1}
    await visitor.post("/auth/token", body)
    await visitor.post("/contacts", {"email": canaries.plant("stray value"), "phone": 7})
    await visitor.post("/contacts", b'{"token": "' + canaries.plant("broken JSON").encode())
    await visitor.get(f"/contacts?access_token={canaries.plant('query token')}")
    await visitor.get(f"/u/{canaries.plant('unsubscribe token')}")
    await visitor.get(f"/v1/webhooks/in/{canaries.plant('guessed token')}")
    await visitor.post(f"/v1/webhooks/in/{canaries.plant('guessed token, posted')}", {"a": 1})
    await visitor.post("/auth/refresh", {"refreshToken": canaries.plant("guessed refresh token")})
    await visitor.post("/auth/email/verify", {"token": canaries.plant("guessed mail token")})
    await visitor.get(
        f"/auth/oidc/callback?code={canaries.plant('code')}&state={canaries.plant('state')}"
    )
    for name, scheme in (("guessed bearer", "Bearer"), ("basic credentials", "Basic")):
        headers = {"Authorization": f"{scheme} {canaries.plant(name)}"}
        await visitor.call("GET", "/contacts", **headers)
    await visitor.call("GET", "/metrics", Authorization=f"Bearer {canaries.plant('metrics guess')}")
    signature = f"t=1,v1={canaries.plant('stripe signature')}"
    await visitor.post("/billing/webhooks/stripe", {}, Stripe_Signature=signature)
    userinfo = f"https://ada:{canaries.plant('password in a URL')}@hooks.example"
    await visitor.post("/event-endpoints", {"url": userinfo})


# --- looking --------------------------------------------------------------------------------------


async def read_everything(visitor: Visitor) -> int:
    """Every route that is read, by every id of its kind that was shown; how many answers."""
    ids = set()
    for _asked, text in visitor.canaries.answers:
        ids |= set(re.findall(r'"id":"([a-z]+_[0-9a-z]{26})"', text))
    read = 0
    reading = [one for one in ROUTES if one.method == "GET" and one.can != ADMIN]
    for endpoint in sorted(reading, key=lambda one: "{" in one.path):
        path = endpoint.path.replace("{version}", "1").replace("{other}", "1")
        if endpoint.can == PUBLIC and "{" in path:
            continue
        kind = prefix_in_path(endpoint) if "{id}" in path else None
        for id in sorted(id for id in ids if id.startswith(f"{kind}_")) if kind else [""]:
            answer = await visitor.get(path.replace("{id}", id))
            for row in (answer or {}).get("data") or [] if kind is None else []:
                ids.add(str(row.get("id")))
            read += 1
    return read


async def database_text(process: Process, *, without: Collection[str] = ()) -> str:
    tables = (
        "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        if process.database.engine == "sqlite"
        else """SELECT table_name AS name FROM information_schema.tables
                WHERE table_schema = current_schema() ORDER BY table_name"""
    )
    lines = []
    async with process.database.read() as db:
        for table in await db.fetch_all(tables):
            if table["name"] in without:
                continue
            for row in await db.fetch_all(f"SELECT * FROM {table['name']}"):
                for value in row.values():
                    lines.append(
                        value.decode("latin-1") if isinstance(value, bytes) else f"{value}"
                    )
    return "\n".join(lines)


async def redis_text(process: Process) -> str:
    redis, lines = process.hints.redis, list[str]()
    if redis is None:
        return ""
    for key in await redis.keys("*"):
        lines.append(repr(key))
        dumped = await redis.dump(key)
        lines.append((dumped or b"").decode("latin-1"))
    return "\n".join(lines)


async def test_no_planted_secret_is_found_anywhere(
    process: Process, mail: Receiver, canaries: Canaries, written: io.StringIO
) -> None:
    answer = says({"ok": True}, Set_Cookie=f"s={canaries.plant('cookie')}")
    async with Listener(answer) as listener, started(process) as edge:
        visitor = Visitor(canaries, process, edge)
        await plant_people(canaries, process, mail, visitor)
        await plant_credentials(canaries, visitor)
        await plant_definitions(canaries, process, visitor, listener)
        await plant_mistakes(canaries, visitor)
        hints = await redis_text(process)
        assert await read_everything(visitor) > 50
        figures = {"Authorization": f"Bearer {canaries.planted['METRICS_TOKEN']}"}
        await visitor.call("GET", "/metrics", **figures)
    assert len(canaries.planted) >= ENOUGH
    assert len(listener.asked) >= 2  # the step's call, and events
    for asked, text in canaries.answers:
        assert canaries.found_in(text, asked) == [], asked
    assert canaries.found_in(written.getvalue()) == []
    assert canaries.found_in(hints) == []
    assert canaries.found_in(await database_text(process)) == []
    for asked, text in canaries.answers:
        assert canaries.in_a_definition not in text or "/workflows" in asked, asked
    definitions = ("definitions", "definition_versions")
    elsewhere = await database_text(process, without=definitions)
    assert canaries.in_a_definition not in written.getvalue() + hints + elsewhere
    assert any(asked.header("x-api-key") == canaries.in_a_definition for asked in listener.asked)
    for asked, text in canaries.answers:
        assert canaries.in_a_url not in text or "/event-endpoints" in asked, asked
    elsewhere = await database_text(process, without=["event_endpoints"])
    assert canaries.in_a_url not in written.getvalue() + hints + elsewhere
    assert any(canaries.in_a_url in asked.target for asked in listener.asked)
    for person in PEOPLE:
        assert person not in written.getvalue() + hints, person


def test_a_canary_that_is_there_is_found(canaries: Canaries) -> None:
    """The search itself can fail."""
    planted = canaries.plant("one")
    canaries.keep("another", "shown once and no more", "POST /keys")
    assert canaries.found_in(f"…{planted}…") == ["one"]
    assert canaries.found_in("shown once and no more", "POST /keys") == []
    assert canaries.found_in("shown once and no more", "GET /keys") == ["another"]
