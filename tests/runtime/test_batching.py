"""Many items, few batches: which share one, which wait, and what a failure affects."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any

import pytest

from app.errors import Unavailable
from app.runtime import batching
from app.runtime.batching import NOT_BEGUN, TURNS, Batches, BatchKind


class Backend:
    """Answers ten times the number, refuses 13 wherever it is, and keeps what came together."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.away = False
        self.locked: set[int] = set()
        self.silent = False

    async def answer(self, items: Sequence[int]) -> list[int | Exception]:
        self.seen.append(list(items))
        await self.open.wait()
        if self.silent:
            raise Unavailable("silence", unanswered=True)
        if self.away:
            raise Unavailable("away")
        if self.locked.intersection(items):
            raise Unavailable("locked")
        if 13 in items:
            raise ValueError("13")
        return [LookupError(n) if n < 0 else n * 10 for n in items]


async def answer(backend: Backend, items: Sequence[int]) -> list[int | Exception]:
    return await backend.answer(items)


def kind(**limits: Any) -> BatchKind[Backend, int, int]:
    return BatchKind(answer, **limits)


async def turns(number: int = 4 * TURNS) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def test_what_comes_in_one_turn_of_the_loop_is_one_batch() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    answers = await asyncio.gather(*(batches.run(ten, backend, n) for n in range(5)))
    assert answers == [0, 10, 20, 30, 40]
    assert backend.seen == [[0, 1, 2, 3, 4]]


async def test_what_comes_meanwhile_shares_the_next_batch_and_no_timer_delays_the_first() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    backend.open.clear()
    first = asyncio.create_task(batches.run(ten, backend, 1))
    await turns()
    assert backend.seen == [[1]]
    others = [asyncio.create_task(batches.run(ten, backend, n)) for n in (2, 3)]
    await turns()
    assert backend.seen == [[1]]
    backend.open.set()
    assert await asyncio.gather(first, *others) == [10, 20, 30]
    assert backend.seen == [[1], [2, 3]]


async def test_as_many_batches_are_under_way_as_allowed() -> None:
    backend, batches, ten = Backend(), Batches(), kind(concurrency=2)
    backend.open.clear()
    asked = []
    for n in (1, 2, 3, 4):
        asked.append(asyncio.create_task(batches.run(ten, backend, n)))
        await turns()
    assert backend.seen == [[1], [2]]
    backend.open.set()
    assert await asyncio.gather(*asked) == [10, 20, 30, 40]
    assert backend.seen == [[1], [2], [3, 4]]


async def test_what_one_has_taken_another_beside_it_does_not_miss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend, batches, ten = Backend(), Batches(), kind(concurrency=2)
    backend.open.clear()
    asked = []
    for n in (1, 2, 3):
        asked.append(asyncio.create_task(batches.run(ten, backend, n)))
        await turns()
    backend.open.set()  # both are free in the same turn, and one item waits
    assert await asyncio.gather(*asked) == [10, 20, 30]
    await turns()
    gc.collect()  # a task that broke says so when it is forgotten
    assert caplog.records == []
    assert backend.seen == [[1], [2], [3]]


async def test_a_batch_has_one_context() -> None:
    first, second, batches, ten = Backend(), Backend(), Batches(), kind()
    await asyncio.gather(batches.run(ten, first, 1), batches.run(ten, second, 2))
    assert (first.seen, second.seen) == ([[1]], [[2]])


async def test_a_batch_is_bounded_in_number_and_weight() -> None:
    backend, batches = Backend(), Batches()
    few, light = kind(max_items=2), kind(weigh=lambda n: n, max_weight=5)
    await asyncio.gather(*(batches.run(few, backend, n) for n in range(5)))
    assert backend.seen == [[0, 1], [2, 3], [4]]
    backend.seen.clear()
    await asyncio.gather(*(batches.run(light, backend, n) for n in (3, 2, 1, 9, 1)))
    assert backend.seen == [[3, 2], [1], [9], [1]]


async def test_one_workspace_s_single_item_does_not_wait_behind_another_s_many() -> None:
    backend, batches = Backend(), Batches()
    few = kind(max_items=3, whose=lambda n: "Acme" if n < 100 else "Bob's")
    await asyncio.gather(*(batches.run(few, backend, n) for n in (1, 2, 3, 4, 5, 100, 6, 101)))
    assert backend.seen == [[1, 100, 2], [101, 3, 4], [5, 6]]


