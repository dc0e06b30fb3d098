"""Conditions in which a broadcast pauses by itself: bounces, complaints, a quota used up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.billing import quotas
from app.billing.quotas import Room, UnderWay
from app.database.db import Handle
from app.machine.reasons import Reason
from app.messages import providers
from app.process import Process
from app.store import broadcast_recipients as recipients
from app.store import broadcasts
from app.store.broadcasts import Broadcast
from app.store.row_keys import BroadcastKey

JUDGED = 1_000  # messages, the newest that have left
FEWEST = 100  # of which nothing can be judged yet
# Bounces or complaints: a single one says nothing of a list, though it is more than 3 per 1,000 for
# whoever writes to 150 people; two of these are more than a percent.
FEWEST_ENDS = 2
MOST = 25_000  # messages, more than a broadcast has made at a time that have not ended
NOTHING = UnderWay()


@dataclass(frozen=True, slots=True)
class SendingRefusal:
    code: Reason
    detail: str


async def outcomes(process: Process, db: Handle, broadcast: Broadcast) -> SendingRefusal | None:
    """Refuse to go on when too many of the newest messages bounced for good or drew complaints."""
    counted = await recipients.outcomes(
        db,
        workspace_id=broadcast.workspace_id,
        broadcast_id=broadcast.id,
        after=broadcast.judged_from,
        limit=JUDGED,
    )
    settings, left = process.settings, counted.total()
    if left < FEWEST:
        return None
    for outcome, code, most, words in (
        ("bounced_hard", Reason.TOO_MANY_BOUNCES, settings.broadcast_max_bounces, "bounced"),
        (
            "COMPLAINED",
            Reason.TOO_MANY_COMPLAINTS,
            settings.broadcast_max_complaints,
            "were reported as spam",
        ),
    ):
        ended = counted[outcome]
        if ended >= FEWEST_ENDS and ended * 1_000 >= most * left:
            detail = f"Of the last {left} messages {ended} {words}."
            return SendingRefusal(code, detail)
    return None


async def room(
    process: Process,
    db: Handle,
    workspace_id: str,
    channel: str,
    *,
    under_way: UnderWay = NOTHING,
    at: datetime | None = None,
) -> Room:
    """The messages that the workspace may still send on the channel, beside what is under way; or
    may send at a time to come."""
    provider = await providers.of(process, db, workspace_id, channel)
    if provider is None:
        return Room(0, Reason.CHANNEL_NOT_CONFIGURED)
    is_operators = providers.is_operators(process, provider)
    return await quotas.room_for_messages(
        process, db, workspace_id, is_operators=is_operators, under_way=under_way, at=at
    )


async def made(process: Process, db: Handle, workspace_id: str) -> UnderWay:
    """The messages that the workspace's broadcasts have made and that are yet to be counted."""
    counted, operators = await recipients.uncounted_by_channel(db, workspace_id=workspace_id), 0
    for channel, messages in counted.items():
        provider = await providers.of(process, db, workspace_id, channel)
        if provider is not None and providers.is_operators(process, provider):
            operators += messages
    return UnderWay(counted.total(), operators)


WITHOUT_ROOM: Mapping[Reason, str] = {
    Reason.CHANNEL_NOT_CONFIGURED: "No provider is configured for its channel.",
    Reason.SUPPRESSED_UNVERIFIED: "No owner of the workspace has verified their email address:"
    " POST /auth/email/verification sends them an email for that.",
    Reason.SUPPRESSED_DAILY_LIMIT: "No messages are left today (UTC): try again tomorrow.",
    Reason.SUPPRESSED_QUOTA: "No messages are left this month (UTC): try again next month, or with"
    " a higher plan.",
}
PERIODS: Mapping[Reason, str] = {
    Reason.SUPPRESSED_DAILY_LIMIT: "today (UTC)",
    Reason.SUPPRESSED_QUOTA: "this month (UTC)",
}


def refusal(
    room: Room,
    wanted: int,
    words: str = "It is for {:,} contacts",
    at: datetime | None = None,
) -> SendingRefusal | None:
    """Refuse so many messages when not all would go out, whoever they are to. `words` are those for
    how many they are. `at` is the time that the room is of, if that is to come."""
    if room.left is None or (wanted == 0 and room.reason in PERIODS):  # nobody uses up nothing
        return None
    if max(1, wanted) <= room.left:
        return None
    if room.reason not in PERIODS or (room.left <= 0 and at is None):
        return SendingRefusal(room.reason, WITHOUT_ROOM[room.reason])
    period = PERIODS[room.reason]
    if at is not None:
        is_of_day = room.reason is Reason.SUPPRESSED_DAILY_LIMIT
        period = f"on {quotas.day(at)} (UTC)" if is_of_day else f"in {quotas.month(at)} (UTC)"
    if room.left <= 0:
        detail = f"No messages are left {period}: choose another time, or a higher plan."
    else:
        detail = f"{words.format(wanted)}; messages left {period}: {room.left:,}."
    return SendingRefusal(room.reason, detail)


async def refusal_to_resume(
    process: Process, db: Handle, broadcast: Broadcast, channel: str
) -> SendingRefusal | None:
    """Refuse to resume when messages that were made before the pause would not all go out. They
    leave at once, and what a quota suppresses is lost to it for good."""
    workspace_id = broadcast.workspace_id
    await broadcasts.lock_room(db, workspace_id=workspace_id)
    which: BroadcastKey = {"workspace_id": workspace_id, "broadcast_id": broadcast.id}
    waiting = await recipients.uncounted(db, **which, limit=MOST)
    others = await made(process, db, workspace_id) if waiting else NOTHING
    left = await room(process, db, workspace_id, channel, under_way=others)
    return refusal(left, max(1, waiting), "{:,} of its messages were made before the pause")
