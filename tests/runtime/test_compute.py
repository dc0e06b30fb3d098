"""Work that is too much for the event loop is done in a process, in turns, and within limits."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from app.errors import Problem
from app.machine import content, document, effort, template
from app.machine.content import Message, PartError
from app.machine.kept import Kept
from app.machine.template import TOKENS, TemplateError
from app.runtime import compute, compute_child, compute_process
from app.runtime.compute import Busy, Computation, Compute, Heavy, Unfinished
from app.runtime.compute_process import ComputeProcess
from app.simulation.scenes import Given
from tests.conftest import lent
from tests.runtime.works import burn, die, hoard, last_of, raising, wide

HEAVY = (
    '{% assign s = "' + ",".join("a" * 900) + '" %}{% for i in (1..10000) %}'
    '{% assign x = s | split: "," | sort | sort | sort | size %}{% endfor %}'
)
TEXT = "{{contact.firstName}}" * 1_000  # quick to render, long to parse
FACTS = {"contact": {"firstName": "A"}, "trigger": {}}


def many() -> str:
    """Another one each time: it was not parsed before."""
    return TEXT + os.urandom(4).hex()


def rendered(
    workspace_id: str, source: str, seconds: float = 0.2, **facts: Any
) -> Computation[Message]:
    given = ("sms", {"text": source}, {**FACTS, **facts})
    return Computation(workspace_id, content.render, given, seconds)


@pytest.fixture(scope="module")
async def left_idle() -> AsyncIterator[list[ComputeProcess]]:
    """Compute processes left idle by tests before, and not for other files: they did heavy work."""
    idle: list[ComputeProcess] = []
    yield idle
    for one in idle:
        await one.end()


@pytest.fixture
async def fresh(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Compute]:
    """A Compute without a process, which may be larger, for it does heavy work."""
    monkeypatch.setattr(compute_process, "MOST_RESIDENT", 256 * 1024 * 1024)
    computing = Compute()
    yield computing
    await computing.close()


@pytest.fixture
def computing(fresh: Compute, left_idle: list[ComputeProcess]) -> Iterator[Compute]:
    """A Compute with a process, if a test before has left one idle."""
    with lent(left_idle, fresh):
        yield fresh


async def test_usual_work_is_done_on_the_loop_and_starts_no_process(fresh: Compute) -> None:
    made = await fresh.call(rendered("ws_a", "Hi {{contact.firstName}}"))
    assert made.parts == {"text": "Hi A"}
    assert fresh._child is None
    assert not fresh.is_heavy("ws_a")


@pytest.mark.parametrize(
    "source",
    [
        TEXT,
        "{{contact.firstName}}{% for i in (1..9000) %}{{i}}{% endfor %}",
        "{{trigger.list | sort | size}}",
        "{{trigger.text | split: 'b' | size}}",
    ],
)
async def test_what_exceeds_the_loop_s_budget_is_done_beside_it(
    computing: Compute, source: str
) -> None:
    trigger = {"list": [3, 1, 2] * 400, "text": "a" * 40_000}
    computation = rendered("ws_a", source, 2.0, trigger=trigger)
    with pytest.raises(Heavy):
        computing.here(computation)
    assert await computing.apart(computation) == content.render(*computation.given)


async def test_the_loop_goes_on_and_a_neighbour_waits_for_one_job_at_most(
    computing: Compute,
) -> None:
    stalls: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - began)

    ends: list[str] = []

    async def one(computation: Computation[Message]) -> None:
        with suppress(PartError):
            await computing.call(computation)
        ends.append(computation.workspace_id)

    await computing.apart(rendered("ws_a", many()))  # the process has started
    ticking = asyncio.create_task(tick())
    theirs = [asyncio.create_task(one(rendered("ws_a", HEAVY))) for _ in range(5)]
    await asyncio.sleep(0.05)
    await one(rendered("ws_b", "{{contact.firstName}}"))
    await one(rendered("ws_c", many()))
    assert ends.index("ws_b") == 0
    assert ends.index("ws_c") <= 3  # the one under way, and one that came before
    await asyncio.gather(*theirs)
    ticking.cancel()
    assert max(stalls) < 1.0


async def test_all_parts_of_a_message_have_one_budget(computing: Compute) -> None:
    parts = {"subject": "s", "html": HEAVY, "text": HEAVY, "preheader": HEAVY}
    computation = Computation("ws_a", content.preview, ("email", parts, FACTS), 0.3)
    began = time.perf_counter()
    shown = await computing.call(computation)
    assert time.perf_counter() - began < 10
    for part in ("html", "text", "preheader"):
        assert shown[part] == {"error": "rendering takes more than 0.3 seconds (line 1)"}
    assert shown["subject"]["rendered"] == "s"


async def test_a_workspace_that_wastes_the_loop_s_time_is_not_tried_there(
    computing: Compute,
) -> None:
    heavy = rendered("ws_a", HEAVY)
    for _ in range(40):
        with suppress(Heavy):
            computing.here(heavy)
    with pytest.raises(Heavy):
        computing.here(rendered("ws_a", "light"))
    assert computing.here(rendered("ws_b", "light")).parts == {"text": "light"}


async def test_a_share_of_the_queue_is_refused_and_others_are_let_in(computing: Compute) -> None:
    asked = []
    for _ in range(2):  # one of the first is taken out of the queue, and done
        asked += [
            asyncio.create_task(computing.apart(rendered("ws_a", HEAVY, 1.0))) for _ in range(8)
        ]
        await asyncio.sleep(0.01)
    with pytest.raises(Busy) as refusal:
        await computing.apart(rendered("ws_a", "x"))
    assert (refusal.value.code, refusal.value.status) == ("rate_limited", 429)
    assert refusal.value.headers["Retry-After"] == "2"
    assert f"{compute.WAITING_SECONDS:g} seconds" in refusal.value.detail
    other = asyncio.create_task(computing.apart(rendered("ws_b", "x")))
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert (await other).parts == {"text": "x"}
    assert (len(computing._queues), computing._bytes) == (0, 0)
    assert abs(computing._seconds) < 1e-6


async def test_a_few_workspaces_shut_out_nobody_who_has_nothing_in_the_queue(
    computing: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "ALL_WAITING_SECONDS", 8.0)
    asked = [
        asyncio.create_task(computing.apart(rendered(id, HEAVY, 1.0)))
        for id in ["ws_a"] * 4 + ["ws_b"] * 4
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(Busy) as refusal:
        await computing.apart(rendered("ws_b", "x", 2.0))
    assert refusal.value.status == 503
    other = asyncio.create_task(computing.apart(rendered("ws_c", "x")))
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert (await other).parts == {"text": "x"}


class Unwritable:
    def __reduce__(self) -> Any:
        raise AssertionError("written down in vain")


async def test_a_refused_job_is_not_written_down(computing: Compute) -> None:
    asked = []
    for _ in range(2):
        asked += [
            asyncio.create_task(computing.apart(rendered("ws_a", HEAVY, 1.0))) for _ in range(8)
        ]
        await asyncio.sleep(0.01)
    with pytest.raises(Busy):
        await computing.apart(Computation("ws_a", len, (Unwritable(),)))
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_an_urgent_job_waits_for_one_that_is_under_way_and_for_no_queue(
    computing: Compute,
) -> None:
    ends: list[str] = []

    async def one(name: str, computation: Computation[Message]) -> None:
        with suppress(PartError):
            await computing.apart(computation)
        ends.append(name)

    heavy = [asyncio.create_task(one("heavy", rendered("ws_a", HEAVY))) for _ in range(3)]
    await asyncio.sleep(0.01)
    urgent = Computation("ws_a", content.render, ("sms", {"text": "x"}, FACTS), 0.1, urgent=True)
    await one("urgent", urgent)
    assert ends.index("urgent") <= 1
    await asyncio.gather(*heavy)


@pytest.mark.alone
async def test_literals_are_written_as_short_as_they_came(computing: Compute) -> None:
    body = b'{"a":[' + b",".join([b"1.1"] * 50_000) + b"]}"
    computation = rendered("ws_a", "{{trigger.a | first}}", 1.0, trigger=document.parse(body))
    assert len(compute._request(computation)) < len(body) + 1_000
    assert (await computing.apart(computation)).parts == {"text": "1.1"}
    given = Given(trigger=document.parse(body))
    simulated = Computation("ws_a", last_of, (given,), 1.0)
    assert len(compute._request(simulated)) < len(body) + 2_000
    assert await computing.apart(simulated) == "1.1"
    assert str(given.trigger["a"][0]) == "1.1"
    answer = await computing.apart(Computation("ws_a", document.parse, (body,), 1.0))
    assert str(answer["a"][-1]) == "1.1"
    assert len(compute_child._pickled(answer)) < 4 * len(body)
    twice = b"[%b,%b,%b]" % (body, body, body)
    with pytest.raises(Unfinished):  # more than an event loop reads in a moment
        await computing.apart(Computation("ws_a", document.parse, (twice,), 1.0))


async def test_a_request_that_is_too_large_is_not_asked(fresh: Compute) -> None:
    with pytest.raises(Unfinished):
        await fresh.apart(Computation("ws_a", len, (["x" * 100_000 + str(n) for n in range(100)],)))
    assert fresh._child is None


async def test_who_runs_out_of_patience_leaves_the_queue(computing: Compute) -> None:
    first = asyncio.create_task(computing.apart(rendered("ws_a", HEAVY, 0.5)))
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await computing.apart(rendered("ws_b", "x"), patience=0.05)
    assert computing._bytes == 0 or len(computing._queues) <= 1
    with pytest.raises(PartError):
        await first


@pytest.mark.parametrize("work", [burn, hoard, die])
async def test_what_does_not_end_is_ended_and_the_next_job_is_done(
    computing: Compute, work: Any
) -> None:
    with pytest.raises(Unfinished) as refusal:
        await computing.apart(Computation("ws_a", work, (), 0.1))
    assert refusal.value.code == "invalid"
    assert (await computing.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


# In place of a system that is not here: macOS answers EINVAL, which Python raises as this.
TAKES_NO_LIMIT = """
import resource
def refuse(which, limits, take=resource.setrlimit):
    if which == resource.RLIMIT_AS:
        raise ValueError("current limit exceeds maximum limit")
    take(which, limits)
