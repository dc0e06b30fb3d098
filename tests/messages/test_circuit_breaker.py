"""A provider that does not take messages is asked, not hammered, and no message pays for it."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families as read

from app.database.db import Handle, Row
from app.machine.reasons import Reason
from app.messages import circuit_breaker, create, delivery, settling
from app.messages.settling import Transition
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from app.store import circuit_breakers, held_messages, jobs
from app.store.circuit_breakers import OpenCircuit
from app.store.held_messages import CalledMessage
from app.store.jobs import Job
from tests import cast as cast_module
from tests.cast import HELLO, settle
from tests.messages.test_delivery import Provider, accepts, given_up, with_provider
from tests.present import present
from tests.runs.test_runner import later

THROTTLED = SendError("not_accepted", Reason.PROVIDER_THROTTLED, "454 Too much from you")
AWAY = SendError("not_accepted", Reason.PROVIDER_UNREACHABLE, "Connection refused.")
BARRED = SendError("not_accepted", Reason.PROVIDER_MISCONFIGURED, "535 Authentication failed")
DEFERRED = SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "452 4.2.2 Mailbox full")
SILENT = SendError("unknown", Reason.OUTCOME_UNKNOWN, "Connection lost after the end.")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause is over because a test takes its time."""
    monkeypatch.setattr(
        circuit_breaker, "OPEN_SECONDS", dict.fromkeys(circuit_breaker.OPEN_SECONDS, (120.0, 600.0))
    )
    monkeypatch.setattr(settling, "RETRY_SECONDS", (120,))


class ProviderState:
    """Fails with `error`, or accepts when that is None."""

    def __init__(self, error: SendError | None) -> None:
        self.error = error

    async def __call__(self, message: Message) -> Receipt:
        if self.error is not None:
            raise self.error
        return await accepts(message)


def provided(process: Process, error: SendError | None) -> tuple[Process, Provider, ProviderState]:
    state = ProviderState(error)
    process, provider = with_provider(process, state)
    return process, provider, state


async def order(process: Process, workspace_id: str, count: int = 1) -> None:
    async with process.database.write() as db:
        for number in range(count):
            to = f"p{number}@example.com"
            wanted = create.Order(workspace_id, "email", None, to, None, HELLO)
            await create.create(process, db, wanted)


async def statuses(process: Process) -> dict[str, int]:
    async with process.database.read() as db:
        rows = await db.fetch_all("SELECT status, count(*) AS n FROM messages GROUP BY status")
    return {row["status"]: row["n"] for row in rows}


async def reasons(process: Process) -> list[Row]:
    async with process.database.read() as db:
        return await db.fetch_all("SELECT reason_code, reason_detail FROM messages ORDER BY id")


async def circuit(process: Process) -> Row | None:
    async with process.database.read() as db:
        return await db.fetch_one("SELECT * FROM circuit_breakers")


@pytest.mark.parametrize("error", [THROTTLED, AWAY, BARRED, SILENT], ids=lambda error: error.code)
async def test_after_some_failures_in_a_row_the_others_are_held_back(
    process: Process, acme: str, error: SendError
) -> None:
    process, provider, _ = provided(process, error)
    await order(process, acme, 2 * circuit_breaker.OPEN_AFTER)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    assert len(provider.given) == circuit_breaker.OPEN_AFTER
    assert (await statuses(process))["QUEUED"] >= circuit_breaker.OPEN_AFTER
    last = (await reasons(process))[-1]
    assert last["reason_detail"].startswith("Waiting: the provider")


async def test_who_waits_says_for_what_and_until_when(process: Process, acme: str) -> None:
    busy = SendError("not_accepted", Reason.PROVIDER_THROTTLED, "429", retry_after_seconds=90)
    process, provider, _ = provided(process, busy)
    await order(process, acme, 2)
    await settle(process)
    assert len(provider.given) in {1, 2}  # they may have been under way together
    await order(process, acme)
    await settle(process)
    known = await circuit(process)
    assert known is not None
    at: datetime = known["ask_at"]
    row = (await reasons(process))[-1]
    assert row["reason_code"] == "provider_throttled"
    assert row["reason_detail"] == circuit_breaker.explain(OpenCircuit(known["code"], at))
    assert at.strftime("throttles until %Y-%m-%dT%H:%M:%S") in row["reason_detail"]
    assert timedelta(seconds=80) < at - datetime.now(at.tzinfo) <= timedelta(seconds=90)