async def test_one_s_refusal_is_its_own() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    answers = await asyncio.gather(
        *(batches.run(ten, backend, n) for n in (1, -1, 2)), return_exceptions=True
    )
    assert answers[0::2] == [10, 20]
    assert isinstance(answers[1], LookupError)
    assert backend.seen == [[1, -1, 2]]


async def test_one_that_breaks_the_work_hurts_nobody_else() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    answers = await asyncio.gather(
        *(batches.run(ten, backend, n) for n in (1, 13, 2)), return_exceptions=True
    )
    assert answers[0::2] == [10, 20]
    assert isinstance(answers[1], ValueError)
    assert backend.seen == [[1, 13, 2], [1], [13], [2]]


async def test_when_nobody_gets_through_not_everybody_tries() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    backend.away = True
    answers = await asyncio.gather(
        *(batches.run(ten, backend, n) for n in range(40)), return_exceptions=True
    )
    assert [str(one) for one in answers] == ["away"] * 8 + [NOT_BEGUN] * 32
    assert len(backend.seen) == 1 + 8


@pytest.mark.parametrize("seconds", [0, 60])
async def test_items_are_tried_alone_for_a_while_if_one_was_not_answered_in_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """As when a table is locked: some get through, and each of the others waits."""
    monkeypatch.setattr(batching, "RETRY_SECONDS", seconds)
    backend, batches = Backend(), Batches()
    twenty = kind(max_items=20)
    backend.locked = {20}
    answers = await asyncio.gather(
        *(batches.run(twenty, backend, n) for n in range(20, 44)), return_exceptions=True
    )
    tens = [n * 10 for n in range(20, 44)]
    assert str(answers[0]) == "locked"
    assert answers[1:8] == tens[1:8]
    not_begun = [] if seconds else [NOT_BEGUN] * 12
    assert [str(one) for one in answers[8:20] if isinstance(one, Exception)] == not_begun
    assert answers[20:] == tens[20:]


async def test_a_silent_database_fails_the_batch_and_the_queue_behind_it() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    backend.open.clear()
    backend.silent = True
    asked = [asyncio.create_task(batches.run(ten, backend, n)) for n in range(3)]
    await turns()
    asked += [asyncio.create_task(batches.run(ten, backend, n)) for n in range(3, 5)]
    await turns()
    assert batches.run_later(ten, backend, 7)
    backend.open.set()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(one) for one in answers] == ["silence"] * 3 + [NOT_BEGUN] * 2
    backend.silent = False
    await batches.close()
    assert backend.seen == [[0, 1, 2], [7]]
    assert await batches.run(ten, backend, 8) == 80


async def test_who_goes_away_takes_nobody_along() -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    backend.open.clear()
    gone, stays = (asyncio.create_task(batches.run(ten, backend, n)) for n in (1, 2))
    await turns()
    gone.cancel()
    await turns()
    backend.open.set()
    assert await stays == 20
    assert gone.cancelled()
    assert backend.seen == [[1, 2]]


async def test_what_nobody_waits_for_is_done_before_the_end_and_bounded() -> None:
    backend, batches, ten = Backend(), Batches(), kind(max_backlog=3)
    listed = [batches.run_later(ten, backend, n) for n in (1, 2, 3, 4)]
    assert listed == [True, True, True, False]
    await batches.close()
    assert backend.seen == [[1, 2, 3]]


async def test_what_nobody_waits_for_is_bounded_in_weight_too() -> None:
    backend, batches, heavy = Backend(), Batches(), kind(weigh=lambda n: n, max_weight=10)
    assert [batches.run_later(heavy, backend, n) for n in (20, 20, 1)] == [True, True, False]
    await batches.close()
    assert batches.run_later(heavy, backend, 20)
    await batches.close()
    assert backend.seen == [[20], [20], [20]]


async def test_a_failure_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    backend, batches, ten = Backend(), Batches(), kind()
    batches.run_later(ten, backend, 13)
    await batches.close()
    assert "13" in caplog.text
