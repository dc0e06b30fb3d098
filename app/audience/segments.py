"""Filters of segments: read, checked, and which of them name which."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache

from app.audience import profile
from app.database.db import Handle
from app.errors import FieldError, Problem
from app.machine import condition, document, segment_filter, segment_prose
from app.machine.fields import Place
from app.machine.program import Json
from app.machine.segment_filter import Filter, InSegment
from app.store import broadcasts, definitions, names_in_use, segments, templates, topics
from app.store.row_keys import WorkspaceKey
from app.store.segments import Segment

MOST = 200  # of a workspace
MOST_READ = 2_000  # filters in memory, of all workspaces: some 3 MB, of the longest ones 27
TURN = 10  # filters that are read at a stretch
ERRORS = 100  # that are listed


@dataclass(frozen=True, slots=True)
class Readable:
    """A filter with those of the segments that it names, and those that they name; `raw` is its
    JSON where somebody has just written it. Of a frozen segment the filter says who was in it once,
    and `frozen_id` who is."""

    filter: Filter
    others: Mapping[str, Filter] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # of segments, by their ids
    raw: Json = None
    frozen_id: str | None = None

    @property
    def comparisons(self) -> int:
        """Number of comparisons, with those of named segments, each as often as it is named."""
        return _extent(self.filter, self.others, {})[0]

    @property
    def excess(self) -> str | None:
        """Reason why it asks too much, with those that it names; None where it does not."""
        return _excess(_extent(self.filter, self.others, {}))

    @property
    def prose(self) -> str:
        return segment_prose.prose(self.filter.condition, self.names)


@lru_cache(MOST_READ)
def parse(text: str) -> Filter:
    """Parse the filter that a segment is kept with."""
    read = segment_filter.read(document.parse(text.encode()), Place("", []))
    if read is None:
        raise ValueError(f"a filter was saved that cannot be read: {text[:200]}")
    return read


async def filters_of(existing: Mapping[str, Segment]) -> dict[str, Filter]:
    """The filters of segments, by their ids. A long one that is not in memory takes a millisecond
    to read, so others have their turn between."""
    found = {}
    for place, (id, segment) in enumerate(existing.items(), start=1):
        found[id] = parse(segment.filter)
        if place % TURN == 0:
            await asyncio.sleep(0)
    return found


def with_referenced(filter: Filter, existing: Mapping[str, Segment]) -> Readable:
    """A filter that was saved, with all segments that it names, and those that they name."""
    others: dict[str, Filter] = {}
    waiting = filter.segments
    while waiting:
        id = waiting.pop()
        if id not in others:
            others[id] = parse(existing[id].filter)
            waiting += others[id].segments
    return Readable(filter, others, names_of(existing))


def names_of(existing: Mapping[str, Segment]) -> dict[str, str]:
    return {id: segment.name for id, segment in existing.items()}


def prose(segment: Segment, names: Mapping[str, str]) -> str:
    """The filter that it is kept with, in words; `names` are those of segments by their ids."""
    return segment_prose.prose(parse(segment.filter).condition, names)


async def read(
    db: Handle,
    raw: Json,
    *,
    workspace_id: str,
    kept: timedelta,
    existing: Mapping[str, Segment],
    own_id: str | None = None,
    is_preview: bool = False,
) -> Readable:
    """A filter that somebody wrote, of the segment `own_id` if it has one already. Events are
    `kept` so long. A preview may be of a frozen segment too. Raises Problem `invalid`."""
    place = Place("/filter", [])
    raw = profile.normal(raw)
    filter = segment_filter.read(raw, place, kept)
    if filter is None:
        raise _invalid([FieldError(one.pointer, one.message) for one in place.findings])
    errors = await _unknown(db, filter, workspace_id, existing)
    frozen = None
    if is_preview and isinstance(filter.condition, InSegment):  # it asks for nothing else
        segment = existing.get(filter.condition.segment_id)
        frozen = segment if segment is not None and segment.kind == "frozen" else None
    if frozen is None:
        # A filter is judged by filters, and who is in a frozen segment is not said by its filter.
        errors += [
            FieldError(one.pointer, "A frozen segment cannot be part of a filter; a live one can.")
            for one in filter.mentions
            if one.kind == "segment" and one.id in existing and existing[one.id].kind == "frozen"
        ]
    if not errors and (filter.segments or own_id is not None):
        errors = _tangled(filter, await filters_of(existing), existing, own_id)
    if errors:
        raise _invalid(errors)
    frozen_id = frozen.id if frozen is not None and frozen.is_settled else None
    return replace(with_referenced(filter, existing), raw=raw, frozen_id=frozen_id)


async def asking_beyond(db: Handle, *, workspace_id: str, kept: timedelta) -> list[str]:
    """The names of live segments that ask for what happened longer ago than events are `kept`."""
    existing = await segments.of_workspace(db, workspace_id=workspace_id)
    live = [(one.name, one.filter) for one in existing.values() if one.kind == "live"]
    return await beyond(live, kept)


async def beyond(filters: Sequence[tuple[str, str]], kept: timedelta) -> list[str]:
    """The names of those among these saved filters, by name, that ask for what happened longer ago
    than events are `kept`."""
    found = []
    for name, text in filters:
        if segment_filter.read(document.parse(text.encode()), Place("", []), kept) is None:
            found.append(name)
        await asyncio.sleep(0)  # each takes up to milliseconds, and there may be a thousand
    return found


def _invalid(errors: Sequence[FieldError]) -> Problem:
    return Problem("invalid", "The filter is not valid; see errors.", errors=errors[:ERRORS])


async def _answerable(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> Collection[str]:
    """Contacts do not answer about the default one: it is a subscription."""
    asked = await topics.of_workspace(db, workspace_id=workspace_id)
    return {id for id in ids if id in asked and not asked[id].is_default}


# What a filter may name → those of these ids that are there.
READERS: Mapping[str, Callable[..., Awaitable[Collection[str]]]] = {
    "template": templates.named,
    "broadcast": broadcasts.existing,
    "definition": definitions.existing,
    "topic": _answerable,
}


async def _unknown(
    db: Handle, filter: Filter, workspace_id: str, existing: Mapping[str, Segment]
) -> list[FieldError]:
    """The names in it of what is not there."""
    there: dict[str, Collection[str]] = {"segment": existing.keys()}
    for kind in {one.kind for one in filter.mentions} - there.keys():
        ids = [one.id for one in filter.mentions if one.kind == kind]
        there[kind] = await READERS[kind](db, workspace_id=workspace_id, ids=ids)
    return [
        FieldError(one.pointer, f"There is no such {one.kind}.")
        for one in filter.mentions
        if one.id not in there[one.kind]
    ]


@dataclass(frozen=True, slots=True)
class Doubt:
    """A name in a filter that is nobody's: perhaps it is mistyped."""

    code: str
    pointer: str
    message: str


