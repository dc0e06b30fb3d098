"""Kill -9 at every boundary, and Redis gone: every run ends, and no message goes out twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2
import pytest

from app.messages.settling import RETRY_SECONDS
from app.store.horizon import WHOLE_SECONDS
from tests import servers
from tests.deployment import (
    A_CALL_EVERY,
    PATIENCE_SECONDS,
    Deployment,
    MailServer,
    Part,
    made,
    owner_of,
    until,
)
from tests.listener import Asked, Listener, says
from tests.proxy import Proxy
from tests.test_story import post, say, trigger

pytestmark = pytest.mark.drill

# A worker that was busy for two thirds of it before it calls does not call: its message is tried
# again after RETRY_SECONDS, once on a busy machine and twice on a very busy one.
LEASE_SECONDS = 2
# Of a run three jobs come one after the other: it begins, its message is sent, it ends. Each may be
# claimed by the worker that is killed, and its hint lost with it.
ENDS_SECONDS = PATIENCE_SECONDS + 3 * (LEASE_SECONDS + WHOLE_SECONDS) + 1.2 * sum(RETRY_SECONDS[:2])

# claim → [tag, send] → claim → intent → outcome → claim → [rename, end]
COMMITS = 7
MOST_COMMITS = 12  # a claim that finds nothing is a COMMIT too
THREE_STEPS = [
    {"id": "tag", "type": "add_tag", "tag": "{{trigger.n}}"},
    say("number {{trigger.n}}", id="say"),
    {"id": "rename", "type": "update_contact", "set": {"lastName": "{{trigger.n}}"}},
]


class KillingProxy(Proxy):
    """A proxy before PostgreSQL that kills the worker at its n-th COMMIT from now."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.worker: Part | None = None
        self.left = 0
        self.after = False
        self.fired = threading.Event()

    def arm(self, worker: Part, nth: int, *, after: bool) -> None:
        self.fired.clear()
        self.worker, self.left, self.after = worker, nth, after

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        muted: asyncio.Event,
        held: asyncio.Event,  # noqa: ARG002 - this one holds nothing
    ) -> None:
        while data := await reader.read(65536):
            if b"COMMIT" in data and self.left:
                self.left -= 1
                if not self.left:
                    if not self.after:
                        self.fire()
                        return
                    muted.set()
            writer.write(data)
            await writer.drain()

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        muted: asyncio.Event,
        held: asyncio.Event,  # noqa: ARG002 - this one holds nothing
    ) -> None:
        while data := await reader.read(65536):
            if muted.is_set():
                self.fire()  # committed, and nobody will ever hear of it
                return
            writer.write(data)
            await writer.drain()

    def fire(self) -> None:
        assert self.worker is not None
        self.worker.process.kill()
        self.fired.set()


