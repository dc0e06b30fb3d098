"""Two web processes at one door: one run for copies, one limit for an address, Redis or not."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence

import httpx2
import pytest
from redis import Redis

from tests import servers
from tests.deployment import Deployment, Part, made, owner_of, until
from tests.web.wire import Answer, Connection

pytestmark = pytest.mark.drill

CONNECTIONS = 40


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.RedisServer | servers.GivenServer]:
    """Its own, for it is stopped."""
    server = servers.redis_server()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def deployment(
    postgres_url: str,
    redis: servers.RedisServer | servers.GivenServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    with Deployment(
        tmp_path_factory.mktemp("deployment"),
        database_url=postgres_url,
        redis_url=redis.url,
        smtp_url="smtp://127.0.0.1:1",
        WEB_CONCURRENCY="2",
        TRUSTED_HOPS="1",
    ) as deployment:
        front = deployment.web()
        until(lambda: front.text.count("web process is ready") == 2, "both are ready", front)
        yield deployment
    asyncio.run(servers.empty(postgres_url))


@pytest.fixture(scope="module")
def owner(deployment: Deployment) -> Iterator[httpx2.Client]:
    with owner_of(deployment, "Acme") as client:
        yield client


@pytest.fixture(scope="module")
def path(deployment: Deployment, owner: httpx2.Client) -> str:
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    workflow = {"name": "Hook", "state": "ACTIVE", "trigger": trigger, "steps": []}
    url: str = made(owner, "/workflows", workflow)["trigger"]["webhookUrl"]
    return url.removeprefix(deployment.url)


def post(path: str, address: str, body: dict[str, object], **headers: str) -> bytes:
    content = json.dumps(body)
    head = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Content-Length": str(len(content)),
        "X-Forwarded-For": address,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    return ("\r\n".join(lines) + "\r\n\r\n" + content).encode()


async def send_all(port: int, requests: Sequence[bytes]) -> list[Answer]:
    """All at once, over as many connections as a server meets from one busy sender."""
    left = iter(requests)

    async def send_some() -> list[Answer]:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        answers = []
        for request in left:
            await connection.send(request)
            answers.append(await connection.answer())
        await connection.close()
        return answers

    several = await asyncio.gather(*(send_some() for _ in range(CONNECTIONS)))
    return [answer for answers in several for answer in answers]


def statuses(answers: Sequence[Answer]) -> Counter[int]:
    return Counter(answer.status for answer in answers)


def test_copies_that_meet_in_two_processes_are_one_run_though_redis_forgets(
    deployment: Deployment, path: str, redis: servers.RedisServer
) -> None:
    copies = [
        post(path, f"192.0.2.{n}", {"email": f"p{n}@example.com"}, Idempotency_Key="k")
        for n in range(50)
    ]
    answers = asyncio.run(send_all(deployment.port, copies))
    with Redis.from_url(redis.url) as client:
        client.flushall()
    answers += asyncio.run(send_all(deployment.port, copies))
    assert statuses(answers) == {202: 100}
    assert len({answer.body for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1


def test_fifty_at_once_for_one_unknown_address_are_one_contact_and_fifty_runs(
    deployment: Deployment, path: str, owner: httpx2.Client
) -> None:
    answers = asyncio.run(
        send_all(
            deployment.port,
            [post(path, f"198.51.100.{n}", {"email": "new@example.com"}) for n in range(50)],
        )
    )
    assert statuses(answers) == {202: 50}
    ids = [json.loads(answer.body) for answer in answers]
    assert len({one["runId"] for one in ids}) == 50
    [contact] = {one["contactId"] for one in ids}
    assert owner.get(f"/contacts/{contact}").json()["email"] == "new@example.com"
    runs = owner.get("/runs", params={"contactId": contact, "limit": 200}).json()["data"]
    assert {run["id"] for run in runs} == {one["runId"] for one in ids}


def silences(front: Part) -> int:
    return front.text.count("redis is silent")


def test_of_a_thousand_at_once_from_one_address_exactly_120_are_taken(
    deployment: Deployment, path: str
) -> None:
    """While Redis answers both: a machine that is busy may keep one waiting, which counts for
    itself then; that is tried again."""
    [front] = deployment.parts
    for address in ("203.0.113.1", "203.0.113.3", "203.0.113.4", "203.0.113.5"):
        until(lambda: silences(front) == front.text.count("redis answers again"), "Redis", front)
        before = silences(front)
        event = post(path, address, {"email": "busy@example.com"})
        answers = asyncio.run(send_all(deployment.port, [event] * 1_000))
        if silences(front) == before:
            break
    assert statuses(answers) == {202: 120, 429: 880}
    refused = next(answer for answer in answers if answer.status == 429)
    assert 0 < int(refused.headers["retry-after"]) <= 60


def test_without_redis_each_process_counts_and_nothing_breaks(
    deployment: Deployment, path: str, redis: servers.RedisServer
) -> None:
    redis.stop()
    event = post(path, "203.0.113.2", {"email": "calm@example.com"})
    answers = asyncio.run(send_all(deployment.port, [event] * 600))
    others = [post(path, f"10.0.0.{n}", {"email": "calm@example.com"}) for n in range(100)]
    found = statuses(answers)
    assert found.keys() == {202, 429}
    assert 120 <= found[202] <= 240
    assert statuses(asyncio.run(send_all(deployment.port, others))) == {202: 100}
