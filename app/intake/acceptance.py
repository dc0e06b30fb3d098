"""Acceptance of events: receipts, contacts, runs and the record of it all, in one transaction.

start_known   one statement, for events that repeat nothing and whose contacts exist: nearly all
accept        what it left out: contacts are created, repeats recognised, refusals given

Events that come while a transaction is under way share the next. It is all or nothing for them, and
runtime/batching.py tries each alone when it was nothing. Within a batch they are sorted and
de-duplicated, so that no statement touches a row twice and no two processes deadlock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from app.audience import lookups, reactions, writing
from app.audience.workspace_context import WorkspaceContext
from app.audience.writing import FoundContact, Lookup, Missing, Who
from app.database.db import Handle, RequestTimeouts
from app.errors import CommitUnknown, Problem, Unavailable
from app.intake import webhook_requests
from app.intake.lookup import contact_path
from app.intake.webhook_requests import IncomingRequest
from app.machine import defaults
from app.machine.defaults import Defaults
from app.machine.program import Json
from app.outbound import chains
from app.process import Process
from app.runtime.batching import batched
from app.runtime.compute import Busy, Computation, Compute, Heavy, Unfinished
from app.store import known_events, new_runs, receipts, runs
from app.store import webhook_requests as records
from app.store.known_events import KnownEvent
from app.store.new_runs import NewRun
from app.store.receipts import Receipt
from app.store.webhook_requests import RequestRecord
from app.vault.vault import Vault

log = logging.getLogger(__name__)

TIMEOUTS = RequestTimeouts()
LOOKING_SECONDS = 1.8  # after it began; then the senders are told that nobody can know
LAST_LOOK_SECONDS = 0.3  # at the least
LARGE = 32 * 1024  # bytes of a body that is not parsed on the event loop, but skimmed
PATIENCE = 2.0  # seconds that an event waits until its contact's defaults can be rendered


@dataclass(slots=True, eq=False)
class InboundEvent:
    """A request that has passed every check before the transaction that accepts it."""

    request: IncomingRequest
    workspace: WorkspaceContext
    trigger: Mapping[str, Json]
    revision: int  # of the definition, by which it was judged
    lookup: Lookup | Problem  # a repeat is answered all the same
    receipt: bytes | None
    defaults: Defaults | None = None  # of a contact that it makes, where they take long
    run_id: str = field(init=False)
    who: Who | None = field(init=False)

    def __post_init__(self) -> None:
        # A run has its request's number: where one is known, so is the other.
        self.run_id = self.request.id.replace("req_", "run_")
        lookup = self.lookup
        self.who = lookup.within(self.workspace.id) if isinstance(lookup, Lookup) else None

    @property
    def creates(self) -> bool:
        is_address = isinstance(self.lookup, Lookup) and self.lookup.is_address
        return is_address and bool(self.trigger.get("createContact"))


@dataclass(frozen=True, slots=True)
class Accepted:
    """The answer to the sender; `replayed` when an earlier event with the same key made the
    run."""

    run_id: str
    contact_id: str
    replayed: bool = False


class Outdated(Exception):
    """The definition was changed since the event was judged by it; nothing has happened."""


# Heavy: its defaults are to be rendered first.
Answer: TypeAlias = Accepted | Problem | Outdated | Heavy


# --- the short way --------------------------------------------------------------------------------


def is_known(process: Process, event: InboundEvent) -> bool:
    """Return whether the statement may be able to accept the event."""
    return (
        process.database.engine == "postgresql"
        and not process.database.is_sharded  # there, each INSERT must name its shard by itself
        and isinstance(event.lookup, Lookup)
        and event.workspace.root is None  # the runs of its chain would have to be counted
    )


def _weight(event: InboundEvent) -> int:
    return len(event.request.body)


def _whose(event: InboundEvent) -> str:
    return event.workspace.id


@batched(weigh=_weight, whose=_whose)
async def start_known(
    process: Process, events: Sequence[InboundEvent]
) -> Sequence[Accepted | CommitUnknown | None]:
    """One run for each, or None for what is to go through `accept`: nothing was written of it."""
    began = time.monotonic()
    try:
        async with process.database.alone(TIMEOUTS) as db:
            started = await known_events.accept(db, list(map(_known, events)), timeouts=TIMEOUTS)
    except CommitUnknown as unknown:
        return await _after_unknown_commit(process, events, unknown, began + LOOKING_SECONDS)
    except Unavailable:
        raise
    except Exception as error:  # of the database: nothing was written
        if len(events) > 1:
            raise  # each is tried alone
        whose = {"workspace_id": events[0].workspace.id, "error": repr(error)}
        log.info("event not accepted in one statement, and is accepted in several", extra=whose)
        return [None]
    pairs = [(event.workspace.id, event.run_id) for event in events if event.run_id in started]
    if pairs:
        process.hints.hint("run", pairs)
    return [
        Accepted(event.run_id, started[event.run_id]) if event.run_id in started else None
        for event in events
    ]


def _known(event: InboundEvent) -> KnownEvent:
    request, lookup = event.request, event.lookup
    assert isinstance(lookup, Lookup)  # noqa: S101 - see is_known
    return KnownEvent(
        workspace_id=event.workspace.id,
        country=event.workspace.country,
        definition_id=request.definition_id,
        revision=event.revision,
        lookup=lookup.kind,
        field=lookup.field,
        value=lookup.key,
        receipt=event.receipt,
        run_id=event.run_id,
        request_id=request.id,
        body=request.body,
        depth=event.workspace.depth,
        headers=webhook_requests.masked(request.head.headers),
        ip=request.head.ip,
        duration_ms=request.head.elapsed_ms(),
    )


# --- the long way: whatever one statement cannot decide -------------------------------------------


async def with_defaults(process: Process, event: InboundEvent) -> None:
    """Find out, before the transaction, what a new contact gets that is too much to be rendered in
    it. What takes too long by itself is left out. Where too much else is computed nothing is
    accepted: without its defaults the contact would stay. Raises Unavailable."""
    computation = _defaults_computation(event)
    try:
        event.defaults = await process.compute.apart(computation, patience=PATIENCE)
    except Busy as busy:
        raise Unavailable(busy.detail) from None  # also for its own share: 503, not 429
    except Unfinished:
        event.defaults = defaults.without_liquid(_raw_defaults(event))


def _defaults_computation(event: InboundEvent) -> Computation[Defaults]:
    given = (_raw_defaults(event), event.request.body)
    return Computation(
        event.workspace.id, defaults.of, given, seconds=defaults.SECONDS, urgent=True
    )


def _raw_defaults(event: InboundEvent) -> Mapping[str, Json]:
    return event.trigger.get("contactDefaults") or {}


@batched(weigh=_weight, whose=_whose)
async def accept(
    process: Process, events: Sequence[InboundEvent]
) -> Sequence[Answer | CommitUnknown]:
    """One run for each, or the Problem that says why not, or Outdated: to be judged again."""
    began = time.monotonic()
    try:
        return await _accept(process, events)
    except CommitUnknown as unknown:
        return await _after_unknown_commit(process, events, unknown, began + LOOKING_SECONDS)


async def _after_unknown_commit(
    process: Process, events: Sequence[InboundEvent], unknown: CommitUnknown, deadline: float
) -> Sequence[Accepted | CommitUnknown]:
    """COMMIT was sent and its answer lost. The same ids again: when the first commit did arrive
    this finds its rows, waiting for it if need be, and otherwise it is the first.

    CommitUnknown, a 503, only where no second look could tell: where nothing is inserted, nothing
    waits for a first commit that is still on its way.
    """
    deadline = max(deadline, time.monotonic() + LAST_LOOK_SECONDS)
    while (left := deadline - time.monotonic()) > 0:
        try:
            answers = await _accept(process, events, RequestTimeouts.within(left), again=True)
        except Unavailable:
            await asyncio.sleep(0.1)
        else:
            return [answer if isinstance(answer, Accepted) else unknown for answer in answers]
    raise CommitUnknown(unknown.detail, unanswered=True) from unknown


async def _accept(
    process: Process,
    events: Sequence[InboundEvent],
    timeouts: RequestTimeouts = TIMEOUTS,
    *,
    again: bool = False,
) -> Sequence[Answer]:
    outdated: set[str] = set()
    for _ in range(receipts.TRIES):
        try:
            async with process.database.write(timeouts) as db:
                if again:
                    await db.use(lambda link: link.confirm_reads())
                batch = _Batch(process.vault, process.compute, db, events, outdated)
                await batch.answer_all(again=again)
                fresh = [(event.workspace.id, event.run_id) for event in batch.fresh]
                if fresh:
                    db.after_commit(lambda: process.hints.hint("run", fresh))  # noqa: B023 - this round's
            return [batch.answers[event.run_id] for event in events]
        except _Overtaken as overtaken:
            outdated |= overtaken.outdated
    raise Unavailable("Other requests with the same key are being processed; retry the request.")


class _Overtaken(Exception):
    """Something changed since we looked: everything is undone and looked at again."""

    def __init__(self, outdated: set[str]) -> None:
        super().__init__()
        self.outdated = outdated  # runs of events that were judged by what is no longer so


@dataclass(slots=True)
class _Batch:
    """Repeats, contacts and runs of all events at once, after the look at their receipts."""

    vault: Vault
    compute: Compute
    db: Handle
    events: Sequence[InboundEvent]
    outdated: set[str]
    answers: dict[str, Answer] = field(default_factory=dict)  # by run id
    fresh: list[InboundEvent] = field(default_factory=list)  # to become runs
    copies: list[InboundEvent] = field(default_factory=list)  # of a fresh one, which came together
    contacts: dict[Who, FoundContact] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # for the owner, by run id

    async def answer_all(self, *, again: bool) -> None:
        for event in self.events:
            if event.run_id in self.outdated:
                self.answers[event.run_id] = Outdated()
        if again:
            await self._recognise(self._open())
        await self._repeat()
        await self._look_up()
        await self._create()
        await self._keep_receipts()
        await self._start()
        first = {(event.workspace.id, event.receipt): event for event in self.fresh}
        for event in self.copies:
            original = first[event.workspace.id, event.receipt]
            self.answers[event.run_id] = Accepted(
                original.run_id, self._contact(original), replayed=True
            )
        await records.insert_many(self.db, list(self._records()))

    def _open(self) -> list[InboundEvent]:
        return [event for event in self.events if event.run_id not in self.answers]

    async def _recognise(self, events: Sequence[InboundEvent]) -> None:
        """Runs that an earlier try of these very requests has made."""
        if not events:
            return
        known = await runs.known(self.db, [(event.workspace.id, event.run_id) for event in events])
        for run_id, run in known.items():
            self.answers[run_id] = Accepted(run_id, run.contact_id)

    async def _repeat(self) -> None:
        keyed = {
            (event.workspace.id, event.receipt): event
            for event in self._open()
            if event.receipt is not None
        }
        if not keyed:
            return
        kept = {
            (receipt.workspace_id, receipt.id): receipt
            for receipt in await receipts.by_ids(self.db, list(keyed))
        }
        for event in self._open():
            receipt = kept.get((event.workspace.id, event.receipt or b""))
            if receipt is not None:
                # Our own, where the first try has arrived since we looked for its run.
                replayed = receipt.run_id != event.run_id
                self.answers[event.run_id] = Accepted(receipt.run_id, receipt.contact_id, replayed)

    async def _look_up(self) -> None:
        waiting = self._open()
        wanted = {event.who for event in waiting if event.who is not None}
        if wanted:
            self.contacts = await writing.find_all(self.db, wanted)
        led: set[tuple[str, bytes]] = set()
        for event in waiting:
            if isinstance(event.lookup, Problem):
                self.answers[event.run_id] = event.lookup
            elif event.who not in self.contacts and not event.creates:
                self.answers[event.run_id] = lookups.unknown(
                    event.lookup,
                    by_address="switch on createContact",
                    path=contact_path(event.trigger),
                )
            elif await self._is_crowded(event):
                self.answers[event.run_id] = chains.too_wide()
            elif event.receipt is None:
                self.fresh.append(event)
            elif (event.workspace.id, event.receipt) in led:
                self.copies.append(event)
            else:
                led.add((event.workspace.id, event.receipt))
                self.fresh.append(event)

    async def _is_crowded(self, event: InboundEvent) -> bool:
        """Others count at the same time, of other contacts: a few more than the limit may start."""
        root = event.workspace.root
        beside = sum(one.workspace.root == root for one in self.fresh) if root else 0
        return await reactions.is_crowded(self.db, event.workspace, beside + 1)

    async def _create(self) -> None:
        missing: dict[Who, Missing] = {}
        for event in list(self.fresh):
            who, lookup = event.who, event.lookup
            assert who is not None  # noqa: S101 - the others were refused
            assert isinstance(lookup, Lookup)  # noqa: S101 - likewise
            if self.contacts.get(who, _NOBODY).is_one_of_several:
                self.notes[event.run_id] = "Several contacts match; the oldest was taken."
            if who not in self.contacts and who not in missing:
                given = event.defaults or self._defaults(event)
                if isinstance(given, Heavy):
                    self._put_off(event, given)
                    continue
                missing[who] = Missing(event.workspace, lookup, given.values, given.tags)
                if given.failed:
                    left_out = ", ".join(given.failed)
                    self.notes[event.run_id] = f"Left out of the new contact: {left_out}."
        if missing:
            self.contacts |= await writing.make_all(self.db, self.vault, missing)

    def _defaults(self, event: InboundEvent) -> Defaults | Heavy:
        if not _raw_defaults(event):
            return NO_DEFAULTS
        try:
            return self.compute.attempt(
                _defaults_computation(event), large=len(event.request.body) > LARGE
            )
        except Heavy as heavy:
            return heavy

    def _put_off(self, event: InboundEvent, heavy: Heavy) -> None:
        """The event, and its copies, come again with their defaults; no other waits for them."""
        self.fresh.remove(event)
        self.answers[event.run_id] = heavy
        if event.receipt is None:
            return
        same = (event.workspace.id, event.receipt)
        for copy in [one for one in self.copies if (one.workspace.id, one.receipt) == same]:
            self.copies.remove(copy)
            self.answers[copy.run_id] = heavy

    async def _keep_receipts(self) -> None:
        new = [
            Receipt(event.workspace.id, event.receipt, event.run_id, self._contact(event))
            for event in self.fresh
            if event.receipt is not None
        ]
        if not new:
            return
        new.sort(key=lambda receipt: (receipt.workspace_id, receipt.id))
        expires_at = await self.db.now() + receipts.REPEATED_WITHIN
        if await receipts.insert_many(self.db, new, expires_at=expires_at) < len(new):
            raise _Overtaken(set())

    async def _start(self) -> None:
        if not self.fresh:
            return
        started = await new_runs.insert_each(
            self.db,
            [
                NewRun(
                    event.workspace.id,
                    event.run_id,
                    event.request.definition_id,
                    event.revision,
                    self._contact(event),
                    event.request.body,
                    event.workspace.depth,
                    event.workspace.root,
                )
                for event in self.fresh
            ],
        )
        for event in self.fresh:
            if event.run_id in started:
                self.answers[event.run_id] = Accepted(event.run_id, self._contact(event))
        left = [event for event in self.fresh if event.run_id not in started]
        # Our own first try was under way until now; or the definition was changed meanwhile.
        await self._recognise(left)
        outdated = {event.run_id for event in left if event.run_id not in self.answers}
        if outdated:
            raise _Overtaken(outdated)

    def _contact(self, event: InboundEvent) -> str:
        assert event.who is not None  # noqa: S101 - the others were refused
        return self.contacts[event.who].id

    def _records(self) -> Iterator[RequestRecord]:
        for event in self.events:
            answer = self.answers[event.run_id]
            if isinstance(answer, Problem):
                hash = None
                if isinstance(event.lookup, Lookup):
                    hash = lookups.keyed_hash(self.vault, event.workspace.id, event.lookup)
                yield webhook_requests.refusal(event.request, answer, looked_up=hash)
            elif isinstance(answer, Accepted):
                yield webhook_requests.record(
                    event.request,
                    "REPEATED" if answer.replayed else "ACCEPTED",
                    202,
                    detail=self.notes.get(event.run_id),
                    run_id=answer.run_id,
                    contact_id=answer.contact_id,
                )


_NOBODY = FoundContact("")
NO_DEFAULTS = Defaults({}, (), ())
