"""Messages of a broadcast that wait for their recipients, and those for whom nothing waits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.broadcasts import pacing, sending
from app.machine.reasons import Reason
from app.process import Process
from app.providers.base import Message, Receipt, SendError
from tests.broadcasts.test_control import begun, people, stepped
from tests.broadcasts.test_sending import recipients, worked
from tests.cast import Cast, settle
from tests.driving import set_clock
from tests.messages.test_delivery import with_provider
from tests.messages.test_gate import EVENING, NIGHT, setting
from tests.routes.test_broadcasts import person

FULL = SendError("not_accepted", Reason.RECIPIENT_DEFERRED, "452 4.2.2 Mailbox full")


async def test_full_mailboxes_keep_nobody_else_from_being_sent_to(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WINDOW", 3)
    full = {f"p{n}@x.test" for n in range(3)}
    sent: list[str] = []

    async def answer(message: Message) -> Receipt:
        if message.to in full:
            raise FULL
        sent.append(message.to)
        return Receipt("<x>")

    through, _ = with_provider(process, answer)
    everybody = await people(cast, 8)
    path = await begun(cast, through)
    for _ in range(6):
        await stepped(through, 2)
        await settle(through)
    assert sorted(sent) == everybody[3:]
    assert (await cast.vic.read(path))["state"] == "SENDING"
    waiting = await recipients(cast, path[12:], "?reason=recipient_deferred")
    assert [one["status"] for one in waiting] == ["QUEUED"] * 3
    full.clear()
    set_clock(process, datetime.now(UTC) + timedelta(hours=1))
    await worked(through)
    assert sorted(sent) == sorted(everybody)
    assert (await cast.vic.read(path))["state"] == "SENT"
    assert {one["reason"] for one in await recipients(cast, path[12:])} == {None}


async def test_no_more_than_some_messages_wait_for_their_recipients(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WINDOW", 3)
    monkeypatch.setattr(sending, "WAITING", 2)

    async def answer(message: Message) -> Receipt:
        raise FULL

    through, _ = with_provider(process, answer)
    await people(cast, 8)
    path = await begun(cast, through)
    for _ in range(6):
        await stepped(through, 2)
        await settle(through)
    progress = (await cast.vic.read(path))["progress"]
    assert (progress["queued"], progress["pending"]) == (5, 3)


async def test_while_all_that_are_left_wait_for_their_recipients_it_is_seldom_looked_at(
    cast: Cast, process: Process
) -> None:
    """That may last for days, and each look counts them."""

    async def answer(message: Message) -> Receipt:
        raise FULL

    through, _ = with_provider(process, answer)
    await people(cast, 2)
    await begun(cast, through)
    await stepped(through, 1)
    assert await rest(through) <= pacing.BEAT
    await settle(through)
    await stepped(through, 1)
    assert pacing.BEAT * 10 < await rest(through) <= pacing.PATIENT_BEAT


async def test_while_its_workspace_sends_nothing_it_makes_nothing_and_is_seldom_looked_at(
    cast: Cast, process: Process
) -> None:
    await people(cast, 2)
    path = await begun(cast, process)
    await cast.adam.patch("/settings/workspace", {"sendingPaused": True})
    await stepped(process, 2)
    assert (await cast.vic.read("/messages"))["data"] == []
    assert pacing.BEAT * 10 < await rest(process) <= pacing.PATIENT_BEAT
    await cast.adam.patch("/settings/workspace", {"sendingPaused": False})
    await worked(process)
    assert (await cast.vic.read(path))["progress"]["sent"] == 2


async def rest(process: Process) -> timedelta:
    """Read the time until the one broadcast's job is due."""
    async with process.database.read() as db:
        [wake_at] = await db.fetch_values("SELECT wake_at FROM jobs WHERE kind = 'broadcast'")
        due: datetime = wake_at
        return due - await db.now()


async def test_messages_that_the_night_overtook_keep_nobody_else_from_being_sent_to(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WINDOW", 3)
    await setting(cast, quietHours=NIGHT)
    set_clock(process, EVENING - timedelta(hours=2))  # before it is quiet
    asleep = [await person(cast, f"s{n}", timezone="Europe/Berlin") for n in range(3)]
    awake = await person(cast, "awake", timezone="America/New_York")
    path = await begun(cast, process)
    await stepped(process, 2)
    set_clock(process, EVENING)
    await settle(process)
    await stepped(process, 2)
    await settle(process)
    found = {one["contactId"]: one for one in await recipients(cast, path[12:])}
    assert found[awake]["status"] == "SENT"
    waiting = {(found[id]["status"], found[id]["reason"]) for id in asleep}
    assert waiting == {("QUEUED", "quiet_hours")}


@pytest.mark.parametrize(
    ("longest", "status"), [("PT10H30M", "PENDING"), ("PT10H28M", "SUPPRESSED")]
)
async def test_a_message_is_made_at_night_only_if_the_night_is_longer_than_it_may_wait(
    cast: Cast, process: Process, longest: str, status: str
) -> None:
    """Whatever part of the quarter of an hour behind the night falls to a contact or a message."""
    await setting(cast, quietHours={**NIGHT, "maxWait": longest})
    set_clock(process, EVENING)  # ten and a half hours before it ends
    for n in range(20):
        await person(cast, f"s{n}", timezone="Europe/Berlin")
    path = await begun(cast, process)
    await stepped(process, 2)
    await settle(process)
    found = await recipients(cast, path[12:])
    assert [one["status"] for one in found] == [status] * 20
