"""Requests by the thousand, in a process of its own that does little but wait.

python -m lab.bench.load <port> <path> <seconds> [--also PATH …] [--values FILE] [--header NAME]
[--secret S] [--new] [--rate R]: 64 connections, each request from another address behind the one
trusted proxy; prints one line of JSON. `--values` has what contacts are found by, a line each; by
default their addresses. `--header` carries a key that no other request has, as the body does for a
webhook that looks there (`--keyed`). With a rate the loop is open: a request is due when it is due,
and waiting for a free connection counts.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import cast

import uvloop

CONNECTIONS = 64
DISTINCT = 20_000  # requests made before the clock starts
KNOWN = 5_000  # contacts that exist
STARTED = time.time_ns()  # no other process's, so that no key comes twice
TICK_SECONDS = 0.001


def email(number: int) -> str:
    return f"person{number}@customer{number % 97}.example"


def body(value: str, number: int, key: str = "") -> bytes:
    """A body as a shop sends it: about a kilobyte. The contact is found by `value`."""
    items = [
        {
            "sku": f"SKU-{number % 89}-{n}",
            "name": "A thing of beauty",
            "price": 19.90,
            "quantity": 1,
        }
        for n in range(8)
    ]
    order = {"id": number, "customer": value, "key": key, "currency": "EUR", "items": items}
    return json.dumps({"type": "order.created", "data": {"object": order}}).encode()


def turns(paths: Sequence[str], values: Sequence[str]) -> Iterator[tuple[str, str]]:
    """One webhook after the other, each with the next contact once all have had the one before."""
    return ((path, value) for value in cycle(values) for path in paths)


def request(
    path: str,
    number: int,
    *,
    secret: str | None,
    value: str | None = None,
    header: str | None = None,
) -> bytes:
    key = f"{STARTED}-{number}"
    content = body(value or email(number % KNOWN), number, key)
    head = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        f"X-Forwarded-For: 10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "User-Agent: bench",
    ]
    if header is not None:
        head.append(f"{header}: {key}")
    if secret is not None:
        digest = hmac.digest(secret.encode(), content, "sha256").hex()
        head.append(f"X-Service-Signature: sha256={digest}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


@dataclass(slots=True)
class Load:
    """The events still to be sent, and how long each answer took."""

    requests: list[bytes]
    is_open: bool
    is_keyed: bool  # no request may come twice
    next: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: list[float] = field(default_factory=list)
    due: deque[float] = field(default_factory=deque)
    free: list[Connection] = field(default_factory=list)
    ended: bool = False

    def take(self) -> bytes:
        self.next += 1
        return self.requests[self.next % len(self.requests)]


class Connection(asyncio.Protocol):
    def __init__(self, load: Load) -> None:
        self._load = load
        self._began = 0.0
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's only looks like one

    def connection_lost(self, _error: Exception | None) -> None:
        if self in self._load.free:  # idle for longer than the server keeps it
            self._load.free.remove(self)

    def send(self, began: float) -> None:
        self._began = began
        self._transport.write(self._load.take())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        at = self._buffer.find(b"content-length: ") + 16
        if end < 0 or len(self._buffer) < end + 4 + int(self._buffer[at : at + 6].split(b"\r")[0]):
            return
        load, now = self._load, time.perf_counter()
        if self._buffer.startswith(b"HTTP/1.1 202"):
            load.accepted += 1
        else:
            load.refused += 1
        load.seconds.append(now - self._began)
        self._buffer = b""
        if load.ended:
            return
        if not load.is_open:
            self.send(now)
        elif load.due:
            self.send(load.due.popleft())
        else:
            load.free.append(self)


async def run(port: int, load: Load, seconds: float, rate: float | None) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(CONNECTIONS):
        _, connection = await loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
        connections.append(connection)
    load.free = list(connections)
    began, worked = time.perf_counter(), time.process_time()
    if rate is None:
        for connection in connections:
            connection.send(began)
        await asyncio.sleep(seconds)
    else:
        await offer(load, rate, began, seconds)
    took, worked = time.perf_counter() - began, time.process_time() - worked
    answered, seconds_each = load.accepted, sorted(load.seconds)
    load.ended = True
    if load.is_keyed:
        assert load.next <= DISTINCT, "from here on, every event is a repeat"
    await asyncio.sleep(0.3)
    return {
        "a_second": answered / took,
        "answered": answered,
        "refused": load.refused,
        "p50_ms": seconds_each[len(seconds_each) // 2] * 1000,
        "p99_ms": seconds_each[len(seconds_each) * 99 // 100] * 1000,
        "idle": 1 - worked / took,
    }


async def offer(load: Load, rate: float, began: float, seconds: float) -> None:
    offered = 0
    while (now := time.perf_counter()) < began + seconds:
        while offered < (now - began) * rate:
            load.due.append(began + offered / rate)
            offered += 1
        while load.due and load.free:
            load.free.pop().send(load.due.popleft())
        await asyncio.sleep(TICK_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--also", nargs="+", default=[])
    parser.add_argument("--values", type=Path)
    parser.add_argument("--header")
    parser.add_argument("--keyed", action="store_true")
    parser.add_argument("--secret")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--rate", type=float)
    given = parser.parse_args()
    paths = [given.path, *given.also]
    known = given.values.read_text().splitlines() if given.values else [*map(email, range(KNOWN))]
    requests = [
        request(
            path,
            number,
            secret=given.secret,
            value=f"{STARTED}-{value}" if given.new else value,
            header=given.header,
        )
        for number, (path, value) in enumerate(islice(turns(paths, known), DISTINCT))
    ]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        is_keyed = given.keyed or given.new or given.header is not None
        load = Load(requests, is_open=given.rate is not None, is_keyed=is_keyed)
        print(json.dumps(runner.run(run(given.port, load, given.seconds, given.rate))), flush=True)


if __name__ == "__main__":
    main()
