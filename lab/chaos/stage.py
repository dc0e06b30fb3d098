"""Tidings as a platform runs it, with a proxy in every gap that a fault may strike.

Two web processes, two workers, each started again when it dies; real PostgreSQL that survives a
crash, real Redis, and receivers of SMTP and HTTP that write down what they have before they say so.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import httpx2

from app.net.tls import system_trust
from lab.chaos.subscriber import Subscriber
from tests import servers
from tests.clocks import Clock
from tests.deployment import Deployment, MailServer, Part, answers, establish
from tests.listener import Listener, says
from tests.proxy import Proxy
from tests.servers import free_port

WEBS = ("web 1", "web 2")
WORKERS = ("worker 1", "worker 2")
THREE_WORKERS = (*WORKERS, "worker 3")
UP_SECONDS = 60.0
GATHERING_SECONDS = 300  # that a statement of the campaign itself may take
QUEUEING_SECONDS = 0.25  # of the mail server, as real ones: whoever dies then leaves a doubt
HOLD_SECONDS = 2.0  # likewise, before it has what goes to who opts out meanwhile
LONGEST_PAUSE = 1.0  # until a platform starts again what has died


@dataclass(frozen=True, slots=True)
class Death:
    """`as_struck`: with the code that the signal asks for which we sent it."""

    at: float
    name: str
    code: int
    as_struck: bool


@dataclass(frozen=True, slots=True)
class Start:
    at: float
    name: str
    log: Path

    @property
    def ready_at(self) -> float:
        """The moment at which a web process was ready, by its own word; for ever, when it never
        was."""
        for line in self.log.read_text().splitlines():
            if '"web process is ready"' in line:
                return datetime.fromisoformat(json.loads(line)["time"]).timestamp()
        return math.inf


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The runs that were in the hands of whom we killed then."""

    at: float
    runs: Sequence[str]


@dataclass(slots=True)
class Stage:
    deployment: Deployment
    postgres: servers.PostgresServer
    redis: servers.RedisServer
    mail: MailServer
    listener: Listener
    subscriber: Subscriber
    proxies: dict[str, Proxy]
    chance: random.Random  # of the faults
    probing: random.Random
    pausing: random.Random  # until what has died is started again
    workers: tuple[str, ...] = WORKERS
    parts: dict[str, Part] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    resting: set[str] = field(default_factory=set)  # nobody starts these again for now
    doomed: dict[str, int] = field(default_factory=dict)  # with which code these are to end
    timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)  # that start these again
    deaths: list[Death] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    bereft: list[asyncio.Task[Interrupted]] = field(default_factory=list)  # one for each such kill
    clocks: dict[str, Clock] = field(
        default_factory=dict
    )  # by which these go from their next start
    changes: dict[str, str] = field(default_factory=dict)  # that its owner made, by request id
    owner: httpx2.AsyncClient | None = None

    def start(self, name: str) -> Part:
        command = name.split(maxsplit=1)[0]
        through = urlsplit(self.deployment.environ["DATABASE_URL"])
        database = self.proxies[f"{command} → PostgreSQL"]
        redis = self.proxies[f"{command} → Redis"]
        environ = {"PORT": str(self.ports[name])} if name in self.ports else {}
        if name in self.clocks:
            environ |= self.clocks[name].environ
        part = self.deployment.start(
            command,
            DATABASE_URL=through._replace(netloc=f"postgres@127.0.0.1:{database.port}").geturl(),
            REDIS_URL=f"redis://127.0.0.1:{redis.port}/0",
            **environ,
        )
        self.parts[name] = part
        self.starts.append(Start(time.time(), name, part.output))
        return part

    async def keep_alive(self) -> None:
        """Start what has died again a moment later, for ever."""
        while True:
            for name, part in list(self.parts.items()):
                code = part.process.poll()
                if code is not None and name not in self.resting:
                    as_struck = self.doomed.pop(name, None) == code
                    self.deaths.append(Death(time.time(), name, code, as_struck))
                    self.resting.add(name)
                    pause = self.pausing.uniform(0, LONGEST_PAUSE)
                    loop = asyncio.get_running_loop()
                    self.timers[name] = loop.call_later(pause, self._again, name)
            await asyncio.sleep(0.02)

    def _again(self, name: str) -> None:
        self.start(name)
        self.resting.discard(name)

    async def all_up(self) -> None:
        """Wait until every web process is ready."""
        async with asyncio.timeout(UP_SECONDS):
            for port in self.ports.values():
                while not await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/readyz"):
                    await asyncio.sleep(0.05)

    async def back(self, name: str) -> None:
        """Wait until the process has been started again and serves."""
        async with asyncio.timeout(UP_SECONDS):
            while not await self._serves(name):
                await asyncio.sleep(0.05)

    async def _serves(self, name: str) -> bool:
        part = self.parts[name]
        if name in self.resting or part.process.poll() is not None:
            return False
        if name in self.workers:
            return "worker started" in part.text
        return await asyncio.to_thread(answers, f"http://127.0.0.1:{self.ports[name]}/readyz")

    def kill(self, name: str) -> None:
        """-9. Somebody else starts it again."""
        self.doomed[name] = -signal.SIGKILL
        self.parts[name].process.send_signal(signal.SIGKILL)

    async def stopped(self, name: str, seconds: float) -> tuple[float, int | None]:
        """End a process by SIGTERM; returns how long it took, and its exit code. Somebody else
        starts it again."""
        part = self.parts[name]
        began = time.monotonic()
        self.doomed[name] = 0
        part.process.send_signal(signal.SIGTERM)
        while part.process.poll() is None and time.monotonic() - began < seconds:
            await asyncio.sleep(0.01)
        return time.monotonic() - began, part.process.poll()

    async def broken_trails(self) -> list[str]:
        """The audit trails that are broken, by the command that is there to find them."""
        part = self.deployment.start("verify-audit")
        code = await asyncio.to_thread(part.process.wait, UP_SECONDS)
        lines = part.text.splitlines()
        assert any("whole: " in line for line in lines), part.text
        return [line for line in lines if "NOT WHOLE" in line] or lines[-1:] * (code != 0)

    @asynccontextmanager
    async def database(self) -> AsyncIterator[asyncpg.Connection]:
        """Straight, past every proxy. What is gathered at the end takes longer than a statement of
        the service may."""
        name = urlsplit(self.deployment.environ["DATABASE_URL"]).path
        url = urlsplit(self.postgres.tcp_url)._replace(path=name).geturl()
        settings = {"statement_timeout": f"{GATHERING_SECONDS}s"}
        connection = await asyncpg.connect(url, timeout=5, server_settings=settings)
        try:
            yield connection
        finally:
            await connection.close(timeout=5)