resource.setrlimit = refuse
"""


async def test_a_system_that_takes_no_limit_of_memory_computes_all_the_same(
    fresh: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_process, "START", TAKES_NO_LIMIT + compute_process.START)
    assert (await fresh.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_a_process_that_says_nothing_is_killed(
    fresh: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fresh.apart(rendered("ws_a", "x"))
    assert fresh._child is not None
    silent = fresh._child.process
    monkeypatch.setattr(compute_process, "LATE", -15.0)  # half a second for this computation
    with pytest.raises(Busy):  # the computation itself has taken no time
        await fresh.apart(Computation("ws_a", time.sleep, (60,), 0.1))
    assert silent.returncode is not None
    monkeypatch.undo()
    assert (await fresh.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_what_has_used_up_its_time_when_it_is_killed_is_unfinished(
    computing: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    await computing.apart(rendered("ws_a", "x"))
    monkeypatch.setattr(compute_process, "LATE", -15.0)
    with pytest.raises(Unfinished):  # within one call, which no timer ends
        await computing.apart(Computation("ws_a", pow, (3, 10**8), 0.1))


async def test_a_process_that_cannot_start_fails_no_job_for_good(
    fresh: Compute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")  # whatever level a test before has left
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for _ in range(3):
        with pytest.raises(Busy) as refusal:
            await fresh.apart(rendered("ws_a", "x"))
        assert (refusal.value.code, refusal.value.status) == ("unavailable", 503)
    assert [entry.message for entry in caplog.records].count(
        "compute process does not start: its computations are tried again later"
    ) == 1
    monkeypatch.undo()
    assert (await fresh.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_a_process_that_would_run_other_code_is_not_asked(
    fresh: Compute, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    monkeypatch.setattr(compute_process, "BUILD", "another")
    with pytest.raises(Busy):
        await fresh.apart(rendered("ws_a", "x"))
    [entry] = [entry for entry in caplog.records if hasattr(entry, "error")]
    assert "restart this process" in entry.error
    monkeypatch.undo()
    assert (await fresh.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_an_idle_process_ends_and_is_started_again(
    computing: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "IDLE_SECONDS", 0.05)
    await computing.apart(rendered("ws_a", "x"))
    assert computing._child is not None
    idle = computing._child.process
    async with asyncio.timeout(10):
        await idle.wait()
    assert (await computing.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_a_process_that_others_ended_is_replaced_and_the_job_is_done(
    computing: Compute,
) -> None:
    await computing.apart(rendered("ws_a", "x"))
    assert computing._child is not None
    os.kill(computing._child.process.pid, 9)
    assert (await computing.apart(rendered("ws_a", "x"))).parts == {"text": "x"}


async def test_it_ends_with_its_parent_s_end_of_the_pipe(computing: Compute) -> None:
    await computing.apart(rendered("ws_a", "x"))
    assert computing._child is not None
    process = computing._child.process
    assert process.stdin is not None
    process.stdin.close()
    async with asyncio.timeout(10):
        assert await process.wait() == 0


async def test_no_secret_of_the_environment_is_handed_down(
    fresh: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    await fresh.apart(rendered("ws_a", "x"))
    assert fresh._child is not None
    with open(f"/proc/{fresh._child.process.pid}/environ", "rb") as environment:  # noqa: ASYNC230
        assert b"s3cret" not in environment.read()


# --- transactions ---------------------------------------------------------------------------------


async def test_a_transaction_finds_the_result_that_was_done_ahead(computing: Compute) -> None:
    tries: list[int] = []
    source = many()

    async def work() -> str:
        tries.append(1)
        now = datetime.now(UTC)
        computation = rendered("ws_a", source, 2.0, now=now)
        computation = Computation(
            "ws_a",
            computation.work,
            computation.given,
            2.0,
            same=lambda: "the same, whatever the time",
        )
        return computing.here(computation).parts["text"]

    assert (await computing.within(work)).startswith("A" * 1_000)
    assert len(tries) == 2
    with pytest.raises(Heavy):  # and nobody finds it later
        await work()


def wanting(computing: Compute, workspace_id: str, length: int, tries: list[int]) -> Any:
    async def work() -> int:
        tries.append(1)
        computations = [
            Computation(workspace_id, wide, (length, number), 2.0) for number in range(2)
        ]
        made = [computing.here(computation, large=True) for computation in computations]
        await asyncio.sleep(0.01)
        return sum(map(len, made))

    return work


async def test_a_large_result_is_there_for_the_transaction_that_it_was_made_for(
    computing: Compute,
) -> None:
    tries: list[int] = []
    length = 3 * 1024 * 1024
    assert await computing.within(wanting(computing, "ws_a", length, tries)) == 2 * length
    assert len(tries) == 3
    assert computing._held == {}


async def test_nobody_s_result_is_dropped_for_another_s(computing: Compute) -> None:
    tries: dict[str, list[int]] = {f"ws_{number}": [] for number in range(6)}
    works = [wanting(computing, id, 1024 * 1024, tried) for id, tried in tries.items()]
    await asyncio.gather(*map(computing.within, works))
    assert {len(tried) for tried in tries.values()} == {3}
    assert computing._held == {}


async def test_results_beyond_a_workspace_s_share_are_refused_and_come_again(
    computing: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "HELD_BYTES", 1024 * 1024)
    tries: list[int] = []
    works = [wanting(computing, "ws_a", 700_000 + number, tries) for number in range(4)]
    ends = await asyncio.gather(*map(computing.within, works), return_exceptions=True)
    refused = [end for end in ends if isinstance(end, Busy)]
    assert {busy.status for busy in refused} == {429}
    assert [end for end in ends if isinstance(end, Exception)] == refused
    assert computing._held == {}
    assert await computing.within(works[0]) == 1_400_000  # alone, it is beyond and done


async def test_a_workspace_is_heavy_whose_work_is_too_much_alone_as_well(
    computing: Compute,
) -> None:
    """One overrun may be the machine's."""
    computation = rendered("ws_a", many(), 2.0)

    async def work() -> Message:
        return computing.here(computation)

    with pytest.raises(Heavy):
        await work()
    assert not computing.is_heavy("ws_a")
    assert await computing.within(work) == content.render(*computation.given)
    assert computing.is_heavy("ws_a")


