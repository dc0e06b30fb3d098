"""The contacts that fit a segment's filter, found and counted in steps, and one contact judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from app.audience import shapes
from app.audience.chunks import ChunkSize, CutOff, LookingTime
from app.audience.segments import Readable
from app.database.db import Handle
from app.machine import condition, document, segment_filter
from app.machine.condition import Condition, Verdict
from app.machine.program import Facts, Json
from app.machine.segment_filter import Got, Went
from app.process import Process
from app.store import bounded_pages, contact_past, contacts, segment_members, segments
from app.store.contact_past import Newest, PastEvent, PastMessage, PastRun
from app.store.contacts import Contact
from app.store.row_keys import ContactsKey, WorkspaceKey
from app.store.segment_sql import Clause
from app.store.segments import Fitting

STEP = 10_000  # comparisons of one statement, and
WALK = 5_000  # contacts that it looks through at the most
# That are spent on it; what takes longer is cut short, and says so.
COUNT_SECONDS = 5.0
PAGE_SECONDS = 2.0
SAMPLE = 5
PASTS_AT_ONCE = 10  # contacts whose pasts are in memory


def fitting(db: Handle, readable: Readable, now: datetime) -> Fitting:
    if readable.frozen_id is not None:
        return segment_members.kept(readable.frozen_id)
    return Clause(db.engine, now, _conditions(readable)).fitting(readable.filter.condition)


async def fitting_of(
    db: Handle, readable: Readable, now: datetime, *, workspace_id: str, alone: str | None
) -> Fitting:
    """The SQL of who fits; of the contact `alone`, if one is given because SQL takes too long even
    for it, as the machine judges it, by the newest part of a longer past. Then nobody else fits."""
    if alone is None or readable.frozen_id is not None:
        return fitting(db, readable, now)
    contact = await contacts.by_id(db, workspace_id=workspace_id, id=alone)
    holds = (
        contact is not None
        and judge(
            readable, await past(db, readable, workspace_id=workspace_id, contact=contact)
        ).holds
    )
    return Fitting("c.id = :alone", {"alone": alone}) if holds else Fitting("FALSE", {})


def _conditions(readable: Readable) -> dict[str, Condition]:
    return {id: other.condition for id, other in readable.others.items()}


@dataclass(frozen=True, slots=True)
class Members:
    """A page of contacts; `rest` is the id below which there may be more when time ran out, or
    these fill a page."""

    rows: Sequence[Contact]
    tags: Mapping[str, Sequence[str]]
    rest: str | None


# Looks at the contacts who fit between two ids; whether it wants more.
Look: TypeAlias = Callable[[Handle, Fitting, str | None, str | None], Awaitable[bool]]


async def _walk(
    process: Process,
    readable: Readable,
    workspace_id: str,
    look: Look,
    *,
    before: str | None = None,
    looking: LookingTime,
) -> str | None:
    """Look at contacts window by window, newest first, for as long as there is time, and at one
    window in any case; the id below which there may be more. Each has a connection of its own:
    others get theirs between."""
    now, wants_more = None, True
    size, most = ChunkSize(), max(1, min(WALK, STEP // readable.comparisons))
    whose: WorkspaceKey = {"workspace_id": workspace_id}
    while wants_more:
        async with looking.step(process, workspace_id) as db:
            if db is None:
                break
            with suppress(CutOff), size.measured():
                now, walk = now or await db.now(), size.limit_to(most)
                since = await segments.reached(db, **whose, before=before, walk=walk)
                alone = since if size.by_machine else None
                fits = await fitting_of(db, readable, now, **whose, alone=alone)
                wants_more = await look(db, fits, since, before) and since is not None
                before, looking.has_looked = since, True
    return before


async def page(
    process: Process,
    readable: Readable,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
    looking: LookingTime | None = None,
) -> Members:
    """The newest of those who fit and whom the filters let through, below an id. `looking` is for
    several pages."""
    rows: list[Contact] = []
    tags: dict[str, list[str]] = {}
    rest, spent = before, 0

    async def look(db: Handle, fits: Fitting, since: str | None, until: str | None) -> bool:
        nonlocal rest, spent
        found = await segments.members(
            db,
            fits,
            workspace_id=workspace_id,
            filters=filters,
            since=since,
            before=until,
            limit=limit - len(rows),
            spent=spent,
        )
        ids = [row.id for row in found.rows]
        tags.update(await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids))
        rows.extend(found.rows)
        spent += found.bytes
        rest = found.rest or since
        return not found.rest and len(rows) < limit and spent < bounded_pages.MOST_BYTES

    looking = looking or LookingTime(PAGE_SECONDS)
    await _walk(process, readable, workspace_id, look, before=before, looking=looking)
    return Members(rows, tags, None if len(rows) == limit else rest)


@dataclass(frozen=True, slots=True)
class Reachability:
    """Number of contacts that fit a filter, and by channel of those that can be written to or not.
    Where `is_complete` is False time ran out: these are of the newest contacts alone."""

    count: int
    reachable: Mapping[str, Mapping[str, int]]
    is_complete: bool


async def count(process: Process, readable: Readable, *, workspace_id: str) -> Reachability:
    total, sums = 0, Counter[tuple[str, str]]()

    async def look(db: Handle, fits: Fitting, since: str | None, until: str | None) -> bool:
        nonlocal total
        more, found = await segments.count(
            db, fits, workspace_id=workspace_id, since=since, before=until
        )
        total += more
        sums.update(found)
        return True

    looking = LookingTime(COUNT_SECONDS)
    rest = await _walk(process, readable, workspace_id, look, looking=looking)
    reachable = {
        channel: {reason: sums[channel, reason] for reason in segments.REASONS}
        for channel in segments.ADDRESSES
    }
    return Reachability(total, reachable, rest is None)


# --- one contact ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Past:
    """A contact, and what has become of it, as far as a filter asks: of a long past the newest
    part, which then is not the whole."""

    id: str
    contact: Mapping[str, Json]
    now: datetime
    events: Sequence[PastEvent]
    messages: Sequence[PastMessage]
    runs: Sequence[PastRun]
    is_whole: bool

    @property
    def length(self) -> int:
        return len(self.events) + len(self.messages) + len(self.runs)


async def past(db: Handle, readable: Readable, *, workspace_id: str, contact: Contact) -> Past:
    now, whose = await db.now(), WorkspaceKey(workspace_id=workspace_id)
    [found] = [one async for one in pasts(db, [readable], now, **whose, rows=[contact])]
    return found


async def pasts(
    db: Handle,
    filters: Sequence[Readable],
    now: datetime,
    *,
    workspace_id: str,
    rows: Sequence[Contact],
) -> AsyncIterator[Past]:
    """The pasts of contacts at a moment, as far as any of the filters asks, a few in memory at a
    time."""
    asked = [one for each in filters for one in (each.filter, *each.others.values())]
    parts = {type(part) for one in asked for part in segment_filter.walk(one.condition)}
    names = sorted({name for one in asked for name in one.names()})
    matched = sorted({name for one in asked for name in one.matched()})
    ids = [row.id for row in rows]
    tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids)
    for start in range(0, len(rows), PASTS_AT_ONCE):
        few = rows[start : start + PASTS_AT_ONCE]
        of = ContactsKey(workspace_id=workspace_id, contact_ids=[row.id for row in few])
        nothing: list[Newest[Any]] = [Newest([], are_all=True) for _ in few]
        events = nothing
        if names:
            events = await contact_past.events(db, **of, names=names, matched=matched)
        messages = await contact_past.messages(db, **of) if Got in parts else nothing
        runs = await contact_past.runs(db, **of) if Went in parts else nothing
        for row, did, got, went in zip(few, events, messages, runs, strict=True):
            contact = shapes.resource(row, tags[row.id])
            is_whole = did.are_all and got.are_all and went.are_all
            yield Past(row.id, contact, now, did.rows, got.rows, went.rows, is_whole)


async def judge_frozen(
    db: Handle, segment_id: str, *, workspace_id: str, contact_id: str
) -> Verdict:
    """Return whether the contact is in a frozen segment, as a verdict."""
    found = await segment_members.of_contacts(
        db, workspace_id=workspace_id, contact_ids=[contact_id], segment_ids=[segment_id]
    )
    holds = any(one.member for one in found)
    return Verdict(holds, ({"segmentId": segment_id, "holds": holds},))


def judge(readable: Readable, past: Past) -> Verdict:
    """Judge whether the contact fits, and by which comparisons. Raises Exceeded."""
    return condition.evaluate(readable.filter.condition, facts(past, _conditions(readable)))


def facts(past: Past, conditions: Mapping[str, Condition]) -> Facts:
    """The facts that a filter reads; `conditions` are those of the segments that it may name."""
    return {
        "contact": past.contact,
        "now": past.now,
        "segments": conditions,
        "events": [
            {"name": one.name, "at": one.at, "properties": document.parse(one.properties.encode())}
            for one in past.events
            if one.properties is not None
        ],
        "messages": [
            {
                "status": one.status,
                "templateId": one.template_id,
                "broadcastId": one.broadcast_id,
                "at": one.sent_at,
            }
            for one in past.messages
        ],
        "runs": [{"status": one.status, "definitionId": one.definition_id} for one in past.runs],
    }