async def proxied(stack: AsyncExitStack, port: int) -> Proxy:
    proxy = Proxy("127.0.0.1", port)
    await proxy.start()
    stack.push_async_callback(proxy.stop)
    return proxy


@asynccontextmanager
async def set_up(
    directory: Path,
    seed: int,
    lease_seconds: int,
    deployed: type[Deployment] = Deployment,
    workers: tuple[str, ...] = WORKERS,
    queueing_seconds: float = QUEUEING_SECONDS,
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        postgres = servers.postgres_server(durable=True)
        assert isinstance(postgres, servers.PostgresServer), (
            "this needs a PostgreSQL that may be killed"
        )
        database = servers.behind_pooler(postgres)
        stack.callback(database.remove)
        redis = servers.redis_server()
        stack.callback(redis.remove)
        assert isinstance(redis, servers.RedisServer), "this needs a Redis that may be killed"
        database.start()
        redis.start()
        mail = stack.enter_context(MailServer(directory, pause=queueing_seconds, hold=HOLD_SECONDS))
        listener = await stack.enter_async_context(Listener(says({"paid": True})))
        subscriber = Subscriber()
        subscribed = await stack.enter_async_context(Listener(subscriber.respond))
        behind = {
            "web → PostgreSQL": database.port,
            "worker → PostgreSQL": database.port,
            "Redis": redis.port,
            "SMTP": urlsplit(mail.url).port or 0,
            "HTTP": listener.port,
            "events": subscribed.port,
        }
        proxies: dict[str, Proxy] = {}
        for name, port in behind.items():
            proxies[name] = await proxied(stack, port)
        for name in ("web → Redis", "worker → Redis"):  # what strikes Redis strikes both
            proxies[name] = await proxied(stack, proxies["Redis"].port)
        deployment = stack.enter_context(
            deployed(
                directory,
                database_url=await servers.new_database(database.tcp_url, ""),
                redis_url=f"redis://127.0.0.1:{proxies['Redis'].port}/0",
                smtp_url=f"smtp://127.0.0.1:{proxies['SMTP'].port}",
                LEASE_SECONDS=str(lease_seconds),
                EGRESS_ALLOW="127.0.0.1",
                TRUSTED_HOPS="1",
            )
        )
        chances = {of: random.Random(f"{seed} {of}") for of in ("faults", "probes", "pauses")}
        stage = Stage(
            deployment,
            postgres,
            redis,
            mail,
            listener,
            subscriber,
            proxies,
            chance=chances["faults"],
            probing=chances["probes"],
            pausing=chances["pauses"],
            workers=workers,
        )
        assert deployment.start("migrate").process.wait(30) == 0
        stage.ports = {name: free_port() for name in WEBS}
        for name in (*WEBS, *workers):
            stage.start(name)
        alive = asyncio.create_task(stage.keep_alive())
        try:
            await stage.all_up()
            yield stage
        finally:
            alive.cancel()
            for task in stage.bereft:
                task.cancel()
            for timer in stage.timers.values():
                timer.cancel()  # else it starts a process that nobody ends
            with suppress(asyncio.CancelledError):
                await alive  # raises what it broke by


@asynccontextmanager
async def owned(stage: Stage) -> AsyncIterator[None]:
    """Register Olivia as owner, with a key for her program. She asks whichever web process
    answers."""
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{stage.ports[WEBS[0]]}",
        timeout=10,
        trust_env=False,
        verify=system_trust(),
        headers={"X-Forwarded-For": "198.51.100.1"},
    ) as client:
        registered = await client.post(
            "/auth/register",
            json={
                "email": "olivia@acme.test",
                "password": "correct horse battery",
                "name": "Olivia",
                "workspaceName": "Acme",
            },
        )
        assert registered.status_code == 201, registered.text
        await establish(stage.deployment.environ["DATABASE_URL"])
        client.headers["Authorization"] = f"Bearer {registered.json()['accessToken']}"
        key = await client.post("/settings/api-keys", json={"name": "program", "role": "owner"})
        client.headers["Authorization"] = f"Bearer {key.json()['key']}"
        stage.owner = client
        yield
