"""Work in chunks of contacts: their size, by the time that they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from app.audience import chunks
from app.audience.chunks import ChunkSize, CutOff, LookingTime
from app.errors import Contended, Unavailable
from app.process import Process
from app.runtime import tasks
from app.runtime.turns import NoTurn


def after(size: ChunkSize, seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size of the chunk after one that takes so long."""
    clock = iter((1.0, 1.0 + seconds))
    with monkeypatch.context() as patched:
        patched.setattr(chunks, "monotonic", lambda: next(clock))
        with size.measured():
            pass
    return size.contacts


def test_it_grows_at_once_while_contacts_take_little(monkeypatch: pytest.MonkeyPatch) -> None:
    size = ChunkSize()
    found = [size.contacts] + [after(size, 0.01, monkeypatch) for _ in range(4)]
    assert found == [8, 64, 512, 4_096, 5_000]
    assert size.limit_to(1_000) == 1_000
    assert after(size, 0.0, monkeypatch) == 5_000


@pytest.mark.parametrize(
    ("seconds", "contacts"), [(0.25, 200), (0.5, 100), (0.8, 62), (1.0, 50), (4.9, 50)]
)
def test_it_goes_by_the_time_that_the_last_chunk_took(
    monkeypatch: pytest.MonkeyPatch, seconds: float, contacts: int
) -> None:
    assert after(ChunkSize(100), seconds, monkeypatch) == contacts


@pytest.mark.parametrize(
    ("contacts", "sizes"), [(20, [10, 8, 8, 8]), (1, [2, 4, 8, 8])], ids=["shrinks", "grows"]
)
def test_chunks_that_take_long_whoever_is_in_them_are_not_of_single_contacts(
    monkeypatch: pytest.MonkeyPatch, contacts: int, sizes: list[int]
) -> None:
    """As on a slow network."""
    size = ChunkSize(contacts)
    assert [after(size, 2.0, monkeypatch) for _ in sizes] == sizes


def test_a_contact_that_takes_seconds_stays_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them would outlast the statement."""
    assert after(ChunkSize(1), 2.6, monkeypatch) == 1


def test_after_one_that_was_cut_off_comes_one_contact_and_then_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = ChunkSize()
    for contacts, by_machine in ((8, False), (1, True)):
        assert size.contacts == contacts
        with pytest.raises(CutOff) as refusal, size.measured():
            raise Contended("The database did not answer.") from ValueError("statement timeout")
        assert (refusal.value.contacts, refusal.value.reason) == (contacts, "statement timeout")
        assert (size.contacts, size.by_machine) == (1, by_machine)
    with pytest.raises(Contended) as passed, size.measured():
        raise Contended("Somebody holds it.")
    assert not isinstance(passed.value, CutOff)
    assert after(size, 0.125, monkeypatch) == 4
    assert not size.by_machine


def test_a_database_that_does_not_answer_says_nothing_about_the_contacts() -> None:
    size = ChunkSize()
    with pytest.raises(Unavailable) as refusal, size.measured():
        raise Unavailable("The database did not answer in time.")
    assert not isinstance(refusal.value, CutOff)
    assert size.contacts == 8


# --- looks through contacts -----------------------------------------------------------------------


@asynccontextmanager
async def others_looking(process: Process, seconds: float) -> AsyncIterator[None]:
    """Somebody else of the workspace has its turn for so long."""
    has_turn = asyncio.Event()

    async def look() -> None:
        async with process.evaluating("ws_1"):
            has_turn.set()
            await asyncio.sleep(seconds)

    task = asyncio.create_task(look())
    await has_turn.wait()
    yield
    await tasks.end(task)


async def test_a_wait_for_a_turn_takes_nothing_from_the_time_to_look(process: Process) -> None:
    looking = LookingTime(0.1)
    for _ in range(3):
        async with others_looking(process, 0.2), looking.step(process, "ws_1") as db:
            assert db is not None
            looking.has_looked = True


async def test_a_look_ends_when_its_time_is_used_up_but_looks_once(process: Process) -> None:
    looking = LookingTime(0)
    async with looking.step(process, "ws_1") as db:
        assert db is not None
        looking.has_looked = True
    async with looking.step(process, "ws_1") as db:
        assert db is None


async def test_a_look_that_waits_for_too_long_in_all_ends(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client, or a router before it, has given up."""
    monkeypatch.setattr(chunks, "WHOLE_SECONDS", 0.1)
    looking = LookingTime(60, has_looked=True)
    async with others_looking(process, 60), looking.step(process, "ws_1") as db:
        assert db is None


async def test_a_look_whose_first_turn_does_not_come_is_refused(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "WAIT_SECONDS", 0.05)
    looking = LookingTime(60)
    async with others_looking(process, 60):
        with pytest.raises(NoTurn):
            async with looking.step(process, "ws_1"):
                raise AssertionError("it was not its turn")
