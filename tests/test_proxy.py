"""The proxy that the chaos harness puts between processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from tests.proxy import Proxy, proxy_before


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, proxy_before(*server.sockets[0].getsockname()[:2]) as proxy:
        yield proxy


async def exchange(proxy: Proxy, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(text)
        return await reader.read(100)
    finally:
        writer.close()


@pytest.mark.alone
async def test_a_slow_proxy_delays_each_way_until_it_is_healed(proxy: Proxy) -> None:
    proxy.slow_down(0.1)
    began = time.monotonic()
    assert await exchange(proxy, b"hello") == b"hello"
    assert time.monotonic() - began >= 0.2
    proxy.heal()
    began = time.monotonic()
    assert await exchange(proxy, b"hello") == b"hello"
    assert time.monotonic() - began < 0.1


async def test_what_is_replaced_arrives_as_something_else_until_it_is_healed(proxy: Proxy) -> None:
    proxy.replace(b"ZADD", b"zadd")
    assert await exchange(proxy, b"ZADD, ZADD") == b"zadd, zadd"
    proxy.heal()
    assert await exchange(proxy, b"ZADD") == b"ZADD"
    assert proxy.hits == 2


async def test_what_was_cut_is_remembered(proxy: Proxy) -> None:
    proxy.cut_before(b"POST ")
    assert await exchange(proxy, b"POST / HTTP/1.1") == b""
    proxy.heal()
    assert await exchange(proxy, b"POST / again") == b"POST / again"
    assert proxy.cut == [b"POST / HTTP/1.1"]
