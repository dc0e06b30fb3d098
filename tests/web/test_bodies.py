"""The memory that request bodies take: one budget, from which nobody takes all."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.errors import Unavailable
from app.runtime.metrics import Metrics
from app.web import bodies
from app.web.bodies import (
    OF_ONE_ADDRESS,
    OF_ONE_STRANGER,
    OF_ONE_WORKSPACE,
    OF_STRANGERS,
    Bodies,
    Hold,
)
from app.web.edge import Edge
from app.web.routing import router
from tests.web import wire
from tests.web.wire import head

KIB = 1_024


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Bodies:
    monkeypatch.setattr(bodies, "MOST_BYTES", 800)
    return Bodies(1, Metrics())


def hold(source: str, workspace_id: str | None = None) -> Hold:
    made = Hold(source)
    if workspace_id is not None:
        made.belongs_to(workspace_id)
    return made


def fill(budget: Bodies, count: int, *holds: Hold) -> int:
    """Fill the budget; returns how many of them had room."""
    taken = 0
    for one in holds:
        try:
            budget.take(one, count)
        except Unavailable:
            continue
        taken += 1
    return taken


def test_what_has_begun_may_end_when_nothing_may_begin(budget: Bodies) -> None:
    first = [hold(f"a{n}", f"ws_{n}") for n in range(80)]
    assert fill(budget, 10, *first) == 40  # half of it
    assert fill(budget, 10, *first[:40]) == 40
    assert fill(budget, 1, first[0]) == 0  # that is all
    for one in first:
        budget.release(one)
    assert fill(budget, 10, hold("b")) == 1


def test_one_address_takes_only_its_share(budget: Bodies) -> None:
    assert fill(budget, 10, *(hold("greedy", f"ws_{n}") for n in range(80))) == 40 // OF_ONE_ADDRESS
    assert fill(budget, 10, hold("other")) == 1


def test_one_workspace_takes_only_its_share_from_however_many_addresses(budget: Bodies) -> None:
    held = [hold(f"a{n}", "ws_greedy") for n in range(80)]
    assert fill(budget, 10, *held) == 40 // OF_ONE_WORKSPACE
    assert fill(budget, 10, hold("other", "ws_other")) == 1


def test_strangers_take_only_their_share_from_however_many_addresses(budget: Bodies) -> None:
    assert fill(budget, 10, *(hold(f"a{n}") for n in range(80))) == 40 // OF_STRANGERS
    assert fill(budget, 10, hold("a0", "ws_known")) == 1


def test_one_address_among_strangers_leaves_room_for_the_others(budget: Bodies) -> None:
    """Such as a payment provider's, whose callbacks nobody vouches for until they are read."""
    greedy = [hold("greedy") for _ in range(80)]
    assert fill(budget, 10, *greedy) == 40 // OF_ONE_STRANGER
    assert fill(budget, 10, *greedy[:2]) == 2  # what has begun may end
    assert fill(budget, 10, hold("other")) == 1
    assert fill(budget, 10, hold("greedy", "ws_own")) == 1
    for one in greedy:
        budget.release(one)
    assert fill(budget, 10, hold("greedy")) == 1


def test_a_body_of_the_largest_size_always_finds_room_in_an_empty_process() -> None:
    large = 50 * KIB * KIB
    assert fill(Bodies(large, Metrics()), large, hold("a", "ws")) == 1


async def count(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def test_bodies_that_are_held_back_are_refused_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And only what has arrived counts: who announces much keeps nobody out."""
    monkeypatch.setattr(bodies, "MOST_BYTES", 2_048 * KIB)
    monkeypatch.setattr(bodies, "SMALL_BYTES", KIB)
    app = Edge(
        router([Route("/count", count, methods=["POST"])]), wire.settings(MAX_BODY_BYTES=16 * KIB)
    )
    whole = head("POST", "/count", f"Content-Length: {16 * KIB}")
    async with wire.serving(app) as served, AsyncExitStack() as stack:
        announced = [await stack.enter_async_context(served.connection()) for _ in range(20)]
        for one in announced:
            await one.send(whole)
        held = [await stack.enter_async_context(served.connection()) for _ in range(8)]
        for one in held:  # of one stranger: a sixteenth of the budget, of which half may begin
            await one.send(whole + b"x" * (8 * KIB))
        await asyncio.sleep(0.2)
        late = await stack.enter_async_context(served.connection())
        await late.send(whole + b"x" * (16 * KIB))
        answer = await late.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        assert b'"unavailable"' in answer.body
        for one in held:
            await one.send(b"x" * (8 * KIB))
            assert (await one.answer()).status == 200
        async with served.client() as client:  # and all is given back
            assert (await client.post("/count", content=b"x" * 16 * KIB)).status_code == 200


async def test_a_body_that_nobody_reads_takes_nothing() -> None:
    async def refuse(_request: Request) -> Response:
        return PlainTextResponse("no", 403)

    app = Edge(router([Route("/refuse", refuse, methods=["POST"])]), wire.settings())
    async with wire.serving(app) as served, served.client() as client:
        assert (await client.post("/refuse", content=b"x" * 900_000)).status_code == 403
    assert ("tidings_body_bytes", "{}") not in app.metrics._gauges


async def test_a_small_body_may_always_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 2_048 * KIB)
    monkeypatch.setattr(bodies, "SMALL_BYTES", KIB)
    app = Edge(
        router([Route("/count", count, methods=["POST"])]), wire.settings(MAX_BODY_BYTES=16 * KIB)
    )
    begun = head("POST", "/count", f"Content-Length: {16 * KIB}") + b"x" * (8 * KIB)
    async with wire.serving(app) as served, AsyncExitStack() as stack:
        for _ in range(9):
            one = await stack.enter_async_context(served.connection())
            await one.send(begun)
        await asyncio.sleep(0.2)
        async with served.client() as client:
            assert (await client.post("/count", content=b"x" * 2 * KIB)).status_code == 503
            assert (await client.post("/count", content=b"x" * KIB)).status_code == 200