async def test_a_workspace_is_heavy_that_has_used_up_its_share_of_the_queue(
    computing: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    computing.refuse_full("ws_a")
    assert not computing.is_heavy("ws_a")
    monkeypatch.setattr(compute, "WAITING_SECONDS", 0.0)
    with pytest.raises(Busy):
        computing.refuse_full("ws_a")
    assert computing.is_heavy("ws_a")


async def test_large_work_alone_makes_no_workspace_heavy(computing: Compute) -> None:
    tries: list[int] = []
    await computing.within(wanting(computing, "ws_a", 10, tries))
    assert not computing.is_heavy("ws_a")


async def test_what_the_work_raises_is_raised_in_the_transaction(computing: Compute) -> None:
    async def work() -> str:
        try:
            return str(computing.here(rendered("ws_a", HEAVY)))
        except PartError as error:
            return error.message

    assert await computing.within(work) == "rendering takes more than 0.2 seconds (line 1)"


async def test_an_input_that_changes_each_time_is_not_tried_for_ever(computing: Compute) -> None:
    async def work() -> str:
        return str(computing.here(rendered("ws_a", many(), 2.0)))

    with pytest.raises(Problem) as refusal:
        await computing.within(work)
    assert refusal.value.code == "unavailable"


async def test_errors_cross_the_pipe_as_they_are(computing: Compute) -> None:
    with pytest.raises(Problem) as refusal:
        await computing.apart(Computation("ws_a", raising, ()))
    problem = refusal.value
    assert (problem.code, problem.detail, problem.extra) == (
        "invalid",
        "What is wrong.",
        {"extra": 1},
    )


async def test_literals_cross_the_pipe(computing: Compute) -> None:
    payload = document.parse(b'{"a": 1.10, "b": -0, "c": 123456789012345678901, "d": 1e400}')
    source = "{{trigger.a}} {{trigger.b}} {{trigger.c}} {{trigger.d}}"
    made = await computing.apart(rendered("ws_a", source, trigger=payload))
    assert made.parts["text"] == "1.10 -0 123456789012345678901 1e400"


# --- what is kept ---------------------------------------------------------------------------------


def test_a_cache_is_bounded_in_bytes() -> None:
    kept: Kept[int, str] = Kept(100)
    for number in range(10):
        kept.keep(number, "x", 30)
    assert (len(kept), kept.bytes) == (3, 90)
    assert (kept.get(6), kept.get(7)) == (None, "x")
    kept.keep(10, "x", 30)
    assert (kept.get(8), kept.get(7)) == (None, "x")  # which was used
    kept.keep(11, "x", 101)
    assert kept.get(11) is None
    kept.keep(7, "y", 10)
    assert (kept.get(7), kept.bytes) == ("y", 70)


def test_parsed_templates_are_bounded_by_what_they_weigh() -> None:
    for number in range(12):
        source = "{% case 1 %}{% when " + f"{number}," * 5_000 + "1 %}{% endcase %}"
        template.parse(source)
    assert template._kept.bytes <= template.MOST_BYTES
    assert len(template._kept) < 10


@pytest.mark.alone
def test_what_was_too_long_to_parse_on_the_loop_is_known() -> None:
    source = "{% case 1 %}{% when " + "7," * 9_000 + "1 %}{% endcase %}"
    with pytest.raises(effort.Exceeded):
        effort.attempt(1.0, lambda: template.parse(source))
    began = time.thread_time()
    with pytest.raises(effort.Exceeded):
        effort.attempt(1.0, lambda: template.parse(source))
    assert time.thread_time() - began < 0.01


def test_no_more_tokens_are_saved_than_are_parsed_in_a_moment() -> None:
    source = "{% case 1 %}{% when " + "1," * TOKENS + "1 %}{% endcase %}"
    _, findings = content.checked("sms", {"text": source})
    [finding] = findings
    assert (finding.code, finding.limit) == ("bad_template", True)
    assert f"{TOKENS:,}" in finding.message
    with suppress(TemplateError):
        template.parse(source).render(FACTS)
