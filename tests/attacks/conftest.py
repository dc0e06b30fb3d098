"""Two deployments to attack: everything in one process, and two web processes behind a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from app.net.tls import system_trust
from tests import servers
from tests.attacks.target import Target
from tests.deployment import Deployment, Part, answers, until
from tests.servers import free_port

SLOW = 99  # connections that send nothing, or never all, from the beginning
BEGINNINGS = (
    b"",
    b"POST /v1/webhooks/in/x HTTP/1.1\r\nHost: slow\r\n",
    b"POST /v1/webhooks/in/" + b"A" * 30 + b" HTTP/1.1\r\nHost: slow\r\n"
    b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
)


@pytest.fixture(scope="module")
async def alone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    """The service by itself, as `make run` starts it."""
    port = free_port()
    environ = {"PORT": str(port), "HOST": "127.0.0.1"}
    part = Part("run", environ, tmp_path_factory.mktemp("alone"), forked=True)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "it is ready", part)
        async with owner(port) as api, holding_open(Target(port, api, [part])) as target:
            yield target
    finally:
        part.kill()


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.RedisServer]:
    """One of our own, to be stopped."""
    server = servers.redis_server()
    if not isinstance(server, servers.RedisServer):
        pytest.skip("REDIS_TEST_URL names a server that must not be stopped")
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
async def proxied(
    postgres_server: servers.PostgresServer,
    redis: servers.RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Target]:
    with Deployment(
        tmp_path_factory.mktemp("proxied"),
        database_url=await servers.new_database(postgres_server.url, ""),
        redis_url=redis.url,
        smtp_url="smtp://127.0.0.1:1",
        ENVIRONMENT="sandbox",
        TRUSTED_HOPS="1",
        WEB_CONCURRENCY="2",
    ) as deployment:
        assert deployment.start("migrate").process.wait(30) == 0
        front = deployment.web()
        until(lambda: front.text.count("web process is ready") == 2, "both are ready", front)
        parts = [deployment.start("worker"), front]
        async with (
            owner(deployment.port) as api,
            holding_open(Target(deployment.port, api, parts, redis)) as target,
        ):
            yield target


@asynccontextmanager
async def owner(port: int) -> AsyncIterator[httpx2.AsyncClient]:
    """Olivia registers Acme."""
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False, verify=system_trust()
    ) as client:
        body = {
            "email": "olivia@acme.test",
            "password": "correct horse battery",
            "name": "Olivia",
            "workspaceName": "Acme",
        }
        registered = (await client.post("/auth/register", json=body)).json()
        client.headers["Authorization"] = f"Bearer {registered['accessToken']}"
        yield client


@asynccontextmanager
async def holding_open(target: Target) -> AsyncIterator[Target]:
    """Hold slow connections open while all the rest goes on; line A21 judges what became of
    them."""
    for number in range(SLOW):
        reader, writer = await target.connect()
        writer.write(BEGINNINGS[number % len(BEGINNINGS)])
        target.slow.append((reader, writer))
    yield target
    for _, writer in target.slow:
        writer.close()
