"""Surroundings of an attacked service: a name server, servers it calls, a flood, a full disk."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from lab.attacks.lines import Skipped
from lab.attacks.staging import OUTSIDE, Stage
from tests import servers
from tests.attacks.target import address
from tests.conftest import SCHEMA
from tests.deployment import Deployment
from tests.listener import Asked, Listener, Respond
from tests.servers import NOBODY


class Names:
    """A name server that never answers for slow names: the system's of this program alone, which
    has a mount namespace of its own."""

    address = "127.0.9.53"

    def __init__(self) -> None:
        self.bound = False
        self.slow = 0

    def start(self) -> None:
        with suppress(OSError):
            listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listener.bind((self.address, 53))
            self.bound = True
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            asked, source = listener.recvfrom(512)
            if b"slow" in asked:
                self.slow += 1
                continue
            end = asked.index(b"\0", 12) + 5
            is_a = b"quick" in asked and asked[end - 3] == 1  # QTYPE A
            flags = b"\x81\x80" if b"quick" in asked else b"\x81\x83"
            counts = b"\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(OUTSIDE)
            listener.sendto(
                asked[:2] + flags + counts + asked[12:end] + (record if is_a else b""), source
            )


NAMES = Names()


@contextmanager
def listening(at: Stage, respond: Respond) -> Iterator[int]:
    listener = Listener(respond, host=OUTSIDE)
    at.background.run(listener.start())
    try:
        yield listener.port
    finally:
        at.background.run(listener.stop())


async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    await writer.drain()


async def early_hints_for_ever(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)
        await writer.drain()


async def chunks_for_ever(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 100)
        await writer.drain()


@contextmanager
def flood(it: Deployment, path: str, headers: Mapping[str, str]) -> Iterator[Counter[str]]:
    """Forty clients who ask again and again, in a process of their own, or its work would be taken
    for the server's. The statuses are complete when it ends."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    source = f"X-Forwarded-For: {address()}\r\n"
    request = f"GET {path} HTTP/1.1\r\nHost: a.test\r\n{source}{lines}\r\n".encode()
    statuses, context = Counter[str](), multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(1, mp_context=context) as pool:
        begun, stop = manager.Event(), manager.Event()
        flooding = pool.submit(ask_for_ever, it.port, request, begun, stop)
        assert begun.wait(60), "nothing was answered to the flood"
        try:
            yield statuses
        finally:
            stop.set()
            statuses.update(flooding.result())


def ask_for_ever(
    port: int, request: bytes, begun: threading.Event, stop: threading.Event
) -> Counter[str]:
    """Send the request without end on connections that the server keeps, and count the statuses.
    Ten times a second each at most: what saturates a core, whatever it asks for, would only measure
    how many others there are."""
    statuses = Counter[str]()

    async def ask() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while True:
                    writer.write(request)
                    head = (await reader.readuntil(b"\r\n\r\n")).lower()
                    statuses[head[9:12].decode()] += 1
                    await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
                    await asyncio.sleep(0.1)

    async def all_ask() -> None:
        asking = [asyncio.create_task(ask()) for _ in range(40)]
        while not stop.is_set():
            await asyncio.sleep(0.2)
            if statuses:
                begun.set()
        for task in asking:
            task.cancel()

    asyncio.run(all_ask())
    return statuses


@contextmanager
def small_disk(at: Stage) -> Iterator[str]:
    """A database whose disk has 24 MB: a file, or a tablespace."""
    directory = Path(tempfile.mkdtemp(dir=at.directory))
    mount = ("mount", "-t", "tmpfs", "-o", "size=24m,mode=0777", "tmpfs", str(directory))
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped("needs root, to mount a disk of 24 MB") from error
    with ExitStack() as stack:
        stack.callback(subprocess.run, ("umount", "--lazy", str(directory)), check=True)
        if at.shape == "embedded":
            yield f"sqlite:///{directory}/tidings.db"
            return
        postgres = servers.postgres_server()  # for it could not end in order any more
        postgres.start()
        stack.callback(postgres.remove)
        yield asyncio.run(_tablespace(postgres.url, directory))


async def _tablespace(server_url: str, directory: Path) -> str:
    place = directory / "space"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    url = await servers.new_database(server_url, SCHEMA.read_text())
    name = urlsplit(url).path.removeprefix("/")
    connection = await asyncpg.connect(server_url)
    await connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
    await connection.execute(f"ALTER DATABASE {name} SET TABLESPACE small")
    await connection.close()
    return url
