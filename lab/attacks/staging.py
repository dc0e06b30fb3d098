"""A running service in one of its shapes, its mail server, and outsiders who use it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import httpx2

from app.net.tls import system_trust
from lab.bench.intake import cpu_seconds
from tests import servers
from tests.attacks.target import address
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Started, answers, establish, made, until
from tests.receivers import Received, Receiver

COMMANDS = {"embedded": ("run",), "production": ("web", "worker")}
PATIENCE = 60.0  # two cores are shared with other work
OUTSIDE = "127.0.0.2"  # stands for a server on the internet: EGRESS_ALLOW opens it alone
METRICS_TOKEN = "for the figures"
PASSWORD = "correct horse battery"

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Background:
    """A loop in a thread, for servers that stand around the service."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)


@dataclass(slots=True)
class Stage:
    """`service` is in production, behind a proxy (TRUSTED_HOPS=1), with everybody's mail at
    `mail`. A line that needs another boots it."""

    shape: str
    directory: Path
    background: Background
    mail: Receiver
    given: Mapping[str, str]  # the URLs of PostgreSQL and Redis
    stack: ExitStack
    service: Deployment = field(init=False)

    @contextmanager
    def booted(self, database_url: str = "", **environ: str) -> Iterator[Deployment]:
        """Another service of this shape, with settings of its own; "" takes one away."""
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        environ = {"TRUSTED_HOPS": "1", "EGRESS_ALLOW": f"{OUTSIDE}/32", **environ}
        environ.setdefault("METRICS_TOKEN", METRICS_TOKEN)
        urls = {
            "database_url": database_url or self.new_database(directory),
            "redis_url": self.given.get("redis", ""),
            "smtp_url": self.mail.url,
        }
        with Started(directory, **urls, **{"ALLOW_SQLITE_IN_PRODUCTION": "1", **environ}) as it:
            it.environ = {name: value for name, value in it.environ.items() if value}
            for command in COMMANDS[self.shape]:
                part = it.start(command)
            until(lambda: answers(f"{it.url}/readyz"), "it is ready", part, PATIENCE)
            ready = "ready" if self.shape == "embedded" else "worker started"
            if self.shape == "production":
                until(lambda: ready in part.text, "the worker has started", part, PATIENCE)
            yield it

    def new_database(self, directory: Path) -> str:
        if self.shape == "embedded":
            return f"sqlite:///{directory}/tidings.db"
        return asyncio.run(servers.new_database(self.given["postgres"], SCHEMA.read_text()))

    def someone(
        self, service: Deployment | None = None, *, verified: bool = True, **registration: str
    ) -> httpx2.Client:
        """A newcomer at an address of their own, with a session. `verified`: and of a year ago."""
        it = service or self.service
        client = self.stranger(it)
        client.headers["X-Email"] = email = registration.get("email") or f"{unique()}@people.test"
        given = {"email": email, "password": PASSWORD, "name": "Nora", "workspaceName": "Nora's"}
        registered = made(client, "/auth/register", {**given, **registration})
        client.headers["Authorization"] = f"Bearer {registered['accessToken']}"
        if verified:
            asyncio.run(establish(it.environ["DATABASE_URL"]))
        return client

    def stranger(self, service: Deployment | None = None) -> httpx2.Client:
        it = service or self.service
        client = httpx2.Client(base_url=it.url, timeout=40, trust_env=False, verify=system_trust())
        client.headers["X-Forwarded-For"] = address()
        return self.stack.enter_context(client)

    def mails_to(self, recipient: str) -> list[Received]:
        return [one for one in self.mail.received if recipient in one.recipients]


@contextmanager
def staged(shape: str) -> Iterator[Stage]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="defects-")))
        directory.chmod(0o755)
        background, given = Background(), {}
        mail = Receiver(directory / "ledger.jsonl")
        background.run(mail.start())
        stack.callback(lambda: background.run(mail.stop()))
        if shape == "production":
            postgres, redis = servers.postgres_server(), servers.redis_server()
            for name, server in (("postgres", postgres), ("redis", redis)):
                server.start()
                stack.callback(server.remove)
                given[name] = server.url
        stage = Stage(shape, directory, background, mail, given, stack)
        stage.service = stack.enter_context(stage.booted())
        yield stage