async def test_when_its_time_has_come_one_asks_and_the_others_follow(
    process: Process, acme: str
) -> None:
    process, provider, state = provided(process, THROTTLED)
    await order(process, acme, 16)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    for _ in range(3):  # it is still throttled: one call each time
        before = len(provider.given)
        await its_time_comes(process)
        await settle(process)
        assert len(provider.given) == before + 1
    state.error = None
    await its_time_comes(process)
    await settle(process)
    early = (
        circuit_breaker.OPEN_AFTER - 1
    )  # tried before it was known: they wait as they would alone
    assert await statuses(process) == {"SENT": 16 - early, "QUEUED": early}
    assert await circuit(process) is None
    await later(process, "message", 200)
    await settle(process)
    assert await statuses(process) == {"SENT": 16}


async def its_time_comes(process: Process) -> None:
    """Nobody's own wait is over."""
    async with process.database.write() as db:
        [row] = await db.fetch_all("SELECT ask_at, :now AS now FROM circuit_breakers")
        await db.execute("UPDATE jobs SET wake_at = :now WHERE wake_at = :at", at=row["ask_at"])
        await db.execute("UPDATE circuit_breakers SET ask_at = :now")


async def test_should_nobody_ask_a_chore_finds_somebody(process: Process, acme: str) -> None:
    process, _, state = provided(process, THROTTLED)
    await order(process, acme, 10)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    state.error = None
    async with process.database.write() as db:
        await db.execute("UPDATE circuit_breakers SET ask_at = :now")
    assert not await circuit_breaker.probe_batch(process)
    await settle(process)
    assert await statuses(process) == {"SENT": 6, "QUEUED": 4}


async def test_should_those_that_a_success_woke_be_suppressed_a_chore_wakes_others(
    process: Process, acme: str
) -> None:
    process, _, state = provided(process, THROTTLED)
    await order(process, acme, 10)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    state.error = None
    await its_time_comes(process)
    [probe] = await process.claim("message", [], 1)
    await delivery.deliver(process, probe)
    woken = await process.claim("message", [], 10)
    assert len(woken) == circuit_breaker.WOKEN_BY_SUCCESS
    for job in woken:
        await suppress(process, job)
    await settle(process)
    assert await statuses(process) == {"SENT": 1, "SUPPRESSED": 2, "QUEUED": 7}
    await circuit_breaker.probe_batch(process)
    await settle(process)
    assert await statuses(process) == {"SENT": 4, "SUPPRESSED": 2, "QUEUED": 4}
    assert await circuit(process) is None
    await circuit_breaker.probe_batch(process)
    assert await process.claim("message", [], 1) == []  # the others wait for a try of their own


