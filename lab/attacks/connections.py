"""Connections that are held open, of every kind, while others ask.

    python -m lab.attacks.connections [--open 10000] [--seconds 40] [--soft 1024] [--hard 1024]

Boots `python -m app run` under the given descriptor limits, opens so many connections of all kinds
from one address, holds what is left of them, and asks `/healthz` and the intake ten times a second
from another. Prints a table, and ends with 1 when more than 1 % of the answers took over a second
or one took over three.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import uvloop

from app.net.tls import system_trust
from tests.attacks.target import IN, UNKNOWN
from tests.deployment import ROOT, answers
from tests.servers import free_port

HOST = b"Host: a.test\r\n"
UPGRADE = b"Connection: upgrade\r\nUpgrade: websocket\r\n"
HOOK = IN.encode() + UNKNOWN.encode()

UNREAD = "an answer that nobody reads"

# Every kind of connection that is refused, half open or of another protocol.
KINDS: Mapping[str, bytes] = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: a",
    "a head without its end": b"POST " + HOOK + b" HTTP/1.1\r\n" + HOST,
    "a head, then no body": b"POST /auth/token HTTP/1.1\r\n" + HOST + b"Content-Length: 50\r\n\r\n",
    "half a body": b"POST /auth/token HTTP/1.1\r\n" + HOST + b"Content-Length: 50\r\n\r\n{",
    "half a chunk": b"POST /auth/token HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n50\r\n{",
    "a refused body that goes on": b"POST /auth/token HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 99999999\r\n\r\n"
    + b"x" * 1_000,
    "100-continue, then nothing": b"POST /auth/token HTTP/1.1\r\n"
    + HOST
    + b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n",
    "websocket on 1.0": b"GET / HTTP/1.0\r\n" + UPGRADE + b"\r\n",
    "websocket on 1.1": b"GET / HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n",
    "websocket of another version": b"GET / HTTP/1.1\r\n"
    + HOST
    + UPGRADE
    + b"Sec-WebSocket-Version: 99\r\n\r\n",
    "websocket with a body": b"GET / HTTP/1.1\r\n" + HOST + UPGRADE + b"Content-Length: 9\r\n\r\n",
    "websocket, and a next request": b"GET / HTTP/1.1\r\n"
    + HOST
    + UPGRADE
    + b"\r\nGET / HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    "h2c": b"GET / HTTP/1.1\r\n"
    + HOST
    + b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    "HTTP/2 at once": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
    "keep-alive on 1.0": b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "keep-alive": b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT a.test:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a head that is none": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a bad head": b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    "a head that is too long": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 20_000,
    UNREAD: (b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n") * 8,
}

LIMIT_SECONDS = 45.0  # 30 of them for who reads nothing; the others take 5 or 15
PROBES = ("/healthz", IN + UNKNOWN)
ATTACKER = "127.0.7.1"
AT_ONCE = 200  # connections that one turn opens


@dataclass(slots=True)
class Held:
    """Connections of one kind."""

    opened: int = 0
    refused: int = 0
    closed: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0


@dataclass(slots=True)
class Drill:
    """The ends of the connections, and how others were answered meanwhile."""

    port: int
    held: dict[str, Held] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=lambda: {path: [] for path in PROBES})
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def all_times(self) -> list[float]:
        return sorted(time for times in self.times.values() for time in times)

    def is_passed(self) -> bool:
        times = self.all_times
        late = sum(time > 1 for time in times)
        kept = all(held.closed["NEVER"] == 0 for held in self.held.values())
        return kept and not self.failures and late <= len(times) / 100 and times[-1] <= 3


async def drill(port: int, count: int, seconds: float, kinds: Sequence[str] = ()) -> Drill:
    """Open `count` connections, as many of each kind, from a process of its own. Else its work
    would be taken for the server's; asks for `seconds`, and until the last of them is closed."""
    found, stop = Drill(port), asyncio.Event()
    probes = [asyncio.create_task(_probe(found, path, stop)) for path in PROBES]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        attack = asyncio.get_running_loop().run_in_executor(
            pool, hold_all, port, count, list(kinds or KINDS)
        )
        await asyncio.sleep(seconds)
        found.held = await attack
    stop.set()
    await asyncio.gather(*probes)
    return found


def hold_all(port: int, count: int, kinds: Sequence[str]) -> dict[str, Held]:
    """All connections, until each is closed or has been open for longer than any may be."""

    async def hold() -> dict[str, Held]:
        gate, held = asyncio.Semaphore(AT_ONCE), {kind: Held() for kind in kinds}
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                kind = kinds[number % len(kinds)]
                group.create_task(_hold(port, kind, held[kind], gate))
        return held

    _raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(hold())