# --- what outsiders do ----------------------------------------------------------------------------


def unique() -> str:
    return f"n{secrets.token_hex(5)}"


def read(client: httpx2.Client, url: str) -> Json:
    response = client.get(url)
    assert response.status_code == 200, f"{url}: {response.text}"
    answer: Json = response.json()
    return answer


def workflow(client: httpx2.Client, steps: Sequence[Json], **trigger: Any) -> Json:
    """ACTIVE; started by hand, or by webhooks when a trigger is given."""
    body: Json = {"name": unique(), "state": "ACTIVE", "steps": list(steps)}
    webhook = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    return made(client, "/workflows", {**body, "trigger": {**webhook, **trigger}})


def event(
    client: httpx2.Client, definition: Json, body: Any = None, **headers: str
) -> httpx2.Response:
    url = definition["trigger"]["webhookUrl"]
    body = {"email": f"{unique()}@people.test"} if body is None else body
    return client.post(url, json=body, headers={"X-Forwarded-For": address(), **headers})


def run_of(client: httpx2.Client, definition: Json, body: Any = None, every: float = 0.1) -> Json:
    """The run of one event, once it has ended."""
    accepted = event(client, definition, body)
    assert accepted.status_code == 202, accepted.text
    return ended(client, f"/runs/{accepted.json()['runId']}", every)


def message(client: httpx2.Client, to: str, **content: Any) -> Json:
    """A mail, once it is known what became of it, or why it waits."""
    content = content or {"subject": "Hello", "text": "Hello"}
    ordered = made(client, "/messages", {"channel": "email", "to": to, "content": content})
    return ended(client, f"/messages/{ordered['messageId']}")


def ended(client: httpx2.Client, url: str, every: float = 0.1) -> Json:
    """A run or message that goes on no more, or says why it waits."""
    found: list[Json] = []

    def has_ended() -> bool:
        found[:] = [read(client, url)]
        moving = found[0]["status"] in ("QUEUED", "SENDING", "RUNNING", "WAITING")
        return not moving or found[0].get("reason") is not None

    until(has_ended, f"{url} has ended: {found}", seconds=PATIENCE, every=every)
    return found[0]


def code_of(resource: Json) -> str:
    return str((resource.get("reason") or {}).get("code"))


def words_of(response: httpx2.Response) -> str:
    """Status, and what a problem says."""
    with suppress(ValueError):
        body = response.json()
        wrong = body.get("errors") or []
        words = wrong[0].get("message") if wrong else body.get("detail", "")
        return f"{response.status_code} {words}".strip()
    return str(response.status_code)


def codes(resource: Json) -> list[str]:
    return [finding["code"] for finding in resource.get("findings", [])]


def raw(port: int, request: bytes, seconds: float = 10.0) -> bytes:
    """The first of what is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(request)
        with suppress(TimeoutError):
            return connection.recv(65_536)
    return b""


def posted(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", "Host: a.test", "Content-Type: application/json"]
    lines += [*headers, f"X-Forwarded-For: {address()}", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


def computed(service: Deployment) -> float:
    """Seconds of a core that the processes of a service have used so far."""
    return sum(cpu_seconds(pid) for pid in pids(service))


def cores_used(service: Deployment, work: Callable[[], object]) -> float:
    before, began = computed(service), time.monotonic()
    work()
    return (computed(service) - before) / (time.monotonic() - began)


def pids(service: Deployment) -> list[int]:
    return [part.process.pid for part in service.parts if part.process.poll() is None]


def load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def log_of(service: Deployment) -> list[Json]:
    found: list[Json] = []
    for part in service.parts:
        for line in part.text.splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
    return found
