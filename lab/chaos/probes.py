"""Questions that are asked again and again while everything breaks; a wrong answer is a finding."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import asyncpg
import httpx2

from app.consent import in_flight
from lab.chaos.senders import SECRET, Silence, exchange
from lab.chaos.stage import Stage
from tests.receivers import HELD

LIMIT = 120  # accepted requests from one address in a minute
ASKING_SECONDS = 60.0
SENT_SECONDS = 5.0  # for a message to be on its way
LATE = {"type": "wait", "duration": "PT3S"}
HELLO = {"subject": "{{trigger.name}}", "html": "<p>Hello</p>"}


@dataclass(slots=True)
class Probed:
    """The outcome of a probe. `made`: how often each could really look, by its name. `leaving`:
    addresses that asked for no more; `silent_from`: since when they are promised that nothing
    arrives."""

    made: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)
    silent_from: dict[str, float] = field(default_factory=dict)
    in_flight: set[str] = field(default_factory=set)  # messages that an opt-out has named
    named_at_once: set[str] = field(default_factory=set)  # of these, without having waited


# How much it could look at, nothing perhaps: its questions may be cut off like everybody's.
Probe: TypeAlias = Callable[[Stage, Probed], Awaitable[int]]


async def insist(
    stage: Stage, method: str, url: str, body: Any = None, seconds: float = 10.0
) -> httpx2.Response:
    """Ask until an answer is none of a fault; it is safe to ask again. Each answer is waited for so
    many seconds."""
    assert stage.owner is not None
    request_id = secrets.token_hex(16)
    headers = {"X-Request-Id": request_id}
    if method == "POST":
        headers["Idempotency-Key"] = secrets.token_hex(8)
    async with asyncio.timeout(ASKING_SECONDS):
        while True:
            port = stage.probing.choice(list(stage.ports.values()))
            try:
                answer = await stage.owner.request(
                    method,
                    f"http://127.0.0.1:{port}{url}",
                    json=body,
                    headers=headers,
                    timeout=seconds,
                )
            except httpx2.HTTPError:
                answer = None  # the process was away, or went
            if answer is not None and answer.status_code < 500 and not _is_too_early(answer):
                if method != "GET" and answer.is_success:
                    stage.changes[request_id] = f"{method} {url}"
                return answer
            await asyncio.sleep(0.2)


def _is_too_early(answer: httpx2.Response) -> bool:
    """Return whether the answer asks to come again. Too many have, or this very request is still
    being answered, whose first answer was lost."""
    return answer.status_code == 429 or b'"idempotency_in_progress"' in answer.content


async def status_of(
    stage: Stage, path: str, body: bytes, port: int | None = None, **how: Any
) -> int | None:
    """The status that an event is answered with, by any process or the one; None when nobody
    answered."""
    ports = [port] if port else list(stage.ports.values())
    try:
        return (await exchange(ports, path, body, chance=stage.probing, **how)).status
    except Silence:
        return None


async def hook(
    stage: Stage, name: str, *steps: Mapping[str, Any], secret: str = SECRET
) -> dict[str, Any]:
    """An ACTIVE workflow; the webhook's path is `path`."""
    source = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    answer = await insist(
        stage,
        "POST",
        "/workflows",
        {
            "name": name,
            "state": "ACTIVE",
            "trigger": {**source, "signingSecret": secret},
            "steps": list(steps),
        },
    )
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    url = str(made["trigger"]["webhookUrl"])
    return {**made, "path": url[url.index("/v1/") :]}


