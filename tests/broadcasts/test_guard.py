"""The guard's thresholds: 5 % hard bounces, 0.3 % complaints of the last thousand messages."""

from __future__ import annotations

import itertools

import pytest

from app.process import Process
from tests.broadcasts.test_control import begun, people, stepped
from tests.cast import Cast

FINE, BOUNCED, SOFT = ("SENT", None), ("BOUNCED", "bounced_hard"), ("BOUNCED", "bounced_soft")
COMPLAINED = ("COMPLAINED", "complained")
WAITS = ("QUEUED", None)
SPARED = ("SUPPRESSED", "unsubscribed")  # it has not left
PAUSED_BY_BOUNCES = ("PAUSED", "too_many_bounces")
PAUSED_BY_COMPLAINTS = ("PAUSED", "too_many_complaints")
GOES_ON = ("SENDING", None)


@pytest.mark.parametrize(
    ("left", "found", "words"),
    [
        # In the order of their messages: how many ended so.
        ([(950, FINE), (50, BOUNCED)], PAUSED_BY_BOUNCES, "Of the last 1000 messages 50 bounced."),
        ([(951, FINE), (49, BOUNCED)], GOES_ON, ""),
        ([(951, FINE), (49, BOUNCED), (500, SOFT)], GOES_ON, ""),
        (
            [(997, FINE), (3, COMPLAINED)],
            PAUSED_BY_COMPLAINTS,
            "Of the last 1000 messages 3 were reported as spam.",
        ),
        ([(998, FINE), (2, COMPLAINED)], GOES_ON, ""),
        ([(998, FINE), (49, BOUNCED), (2, COMPLAINED)], GOES_ON, ""),
        ([(500, BOUNCED), (500, COMPLAINED), (1_000, FINE)], GOES_ON, ""),  # those are over
        ([(500, BOUNCED), (951, FINE), (49, BOUNCED)], GOES_ON, ""),
        (
            [(1_000, FINE), (50, BOUNCED), (500, FINE)],
            PAUSED_BY_BOUNCES,
            "Of the last 1000 messages 50 bounced.",
        ),
        ([(99, BOUNCED)], GOES_ON, ""),  # too few to tell
        ([(99, COMPLAINED), (500, SPARED)], GOES_ON, ""),
        ([(95, FINE), (5, BOUNCED)], PAUSED_BY_BOUNCES, "Of the last 100 messages 5 bounced."),
        ([(96, FINE), (4, BOUNCED)], GOES_ON, ""),
        (
            [(98, FINE), (2, COMPLAINED)],
            PAUSED_BY_COMPLAINTS,
            "Of the last 100 messages 2 were reported as spam.",
        ),
        ([(99, FINE), (1, COMPLAINED)], GOES_ON, ""),  # one says nothing
        ([(332, FINE), (1, COMPLAINED)], GOES_ON, ""),
        ([(664, FINE), (2, COMPLAINED)], PAUSED_BY_COMPLAINTS, "Of the last 666 messages 2 "),
        ([(665, FINE), (2, COMPLAINED)], GOES_ON, ""),
    ],
)
async def test_a_broadcast_pauses_at_so_many_bounces_and_complaints_of_the_last_thousand(
    cast: Cast,
    process: Process,
    left: list[tuple[int, tuple[str, str | None]]],
    found: tuple[str, str | None],
    words: str,
) -> None:
    await people(cast, 1)
    path = await begun(cast, process)
    await have_left(process, path, left)
    await stepped(process, 1)
    shown = await cast.vic.read(path)
    reason = shown["reason"] or {"code": None, "sentence": ""}
    assert (shown["state"], reason["code"]) == found
    assert reason["sentence"].startswith(words)


async def test_what_leaves_after_a_resume_is_judged_and_nothing_that_left_before(
    cast: Cast, process: Process
) -> None:
    """Up to a thousand messages that were made before a pause leave after it."""
    await people(cast, 1)
    path = await begun(cast, process)
    await have_left(process, path, [(95, FINE), (5, BOUNCED), (100, WAITS)])
    await stepped(process, 1)
    assert (await cast.vic.read(path))["state"] == "PAUSED"
    await cast.adam.made(f"{path}/resume", None)
    await stepped(process, 1)
    assert (await cast.vic.read(path))["state"] == "SENDING"
    async with process.database.write() as db:
        await db.execute(
            """
            UPDATE broadcast_recipients SET status = 'BOUNCED', reason = 'bounced_hard'
            WHERE status = 'QUEUED' AND message_id < 'msg_001'
            """
        )
    await stepped(process, 1)
    shown = await cast.vic.read(path)
    assert (shown["state"], shown["reason"]["code"]) == PAUSED_BY_BOUNCES
    assert shown["reason"]["sentence"] == "Of the last 100 messages 100 bounced."


async def have_left(
    process: Process, path: str, left: list[tuple[int, tuple[str, str | None]]]
) -> None:
    """Recipients whose messages were made in this order and ended so."""
    ends = itertools.chain.from_iterable(itertools.repeat(end, count) for count, end in left)
    async with process.database.write() as db:
        workspace_id = await db.fetch_value(
            "SELECT workspace_id FROM broadcasts WHERE id = :id", id=path[12:]
        )
        await db.execute_many(
            """
            INSERT INTO broadcast_recipients (workspace_id, broadcast_id, contact_id, status,
                                              reason, message_id, due_at)
            VALUES (:workspace_id, :broadcast_id, :contact_id, :status, :reason, :message_id,
                    :due_at)
            """,
            [
                {
                    "workspace_id": workspace_id,
                    "broadcast_id": path[12:],
                    "contact_id": f"con_{number:026}",
                    "status": status,
                    "reason": reason,
                    "message_id": f"msg_{number:026}",
                    "due_at": await db.now(),
                }
                for number, (status, reason) in enumerate(ends)
            ],
        )