class Server(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


Served = TypeVar("Served", bound=Server)


class Threaded(Generic[Served]):
    """A server in an event loop of its own, for tests that wait."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Served:
        self.thread.start()
        self._do(self.server.start())
        return self.server

    def __exit__(self, *_: object) -> None:
        self._do(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)


@pytest.fixture(scope="module")
def mail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    with MailServer(tmp_path_factory.mktemp("smtp")) as mail:
        yield mail


@pytest.fixture(scope="module")
def redis() -> Iterator[servers.RedisServer]:
    """One of our own, to be flushed and stopped."""
    server = servers.redis_server()
    if not isinstance(server, servers.RedisServer):
        pytest.skip("REDIS_TEST_URL names a server that must not be stopped")
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def deployment(
    postgres_server: servers.PostgresServer,
    redis: servers.RedisServer,
    mail: MailServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    with Deployment(
        tmp_path_factory.mktemp("crashes"),
        database_url=asyncio.run(servers.new_database(postgres_server.tcp_url, "")),
        redis_url=redis.url,
        smtp_url=mail.url,
        LEASE_SECONDS=str(LEASE_SECONDS),
        EGRESS_ALLOW="127.0.0.1",
    ) as deployment:
        assert deployment.start("migrate").process.wait(30) == 0
        deployment.web()
        yield deployment


@pytest.fixture(scope="module")
def api(deployment: Deployment, mail: MailServer) -> Iterator[httpx2.Client]:
    with owner_of(deployment, "Acme") as client:
        worker = deployment.start("worker")
        until(lambda: mail.received, "she was asked whether the address is hers", worker)
        assert worker.stop() == 0  # so that no commit of that letter is counted below
        yield client


def workflow(api: httpx2.Client, *steps: Any) -> dict[str, Any]:
    return made(
        api,
        "/workflows",
        {
            "name": "crash test",
            "state": "ACTIVE",
            "trigger": trigger("email", "email", createContact=True),
            "steps": list(steps),
        },
    )


def ended(
    api: httpx2.Client, receipt: dict[str, Any], while_: Callable[[], bool] = lambda: True
) -> dict[str, Any]:
    """The run, once it has ended, or as it is when `while_` no longer holds."""

    def run() -> dict[str, Any]:
        answer: dict[str, Any] = api.get(f"/runs/{receipt['runId']}").json()
        return answer

    until(
        lambda: run()["finishedAt"] or not while_(),
        f"{receipt['runId']} ended",
        seconds=ENDS_SECONDS,
        every=A_CALL_EVERY,
    )
    return run()


def attempts_of(api: httpx2.Client, run_id: str) -> list[dict[str, Any]]:
    found = api.get("/messages/delivery-attempts?limit=200").json()["data"]
    return [attempt for attempt in found if attempt["runId"] == run_id]


@pytest.mark.timeout(240)
def test_a_worker_killed_at_any_commit_loses_nothing_and_sends_nothing_twice(
    deployment: Deployment, api: httpx2.Client, mail: MailServer
) -> None:
    """Before and after the first COMMIT, the second, … until a run needs no further one."""
    hook = workflow(api, *THREE_STEPS)
    database = urlsplit(deployment.environ["DATABASE_URL"])
    kills, unknown = 0, 0
    with Threaded(KillingProxy(database.hostname or "", database.port or 0)) as proxy:
        through = database._replace(netloc=f"postgres@127.0.0.1:{proxy.port}").geturl()
        worker = deployment.start("worker", DATABASE_URL=through)
        until(lambda: "worker started" in worker.text, "the worker is up", worker)
        for nth, after in product(range(1, MOST_COMMITS + 1), (False, True)):
            name = f"ada{nth}{'after' if after else 'before'}"
            proxy.arm(worker, nth, after=after)
            receipt = post(hook, {"email": f"{name}@acme.test", "n": name})
            try:
                run = ended(api, receipt, while_=lambda: not proxy.fired.is_set())
            except AssertionError as failure:
                failure.add_note(f"{name}: {worker.process.poll()}\n{worker.text}")
                raise
            was_sending = False
            if proxy.fired.is_set():
                kills += 1
                worker.process.wait(10)
                left = attempts_of(api, receipt["runId"])
                was_sending = [attempt["status"] for attempt in left] == ["SENDING"]
                worker = deployment.start("worker", DATABASE_URL=through)
                run = ended(api, receipt)
            assert run["status"] == "COMPLETED", run
            assert [(s["nodeId"], s["visit"], s["status"]) for s in run["steps"]] == [
                ("tag", 1, "COMPLETED"),
                ("say", 1, "COMPLETED"),
                ("rename", 1, "COMPLETED"),
            ], name
            contact = api.get(f"/contacts/{run['contactId']}").json()
            assert (contact["tags"], contact["lastName"]) == ([name], name)
            [attempt] = attempts_of(api, receipt["runId"])
            got = [r for r in mail.received if f"{name}@acme.test" in r.recipients]
            # A kill between the intent and its outcome leaves what nobody can know, no other does.
            assert attempt["status"] == ("UNKNOWN" if was_sending else "SENT"), name
            assert len(got) == 1 or (was_sending and not got)
            unknown += was_sending
            if not proxy.fired.is_set():
                break
        worker.kill()
    keys = Counter(received.message_key for received in mail.received)
    assert set(keys.values()) == {1}
    # The COMMIT of a claim that finds nothing, or of figures, may come between any two.
    assert kills >= 2 * COMMITS
    assert unknown
    print(f"\n{kills} kills, {len(keys)} mails, {unknown} UNKNOWN")


@pytest.mark.timeout(120)
def test_a_call_whose_worker_is_killed_is_made_again_under_the_same_key(
    deployment: Deployment, api: httpx2.Client
) -> None:
    """Between the intent and the answer."""
    workers = [deployment.start("worker")]

    async def kill(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if len(workers) > 1:
            await says({"paid": True})(asked, writer)
        else:
            workers[-1].kill()
            workers.append(deployment.start("worker"))

    with Threaded(Listener(kill)) as listener:
        call = {"id": "pay", "type": "http_request", "method": "POST", "url": listener.url}
        hook = workflow(api, call, {"id": "tag", "type": "add_tag", "tag": "paid"})
        run = ended(api, post(hook, {"email": "payer@acme.test"}))
    workers[-1].kill()
    assert run["status"] == "COMPLETED", run
    [paid, _] = run["steps"]
    assert (paid["output"]["tries"], paid["output"]["body"]) == (2, {"paid": True})
    assert len({asked.header("idempotency-key") for asked in listener.asked}) == 1
    assert len(listener.asked) == 2


@pytest.mark.timeout(120)
def test_runs_that_wait_survive_an_emptied_redis_and_a_restart(
    deployment: Deployment, api: httpx2.Client, mail: MailServer, redis: servers.RedisServer
) -> None:
    hook = workflow(api, {"type": "wait", "duration": "PT3S"}, say("flushed"))
    worker = deployment.start("worker")
    receipts = [post(hook, {"email": f"flush{n}@acme.test"}) for n in range(10)]
    until(lambda: len(api.get("/runs?status=WAITING").json()["data"]) == 10, "all of them wait")
    worker.kill()
    redis.stop()  # keeps nothing on disk
    redis.start()
    worker = deployment.start("worker")
    for receipt in receipts:
        assert ended(api, receipt)["status"] == "COMPLETED"
    got = Counter(r.recipients[0] for r in mail.received if r.recipients[0].startswith("flush"))
    assert got == {f"flush{n}@acme.test": 1 for n in range(10)}
    worker.kill()


@pytest.mark.timeout(120)
def test_without_redis_the_intake_answers_and_runs_go_on(
    deployment: Deployment, api: httpx2.Client, mail: MailServer, redis: servers.RedisServer
) -> None:
    """For eight seconds: every time-out and pause on the way is at most two, and comes round."""
    hook = workflow(api, say("without redis"))
    worker = deployment.start("worker")
    ended(api, post(hook, {"email": "down-before@acme.test"}))
    redis.stop()
    began = time.monotonic()
    receipts: list[dict[str, Any]] = []
    slowest = 0.0
    while time.monotonic() - began < 8:
        asked = time.monotonic()
        receipts.append(post(hook, {"email": f"down{len(receipts)}@acme.test"}))  # a 202 or fails
        slowest = max(slowest, time.monotonic() - asked)
        time.sleep(0.2)
    for receipt in receipts:
        assert ended(api, receipt)["status"] == "COMPLETED"  # and it is still away
    assert worker.process.poll() is None
    redis.start()
    recovered = post(hook, {"email": "down-after@acme.test"})
    assert ended(api, recovered)["status"] == "COMPLETED"
    got = Counter(r.recipients[0] for r in mail.received if r.recipients[0].startswith("down"))
    assert set(got.values()) == {1}
    assert len(got) == len(receipts) + 2
    print(f"\n{len(receipts)} events in 8 s without Redis, slowest 202 {slowest * 1000:.0f} ms")
    worker.kill()