async def a_new_secret_holds_at_once(stage: Stage, probed: Probed) -> int:
    old, new = secrets.token_hex(16), secrets.token_hex(16)
    made = await hook(stage, "rotating", {"type": "exit"}, secret=old)
    body = json.dumps({"email": "rotating@customer.example"}).encode()
    for port in stage.ports.values():  # each process has seen the old one
        await status_of(stage, made["path"], body, port, secret=old)
    changed = await insist(
        stage, "PATCH", f"/workflows/{made['id']}", {"trigger": {"signingSecret": new}}
    )
    assert changed.status_code == 200, changed.text
    seen = 0
    asked = [(old, 401, 202), (new, 202, 401)]
    for port in stage.ports.values():
        # Either may come first: whichever does refreshes what the process remembers.
        asked.reverse()
        for secret, right, wrong in asked:
            status = await status_of(stage, made["path"], body, port, secret=secret)
            seen += status in {right, wrong}
            if status == wrong:
                probed.findings.append(f"a secret was changed, and {wrong} answered on {port}")
    await insist(stage, "PATCH", f"/workflows/{made['id']}", {"state": "ARCHIVED"})
    return seen


async def a_pause_holds_at_once(stage: Stage, probed: Probed) -> int:
    made = await hook(stage, "pausing", {"type": "exit"})
    body = json.dumps({"email": "pausing@customer.example"}).encode()
    seen = 0
    for state, right, wrong in (("PAUSED", 404, 202), ("ACTIVE", 202, 404)):
        await insist(stage, "PATCH", f"/workflows/{made['id']}", {"state": state})
        for port in stage.ports.values():
            status = await status_of(stage, made["path"], body, port)
            seen += status in {right, wrong}
            if status == wrong:
                probed.findings.append(f"{state}, and {wrong} answered on {port}")
    await insist(stage, "PATCH", f"/workflows/{made['id']}", {"state": "ARCHIVED"})
    return seen


async def nothing_is_sent_after_an_opt_out(stage: Stage, probed: Probed) -> int:
    """Opt an address out while the run that would send to it waits."""
    send = {"type": "send_message", "channel": "email", "content": HELLO}
    made = await hook(stage, "late", LATE, send)
    address = f"out{secrets.token_hex(6)}@customer.example"
    body = json.dumps({"email": address, "name": "late"}).encode()
    accepted = await status_of(stage, made["path"], body) == 202
    probed.leaving.add(address)
    answer = await insist(stage, "POST", "/suppressions", {"channel": "email", "address": address})
    assert answer.status_code in {201, 409}, answer.text
    probed.silent_from[address] = time.time()
    held = await insist(stage, "GET", f"/suppressions?address={address}")
    probed.in_flight.update(id for one in held.json()["data"] for id in one["inFlight"])
    await insist(stage, "PATCH", f"/workflows/{made['id']}", {"state": "PAUSED"})
    return accepted


async def what_is_being_sent_is_waited_for(stage: Stage, probed: Probed) -> int:
    """Opt out: who does while the mail server has their message in hand is answered when that has
    ended, or told of it in the very answer, be it a later one to the same request."""
    send = {"type": "send_message", "channel": "email", "content": HELLO}
    made = await hook(stage, "meanwhile", send)
    address = f"{HELD}{secrets.token_hex(6)}@customer.example"
    body = json.dumps({"email": address, "name": "meanwhile"}).encode()
    probed.leaving.add(address)
    accepted = await status_of(stage, made["path"], body) == 202
    is_being_sent = accepted and await _is_being_sent(stage, address)
    opt_out = {"channel": "email", "address": address}
    patience, began = 2 * in_flight.QUIET_SECONDS, time.monotonic()
    answer = await insist(stage, "POST", "/suppressions", opt_out, seconds=patience)
    assert answer.status_code == 201, answer.text
    probed.silent_from[address] = time.time()
    named = answer.json()["inFlight"]
    probed.in_flight.update(named)
    if time.monotonic() - began < in_flight.QUIET_SECONDS:
        probed.named_at_once.update(named)
    await insist(stage, "PATCH", f"/workflows/{made['id']}", {"state": "PAUSED"})
    return is_being_sent


