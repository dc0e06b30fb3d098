"""Names that resolve slowly hold up those who ask for them, and nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from app.net.egress import Egress, Failure, Request
from app.net.resolving import OF_ONE, RESERVED, THREADS, Resolver


class NameServers:
    """Threads really block on a name that begins with `slow`, until the end."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.release = threading.Event()

    def __call__(self, host: str) -> Sequence[str]:
        self.asked[host] += 1
        if host.startswith("slow"):
            self.release.wait(20)
        if host.startswith("unknown"):
            raise OSError("no such name")
        return ["192.0.2.1"]


@pytest.fixture
def servers() -> Iterator[NameServers]:
    servers = NameServers()
    yield servers
    servers.release.set()


@pytest.fixture
async def resolver(servers: NameServers) -> Resolver:
    return Resolver(servers)


async def give_up(resolver: Resolver, host: str, owner: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await resolver.resolve(host, owner)


async def test_slow_names_of_one_workspace_leave_the_others_their_threads(
    servers: NameServers, resolver: Resolver
) -> None:
    slow = (give_up(resolver, f"slow{n}.test", "ws_a") for n in range(2 * THREADS))
    await asyncio.gather(*slow)
    assert servers.asked.total() == OF_ONE
    async with asyncio.timeout(10):
        assert await resolver.resolve("quick.test", "ws_b") == ["192.0.2.1"]


async def test_slow_names_of_many_workspaces_leave_the_others_a_reserve(
    servers: NameServers, resolver: Resolver
) -> None:
    hostile = THREADS // OF_ONE
    slow = (give_up(resolver, f"slow{n}.test", f"ws_{n % hostile}") for n in range(2 * THREADS))
    await asyncio.gather(*slow)
    assert servers.asked.total() == THREADS - RESERVED
    async with asyncio.timeout(10):
        assert await resolver.resolve("quick.test", "ws_other") == ["192.0.2.1"]


async def test_a_name_is_asked_for_once_however_many_want_it(
    servers: NameServers, resolver: Resolver
) -> None:
    wanting = [
        asyncio.create_task(resolver.resolve("slow.test", f"ws_{n}")) for n in range(2 * THREADS)
    ]
    await asyncio.sleep(0.1)
    servers.release.set()
    assert {tuple(await one) for one in wanting} == {("192.0.2.1",)}
    assert servers.asked["slow.test"] == 1


async def test_a_thread_that_came_back_is_there_for_the_next_name(
    servers: NameServers, resolver: Resolver
) -> None:
    await asyncio.gather(*(give_up(resolver, f"slow{n}.test", "ws_a") for n in range(3)))
    waiting = asyncio.create_task(resolver.resolve("quick.test", "ws_a"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    servers.release.set()
    async with asyncio.timeout(10):
        assert await waiting == ["192.0.2.1"]


async def test_a_name_that_is_unknown_is_told_to_all_who_ask(resolver: Resolver) -> None:
    found = await asyncio.gather(
        *(resolver.resolve("unknown.test", "ws_a") for _ in range(5)), return_exceptions=True
    )
    assert [type(one) for one in found] == [OSError] * 5


async def test_twenty_slow_calls_of_one_workspace_fail_no_call_of_another(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    egress = Egress()
    monkeypatch.setattr(egress, "_resolver", Resolver(servers))
    slow = [
        asyncio.create_task(
            egress.call(Request("GET", f"http://slow{n}.test/", timeout_seconds=1, owner="ws_a"))
        )
        for n in range(20)
    ]
    await asyncio.sleep(0.1)
    other = Request("GET", "http://quick.test/", timeout_seconds=5, owner="ws_b")
    outcome = await egress.call(other)
    assert isinstance(outcome, Failure)
    assert outcome.code == "refused_target"  # it was resolved: to an address of documentation
    failed = await asyncio.gather(*slow)
    assert {one.code for one in failed if isinstance(one, Failure)} == {"connect_failed"}
    assert all(isinstance(one, Failure) for one in failed)
    await egress.close()


async def test_slow_mail_servers_of_one_workspace_fail_no_call_of_another(
    servers: NameServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    egress = Egress()
    monkeypatch.setattr(egress, "_resolver", Resolver(servers))

    async def dial(host: str) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await egress.dial_mail(host, 25, owner="ws_a")

    await asyncio.gather(*(dial(f"slow{n}.test") for n in range(2 * THREADS)))
    assert servers.asked.total() == OF_ONE
    other = Request("GET", "http://quick.test/", timeout_seconds=5, owner="ws_b")
    outcome = await egress.call(other)
    assert isinstance(outcome, Failure)
    assert outcome.code == "refused_target"
    await egress.close()
