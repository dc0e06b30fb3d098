"""The audience of a broadcast: who is in it, and why some of them get nothing.

A preview and the freezing ask the same of the same contacts, window by window, so that they agree
to the contact when nothing changes between them. What a contact says of itself is asked in SQL; of
those who are not subscribed, the suppressions of their addresses decide, as they do at the intent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from app.audience import segment_contacts, segments, subscriptions
from app.audience.chunks import ChunkSize, CutOff, LookingTime
from app.audience.segments import Readable
from app.audience.topics import SUBSCRIBED
from app.broadcasts.turns import Clock
from app.consent.gate import FrequencyCap, QuietHours
from app.database.db import Handle
from app.errors import Problem
from app.identity.identity import Member
from app.machine import segment_filter
from app.machine.categories import MARKETING
from app.machine.fields import Place
from app.machine.segment_filter import Filter
from app.process import Process
from app.store import broadcast_audiences as stored_audiences
from app.store import broadcasts, suppressions, templates, topics
from app.store import segments as stored_segments
from app.store.broadcast_audiences import UNSUBSCRIBED, Gate, Turns, Unsubscribed, Window
from app.store.broadcasts import Asking, Broadcast, Naming
from app.store.contacts import Contact
from app.store.row_keys import WorkspaceKey
from app.store.segments import Fitting, Segment
from app.store.templates import Template
from app.store.workspaces import Workspace

CHUNK = 1_000  # contacts of one transaction of the freezing, at the most
COUNT_WALK = 5_000  # contacts of one statement of a preview, likewise
COUNT_SECONDS = 10.0  # that a preview may take
READ_AT_ONCE = 100  # filters
LOOKED_AT = 200  # contacts, for a few who can be written to
FIRST = ""  # before every id
SENDS = "broadcasts:send"
NONE = ""  # the reason of those who can be written to
BEING_FILLED = "Its frozen segment is still being filled: who is in it is not known yet; try again."
GIVEN_UP = (
    "The work on its frozen segment was given up: who is in it is not known. Save the segment's"
    " filter again to have it done anew."
)


@dataclass(frozen=True, slots=True)
class Audience:
    workspace_id: str
    readable: Readable
    is_marketing: bool
    gate: Gate
    clock: Clock
    unfilled: Segment | None = None  # a frozen one of which it is not known yet who is in it

    @property
    def channel(self) -> str:
        return self.gate.channel

    def walk(self, most: int) -> int:
        """Compute how many contacts one statement looks through, at most `most`."""
        return max(1, min(most, segment_contacts.STEP // self.readable.comparisons))


async def of(
    db: Handle,
    workspace: Workspace,
    broadcast: Broadcast,
    template: Template,
    *,
    begins_at: datetime,
) -> Audience:
    workspace_id = broadcast.workspace_id
    existing = await stored_segments.of_workspace(db, workspace_id=workspace_id)
    frozen = None
    if broadcast.segment_id is not None:
        segment = existing[broadcast.segment_id]
        filter = segments.parse(segment.filter)
        frozen = segment if segment.kind == "frozen" else None
    elif broadcast.filter is not None:
        filter = segments.parse(broadcast.filter)
    else:
        filter = tagged(broadcast.tag or "")
    gate = await _gate(db, workspace, broadcast, template)
    quiet = QuietHours.of(workspace.quiet_hours) if gate.cap else None
    if quiet and not quiet.applies(template.category, template.channel):
        quiet = None
    return Audience(
        workspace_id,
        replace(
            segments.with_referenced(filter, existing), frozen_id=frozen.id if frozen else None
        ),
        template.category == MARKETING,
        gate,
        Clock.of(broadcast, begins_at, workspace.timezone, quiet),
        None if frozen is None or frozen.is_settled else frozen,
    )


def tagged(tag: str) -> Filter:
    """The filter of those who have the tag. Raises ValueError for what no filter can ask for."""
    place = Place("", [])
    condition = {"path": "contact.tags", "op": "contains", "value": tag}
    filter = segment_filter.read(condition, place)
    if filter is None:
        raise ValueError(place.findings[0].message)
    return filter


async def _gate(db: Handle, workspace: Workspace, broadcast: Broadcast, template: Template) -> Gate:
    """The gate that each of its messages meets when that leaves (judgement.py, gate.py)."""
    gate = Gate(template.channel)
    if template.category != MARKETING:
        return gate
    topic_id = broadcast.topic_id or template.topic_id
    if topic_id is not None:
        topic = await topics.by_id(db, workspace_id=broadcast.workspace_id, id=topic_id)
        if topic is None or not topic.is_default:
            gate = replace(gate, topic_id=topic_id)
    cap = FrequencyCap.of(workspace.frequency_cap)
    if cap is None or not cap.applies(template.category, template.channel):
        return gate
    return replace(gate, cap=cap.limit, cap_channel=cap.channel or "", cap_window=cap.window)


async def naming(
    db: Handle,
    workspace_id: str,
    *,
    segment_id: str = "",
    template_id: str = "",
    topic_id: str = "",
) -> list[str]:
    """The ids of the broadcasts that have not ended and name one of these."""
    wanted = {segment_id, template_id, topic_id} - {""}
    rows = await broadcasts.unfinished(db, workspace_id=workspace_id, ids=sorted(wanted))
    return [one.id for one in rows if not _named(one).isdisjoint(wanted)]


async def filtering_by(db: Handle, workspace_id: str, *, segment_id: str) -> list[str]:
    """The names of the broadcasts whose own filter names the segment, and whose audience is not
    frozen yet."""
    rows = await broadcasts.unfinished(db, workspace_id=workspace_id, ids=[segment_id])
    return [
        one.name for one in rows if not one.is_frozen and segment_id in (one.mentions or "").split()
    ]


async def asking_beyond(db: Handle, *, workspace_id: str, kept: timedelta) -> list[str]:
    """The names of broadcasts whose own filter asks for what happened longer ago than events are
    `kept`, and whose audience is not frozen yet."""
    names = list[str]()
    async for rows in _asking(db, workspace_id):
        names += await segments.beyond([(one.name, one.filter) for one in rows], kept)
    return names


async def outgrown(
    db: Handle, *, workspace_id: str, segment_ids: Collection[str], existing: Mapping[str, Segment]
) -> list[str]:
    """List the broadcasts whose own filter names one of these segments, and asks too much with them
    as they stand in `existing`; for each a sentence. Their audience is not frozen yet."""
    found = list[str]()
    async for rows in _asking(db, workspace_id):
        for one in rows:
            if not _mentioned(one.mentions).isdisjoint(segment_ids):
                readable = segments.with_referenced(segments.parse(one.filter), existing)
                if excess := readable.excess:
                    words = "names this segment, and then asks too much."
                    found.append(f"Broadcast “{one.name}” {words} {excess}")
                await asyncio.sleep(0)  # to read one may take a millisecond
    return found


async def _asking(db: Handle, workspace_id: str) -> AsyncIterator[Sequence[Asking]]:
    """Yield those with a filter of their own whose audience is not frozen yet, some at a time."""
    after = FIRST
    while True:
        rows = await broadcasts.asking(
            db, workspace_id=workspace_id, after=after, limit=READ_AT_ONCE
        )
        yield rows
        if len(rows) < READ_AT_ONCE:
            return
        after = rows[-1].id


async def require_sender(
    db: Handle,
    member: Member,
    *,
    template_id: str = "",
    segment_ids: Collection[str] = (),
) -> None:
    """Somebody who may send broadcasts has scheduled one with the template, or to one of the
    segments, as it was: until it has ended, or its audience is frozen, others do not change that.
    Raises Problem `conflict`."""
    if SENDS in member.permissions:
        return
    ids = [template_id, *segment_ids]
    users = [
        one.id
        for one in await broadcasts.unfinished(db, workspace_id=member.workspace_id, ids=ids)
        if one.state != "DRAFT"
        and (
            one.template_id == template_id
            or (not one.is_frozen and not _named(one).isdisjoint(segment_ids))
        )
    ]
    if users:
        raise Problem(
            "conflict",
            f"{users[0]} is scheduled or being sent as this is now: a change needs {SENDS}, which"
            f" the role {member.role} does not have. Ask who scheduled it, or let it end first.",
            usedBy=users,
        )


def mentions(filter: Filter) -> str | None:
    """The ids of what a filter names, as they are kept beside it: of a topic with the channel on
    which it asks for an answer. To read a thousand filters for them takes a second."""
    topics = [f"{id}.{channel}" for id, channel in sorted(filter.topics)]
    return " ".join([*filter.segments, *topics]) or None


def _named(one: Naming) -> set[str]:
    """The ids of what it names itself."""
    named = {one.template_id, one.segment_id or "", one.topic_id or ""}
    return named | _mentioned(one.mentions)


def _mentioned(mentions: str | None) -> set[str]:
    """The ids among them, without the channels of topics."""
    return {mention.partition(".")[0] for mention in (mentions or "").split()}


async def about_topic(
    db: Handle, *, workspace_id: str, topic_id: str, channels: Sequence[str]
) -> list[str]:
    """The ids of those that have not ended, and are sent about the topic on one of the channels, or
    ask for an answer about it there."""
    rows = await broadcasts.unfinished(db, workspace_id=workspace_id, ids=[topic_id])
    ids = sorted({one.template_id for one in rows if one.topic_id == topic_id})
    known = await templates.named(db, workspace_id=workspace_id, ids=ids)
    asked = {f"{topic_id}.{channel}" for channel in channels}
    return [
        one.id
        for one in rows
        if not asked.isdisjoint((one.mentions or "").split())
        or (
            one.topic_id == topic_id
            and one.template_id in known
            and known[one.template_id].channel in channels
        )
    ]


@dataclass(frozen=True, slots=True)
class NextWindow:
    """The contacts that come next, and how many they are, in the audience or not."""

    window: Window
    contacts: int


async def next_window(
    db: Handle, audience: Audience, after: str, size: ChunkSize, *, most: int
) -> NextWindow | None:
    """None when there are no more."""
    walk = await stored_audiences.reached(
        db,
        workspace_id=audience.workspace_id,
        after=after,
        walk=size.limit_to(audience.walk(most)),
    )
    if walk.until is None:
        return None
    return NextWindow(Window(after, walk.until, await db.now()), walk.contacts)


async def fitting(db: Handle, audience: Audience, window: Window, size: ChunkSize) -> Fitting:
    """The contacts of a window who are in the audience."""
    return await segment_contacts.fitting_of(
        db,
        audience.readable,
        await db.now(),
        workspace_id=audience.workspace_id,
        alone=window.until if size.by_machine else None,
    )


async def turns_in(db: Handle, audience: Audience, window: Window) -> Turns:
    """The times at which the messages to the contacts of a window are due, and leave."""
    clock = audience.clock
    zones: list[str] = []
    if clock.is_by_zone:
        where: WorkspaceKey = {"workspace_id": audience.workspace_id}
        zones = await stored_audiences.timezones(db, window, **where)
    return Turns({zone: clock.turn(zone) for zone in zones}, clock.turn(None))


# --- counted --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CountedAudience:
    """Contacts by the reason for which they get nothing. Where `is_complete` is False time ran out:
    these are of the `looked_at` oldest contacts of the workspace alone."""

    contacts: Mapping[str, int]
    is_complete: bool
    looked_at: int

    @property
    def reachable(self) -> int:
        return self.contacts.get(NONE, 0)


async def count(process: Process, audience: Audience) -> CountedAudience:
    """Count contacts by the reason for which they get nothing, window by window."""
    contacts: Counter[str] = Counter()
    after, looked_at, looking = FIRST, 0, LookingTime(COUNT_SECONDS)
    size = ChunkSize()
    while True:
        async with looking.step(process, audience.workspace_id) as db:
            if db is None:
                return CountedAudience(contacts, False, looked_at)
            with suppress(CutOff), size.measured():
                following = await next_window(db, audience, after, size, most=COUNT_WALK)
                if following is None:
                    return CountedAudience(contacts, True, looked_at)
                contacts += await _count(process, db, audience, following.window, size)
                after, looked_at = following.window.until, looked_at + following.contacts
                looking.has_looked = True


async def _count(
    process: Process, db: Handle, audience: Audience, window: Window, size: ChunkSize
) -> Counter[str]:
    where: WorkspaceKey = {"workspace_id": audience.workspace_id}
    fits, turns = await fitting(db, audience, window, size), await turns_in(db, audience, window)
    counted = await stored_audiences.count(db, fits, audience.gate, turns, window, **where)
    if counted[UNSUBSCRIBED]:
        channel = audience.channel
        out = await stored_audiences.unsubscribed(db, fits, channel, window, **where)
        judged = await judge(process, db, audience, out)
        del counted[UNSUBSCRIBED]
        counted += Counter(reason or NONE for reason in judged.values())
    return counted


async def newest_reachable(process: Process, audience: Audience, *, most: int) -> list[str]:
    """The ids of the newest contacts who can be written to, as far as they themselves say, of
    LOOKED_AT at most."""
    found: list[str] = []
    left, before = LOOKED_AT, None
    looking = LookingTime(segment_contacts.PAGE_SECONDS, has_looked=True)  # none, where that waits
    while left and len(found) < most:
        newest = await segment_contacts.page(
            process,
            audience.readable,
            workspace_id=audience.workspace_id,
            filters={},
            before=before,
            limit=left,
            looking=looking,
        )
        found += [row.id for row in newest.rows if is_reachable(audience, row)]
        if not newest.rest or newest.rest == before:  # no more, or no time
            break
        left, before = left - len(newest.rows), newest.rest
    return found[:most]


def is_reachable(audience: Audience, contact: Contact) -> bool:
    """Return whether the contact can be written to, as far as the contact itself shows."""
    address = subscriptions.key_of(contact, audience.channel)
    if address is None or audience.channel in contact.subscriptions:
        return False
    topic_id = audience.gate.topic_id
    answers = contact.topics.get(topic_id, {})
    return not topic_id or answers.get(audience.channel) == SUBSCRIBED


# --- judged ---------------------------------------------------------------------------------------


async def judge(
    process: Process, db: Handle, audience: Audience, out: Sequence[Unsubscribed]
) -> dict[str, str | None]:
    """Contact → the reason for which nobody writes to it, of those who are not subscribed."""
    hashes = {
        one.contact_id: subscriptions.hashed(
            process.vault, audience.workspace_id, audience.channel, one.address
        )
        for one in out
    }
    held = await suppressions.reasons(
        db, workspace_id=audience.workspace_id, address_hashes=list(hashes.values())
    )
    judged: dict[str, str | None] = {}
    for id, hash in hashes.items():
        if "erased" in held[hash]:
            judged[id] = "erased"
        elif any(reason != "unsubscribed" for reason in held[hash]):
            judged[id] = "suppressed"
        else:
            judged[id] = "unsubscribed" if audience.is_marketing else None
    return judged
