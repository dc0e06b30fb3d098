"""Events of contacts, many at once: each contact found or created, each event recorded once.

The order of locks is that of the intake: new contacts, contacts by their ids, receipts. An event
that is refused leaves nothing behind and holds up no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from app.audience import lookups, membership, reactions, writing
from app.audience.reactions import ContactEvent, Tagged
from app.audience.workspace_context import WorkspaceContext
from app.audience.writing import FoundContact, Lookup, Missing, Who
from app.database.db import Handle
from app.errors import Problem, Unavailable
from app.machine import segment_changes
from app.machine.program import Json
from app.store import contact_batches, contact_events, receipts, segment_members
from app.store.receipts import Receipt

# Contacts of old events × segments that name one: these are judged in the same transaction (0241).
MOST_JUDGED = 5_000
GONE = (
    "The event with this id is no longer kept, for its contact was erased since; a new event needs"
    " a new id."
)


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """An event that is right by itself. `receipt` knows its repeats; with `creates` a missing
    contact is created."""

    lookup: Lookup
    name: str
    properties: Mapping[str, Json]
    at: datetime
    reacts: bool
    receipt: bytes | None = None
    creates: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """The answer to a reported event; `replayed` when an earlier one with the same id made it."""

    id: str
    contact_id: str
    name: str
    at: datetime
    replayed: bool = False


Outcome: TypeAlias = Recorded | Problem


@dataclass(frozen=True, slots=True)
class Room:
    """Room for `left` more contacts, None for any number, and the refusal when none is left."""

    left: int | None
    refusal: Problem


class _Overtaken(Exception):
    """A repeat was recorded since we looked: everything is undone and looked at again."""


async def record(
    db: Handle, workspace: WorkspaceContext, events: Sequence[ReportedEvent], room: Room
) -> list[Outcome]:
    """The outcome of each event, in order."""
    for _ in range(receipts.TRIES):
        with suppress(_Overtaken):
            async with db.savepoint():
                return await _Batch(db, workspace, events, room).outcomes()
    raise Unavailable("Events with the same id are being recorded; retry the request.")


@dataclass(slots=True)
class _Batch:
    db: Handle
    workspace: WorkspaceContext
    events: Sequence[ReportedEvent]
    room: Room
    answers: dict[int, Outcome] = field(default_factory=dict)  # by place
    contacts: dict[Who, FoundContact] = field(default_factory=dict)
    made: Tagged = field(default_factory=dict)  # contacts that are new
    at_once: int = 1  # new contacts of old events that are judged at a time

    async def outcomes(self) -> list[Outcome]:
        await self._repeat()
        await self._look_up()
        await self._bound()
        await self._create()
        await self._record()
        return [self.answers[place] for place in range(len(self.events))]

    def _open(self) -> list[tuple[int, ReportedEvent]]:
        return [one for one in enumerate(self.events) if one[0] not in self.answers]

    def _who(self, event: ReportedEvent) -> Who:
        return event.lookup.within(self.workspace.id)

    async def _repeat(self) -> None:
        """Answer those whose id was recorded before, whoever they name now."""
        ids = {event.receipt for event in self.events if event.receipt is not None}
        if not ids:
            return
        kept = await receipts.by_ids(self.db, [(self.workspace.id, id) for id in sorted(ids)])
        made = {one.id: one.run_id for one in kept}
        rows = await contact_events.by_ids(
            self.db, workspace_id=self.workspace.id, ids=sorted(made.values())
        )
        by_id = {row.id: row for row in rows}
        for place, event in self._open():
            if event.receipt in made:
                row = by_id.get(made[event.receipt])
                self.answers[place] = (
                    Recorded(row.id, row.contact_id, row.name, row.at, replayed=True)
                    if row
                    else Problem("conflict", GONE)
                )

    async def _look_up(self) -> None:
        wanted = {self._who(event) for _, event in self._open()}
        self.contacts = await writing.find_all(self.db, wanted) if wanted else {}
        for place, event in self._open():
            found = self.contacts.get(self._who(event))
            if found is not None and found.is_one_of_several:
                self.answers[place] = lookups.several(event.lookup)
            elif found is None and not event.creates:
                self.answers[place] = _unknown(event)

    async def _bound(self) -> None:
        """Refuse old events of more contacts than are judged at once: sent again, they have their
        turn."""
        events = [event for _, event in self._open() if not event.reacts]
        old = list(dict.fromkeys(self._who(event) for event in events))
        if len(old) <= 1:
            return
        names = {segment_changes.event(event.name) for event in events}
        if any(who not in self.contacts for who in old):
            names.add(segment_changes.CREATED)
        named = await segment_members.segments_named(
            self.db, workspace_id=self.workspace.id, names=names
        )
        self.at_once = membership.at_once(len(named))
        beyond = set(old[max(1, MOST_JUDGED // max(1, len(named))) :])
        for place, event in self._open():
            if not event.reacts and self._who(event) in beyond:
                self.answers[place] = Unavailable(
                    f"Old events of so many contacts are not judged at once for {len(named)}"
                    " segments; send this one again."
                )

    async def _create(self) -> None:
        """Create who is missing, and lock them all."""
        missing: dict[Who, Missing] = {}
        for place, event in self._open():
            who = self._who(event)
            if who in self.contacts or who in missing:
                continue
            if self.room.left is not None and len(missing) >= self.room.left:
                self.answers[place] = self.room.refusal
            else:
                missing[who] = Missing(self.workspace, event.lookup, {}, ())
        if missing:
            found, new = await writing.insert_all(self.db, self.workspace.vault, missing)
            self.contacts |= found
            self.made = new.get(self.workspace, {})
        ids = {self.contacts[self._who(event)].id for _, event in self._open()}
        rows = await contact_batches.locked(
            self.db, workspace_id=self.workspace.id, ids=sorted(ids)
        )
        present = {row.id for row in rows}
        for place, event in self._open():
            if self.contacts[self._who(event)].id not in present:  # erased since we looked
                self.answers[place] = _unknown(event)

    async def _record(self) -> None:
        fresh: dict[int, ContactEvent] = {}
        led: dict[bytes, ContactEvent] = {}
        opened = self._open()
        for place, event in opened:
            copied = led.get(event.receipt) if event.receipt is not None else None
            if copied is not None:
                self.answers[place] = _recorded(copied, replayed=True)
                continue
            contact_id = self.contacts[self._who(event)].id
            new = ContactEvent(contact_id, event.name, event.properties, event.at, event.reacts)
            fresh[place] = new
            self.answers[place] = _recorded(new)
            if event.receipt is not None:
                led[event.receipt] = new
        receipted = [
            Receipt(self.workspace.id, receipt, event.id, event.contact_id)
            for receipt, event in sorted(led.items())
        ]
        if receipted:
            expires_at = await self.db.now() + receipts.REPEATED_WITHIN
            kept = await receipts.insert_many(self.db, receipted, expires_at=expires_at)
            if kept < len(receipted):
                raise _Overtaken
        await reactions.all_happened(self.db, self.workspace, list(fresh.values()))
        # New contacts have their events by now: they were never without them. Old events alone
        # welcome nobody, as an import does not.
        old = {self.contacts[self._who(event)].id for _, event in opened if not event.reacts}
        quiet = old - {event.contact_id for event in fresh.values() if event.reacts}
        loud = {id: tags for id, tags in self.made.items() if id not in quiet}
        if loud:
            await reactions.appeared(self.db, self.workspace, loud)
        for few in membership.by_turns(sorted(self.made.keys() & quiet), self.at_once):
            some = {id: self.made[id] for id in few}
            await reactions.appeared(self.db, self.workspace, some, starts=False)


def _recorded(event: ContactEvent, *, replayed: bool = False) -> Recorded:
    return Recorded(event.id, event.contact_id, event.name, event.at, replayed)


def _unknown(event: ReportedEvent) -> Problem:
    return lookups.unknown(event.lookup, by_address="send createContact: true")