async def _is_being_sent(stage: Stage, address: str) -> bool:
    """Return as soon as it is so; False when nobody saw it."""
    until = time.monotonic() + SENT_SECONDS
    while time.monotonic() < until:
        try:
            async with stage.database() as db:
                if await db.fetchval(
                    "SELECT id FROM messages WHERE status = 'SENDING' AND to_address = $1",
                    address,
                ):
                    return True
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pass  # it is away
        await asyncio.sleep(0.02)
    return False


async def strangers_see_nothing(stage: Stage, probed: Probed) -> int:
    """Mallory asks for what Olivia has."""
    port = stage.probing.choice(list(stage.ports.values()))
    name, seen = secrets.token_hex(6), 0
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as mallory:
        mallory.headers["X-Forwarded-For"] = ".".join(str(part) for part in secrets.token_bytes(4))
        try:
            registered = await mallory.post(
                "/auth/register",
                json={
                    "email": f"mallory{name}@rival.test",
                    "password": "correct horse battery",
                    "name": "Mallory",
                    "workspaceName": "Rival",
                },
            )
            if registered.status_code != 201:
                return 0
            mallory.headers["Authorization"] = f"Bearer {registered.json()['accessToken']}"
            mine = (await insist(stage, "GET", "/runs?limit=1")).json()["data"]
            for run in mine:
                for url in (f"/runs/{run['id']}", f"/contacts/{run['contactId']}"):
                    if (answer := await mallory.get(url)).status_code == 200:
                        probed.findings.append(f"{url} was shown to a stranger: {answer.text}")
                    seen += answer.status_code in {200, 404}
        except (httpx2.HTTPError, ValueError):
            pass  # cut off: asked again later
    return seen


async def one_address_is_limited(stage: Stage, probed: Probed) -> int:
    """Exceed the limit of one address, whatever it writes to the left of it. Asked before anything
    breaks."""
    made = await hook(stage, "limited", {"type": "exit"})

    async def post(number: int) -> int | None:
        body = json.dumps({"email": f"limited{number}@customer.example"}).encode()
        spoofed = f"10.9.{number // 250}.{number % 250}, 203.0.113.7"
        return await status_of(stage, made["path"], body, address=spoofed)

    statuses = await asyncio.gather(*(post(number) for number in range(3 * LIMIT)))
    # When Redis takes longer than 50 ms, each process counts for itself.
    if not LIMIT <= statuses.count(202) <= LIMIT * len(stage.ports):
        probed.findings.append(f"{statuses.count(202)} of {3 * LIMIT} from one address were taken")
    return statuses.count(429)


FIRST: tuple[Probe, ...] = (one_address_is_limited,)
ALWAYS: tuple[Probe, ...] = (
    a_new_secret_holds_at_once,
    a_pause_holds_at_once,
    nothing_is_sent_after_an_opt_out,
    what_is_being_sent_is_waited_for,
    strangers_see_nothing,
)


async def ask(stage: Stage, probed: Probed, probe: Probe) -> None:
    probed.made[probe.__name__] += await probe(stage, probed)


async def until_enough(stage: Stage, probed: Probed, every: float, enough: asyncio.Event) -> None:
    """Probe until there is enough: what one raises, a TimeoutError, is a finding, and the probes go
    on. None is left in the middle: what it asked for may be committed after nobody waits for it any
    more."""
    while True:
        for probe in ALWAYS:
            if enough.is_set():
                return
            try:
                await ask(stage, probed, probe)
            except Exception as error:  # noqa: BLE001  a finding, whatever it is
                probed.findings.append(f"{probe.__name__}: {type(error).__name__}: {error}")
            await asyncio.sleep(every)


async def all_made(probed: Probed, asking: asyncio.Task[None]) -> None:
    """Wait until all probes were made, or long enough: a short campaign may be over before that."""
    until = time.monotonic() + ASKING_SECONDS
    while not asking.done() and time.monotonic() < until:
        if all(probed.made[probe.__name__] for probe in ALWAYS):
            return
        await asyncio.sleep(0.1)