async def test_a_circuit_whose_probe_fails_each_time_hides_no_other(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted([acme, await cast_module.workspace(process, "Rival")])
    for workspace_id in (first, second):
        circuit = {"workspace_id": workspace_id, "channel": "email"}
        async with process.database.write() as db:
            await circuit_breakers.record_failure(
                db, **circuit, provider="smtp", code=Reason.PROVIDER_THROTTLED, is_probe=False
            )
            await circuit_breakers.open_until(db, **circuit, ask_at=await db.now())
    probed: list[str] = []

    async def lock_due(db: Handle, *, workspace_id: str, channel: str) -> bool:
        probed.append(workspace_id)
        if workspace_id == first:
            raise RuntimeError("a fault of ours")
        return False

    monkeypatch.setattr(circuit_breakers, "lock_due", lock_due)
    monkeypatch.setattr(circuit_breaker, "PROBES_AT_ONCE", 1)
    rounds = [await circuit_breaker.probe_batch(process) for _ in range(4)]
    assert probed == [first, second, first]
    assert rounds == [False] * 4  # what was woken has not been sent yet


async def suppress(process: Process, job: Job) -> None:
    async with process.database.write() as db:
        assert await jobs.lock(db, [job])
        row = present(await held_messages.locked(db, workspace_id=job.workspace_id, id=job.id))
        unsubscribed = Transition("SUPPRESSED", Reason.SUPPRESSED_UNSUBSCRIBED)
        await settling.settle(process, db, row, unsubscribed)


async def test_a_circuit_is_kept_for_a_held_back_message_that_somebody_has_claimed(
    process: Process, acme: str
) -> None:
    process, _, state = provided(process, THROTTLED)
    await order(process, acme, circuit_breaker.OPEN_AFTER + 1)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    async with process.database.write() as db:
        last = await db.fetch_value("SELECT max(id) FROM messages WHERE held_until IS NOT NULL")
        await db.execute("UPDATE jobs SET wake_at = :now WHERE id = :id", id=last)
    [other] = await process.claim("message", [], 1)
    assert other.id == last
    state.error = None
    await its_time_comes(process)
    await settle(process)
    assert present(await circuit(process))["ask_at"] is None
    async with process.database.write() as db:
        await jobs.release(db, other, pause_seconds=3_600)
    await circuit_breaker.probe_batch(process)
    await settle(process)
    async with process.database.read() as db:
        status = await db.fetch_value("SELECT status FROM messages WHERE id = :id", id=last)
    assert (status, await circuit(process)) == ("SENT", None)


async def test_who_replied_stop_at_the_provider_has_been_answered(
    process: Process, acme: str
) -> None:
    process, _, state = provided(process, THROTTLED)
    await order(process, acme, 10)
    while claimed := await process.claim("message", [], 1):
        await delivery.deliver(process, claimed[0])
    state.error = SendError("rejected", Reason.SUPPRESSED_STOPPED, "21610")
    await its_time_comes(process)
    await settle(process)
    assert await statuses(process) == {"SUPPRESSED": 6, "QUEUED": 4}


async def test_a_message_that_the_provider_does_not_like_stops_no_other(
    process: Process, acme: str
) -> None:
    """A mailbox that is full says 452 each time; the messages to others go out."""

    async def full(message: Message) -> Receipt:
        if message.to == "p0@example.com":
            raise THROTTLED
        return await accepts(message)

    process, provider = with_provider(process, full)
    await order(process, acme, 2 * circuit_breaker.OPEN_AFTER)
    await settle(process)
    sent = 2 * circuit_breaker.OPEN_AFTER - 1
    assert await statuses(process) == {"SENT": sent, "QUEUED": 1}
    assert [message.to for message in provider.given].count("p0@example.com") == 1


@pytest.mark.parametrize(("error", "failures"), [(THROTTLED, 1), (None, None)])
async def test_an_outcome_that_comes_late_counts_as_well(
    process: Process, acme: str, error: SendError | None, failures: int | None
) -> None:
    """What is given up meanwhile was answered all the same."""

    async def oversleep(message: Message) -> Receipt:
        if state.error is not None:
            return await state(message)
        await given_up(process)
        state.error = error
        return await state(message)

    process, provider, state = provided(process, AWAY if error is None else None)
    if error is None:  # a failure that the receipt ends
        await order(process, acme)
        await settle(process)
        assert await circuit(process) is not None
    state.error, provider.answer = None, oversleep
    await order(process, acme)
    await settle(process)
    known = await circuit(process)
    assert (known and known["failures"]) == failures


async def test_mail_about_accounts_waits_for_no_list_s_circuit(process: Process, acme: str) -> None:
    process, provider, state = provided(process, AWAY)
    await order(process, acme, circuit_breaker.OPEN_AFTER)
    await settle(process)
    known = await circuit(process)
    assert known is not None
    tried, state.error = len(provider.given), None
    letter = create.Order(
        acme, "email", None, "ada@example.com", None, HELLO, account_mail="invitation"
    )
    async with process.database.write() as db:
        await create.create(process, db, letter)
    await settle(process)
    assert len(provider.given) == tried + 1
    assert (await statuses(process))["SENT"] == 1
    assert await circuit(process) == known  # nor does it say anything of that


async def test_each_workspace_has_a_circuit_of_its_own(process: Process, acme: str) -> None:
    rival = await cast_module.workspace(process, "Rival")

    async def only_acme_is_throttled(message: Message) -> Receipt:
        if message.workspace_id == acme:
            raise THROTTLED
        return await accepts(message)

    process, _ = with_provider(process, only_acme_is_throttled)
    await order(process, acme, 10)
    await settle(process)
    await order(process, rival, 10)
    await settle(process)
    assert await statuses(process) == {"QUEUED": 10, "SENT": 10}


async def test_another_provider_does_not_inherit_the_circuit(process: Process, acme: str) -> None:
    throttled, _, _ = provided(process, THROTTLED)
    await order(process, acme, 10)
    await settle(throttled)
    other, provider, _ = provided(process, None)
    provider.provider = "another"
    await order(process, acme)
    await settle(other)
    assert await statuses(process) == {"SENT": 7, "QUEUED": 4}  # with those who were held back


@pytest.mark.parametrize(
    ("error", "patience"),
    [(THROTTLED, timedelta(hours=72)), (AWAY, timedelta(hours=24))],
    ids=["throttled", "away"],
)
async def test_each_kind_of_failure_is_retried_for_a_time_of_its_own(
    process: Process, acme: str, error: SendError, patience: timedelta
) -> None:
    process, _, _ = provided(process, error)
    await order(process, acme)
    await settle(process)
    await turn_back(process, patience - timedelta(minutes=5))
    await settle(process)
    assert await statuses(process) == {"QUEUED": 1}
    await turn_back(process, timedelta(minutes=6))
    await settle(process)
    assert await statuses(process) == {"FAILED": 1}


@pytest.mark.parametrize("errors", [(DEFERRED, AWAY), (AWAY, DEFERRED), (THROTTLED, AWAY)])
async def test_who_fails_now_in_one_way_now_in_another_is_given_up_all_the_same(
    process: Process, acme: str, errors: tuple[SendError, SendError]
) -> None:
    process, _, state = provided(process, errors[0])
    await order(process, acme)
    await settle(process)
    for number in range(1, 13):
        assert await statuses(process) == {"QUEUED": 1}  # for the longer time of the two
        await turn_back(process, timedelta(hours=6))
        state.error = errors[number % 2]
        await settle(process)
    assert await statuses(process) == {"FAILED": 1}
    assert [row["reason_code"] for row in await reasons(process)] == [errors[0].code]


def test_an_open_circuit_begins_no_time_anew() -> None:
    now = datetime.fromisoformat("2026-11-22T02:03:04+00:00")
    row = called(trouble_code=DEFERRED.code, trouble_since=now - timedelta(hours=71))
    closed = OpenCircuit(AWAY.code, now)
    held = settling.held_back(closed, row, now)
    assert (held.status, held.code, held.failing) == (
        "QUEUED",
        AWAY.code,
        (DEFERRED.code, now - timedelta(hours=71)),
    )
    assert settling.held_back(closed, row, now + timedelta(hours=1)).status == "FAILED"
    assert settling.held_back(closed, called(), now).failing == (AWAY.code, now)


def called(**columns: object) -> CalledMessage:
    named: dict[str, Any] = dict.fromkeys(field.name for field in fields(CalledMessage))
    return CalledMessage(**{**named, **columns})


async def turn_back(process: Process, by: timedelta) -> None:
    """Turn time back, as if it had all been so much earlier."""
    await later(process, "message", by.total_seconds())
    async with process.database.write() as db:
        for row in await db.fetch_all("SELECT id, trouble_since FROM delivery_attempts"):
            await db.execute(
                "UPDATE delivery_attempts SET trouble_since = :since WHERE id = :id",
                id=row["id"],
                since=row["trouble_since"] - by,
            )


async def test_the_figures_tell_how_many_workspaces_wait(
    process: Process, acme: str, client: httpx2.AsyncClient
) -> None:
    throttled, _, _ = provided(process, THROTTLED)
    await order(process, acme, 10)
    await settle(throttled)
    text = (await client.get("/metrics")).text
    [family] = [f for f in read(text) if f.name == "tidings_providers_waited_for"]
    [sample] = family.samples
    assert (sample.labels, sample.value) == (
        {"channel": "email", "code": "provider_throttled"},
        1.0,
    )


def test_messages_say_what_they_wait_for() -> None:
    at = datetime.fromisoformat("2026-11-22T02:03:04+00:00")
    assert circuit_breaker.explain(OpenCircuit("provider_throttled", at)) == (
        "Waiting: the provider throttles until 2026-11-22T02:03:04.000Z."
    )
    assert "asked again at 2026-11-22T02:03:04.000Z" in circuit_breaker.explain(
        OpenCircuit("provider_unreachable", at)
    )
