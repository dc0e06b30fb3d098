"""Many questions, few trips: who shares a batch, who waits, and who is hurt by whom."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from app.errors import Unavailable
from app.runtime.batching import NOT_BEGUN, TURNS, Batches, Kind


class Desk:
    """Answers ten times the number, refuses 13 wherever it is, and keeps what came together."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.silent = False

    async def answer(self, questions: Sequence[int]) -> list[int | Exception]:
        self.seen.append(list(questions))
        await self.open.wait()
        if self.silent:
            raise Unavailable("silence", unanswered=True)
        if self.away:
            raise Unavailable("away")
        if 13 in questions:
            raise ValueError("13")
        return [LookupError(n) if n < 0 else n * 10 for n in questions]


async def answer(desk: Desk, questions: Sequence[int]) -> list[int | Exception]:
    return await desk.answer(questions)


def kind(**limits: Any) -> Kind[Desk, int, int]:
    return Kind(answer, **limits)


async def turns(number: int = 4 * TURNS) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_comes_in_one_turn_of_the_loop_is_one_batch():
    desk, batches, ten = Desk(), Batches(), kind()
    answers = await asyncio.gather(*(batches.ask(ten, desk, n) for n in range(5)))
    assert answers == [0, 10, 20, 30, 40]
    assert desk.seen == [[0, 1, 2, 3, 4]]


async def test_what_comes_meanwhile_shares_the_next_and_nobody_waits_for_company():
    desk, batches, ten = Desk(), Batches(), kind()
    desk.open.clear()
    first = asyncio.create_task(batches.ask(ten, desk, 1))
    await turns()
    assert desk.seen == [[1]]
    others = [asyncio.create_task(batches.ask(ten, desk, n)) for n in (2, 3)]
    await turns()
    assert desk.seen == [[1]]
    desk.open.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    assert desk.seen == [[1], [2, 3]]


async def test_as_many_batches_are_under_way_as_allowed():
    desk, batches, ten = Desk(), Batches(), kind(abreast=2)
    desk.open.clear()
    asked = []
    for n in (1, 2, 3, 4):
        asked.append(asyncio.create_task(batches.ask(ten, desk, n)))
        await turns()
    assert desk.seen == [[1], [2]]
    desk.open.set()
    assert await asyncio.gather(*asked) == [10, 20, 30, 40]
    assert desk.seen == [[1], [2], [3, 4]]


async def test_what_one_has_taken_another_beside_it_does_not_miss(
    caplog: pytest.LogCaptureFixture,
):
    desk, batches, ten = Desk(), Batches(), kind(abreast=2)
    desk.open.clear()
    asked = []
    for n in (1, 2, 3):
        asked.append(asyncio.create_task(batches.ask(ten, desk, n)))
        await turns()
    desk.open.set()  # both are free in the same turn, and one question waits
    assert await asyncio.gather(*asked) == [10, 20, 30]
    await turns()
    gc.collect()  # a task that broke says so when it is forgotten
    assert caplog.records == []
    assert desk.seen == [[1], [2], [3]]


async def test_a_batch_has_one_context():
    first, second, batches, ten = Desk(), Desk(), Batches(), kind()
    await asyncio.gather(batches.ask(ten, first, 1), batches.ask(ten, second, 2))
    assert (first.seen, second.seen) == ([[1]], [[2]])


async def test_a_batch_is_bounded_in_number_and_weight():
    desk, batches = Desk(), Batches()
    few, light = kind(most=2), kind(weigh=lambda n: n, heaviest=5)
    await asyncio.gather(*(batches.ask(few, desk, n) for n in range(5)))
    assert desk.seen == [[0, 1], [2, 3], [4]]
    desk.seen.clear()
    await asyncio.gather(*(batches.ask(light, desk, n) for n in (3, 2, 1, 9, 1)))
    assert desk.seen == [[3, 2], [1], [9], [1]]


async def test_one_s_refusal_is_its_own():
    desk, batches, ten = Desk(), Batches(), kind()
    answers = await asyncio.gather(
        *(batches.ask(ten, desk, n) for n in (1, -1, 2)), return_exceptions=True
    )
    assert answers[0::2] == [10, 20]
    assert isinstance(answers[1], LookupError)
    assert desk.seen == [[1, -1, 2]]


async def test_one_that_breaks_the_work_hurts_nobody_else():
    desk, batches, ten = Desk(), Batches(), kind()
    answers = await asyncio.gather(
        *(batches.ask(ten, desk, n) for n in (1, 13, 2)), return_exceptions=True
    )
    assert answers[0::2] == [10, 20]
    assert isinstance(answers[1], ValueError)
    assert desk.seen == [[1, 13, 2], [1], [13], [2]]


async def test_when_nobody_gets_through_not_everybody_tries():
    desk, batches, ten = Desk(), Batches(), kind()
    desk.away = True
    answers = await asyncio.gather(
        *(batches.ask(ten, desk, n) for n in range(40)), return_exceptions=True
    )
    assert len(answers) == 40
    assert all(isinstance(one, Unavailable) for one in answers)
    assert len(desk.seen) == 1 + 8


async def test_when_nothing_is_heard_nobody_tries_alone_and_who_stands_in_line_is_sent_away():
    desk, batches, ten = Desk(), Batches(), kind()
    desk.open.clear()
    desk.silent = True
    asked = [asyncio.create_task(batches.ask(ten, desk, n)) for n in range(3)]
    await turns()
    asked += [asyncio.create_task(batches.ask(ten, desk, n)) for n in range(3, 5)]
    await turns()
    assert batches.tell(ten, desk, 7)
    desk.open.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(one) for one in answers] == ["silence"] * 3 + [NOT_BEGUN] * 2
    desk.silent = False
    await batches.close()
    assert desk.seen == [[0, 1, 2], [7]]
    assert await batches.ask(ten, desk, 8) == 80


async def test_who_goes_away_takes_nobody_along():
    desk, batches, ten = Desk(), Batches(), kind()
    desk.open.clear()
    gone, stays = (asyncio.create_task(batches.ask(ten, desk, n)) for n in (1, 2))
    await turns()
    gone.cancel()
    await turns()
    desk.open.set()
    assert await stays == 20
    assert gone.cancelled()
    assert desk.seen == [[1, 2]]


async def test_what_is_told_is_done_before_the_end_and_bounded():
    desk, batches, ten = Desk(), Batches(), kind(backlog=3)
    told = [batches.tell(ten, desk, n) for n in (1, 2, 3, 4)]
    assert told == [True, True, True, False]
    await batches.close()
    assert desk.seen == [[1, 2, 3]]


async def test_what_is_told_is_bounded_in_weight_too():
    desk, batches, heavy = Desk(), Batches(), kind(weigh=lambda n: n, heaviest=10)
    assert [batches.tell(heavy, desk, n) for n in (20, 20, 1)] == [True, True, False]
    await batches.close()
    assert batches.tell(heavy, desk, 20)
    await batches.close()
    assert desk.seen == [[20], [20], [20]]


async def test_what_was_told_and_failed_is_logged(caplog: pytest.LogCaptureFixture):
    desk, batches, ten = Desk(), Batches(), kind()
    batches.tell(ten, desk, 13)
    await batches.close()
    assert "13" in caplog.text
