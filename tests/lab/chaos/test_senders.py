"""Senders: what one takes an answer for, and that the seed decides what it does."""

from __future__ import annotations

import asyncio
import random

import pytest

from lab.chaos.senders import CUT, Answer, Senders, Silence, exchange
from tests.listener import Asked, Listener, Respond, says

HALF = b'HTTP/1.1 202 Accepted\r\nContent-Length: 17\r\n\r\n{"runId":'
PATHS = {"waiting": "/waiting", "calling": "/calling"}


async def sent_to(respond: Respond) -> tuple[Listener, Senders]:
    async with Listener(respond) as listener:
        senders = Senders([listener.port], PATHS, seed=7)
        await asyncio.gather(*(senders.send(number) for number in range(8)))
        return listener, senders


def shown(asked: Asked) -> tuple[object, ...]:
    return asked.target, asked.body, asked.header("x-forwarded-for")


async def test_one_seed_sends_the_same_events_from_the_same_addresses_in_whatever_order() -> None:
    (first, _), (second, _) = [await sent_to(says({}, "202 Accepted")) for _ in range(2)]
    assert sorted(map(shown, first.asked)) == sorted(map(shown, second.asked))


@pytest.mark.parametrize("body", [b"Internal Server Error", b""])
async def test_an_answer_without_json_is_an_answer(body: bytes) -> None:
    async with Listener(says(body, "500 Internal Server Error", "text/plain")) as listener:
        answer = await ask(listener.port)
    assert answer.status == 500
    assert answer.payload == {"not JSON": body.decode()}


async def ask(port: int) -> Answer:
    return await exchange([port], "/waiting", b"{}", chance=random.Random(7))


@pytest.mark.parametrize("answer", [b"HTTP/1.1 202 Accepted\r\n", HALF])
async def test_half_an_answer_is_none(answer: bytes) -> None:
    async def respond(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with Listener(respond) as listener:
        with pytest.raises(Silence, match=CUT):
            await ask(listener.port)