async def _hold(port: int, kind: str, held: Held, gate: asyncio.Semaphore) -> None:
    """One connection, which sends its beginning and then waits until the other side ends it."""
    loop, reads = asyncio.get_running_loop(), kind != UNREAD
    with socket.socket() as sock:
        sock.setblocking(False)
        if not reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        async with gate:
            try:
                sock.bind((ATTACKER, 0))
                async with asyncio.timeout(60):
                    await loop.sock_connect(sock, ("127.0.0.1", port))
                    await loop.sock_sendall(sock, KINDS[kind])
            except (OSError, TimeoutError):
                held.refused += 1
                return
        held.opened += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                how = await _until_closed(sock, reads=reads)
        except TimeoutError:
            how = "NEVER"
        held.longest = max(held.longest, time.monotonic() - began)
        held.closed[how] += 1


async def _until_closed(sock: socket.socket, *, reads: bool) -> str:
    loop, status = asyncio.get_running_loop(), ""
    if not reads:
        poll = sock.getsockopt
        while True:  # what it would read stays where it is; only the end is looked for
            await asyncio.sleep(0.5)
            state = poll(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state != 1:  # no longer ESTABLISHED
                return "closed"
    with suppress(OSError):
        while data := await loop.sock_recv(sock, 65_536):
            status = status or data[9:12].decode("latin-1")
        return status or "closed"
    return status or "reset"


async def _probe(found: Drill, path: str, stop: asyncio.Event) -> None:
    """Ten times a second, each on a connection of its own, whatever became of the one before."""
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            group.create_task(_ask(found, path))
            await asyncio.sleep(0.1)


async def _ask(found: Drill, path: str) -> None:
    began = time.monotonic()
    method, body = ("POST", b"{}") if path.startswith(IN) else ("GET", b"")
    source = f"127.0.8.{1 + int(began * 1_000) % 250}"  # of the limit of 120 a minute
    head = f"{method} {path} HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/json\r\n"
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", found.port, local_addr=(source, 0)
            )
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status = (await reader.readuntil(b"\r\n")).split()[1]
            writer.close()
        wanted = b"404" if path.startswith(IN) else b"200"
        if status != wanted:
            found.failures[f"{path[:12]} {status.decode()}"] += 1
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        found.failures[f"{path[:12]} {type(error).__name__}"] += 1
    found.times[path].append(time.monotonic() - began)


def table(found: Drill) -> str:
    lines = [f"{'connections':34}{'opened':>8}{'refused':>9}{'longest':>10}  ended with"]
    for kind, held in found.held.items():
        ends = ", ".join(f"{how} {n}" for how, n in held.closed.most_common())
        lines.append(f"{kind:34}{held.opened:8}{held.refused:9}{held.longest:9.1f}s  {ends}")
    lines += ["", f"{'asked':20}{'times':>7}{'p50':>9}{'p99':>9}{'longest':>9}{'over 1 s':>10}"]
    for path in found.times:
        times = sorted(found.times[path])
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        late = sum(one > 1 for one in times)
        lines.append(
            f"{path[:18]:20}{len(times):7}{p50:8.3f}s{p99:8.3f}s{times[-1]:8.3f}s{late:10}"
        )
    lines.append(f"failures: {dict(found.failures) or 'none'}")
    return "\n".join(lines)


async def boot(
    directory: Path, soft: int, hard: int, **environ: str
) -> tuple[asyncio.subprocess.Process, int]:
    """`python -m app run` under these limits, once it is ready."""
    port = free_port()
    # Given as `ulimit -Sn … -Hn …` would, after the fork.
    with (directory / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$0" -m app run'),
            sys.executable,
            cwd=directory,
            env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PORT": str(port), **environ},
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )
    for _ in range(300):
        if await asyncio.to_thread(answers, f"http://127.0.0.1:{port}/readyz"):
            return process, port
        await asyncio.sleep(0.1)
    raise TimeoutError((directory / "output").read_text()[-2_000:])


async def _closed_by_cause(port: int) -> str:
    await asyncio.sleep(6)  # until the figures are added up
    async with httpx2.AsyncClient(trust_env=False, verify=system_trust()) as client:
        shown = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    return "\n".join(line for line in shown.splitlines() if line.startswith("tidings_connections"))


def memory(process_id: int) -> str:
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("VmHWM")).split(":")[1]


async def main(given: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory(prefix="connections-") as kept:
        process, port = await boot(Path(kept), given.soft, given.hard)
        try:
            found = await drill(port, given.open, given.seconds, given.kind)
            print(table(found))
            print(await _closed_by_cause(port))
            print("peak memory:", memory(process.pid).strip())
        finally:
            process.terminate()
            await process.wait()
    print("PASSED" if found.is_passed() else "FAILED")
    return found.is_passed()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--open", type=int, default=10_000, help="connections")
    parser.add_argument("--seconds", type=float, default=40.0, help="of probing")
    parser.add_argument("--soft", type=int, default=1_024, help="the server's soft limit")
    parser.add_argument("--hard", type=int, default=1_024, help="the server's hard limit")
    parser.add_argument("--kind", action="append", choices=KINDS, default=[], help="only these")
    return parser.parse_args()


def _raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(0 if uvloop.run(main(_arguments())) else 1)
