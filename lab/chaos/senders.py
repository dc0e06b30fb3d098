"""Senders of webhooks, each with a ledger that the oracle believes.

A sender speaks to one of the web processes, and to another when that one refuses the connection, as
a router in front of them would.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.database.engine import OUTCOME_UNKNOWN

SECRET = "a shared secret of good length"
ANSWER_SECONDS = 20.0
CONNECT_SECONDS = 20.0  # that a router would wait for a process to be there
SHARED = 200  # addresses that many senders write about at once
SHARED_SHARE = 0.2
RETRIES = 3
KEYED_RETRIES = 12

# Why there was no answer, as far as a sender knows.
AWAY = "nobody took the connection"
CUT = "cut off"
LATE = "nothing came in time"
LEFT = "the sender left"

# What a 503 says that does not know what became of the event; any other says that nothing did.
UNSURE = (OUTCOME_UNKNOWN, "The process is being replaced; try again.")

# How often each kind comes, of 100.
KINDS = {"once": 30, "again": 25, "keyed": 25, "forged": 10, "malformed": 5, "hasty": 5}
REFUSED = {"forged", "malformed"}
# How often each flow comes against the others.
SHARES = {"three steps": 2, "resending": 2, "waiting": 4, "calling": 2}


@dataclass(slots=True)
class Try:
    """`status` is None when no answer came, and `silence` says why."""

    began: float
    ended: float
    status: int | None
    answer: dict[str, Any]
    silence: str | None = None
    port: int | None = None
    taken: float | None = None  # when somebody took the connection
    retry_after: str | None = None
    whole: bool = True  # whether all of the body was sent

    @property
    def waited(self) -> float:
        """Seconds for the answer, from when somebody took the connection."""
        return self.ended - (self.taken or self.began)

    @property
    def may_be_a_run(self) -> bool:
        """True where the try may be a run, as its sender knows. It is so when accepted, or in
        doubt, or without an answer after somebody may have read all of it."""
        if self.status is None:
            return self.whole and self.silence != AWAY
        return self.status == 202 or (self.status == 503 and self.answer.get("detail") in UNSURE)


@dataclass(slots=True)
class Sent:
    """One event of one sender, however often it was sent."""

    name: str
    kind: str
    flow: str
    body: bytes
    tries: list[Try] = field(default_factory=list)

    @property
    def accepted(self) -> list[Try]:
        return [one for one in self.tries if one.status == 202]

    @property
    def email(self) -> str:
        return str(json.loads(self.body)["email"])

    @property
    def most_runs(self) -> int:
        """Greatest number of runs that may come of the event."""
        if self.kind in REFUSED:
            return 0
        most = sum(one.may_be_a_run for one in self.tries)
        return min(most, 1) if self.kind == "keyed" else most


@dataclass(slots=True)
class Senders:
    """The event: what is random about it is decided by the seed and the event's number, whatever
    comes between its steps."""

    ports: Sequence[int]
    paths: Mapping[str, str]  # of the webhook, by flow
    seed: int
    ledger: list[Sent] = field(default_factory=list)

    async def send(self, number: int) -> None:
        """One event, of a kind that chance decides."""
        chance = random.Random(f"{self.seed} {number}")
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        name = f"event-{number}"
        shared = chance.random() < SHARED_SHARE
        who = f"shared{chance.randrange(SHARED)}" if shared else name
        flow = chance.choices(list(self.paths), [SHARES.get(one, 1) for one in self.paths])[0]
        body = json.dumps({"email": f"{who}@customer.example", "name": name, "price": "1.10"})
        sent = Sent(name, kind, flow, body.encode())
        self.ledger.append(sent)
        await getattr(self, kind)(sent, chance)

    async def once(self, sent: Sent, chance: random.Random) -> None:
        await self._try(sent, chance)

    async def again(self, sent: Sent, chance: random.Random) -> None:
        """Send until it is accepted, without a key: each try may be a run."""
        for _ in range(RETRIES):
            await self._try(sent, chance)
            if sent.accepted:
                return
            await asyncio.sleep(chance.uniform(0.1, 1))

    async def keyed(self, sent: Sent, chance: random.Random) -> None:
        """Send with a key until it is accepted, and once more after that: all tries are one run."""
        for _ in range(KEYED_RETRIES):
            await self._try(sent, chance, f"Idempotency-Key: {sent.name}")
            if sent.accepted:
                break
            await asyncio.sleep(chance.uniform(0.1, 1.5))
        await asyncio.sleep(chance.uniform(0, 5))
        await self._try(sent, chance, f"Idempotency-Key: {sent.name}")

    async def forged(self, sent: Sent, chance: random.Random) -> None:
        await self._try(sent, chance, secret="a secret that somebody guessed")

    async def malformed(self, sent: Sent, chance: random.Random) -> None:
        sent.body = sent.body[:-1]
        await self._try(sent, chance)

    async def hasty(self, sent: Sent, chance: random.Random) -> None:
        """Go away in the middle of the body, or before the answer."""
        await self._try(sent, chance, leaves=chance.choice([20, len(sent.body)]))

    async def _try(
        self,
        sent: Sent,
        chance: random.Random,
        *headers: str,
        secret: str = SECRET,
        leaves: int = 0,
    ) -> None:
        began = time.time()
        whole = not leaves or leaves == len(sent.body)
        try:
            answer = await exchange(
                self.ports,
                self.paths[sent.flow],
                sent.body,
                *headers,
                chance=chance,
                secret=secret,
                leaves=leaves,
            )
        except Silence as silence:
            attempt: Try = Try(began, time.time(), None, {}, silence.why, silence.port, whole=whole)
        else:
            attempt = Try(
                began,
                time.time(),
                answer.status,
                answer.payload,
                port=answer.port,
                taken=answer.taken,
                retry_after=answer.retry_after,
            )
        sent.tries.append(attempt)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    payload: dict[str, Any]
    port: int  # of the process that gave it
    taken: float
    retry_after: str | None


class Silence(Exception):
    """Nobody answered, on the port that took the connection."""

    def __init__(self, why: str, port: int | None = None) -> None:
        super().__init__(why)
        self.why, self.port = why, port


async def exchange(
    ports: Sequence[int],
    path: str,
    body: bytes,
    *headers: str,
    chance: random.Random,
    secret: str = SECRET,
    leaves: int = 0,
    address: str | None = None,
) -> Answer:
    """`leaves`: after so many octets. Raises Silence."""
    digest = hmac.digest(secret.encode(), body, "sha256").hex()
    head = (
        f"POST {path} HTTP/1.1",
        "Host: tidings.test",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-Service-Signature: sha256={digest}",
        f"X-Forwarded-For: {address or _anybody(chance)}",
        *headers,
    )
    port, reader, writer = await _connection(ports, chance)
    taken = time.time()
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            text = "\r\n".join(head).encode() + b"\r\n\r\n"
            writer.write(text + (body[:leaves] if leaves else body))
            await writer.drain()
            if leaves:
                raise Silence(LEFT, port)
            answer = await reader.read()
    except TimeoutError:  # an OSError too
        raise Silence(LATE, port) from None
    except OSError:
        raise Silence(CUT, port) from None
    finally:
        writer.transport.abort()
    return _read(answer, port, taken)


async def _connection(
    ports: Sequence[int], chance: random.Random
) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    until = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < until:
        for port in chance.sample(ports, len(ports)):
            try:
                return port, *await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue  # that process is away: the next
        await asyncio.sleep(0.05)
    raise Silence(AWAY)


def _read(answer: bytes, port: int, taken: float) -> Answer:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"^content-length: ([0-9]+)\r?$", head, re.IGNORECASE | re.MULTILINE)
    if not end or (length and len(body) < int(length[1])):
        raise Silence(CUT, port)
    try:
        payload = json.loads(body)
    except ValueError:
        payload = {"not JSON": body.decode("latin-1")}
    wait = re.search(rb"^retry-after: ([0-9]+)\r?$", head, re.IGNORECASE | re.MULTILINE)
    return Answer(int(head.split()[1]), payload, port, taken, wait and wait[1].decode())


def _anybody(chance: random.Random) -> str:
    """The limit counts by address."""
    return ".".join(str(chance.randrange(1, 255)) for _ in range(4))
