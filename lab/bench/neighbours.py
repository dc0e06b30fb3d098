"""Benchmark: latency of a neighbour of templates that take as long as they can.

python -m lab.bench.neighbours [seconds] [--shape embedded|production] [--attack A2 …]: for each
shape (all in one process on SQLite; web and worker on PostgreSQL and Redis) and each attack, a
minute in which one workspace attacks while another sends signed events, ten a second, and previews
a light template each second. Prints a table: of the neighbour's answers the 99th percentile and the
slowest, and by how much the memory of all processes grew, where 1 s and 100 MB are wanted.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx2

from app.machine.template import TOKENS
from lab.bench.runs import sandboxed
from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Started, made, owner_of, until

HEAVY = (
    '{% assign s = "' + ",".join("a" * 900) + '" %}{% for i in (1..10000) %}'
    '{% assign x = s | split: "," | sort | sort | sort | size %}{% endfor %}'
)
SECRET = "a secret of thirty-two characters"
WEBHOOK = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
EVENTS_EVERY = 0.1
MOST_SECONDS = 1.0
MOST_MB = 100.0


@dataclass(slots=True)
class Noticed:
    events: list[float] = field(default_factory=list)  # seconds
    previews: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    attack: Counter[int] = field(default_factory=Counter)  # answers, by status
    growth: float = 0.0  # MB


@dataclass(frozen=True, slots=True)
class Stage:
    """A running service, and who uses it."""

    url: str
    pids: Sequence[int]
    attacker: str  # a key
    neighbour: str
    light: str  # the neighbour's template
    hook: str  # the neighbour's webhook URL


Attack: TypeAlias = Callable[[httpx2.AsyncClient, Noticed], Awaitable[None]]


# --- the attacks ----------------------------------------------------------------------------------


def by_defaults(client: httpx2.Client) -> Attack:
    """A2: events whose contacts get forty heavy defaults, and simulations with twenty."""
    path, probe = (_definition(client, number) for number in (40, 20))

    async def once(caller: httpx2.AsyncClient, noticed: Noticed) -> None:
        body = {"email": f"{random.random()}@x.example"}
        url = path["trigger"]["webhookUrl"]
        headers = {"X-Forwarded-For": _address()}
        noticed.attack[(await caller.post(url, json=body, headers=headers)).status_code] += 1
        simulate = f"/workflows/{probe['id']}/simulate"
        noticed.attack[(await caller.post(simulate, json={"trigger": body})).status_code] += 1

    return once


def _definition(client: httpx2.Client, number: int) -> dict[str, Any]:
    metadata = {f"m{n}": HEAVY for n in range(number)}
    trigger = {**WEBHOOK, "contactDefaults": {"metadata": metadata}}
    body = {"name": "N", "state": "ACTIVE", "trigger": trigger, "steps": []}
    return made(client, "/workflows", body)


def by_long_templates(_client: httpx2.Client) -> Attack:
    """A3: templates of 64 KB, most of it tokens, saved and rendered: more than may be saved, and as
    many as may."""

    async def once(caller: httpx2.AsyncClient, noticed: Noticed) -> None:
        for tokens in (62_000, TOKENS - 100):
            text = f"{{% case {random.random()} %}}{{% when " + "1," * (tokens // 2)
            content = {"text": (text + "1 %}{% endcase %}").ljust(64_000)}
            body = {"name": "T", "channel": "sms", "content": content}
            answer = await caller.post("/templates", json=body)
            noticed.attack[answer.status_code] += 1
            if answer.status_code == 201:
                path = f"/templates/{answer.json()['id']}/preview"
                noticed.attack[(await caller.post(path, json={})).status_code] += 1

    return once


def by_previews(client: httpx2.Client) -> Attack:
    """A7: heavy in all parts."""
    content = {"subject": "s", "html": HEAVY, "text": HEAVY, "preheader": HEAVY}
    path = made(client, "/templates", {"name": "T", "channel": "email", "content": content})["id"]

    async def once(caller: httpx2.AsyncClient, noticed: Noticed) -> None:
        answer = await caller.post(f"/templates/{path}/preview", json={})
        noticed.attack[answer.status_code] += 1

    return once


def by_steps(client: httpx2.Client) -> Attack:
    """Runs whose every step is heavy, and whose message is."""
    content = {"subject": "s", "html": HEAVY}
    steps = [{"type": "update_contact", "set": {"lastName": HEAVY}}]
    message = {"type": "send_message", "channel": "email", "content": content}
    urls = [
        made(client, "/workflows", body)["trigger"]["webhookUrl"]
        for body in (
            {"name": "N", "state": "ACTIVE", "trigger": WEBHOOK, "steps": steps},
            {"name": "M", "state": "ACTIVE", "trigger": WEBHOOK, "steps": [message]},
        )
    ]

    async def once(caller: httpx2.AsyncClient, noticed: Noticed) -> None:
        for url in urls:
            body, headers = {"email": f"{random.random()}@x.example"}, _from_anywhere()
            noticed.attack[(await caller.post(url, json=body, headers=headers)).status_code] += 1

    return once


ATTACKS: Mapping[str, Callable[[httpx2.Client], Attack]] = {
    "A2": by_defaults,
    "A3": by_long_templates,
    "A7": by_previews,
    "steps": by_steps,
}
ATTACKERS = 8
PAUSE = 1.0  # of each: a key makes 600 requests a minute


# --- the neighbour --------------------------------------------------------------------------------


async def send_events(stage: Stage, noticed: Noticed, until_time: float) -> None:
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        sending: set[asyncio.Task[None]] = set()
        number = 0
        while time.monotonic() < until_time:
            number += 1
            sending.add(asyncio.create_task(_send(client, stage, noticed, number)))
            await asyncio.sleep(EVENTS_EVERY)
        await asyncio.gather(*sending)


async def _send(client: httpx2.AsyncClient, stage: Stage, noticed: Noticed, number: int) -> None:
    body = json.dumps({"email": f"n{number}-{random.random()}@example.com"}).encode()
    signature = hmac.digest(SECRET.encode(), body, "sha256").hex()
    headers = {
        "X-Service-Signature": f"sha256={signature}",
        "Content-Type": "application/json",
        **_from_anywhere(),
    }
    began = time.perf_counter()
    answer = await client.post(stage.hook, content=body, headers=headers)
    noticed.events.append(time.perf_counter() - began)
    if answer.status_code != 202:
        noticed.refused[answer.status_code] += 1


async def look(stage: Stage, noticed: Noticed, until_time: float) -> None:
    """Preview a light template, and ask how the service is."""
    headers = {"Authorization": f"Bearer {stage.neighbour}"}
    async with httpx2.AsyncClient(base_url=stage.url, timeout=30, trust_env=False) as client:
        while time.monotonic() < until_time:
            began = time.perf_counter()
            answer = await client.post(
                f"/templates/{stage.light}/preview", json={}, headers=headers
            )
            noticed.previews.append(time.perf_counter() - began)
            if answer.status_code != 200:
                noticed.refused[answer.status_code] += 1
            began = time.perf_counter()
            await client.get("/healthz", headers=_from_anywhere())
            noticed.probes.append(time.perf_counter() - began)
            await asyncio.sleep(1.0)


async def attack(stage: Stage, once: Attack, noticed: Noticed, until_time: float) -> None:
    headers = {"Authorization": f"Bearer {stage.attacker}"}
    async with httpx2.AsyncClient(
        base_url=stage.url, timeout=30, trust_env=False, headers=headers
    ) as client:
        while time.monotonic() < until_time:
            with suppress(httpx2.HTTPError):
                await once(client, noticed)
            await asyncio.sleep(PAUSE)


async def watch(stage: Stage, noticed: Noticed, until_time: float) -> None:
    before = memory(stage.pids)
    while time.monotonic() < until_time:
        noticed.growth = max(noticed.growth, memory(stage.pids) - before)
        await asyncio.sleep(0.25)


async def drill(stage: Stage, once: Attack, seconds: float) -> Noticed:
    await asyncio.gather(*_quiet(stage, Noticed(), 3.0))  # everything is warm then
    noticed, end = Noticed(), time.monotonic() + seconds
    attacks = [attack(stage, once, noticed, end) for _ in range(ATTACKERS)]
    await asyncio.gather(*_quiet(stage, noticed, seconds), watch(stage, noticed, end), *attacks)
    return noticed


def _quiet(stage: Stage, noticed: Noticed, seconds: float) -> Sequence[Awaitable[None]]:
    end = time.monotonic() + seconds
    return [send_events(stage, noticed, end), look(stage, noticed, end)]


def _from_anywhere() -> dict[str, str]:
    return {"X-Forwarded-For": _address()}


def _address() -> str:
    return f"10.{random.randrange(256)}.{random.randrange(256)}.{random.randrange(1, 255)}"


def memory(pids: Sequence[int]) -> float:
    """MB of these and of all that they have started; a page that several have is shared out among
    them, as the code of libraries is."""
    return sum(_resident(pid) for pid in _family(pids))


def _family(pids: Sequence[int]) -> set[int]:
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = status.read_text().rpartition(")")[2].split()
            parents[int(status.parent.name)] = int(fields[1])
    family, grown = set(pids), True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in family}
        grown = not children <= family
        family |= children
    return family


def _resident(pid: int) -> float:
    with suppress(OSError, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:"))
    return 0.0


# --- the stages -----------------------------------------------------------------------------------


@contextmanager
def embedded() -> Iterator[tuple[Deployment, Sequence[int]]]:
    with tempfile.TemporaryDirectory() as directory:
        database_url = f"sqlite:///{directory}/tidings.db"
        urls = {"database_url": database_url, "redis_url": ""}
        environ = sandboxed(directory, urls).environ
        more = {name: value for name, value in environ.items() if name not in ("REDIS_URL",)}
        with Started(Path(directory), database_url=database_url, redis_url="", smtp_url="") as it:
            it.environ = {**more, "PORT": str(it.port), "BASE_URL": it.url}
            part = it.start("run")
            until(lambda: _is_ready(it.url), "the service is ready", part)
            yield it, [part.process.pid]


@contextmanager
def production() -> Iterator[tuple[Deployment, Sequence[int]]]:
    with tempfile.TemporaryDirectory() as directory:
        postgres, redis = servers.postgres_server(), servers.redis_server()
        postgres.start()
        redis.start()
        try:
            database_url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
            urls = {"database_url": database_url, "redis_url": redis.url}
            environ = sandboxed(directory, urls).environ
            with Started(Path(directory), **urls, smtp_url="") as it:
                it.environ = {**environ, "PORT": str(it.port), "BASE_URL": it.url}
                web, worker = it.web(), it.start("worker")
                until(lambda: "worker started" in worker.text, "the worker has started", worker)
                yield it, [web.process.pid, worker.process.pid]
        finally:
            redis.remove()
            postgres.remove()


SHAPES = {"embedded": embedded, "production": production}


def _is_ready(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/readyz", timeout=1, trust_env=False).status_code == 200
    return False


def _key(client: httpx2.Client) -> str:
    return str(client.headers["Authorization"]).removeprefix("Bearer ")


def stage(it: Deployment, pids: Sequence[int], name: str, seconds: float) -> Noticed:
    with (
        owner_of(it, "Evil", email=f"{name.lower()}@evil.test") as evil,
        owner_of(it, "Good", email=f"{name.lower()}@good.test") as good,
    ):
        trigger = {**WEBHOOK, "signingSecret": SECRET}
        steps = [{"type": "add_tag", "tag": "x"}]
        body = {"name": "N", "state": "ACTIVE", "trigger": trigger, "steps": steps}
        hook = made(good, "/workflows", body)["trigger"]["webhookUrl"]
        content = {"subject": "s", "html": "Hi {{contact.firstName}}"}
        light = made(good, "/templates", {"name": "T", "channel": "email", "content": content})
        there = Stage(it.url, pids, _key(evil), _key(good), light["id"], hook)
        return asyncio.run(drill(there, ATTACKS[name](evil), seconds))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--shape", choices=SHAPES, action="append")
    parser.add_argument("--attack", choices=ATTACKS, action="append")
    given = parser.parse_args()
    print(
        "| shape | attack | events | p50 | p99 | slowest | refused | light previews, slowest"
        " | /healthz, slowest | growth | answers to the attack |\n" + "|---" * 11 + "|",
        flush=True,
    )
    held = True
    for shape in given.shape or SHAPES:
        for name in given.attack or ATTACKS:
            with SHAPES[shape]() as (it, pids):
                noticed = stage(it, pids, name, given.seconds)
            p99 = percentile(noticed.events, 0.99)
            held &= p99 <= MOST_SECONDS and noticed.growth <= MOST_MB
            times = " | ".join(
                f"{value * 1000:,.0f} ms"
                for value in (percentile(noticed.events, 0.5), p99, max(noticed.events))
            )
            print(
                f"| {shape} | {name} | {len(noticed.events)} | {times} | {dict(noticed.refused)}"
                f" | {max(noticed.previews) * 1000:,.0f} ms | {max(noticed.probes) * 1000:,.0f} ms"
                f" | {noticed.growth:.0f} MB | {dict(noticed.attack)} |",
                flush=True,
            )
    return 0 if held else 1


if __name__ == "__main__":
    raise SystemExit(main())