async def doubts(db: Handle, filter: Filter, *, workspace_id: str) -> list[Doubt]:
    """The metadata fields and tags in it that no contact has, and the events that nobody did of
    late. A filter may well be written before there are any."""
    of: dict[str, list[str]] = {"field": [], "tag": [], "event": []}
    for one in filter.spelled:
        of[one.kind].append(one.name)
    whose: WorkspaceKey = {"workspace_id": workspace_id}
    known = await names_in_use.of_contacts(db, **whose, fields=of["field"], tags=of["tag"])
    if of["event"]:
        recorded = await names_in_use.of_events(db, **whose, names=of["event"])
        known |= {("event", name) for name in recorded}
    return [
        Doubt(f"{one.kind}_of_nobody", one.pointer, DOUBTS[one.kind].format(one.name))
        for one in filter.spelled
        if (one.kind, one.name) not in known
    ]


DOUBTS = {
    "field": "No contact has contact.metadata.{}: is the name right?",
    "tag": "No contact has the tag “{}”: is it right?",
    "event": f"Of the newest {names_in_use.NEWEST:,} events none is called “{{}}”: is it right?",
}


def _tangled(
    filter: Filter,
    filters: Mapping[str, Filter],
    existing: Mapping[str, Segment],
    own_id: str | None,
) -> list[FieldError]:
    """A circle of segments that name one another, or more of them than can be looked through: also
    for those that name the one which gets this filter."""
    for one in filter.mentions:
        if one.kind == "segment" and (way := _way(one.id, own_id, filters)):
            named = " → ".join(existing[id].name for id in way)
            return [FieldError(one.pointer, f"A segment cannot name itself, here through {named}.")]
    extents: dict[str, tuple[int, int]] = {}
    if message := _excess(_extent(filter, filters, extents)):
        return [FieldError("/filter", message)]
    if own_id is None:
        return []
    changed = {**filters, own_id: filter}
    extents = {}
    for id, other in changed.items():
        if message := _excess(_extent(other, changed, extents)):
            within = f"Segment “{existing[id].name}” names this one, and then asks too much. "
            return [FieldError("/filter", within + message)]
    return []


def _way(id: str, target: str | None, filters: Mapping[str, Filter]) -> Sequence[str]:
    """Find the ids by which one segment leads to another, by naming it; none where it does not."""
    seen = {id}
    ways: list[tuple[str, ...]] = [(id,)]
    while ways:
        way = ways.pop()
        if way[-1] == target:
            return way
        new = [one for one in filters[way[-1]].segments if one not in seen]
        seen.update(new)
        ways += [(*way, one) for one in new]
    return ()


def _extent(
    filter: Filter, filters: Mapping[str, Filter], known: dict[str, tuple[int, int]]
) -> tuple[int, int]:
    """Count the comparisons of a filter and of the segments it names, and how deep they name."""
    comparisons, depth = condition.comparisons(filter.condition), 0
    for one in filter.mentions:
        if one.kind == "segment":
            if one.id not in known:
                known[one.id] = _extent(filters[one.id], filters, known)
            more, deeper = known[one.id]
            comparisons, depth = comparisons + more, max(depth, deeper + 1)
    return comparisons, depth


def _excess(extent: tuple[int, int]) -> str | None:
    comparisons, depth = extent
    if depth > segment_filter.DEEPEST:
        return f"Segments name one another at most {segment_filter.DEEPEST} deep."
    if comparisons > segment_filter.MOST_IN_ALL:
        most = segment_filter.MOST_IN_ALL
        return f"With the segments that it names, a filter makes at most {most} comparisons."
    return None


async def naming(id: str, existing: Mapping[str, Segment]) -> list[str]:
    """The ids of the segments that name this one."""
    return (await _namers(existing))[id]


async def leading_to(id: str, existing: Mapping[str, Segment]) -> list[str]:
    """The ids of the segments that name this one or those that do: all whose members change with
    its filter. Who is in a frozen segment does not, once that is known."""
    namers = await _namers(existing)
    found: list[str] = []
    waiting = [id]
    while waiting:
        new = [one for one in namers[waiting.pop()] if one not in found]
        found += new
        waiting += new
    return [one for one in found if not existing[one].is_settled]


async def _namers(existing: Mapping[str, Segment]) -> defaultdict[str, list[str]]:
    """Segment → the ids of those that name it."""
    found = defaultdict[str, list[str]](list)
    for id, filter in (await filters_of(existing)).items():
        for named in filter.segments:
            found[named].append(id)
    return found
