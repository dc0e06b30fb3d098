"""Live membership is what a fresh evaluation finds, after whatever has happened."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from app.audience import (
    chunks,
    erasing,
    membership,
    segment_contacts,
    segment_jobs,
    segments,
    topics,
    upserts,
    writing,
)
from app.audience.chunks import ChunkSize
from app.audience.reactions import ContactEvent, all_happened
from app.audience.subscriptions import Given
from app.audience.topics import Answer
from app.audience.upserts import Entry
from app.audience.workspace_context import WorkspaceContext
from app.consent import consent
from app.database import ids
from app.database.db import Handle, new_id
from app.database.handle import ConnectedHandle
from app.database.ids import first_id
from app.errors import CommitUnknown, Problem
from app.jobs import leases
from app.machine import document, segment_changes, segment_filter
from app.machine.contact_values import State
from app.machine.reasons import Reason
from app.messages import reports
from app.process import Process
from app.providers.callbacks import Became
from app.runs import run_control
from app.store import (
    contact_past,
    contacts,
    delivery_attempts,
    delivery_reports,
    jobs,
    messages,
    runs,
    segment_fills,
    segment_members,
)
from app.store import segments as store
from app.store import topics as stored_topics
from app.store.contacts import Contact
from app.store.jobs import Job
from app.store.row_keys import WorkspaceKey
from app.store.segment_members import SegmentMembership
from tests.audience.segment_worker import Worker
from tests.cast import SEND_HELLO, hook, lock_waiters, settle, workspace
from tests.servers import set_clock
from tests.slow_statements import cut_off
from workers import maintenance
from workers.maintenance import JobSweep
from workers.retention import RetentionScan

CHANGES = int(os.environ.get("CHANGES", "125"))  # make -C lab fuzz-membership
SEEDS = range(int(os.environ.get("SEEDS", "2")))
KILLED_EVERY = 8  # a worker is a process of its own, and killed
WAIT = {"id": "rest", "type": "wait", "duration": "PT2H"}


@dataclass(slots=True)
class World:
    """A workspace in which things happen at random."""

    process: Process
    workspace_id: str
    flow_id: str
    topic_id: str
    random: random.Random
    ahead_ms: int = 0
    seen: Counter[str] = field(default_factory=Counter)  # how many changes, jumps, deaths, …
    people: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)

    @property
    def context(self) -> WorkspaceContext:
        return WorkspaceContext(
            self.workspace_id, None, self.process.vault, hints=self.process.hints
        )

    # --- filters ----------------------------------------------------------------------------------

    def filter(self, depth: int = 2) -> Any:
        pick = self.random.random()
        if depth and pick < 0.4:
            parts = [self.filter(depth - 1) for _ in range(self.random.randint(1, 3))]
            return self.random.choice([{"all": parts}, {"any": parts}, {"not": parts[0]}])
        if pick < 0.5 and self.segments:
            return {"segmentId": self.random.choice(self.segments)}
        within = self.random.choice([{}, {"within": self.random.choice(["PT30M", "PT2H"])}])
        op = self.random.choice(["eq", "lt", "gte", "lte"])
        count = {"op": op, "value": self.random.choice([0, 1, 2])}
        renews = {"path": "contact.metadata.renewsAt", "op": "within_last", "value": "PT1H"}
        young = {"path": "contact.createdAt", "op": "within_last", "value": "PT2H"}
        late = {"path": "event.properties.at", "op": "within_last", "value": "PT1H"}
        chosen: Any = self.random.choice(
            [
                {"path": "contact.tags", "op": "contains", "value": self.random.choice("ab5")},
                {"path": "contact.tags", "op": "contains", "value": 5},
                {"path": "contact.metadata.plan", "op": "eq", "value": "pro"},
                {"path": "contact.firstName", "op": "exists", "value": True},
                {"path": "contact.subscriptions.email", "op": "eq", "value": "subscribed"},
                {"event": self.random.choice(["order", "visit"]), "count": count, **within},
                {"event": "order", "match": late},
                {"message": self.random.choice(["sent", "bounced"]), **within},
                {
                    "run": self.random.choice(["in", "entered", "completed"]),
                    "definitionId": self.flow_id,
                },
                {
                    "path": f"contact.topics.{self.topic_id}.email",
                    "op": "eq",
                    "value": self.random.choice(["subscribed", "pending", "unsubscribed"]),
                },
                renews,
                young,
            ]
        )
        self.seen["timed"] += "within" in repr(chosen)
        return chosen

    # --- what happens -----------------------------------------------------------------------------

    async def create(self, db: Handle) -> None:
        row = await writing.create(db, self.context, self.values(), self.tags())
        self.people.append(row.id)
        self.seen["tried"] += 1

    def values(self) -> dict[str, Any]:
        values: dict[str, Any] = {"email": f"{new_id('x')}@x.test"}
        if self.random.random() < 0.5:
            values["firstName"] = self.random.choice(["Ada", "Bob"])
        return {**values, "metadata": {"plan": self.random.choice(["pro", "free"])}}

    def tags(self) -> list[str]:
        return self.random.sample(["a", "b", "5", "5.0"], self.random.randint(0, 2))

    async def patch(self, db: Handle) -> None:
        soon = document.text(await db.now() + timedelta(minutes=self.random.choice([-90, -30, 45])))
        change: dict[str, Any] = self.random.choice(
            [
                {"firstName": self.random.choice([None, "Eve"])},
                {"metadata": {"plan": self.random.choice(["pro", "free", None])}},
                {"metadata": {"renewsAt": self.random.choice([soon, None])}},
                {"subscriptions": {"email": self.random.choice(["subscribed", "unsubscribed"])}},
            ]
        )
        row = await self.someone(db)
        if row is not None:
            await writing.change(db, self.context, row, change)

    async def tag(self, db: Handle) -> None:
        row = await self.someone(db)
        if row is not None and self.random.random() < 0.5:
            await writing.add_tags(db, self.context, row.id, self.tags())
        elif row is not None:
            await writing.remove_tag(db, self.context, row.id, self.random.choice("ab5"))

    async def event(self, db: Handle) -> None:
        row = await self.someone(db)
        if row is not None:
            now = await db.now()
            name = self.random.choice(["order", "visit", "else"])
            at = now - timedelta(minutes=self.random.choice([0, 20, 100]))
            given = {"at": document.text(now + timedelta(minutes=self.random.choice([-20, 30])))}
            happened = ContactEvent(row.id, name, given, at, reacts=at == now)
            await all_happened(db, self.context, [happened])

    async def opt(self, db: Handle) -> None:
        """Somebody answers about a topic, or is asked to confirm."""
        row = await self.someone(db)
        if row is not None:
            state: State = self.random.choice(["subscribed", "pending", "unsubscribed"])
            answers = [Answer(self.topic_id, "email", state)]
            await topics.answer(db, self.context, row, answers, Given("member"))

    async def bounce(self, db: Handle) -> None:
        row = await self.someone(db)
        if row is not None and row.email is not None:
            await consent.suppress(
                self.process, db, workspace_id=self.workspace_id, channel="email",
                address=row.email, reason=self.random.choice(["bounced", "complained"]),
                source="provider",
            )  # fmt: skip

    async def report(self, db: Handle) -> None:
        """A message that has left comes back."""
        left = await db.fetch_values(
            "SELECT id FROM messages WHERE workspace_id = :id AND status = 'SENT'",
            id=self.workspace_id,
        )
        if left:
            whose = {"workspace_id": self.workspace_id}
            id = self.random.choice(sorted(left))
            attempts = await delivery_attempts.of_message(db, **whose, message_id=id)
            row = await delivery_reports.locked(db, **whose, attempt_id=attempts[-1])
            if row is not None:
                bounced = Became("BOUNCED", Reason.BOUNCED_HARD)
                await reports.move(self.process, db, row, bounced, None)
                self.seen["tried"] += 1

    async def bring(self, db: Handle) -> None:
        """A file has some who are there and one who is new."""
        known = self.random.sample(self.people, min(2, len(self.people)))
        given = [{"id": id, "firstName": "Eve", "tags": self.tags()} for id in known]
        given.append({**self.values(), "tags": self.tags()})
        await upserts.upsert(db, self.context, [Entry.read(None, one) for one in given])
        self.seen["tried"] += len(given)

    async def run(self, db: Handle) -> None:
        row = await self.someone(db)
        if row is not None:
            await run_control.start(
                self.process,
                db,
                self.workspace_id,
                definition_id=self.flow_id,
                contact_id=row.id,
                data={},
            )

    async def cancel(self, db: Handle) -> None:
        await runs.cancel_some(
            db,
            workspace_id=self.workspace_id,
            of="definition",
            id=self.flow_id,
            reason_code="cancelled",
            limit=1,
        )

    async def erase(self, db: Handle) -> None:
        if self.people and self.random.random() < 0.2:
            await erasing.erase(db, self.context, self.people.pop(0))
            self.seen["tried"] += 1

    async def someone(self, db: Handle) -> Contact | None:
        if not self.people:
            return None
        self.seen["tried"] += 1
        id = self.random.choice(self.people)
        return await contacts.locked(db, workspace_id=self.workspace_id, id=id)

    async def save(self, db: Handle, filter: Any = None) -> None:
        """A segment that is new, or another filter for one that there is."""
        existing = await store.of_workspace(db, workspace_id=self.workspace_id)
        is_new = len(self.segments) < 2 or (len(self.segments) < 6 and self.random.random() < 0.5)
        own = None if is_new else self.random.choice(self.segments)
        with suppress(Problem):  # a circle, or too deep
            readable = await segments.read(
                db,
                filter or self.filter(),
                workspace_id=self.workspace_id,
                kept=timedelta(days=30),
                existing=existing,
                own_id=own,
            )
            given: dict[str, Any] = {
                "workspace_id": self.workspace_id,
                "id": own or new_id("seg"),
                "name": "S",
                "kind": "live",
                "filter": document.dumps(readable.raw).decode(),
                "starts": False,
                "fill_to": await membership.fill_to(db, workspace_id=self.workspace_id),
            }
            saved = await (store.insert if own is None else store.refill)(db, **given)
            known = {**existing, saved.id: saved}
            led = await segments.leading_to(saved.id, known)
            await store.refill_again(
                db, workspace_id=self.workspace_id, ids=led, fill_to=saved.fill_to
            )
            await membership.begin_filling(
                db,
                self.process.hints,
                [saved, *(known[id] for id in led)],
                known,
                workspace_id=self.workspace_id,
            )
            self.segments += [saved.id] if own is None else []
            self.seen["tried"] += 1

    # --- workers ----------------------------------------------------------------------------------

    async def work(self) -> None:
        """A worker does some of it, dies amid it, or never comes back to what it has claimed."""
        self.seen["worked"] += 1
        if self.seen["worked"] % KILLED_EVERY == 0:
            await self.work_until_killed()
            return
        claimed = await self.process.claim("segment", [], 2)
        for job in claimed:
            task = asyncio.create_task(segment_jobs.work(self.process, job))
            if self.random.random() < 0.6:
                await asyncio.sleep(self.random.random() * 0.004)
                self.seen["died"] += task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def work_until_killed(self) -> None:
        """Kill a worker that is a process of its own with -9, amid its work if there is any."""
        async with self.process.database.write() as db:
            await jobs.wake(db, "segment", workspace_id=self.workspace_id, ids=self.segments[-1:])
        worker = Worker(self.process.settings, self.ahead_ms)
        self.seen["killed"] += await worker.has_begun()
        await asyncio.sleep(self.random.random() * 0.01)
        await worker.kill()

    async def outlive(self) -> None:
        """Delete what is older than a day: all runs that have ended by now, with their messages.
        Events stay, for their ids have the time of our own clock."""
        self.ahead_ms += 25 * 3_600_000
        set_clock(self.process.database, self.ahead_ms)
        before = await self.runs_kept()
        scan = RetentionScan()
        while await scan.run_batch(self.process):
            pass
        self.seen["removed"] += before - await self.runs_kept()

    async def runs_kept(self) -> int:
        async with self.process.database.read() as db:
            return int(await db.fetch_value("SELECT count(*) FROM runs"))

    async def step(self) -> None:
        chosen = self.random.random()
        if chosen < 0.1:
            self.seen["jumps"] += 1
            self.ahead_ms += self.random.choice([60_000, 1_800_000, 3_600_000])
            set_clock(self.process.database, self.ahead_ms)
        elif chosen < 0.25:
            await self.work()
        elif chosen < 0.3:
            await settle(self.process)
        elif chosen < 0.33:
            await self.outlive()
        else:
            acts = [self.create, self.patch, self.tag, self.event, self.event, self.patch]
            acts += [self.tag, self.run, self.cancel, self.erase, self.opt, self.bounce]
            acts += [self.report, self.bring]
            acts += [self.save]
            with suppress(Problem):  # such as a subscription that no member may take back
                tried = self.seen["tried"]
                async with self.process.database.write() as db:
                    await self.random.choice(acts)(db)
                self.seen["changes"] += self.seen["tried"] - tried

    # --- what must hold ---------------------------------------------------------------------------

    async def kept(self) -> dict[str, tuple[set[str], int]]:
        """The kept membership of each segment, and its count."""
        async with self.process.database.read() as db:
            counts = await segment_members.counts(db, workspace_id=self.workspace_id)
            found = {}
            for id in self.segments:
                rows, _ = await segment_members.page(
                    db,
                    workspace_id=self.workspace_id,
                    segment_id=id,
                    filters={},
                    before=None,
                    limit=10_000,
                )
                found[id] = {row.id for row in rows}, counts.get(id, 0)
        return found

    async def fresh(self) -> dict[str, tuple[set[str], int]]:
        async with self.process.database.read() as db:
            existing = await store.of_workspace(db, workspace_id=self.workspace_id)
        found = {}
        for id in self.segments:
            readable = segments.with_referenced(segments.parse(existing[id].filter), existing)
            ids, rest, is_first = set[str](), None, True
            while is_first or rest:  # a page ends when its time is over
                page = await segment_contacts.page(
                    self.process,
                    readable,
                    workspace_id=self.workspace_id,
                    filters={},
                    before=rest,
                    limit=10_000,
                )
                ids |= {row.id for row in page.rows}
                rest, is_first = page.rest, False
            found[id] = ids, len(ids)
        return found


async def world(process: Process, acme: str, seed: int) -> World:
    await hook(process, acme, [SEND_HELLO, WAIT], trigger={"source": "manual"})
    async with process.database.read() as db:
        flow_id = await db.fetch_value(
            "SELECT id FROM definitions WHERE workspace_id = :workspace_id", workspace_id=acme
        )
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET retention_days = 1")
        topic = await stored_topics.insert(
            db, workspace_id=acme, id=new_id("top"), name="News", description=None,
            channels=["email"], double_opt_in=True, is_default=False,
        )  # fmt: skip
    return World(process, acme, flow_id, topic.id, random.Random(seed))


@pytest.mark.drill
@pytest.mark.timeout(180 + CHANGES)  # a mark goes before the laboratory's `--timeout 0`
@pytest.mark.parametrize("seed", SEEDS)
async def test_membership_is_what_a_fresh_evaluation_finds(
    process: Process, acme: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_jobs, "RECHECKED_AFTER", timedelta(days=9_999))  # it hides faults
    if seed % 2:  # the machine judges one, and then SQL no more than two at a time
        monkeypatch.setattr(chunks, "FIRST", 1)
        monkeypatch.setattr(segment_jobs, "CHUNK", 2)
        monkeypatch.setattr(segment_jobs, "FEW", 2)
    here = await world(process, acme, seed)
    for number in itertools.count(1):
        await here.step()
        is_last = here.seen["changes"] >= CHANGES
        if number % 20 == 0 or is_last:
            await all_done(here)
            assert await here.kept() == await here.fresh(), (seed, number)
        if is_last:
            break
    assert any(ids for ids, _ in (await here.kept()).values())
    seen = {name: here.seen[name] for name in ("jumps", "died", "killed", "timed", "removed")}
    assert min(seen.values()) > 0, seen


async def all_done(here: World) -> None:
    """Finish what workers left behind, which is due again when their leases have ended."""
    here.ahead_ms += 61_000
    set_clock(here.process.database, here.ahead_ms)
    await settle(here.process)
    await JobSweep().run(here.process)
    await settle(here.process)


async def test_runs_and_messages_of_a_contact_move_it(process: Process, acme: str) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        for filter in (
            {"message": "sent"},
            {"run": "in", "definitionId": here.flow_id},
            {"run": "entered", "definitionId": here.flow_id},
        ):
            await here.save(db, filter)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [0, 0, 0]
    async with process.database.write() as db:
        await here.run(db)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1, 1, 1]
    async with process.database.write() as db:
        await here.cancel(db)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1, 0, 1]


async def test_a_message_that_is_sent_again_has_not_bounced(process: Process, acme: str) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"message": "bounced"})
        await here.run(db)
    await settle(process)
    async with process.database.write() as db:
        of = {"workspace_id": acme}
        id = await db.fetch_value(
            "SELECT id FROM messages WHERE workspace_id = :workspace_id", **of
        )
        await db.execute(
            "UPDATE messages SET status = 'BOUNCED' WHERE workspace_id = :workspace_id", **of
        )
        await segment_members.touch_named(
            db, **of, changed={(segment_changes.MESSAGE, here.people[0])}
        )
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1]
    async with process.database.write() as db:
        assert await messages.requeue(db, **of, id=id, ended=["BOUNCED"])
        await jobs.delete(db, "message", **of, ids=[id])  # it is not sent yet
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [0]


async def test_of_two_changes_at_once_the_second_sees_the_first(
    process: Process, acme: str
) -> None:
    """Neither would find the contact in the segment by its own half."""
    here = await world(process, acme, 1)
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    most = {"path": "contact.metadata.plan", "op": "eq", "value": "max"}
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"all": [vip, most]})
    await settle(process)
    [id] = here.people

    async def tagged() -> None:
        async with process.database.write() as db:
            await writing.add_tags(db, here.context, id, ["vip"])

    async with process.database.write() as db:
        row = await contacts.locked(db, workspace_id=acme, id=id)
        assert row is not None
        await writing.change(db, here.context, row, {"metadata": {"plan": "max"}})
        second = asyncio.create_task(tagged())
        await lock_waiters(process, 1)
    await second
    assert [*(await here.kept()).values()] == [({id}, 1)]


async def ordered_lately(here: World) -> None:
    """Somebody enters a segment whose flow starts by that, a while after it was filled."""
    async with here.process.database.write() as db:
        await here.create(db)
        lately = {"event": "order", "within": "PT1H"}
        most = {"path": "contact.metadata.plan", "op": "eq", "value": "max"}
        await here.save(db, {"any": [lately, most]})
    [id] = here.segments
    trigger = {"source": "segment_entered", "segmentId": id}
    await hook(here.process, here.workspace_id, [WAIT], trigger=trigger)
    await settle(here.process)


async def order(here: World, *, is_quiet: bool = False, **properties: str) -> None:
    async with here.process.database.write() as db:
        row = await here.someone(db)
        assert row is not None
        at = await db.now()
        happened = [ContactEvent(row.id, "order", properties, at, reacts=not is_quiet)]
        await all_happened(db, here.context, happened)


async def entries(here: World) -> tuple[list[tuple[set[str], int]], int]:
    """Read who is in the segments, and how many runs their entries have started."""
    await settle(here.process)
    async with here.process.database.read() as db:
        count = await db.fetch_value("SELECT count(*) FROM runs")
    return [*(await here.kept()).values()], count


async def test_an_entry_that_another_makes_while_a_job_has_begun_is_made_once(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the moment at which the job's transaction began it would lie in the future."""
    if process.database.engine == "sqlite":
        pytest.skip("one writer: nobody commits meanwhile")
    here = await world(process, acme, 1)
    await ordered_lately(here)
    async with process.database.write() as db:
        await segment_members.touch(
            db, workspace_id=acme, contact_ids=here.people, segment_ids=here.segments
        )
    free, to_come = segment_members.lock_free, [order]

    async def locked(*given: Any, **named: Any) -> list[str]:
        if to_come:
            await to_come.pop()(here)
        return await free(*given, **named)

    monkeypatch.setattr(segment_members, "lock_free", locked)
    assert await entries(here) == ([(set(here.people), 1)], 1)


async def test_a_change_that_has_waited_sees_what_happened_meanwhile(
    process: Process, acme: str
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("one writer: nobody commits meanwhile")
    here = await world(process, acme, 1)
    await ordered_lately(here)
    async with process.database.write() as db:
        await db.now()
        await order(here)
        row = await here.someone(db)
        assert row is not None
        await writing.change(db, here.context, row, {"metadata": {"plan": "other"}})
    assert await entries(here) == ([(set(here.people), 1)], 1)


@pytest.mark.parametrize("bound", ["MOST_OF_PAST", "MOST_PROPERTIES"])
@pytest.mark.parametrize("is_quiet", [False, True], ids=["now", "long ago"])
async def test_who_has_a_longer_past_than_is_read_is_in_a_segment_whoever_judges(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, bound: str, is_quiet: bool
) -> None:
    monkeypatch.setattr(contact_past, bound, 3 if bound == "MOST_OF_PAST" else 40)
    here = await world(process, acme, 1)
    plan = {"path": "event.properties.plan", "op": "eq", "value": "pro"}
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"event": "order", "match": plan, "within": "P1D"})
    [id] = here.segments
    trigger = {"source": "segment_entered", "segmentId": id}
    await hook(process, acme, [WAIT], trigger=trigger)
    await settle(process)
    await order(here, plan="pro")
    for number in range(6):
        await order(here, is_quiet=is_quiet, plan="free")
        if is_quiet:  # judged at once, and by the job's turn is what it was
            assert [*(await here.kept()).values()] == [(set(here.people), 1)]
        assert await entries(here) == ([(set(here.people), 1)], 1), number
        async with process.database.write() as db:
            await segment_members.touch(
                db, workspace_id=acme, contact_ids=here.people, segment_ids=here.segments
            )
        assert await entries(here) == ([(set(here.people), 1)], 1), number


@pytest.mark.parametrize("is_quiet", [False, True], ids=["now", "long ago"])
async def test_a_change_goes_through_so_much_of_a_past_at_once_and_leaves_the_rest_to_sql(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    """Else a contact's ten thousand events, and two hundred segments that ask for each of them
    fifty times, would keep the event loop for minutes."""
    monkeypatch.setattr(membership, "MOST_GONE_THROUGH", 10)
    gone_through: list[int] = []
    answer = segment_filter.Did.answer

    def counted(self: segment_filter.Did, facts: Any) -> Any:
        gone_through.append(len(facts["events"]))
        return answer(self, facts)

    monkeypatch.setattr(segment_filter.Did, "answer", counted)
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        for least in (1, 3, 5, 6):
            await here.save(db, {"event": "order", "count": {"op": "gte", "value": least}})
    await settle(process)
    for _ in range(5):
        gone_through.clear()
        await order(here, is_quiet=is_quiet)
        assert sum(gone_through) <= 10
    await settle(process)
    everybody = set(here.people)
    found = [(everybody, 1), (everybody, 1), (everybody, 1), (set(), 0)]
    assert [*(await here.kept()).values()] == found


async def test_what_is_long_ago_starts_nothing_for_who_has_a_longer_past_than_is_read(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to the segment's job, it would."""
    monkeypatch.setattr(contact_past, "MOST_OF_PAST", 2)
    here = await world(process, acme, 1)
    thrice = {"event": "order", "count": {"op": "gte", "value": 3}, "within": "P1D"}
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, thrice)
    trigger = {"source": "segment_entered", "segmentId": here.segments[0]}
    await hook(process, acme, [WAIT], trigger=trigger)
    await settle(process)
    for _ in range(3):
        await order(here, is_quiet=True)
    assert [*(await here.kept()).values()] == [(set(here.people), 1)]
    assert await entries(here) == ([(set(here.people), 1)], 0)


async def test_whoever_takes_too_long_even_alone_is_judged_by_the_newest_part_of_a_longer_past(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for ever by turns, here and there."""
    monkeypatch.setattr(contact_past, "MOST_OF_PAST", 2)
    cut_off(monkeypatch, least=1)
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"event": "order", "count": {"op": "gte", "value": 2}})
    await settle(process)
    for count in (0, 1, 1, 1):
        await order(here)
        await settle(process)
        assert [count for _, count in (await here.kept()).values()] == [count]


async def test_a_job_that_rests_beyond_what_is_due_is_found(process: Process, acme: str) -> None:
    here = await world(process, acme, 1)
    young = {"path": "contact.createdAt", "op": "within_last", "value": "PT2H"}
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, young)
    await settle(process)
    async with process.database.write() as db:  # as if it had not seen the contact
        far = await db.now() + timedelta(days=300)
        await db.execute("UPDATE jobs SET wake_at = :far WHERE kind = 'segment'", far=far)
        await db.execute("UPDATE segments SET rechecked = TRUE")
    set_clock(process.database, 3 * 3_600_000)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1]
    await JobSweep().run(process)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [0]


@pytest.mark.parametrize("is_named", [True, False], ids=["by name", "by itself"])
async def test_whatever_happens_touches_nobody_in_a_segment_that_is_set_aside(
    process: Process, acme: str, is_named: bool
) -> None:
    """Nobody would judge them again before it is saved, and then all are."""
    here, whose = await world(process, acme, 1), WorkspaceKey(workspace_id=acme)
    async with process.database.write() as db:
        await here.create(db)
        for _ in range(2):
            await here.save(db, {"message": "sent"})
    await settle(process)
    aside, working = here.segments
    changed = {(segment_changes.MESSAGE, one) for one in here.people}
    async with process.database.write() as db:
        await store.set_aside(db, **whose, id=aside, reason_code=Reason.POISONED)
        await jobs.delete(db, "segment", **whose, ids=here.segments)
        if is_named:
            await segment_members.touch_named(db, **whose, changed=changed)
        else:
            await segment_members.touch(
                db, **whose, contact_ids=here.people, segment_ids=here.segments
            )
        for id, people in ((aside, []), (working, here.people)):
            found = await segment_members.touched(db, **whose, segment_id=id, limit=9)
            assert [one.contact_id for one in found] == people
        due = await db.fetch_values("SELECT id FROM jobs WHERE kind = 'segment'")
    assert due == [working]


async def test_a_touch_that_was_committed_once_the_job_was_gone_is_found(
    process: Process, acme: str
) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"not": {"event": "x"}})
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET rechecked = TRUE")
        await db.execute("DELETE FROM segment_members")  # as if the contact had been changed
        await segment_members.touch(
            db, workspace_id=acme, contact_ids=here.people, segment_ids=here.segments
        )
        await jobs.delete(db, "segment", workspace_id=acme, ids=here.segments)
    await settle(process)
    assert [ids for ids, _ in (await here.kept()).values()] == [set()]
    async with process.database.read() as db:
        late = await segment_members.late(db, after=("", ""), limit=10)
        assert await segment_members._late_of_shards(db, after=("", ""), limit=10) == late
        assert late == ([(acme, here.segments[0])], None)
    await JobSweep().run(process)
    await settle(process)
    assert [ids for ids, _ in (await here.kept()).values()] == [set(here.people)]


async def test_one_sweep_looks_at_every_segment(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SWEPT_AT_ONCE", 2)
    here = await world(process, acme, 1)
    ids: list[str] = []
    async with process.database.write() as db:
        await here.create(db)
        for number in range(5):
            here.segments.clear()  # it saves a new one then
            await here.save(db, {"not": {"event": f"e{number}"}})
            ids += here.segments
    await settle(process)
    async with process.database.write() as db:
        await db.execute("UPDATE segments SET rechecked = TRUE")
        await jobs.delete(db, "segment", workspace_id=acme, ids=ids)
        await segment_members.touch(
            db, workspace_id=acme, contact_ids=here.people, segment_ids=[max(ids)]
        )
        await jobs.delete(db, "segment", workspace_id=acme, ids=ids)
    await JobSweep().run(process)
    assert [job.id for job in await process.claim("segment", [], 9)] == [max(ids)]


async def test_all_who_were_being_created_are_looked_at_again(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_jobs, "CHUNK", 2)
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        for _ in range(5):
            await here.create(db)
        await here.save(db, {"not": {"event": "x"}})
    await settle(process)
    async with process.database.write() as db:  # as if the fill had seen none of them
        await db.execute("DELETE FROM segment_members")
    set_clock(process.database, 31_000)
    await settle(process)
    assert [ids for ids, _ in (await here.kept()).values()] == [set(here.people)]
    async with process.database.read() as db:
        assert await db.fetch_values("SELECT id FROM jobs WHERE kind = 'segment'") == []


@contextmanager
def made_by_a_clock(ahead_seconds: int) -> Iterator[None]:
    """Give what is created here ids of a process whose clock is so far ahead."""
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(time_ns=lambda: time.time_ns() + ahead_seconds * 10**9)
        patch.setattr(ids, "time", clock)
        patch.setattr(ids, "_source", ids._Source())
        yield


async def test_a_new_segment_has_those_whose_ids_are_of_a_clock_that_was_ahead(
    process: Process, acme: str
) -> None:
    here = await world(process, acme, 1)
    with made_by_a_clock(3_600):
        async with process.database.write() as db:
            await here.create(db)
    async with process.database.write() as db:
        await here.save(db, {"not": {"event": "x"}})
    await settle(process)
    assert [*(await here.kept()).values()] == [(set(here.people), 1)]


async def test_a_fill_goes_beyond_the_clock_of_the_database_where_ours_is_behind(
    process: Process, acme: str
) -> None:
    set_clock(process.database, 120_000)
    async with process.database.write() as db:
        made_now = first_id("con", await db.now(), timedelta(0))
        assert await membership.fill_to(db, workspace_id=acme) > made_now


@pytest.mark.parametrize(("made_at", "ahead"), [(3_600, 0), (-120, -120)])
async def test_who_is_looked_at_again_may_have_an_id_of_another_clock_than_ours(
    process: Process, acme: str, made_at: int, ahead: int
) -> None:
    """Theirs is ahead of all, or ours, which judges."""
    here = await world(process, acme, 1)
    set_clock(process.database, ahead * 1_000)
    async with process.database.write() as db:
        await here.save(db, {"not": {"event": "x"}})
    with made_by_a_clock(made_at):
        async with process.database.write() as db:
            await here.create(db)
    await settle(process)
    async with process.database.write() as db:  # as if the fill had not seen them
        await db.execute("DELETE FROM segment_members")
    set_clock(process.database, ahead * 1_000 + 31_000)
    await settle(process)
    assert [found for found, _ in (await here.kept()).values()] == [set(here.people)]


async def test_the_second_look_ends_though_contacts_are_created_all_the_while(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an import does, for hours; whose clock is ahead, so that all lie beyond the fill's end."""
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.save(db, {"not": {"event": "x"}})
    await settle(process)
    monkeypatch.setattr(segment_jobs, "CHUNK", 2)
    set_clock(process.database, 31_000)
    [job] = await process.claim("segment", [], 1)
    chunks, is_rechecked = 0, False
    with made_by_a_clock(3_600):
        while not is_rechecked and chunks < 9:
            async with process.database.write() as db:
                for _ in range(segment_jobs.CHUNK):
                    await here.create(db)
            await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
            chunks += 1
            async with process.database.read() as db:
                is_rechecked = await db.fetch_value(
                    "SELECT CAST(rechecked AS BOOLEAN) FROM segments"
                )
    assert (chunks, is_rechecked) == (2, True)  # the second finds nobody
    await settle(process)
    assert [found for found, _ in (await here.kept()).values()] == [set(here.people)]


async def test_many_at_once_are_left_to_the_job(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "MOST_AT_ONCE", 0)
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.save(db, {"path": "contact.metadata.plan", "op": "exists", "value": True})
    await settle(process)
    async with process.database.write() as db:
        await here.create(db)
    assert [count for _, count in (await here.kept()).values()] == [0]
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1]


async def test_a_contact_that_is_created_amid_a_chunk_is_counted_once(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk has deleted its old rows, and finds the new contact's when it writes others."""
    if process.database.engine == "sqlite":
        pytest.skip("one writer: nobody commits amid a chunk")
    here = await world(process, acme, 1)
    is_made, is_amid = asyncio.Event(), asyncio.Event()

    async def created() -> None:
        async with process.database.write() as db:
            await here.create(db)
            is_made.set()
            await is_amid.wait()

    async with process.database.write() as db:
        await here.save(db, {"not": {"event": "x"}})
    creating = asyncio.create_task(created())
    await is_made.wait()
    async with process.database.write() as db:
        await here.create(db)  # its id is a later one, so that the chunk goes beyond the first
    fetch = Handle.fetch_values

    async def fetched(db: Handle, sql: str, **values: Any) -> list[Any]:
        rows: list[Any] = await fetch(db, sql, **values)
        if sql.split()[:3] == ["DELETE", "FROM", "segment_members"]:
            is_amid.set()
            await creating
        return rows

    monkeypatch.setattr(Handle, "fetch_values", fetched)
    await settle(process)
    assert creating.done()
    assert [*(await here.kept()).values()] == [(set(here.people), 2)]


async def test_a_change_reads_the_filters_that_it_concerns_and_no_others(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await world(process, acme, 1)
    plan = {"path": "contact.metadata.plan", "op": "exists", "value": True}
    events = [{"event": f"e{number}"} for number in range(9)]
    async with process.database.write() as db:
        await here.save(db, plan)
        outer = {"segmentId": here.segments[0]}
        for filter in (outer, *events):
            here.segments.clear()  # it saves a new one then
            await here.save(db, filter)
    read, asked = segment_filter.read, []

    def counted(raw: Any, *given: Any) -> Any:
        asked.append(raw)
        return read(raw, *given)

    monkeypatch.setattr(segment_filter, "read", counted)
    segments.parse.cache_clear()
    async with process.database.write() as db:
        await here.create(db)
    assert len(asked) == 11  # a new contact concerns them all
    segments.parse.cache_clear()
    asked.clear()
    async with process.database.write() as db:
        row = await here.someone(db)
        assert row is not None
        await writing.change(db, here.context, row, {"metadata": {"plan": "max"}})
    assert asked in ([plan, outer], [outer, plan])


async def unseen_crowd(here: World, count: int) -> None:
    """Contacts in a segment that has yet to be filled."""
    async with here.process.database.write() as db:
        for _ in range(count):
            await here.create(db)
        await here.save(db, {"not": {"event": "x"}})


async def crowd(here: World, count: int) -> None:
    """Likewise, and what is found has entered it."""
    await unseen_crowd(here, count)
    async with here.process.database.write() as db:
        await db.execute("UPDATE segments SET starts = TRUE")


async def touched_crowd(here: World, count: int) -> None:
    """Likewise, but it has been filled before, and all have been touched."""
    whose = {"workspace_id": here.workspace_id}
    await unseen_crowd(here, count)
    await settle(here.process)
    async with here.process.database.write() as db:  # as if nobody had been judged yet
        await db.execute("DELETE FROM segment_members")
        await db.execute("DELETE FROM usage_changes WHERE meter = 'segment'")
        await segment_members.touch(db, **whose, contact_ids=here.people, segment_ids=here.segments)


CROWDS = [unseen_crowd, crowd, touched_crowd]


def slow_down_sql(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let SQL judge contacts who are named as if each had done thousands of things."""
    judge = segment_fills.changes

    async def judged(*given: Any, contact_ids: list[str], **named: Any) -> Any:
        await asyncio.sleep(seconds * len(contact_ids))
        return await judge(*given, contact_ids=contact_ids, **named)

    monkeypatch.setattr(segment_fills, "changes", judged)


async def test_a_chunk_that_takes_longer_than_its_lease_is_not_lost(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "FIRST", 40)
    process = replace(process, settings=replace(process.settings, lease_seconds=1))
    here = await world(process, acme, 1)
    await crowd(here, 8)
    goes_on, judge = asyncio.Event(), segment_fills.changes

    async def judged(*given: Any, **named: Any) -> Any:
        await goes_on.wait()
        return await judge(*given, **named)

    monkeypatch.setattr(segment_fills, "changes", judged)
    [job] = await process.claim("segment", [], 1)
    working = asyncio.create_task(segment_jobs.work(process, job))
    await asyncio.sleep(1.1)
    another = asyncio.create_task(process.claim("segment", [], 1))
    await asyncio.wait({another}, timeout=0.5)  # of SQLite the chunk has the one writer
    goes_on.set()
    assert await another == []
    await working
    assert [count for _, count in (await here.kept()).values()] == [8]


@pytest.mark.parametrize("made", CROWDS)
async def test_whoever_takes_too_long_to_judge_together_is_judged_one_by_one(
    process: Process,
    acme: str,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[World, int], Awaitable[None]],
) -> None:
    """A statement that is cut off has taken longer than a claim goes on for."""
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 0.05)
    here = await world(process, acme, 1)
    await made(here, 3)
    cut_off(monkeypatch, least=2, seconds=0.1)
    await settle(process)
    assert [*(await here.kept()).values()] == [(set(here.people), 3)]


@pytest.mark.parametrize("made", CROWDS)
async def test_whoever_takes_too_long_even_alone_is_judged_by_the_machine(
    process: Process,
    acme: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    made: Callable[[World, int], Awaitable[None]],
) -> None:
    """It looks at a bounded part of what one has done."""
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 0.05)
    monkeypatch.setattr(chunks, "SLOW_SPELL_SECONDS", 0.15)
    here = await world(process, acme, 1)
    await made(here, 3)
    cut_off(monkeypatch, least=1, seconds=0.1)
    for done in (1, 2, 3):
        [job] = await process.claim("segment", [], 1)
        await segment_jobs.work(process, job)
        assert [count for _, count in (await here.kept()).values()] == [done]
    given_up = [one for one in caplog.records if one.message == "a chunk of contacts was cut off"]
    assert [vars(one)["contacts"] for one in given_up] == [8, 1] * 3


@pytest.mark.parametrize("made", CROWDS)
async def test_a_claim_goes_on_after_a_chunk_whose_commit_was_not_answered(
    process: Process,
    acme: str,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[World, int], Awaitable[None]],
) -> None:
    """What is done again finds what it did."""
    monkeypatch.setattr(leases, "ASK_AGAIN_SECONDS", 0.01)
    chunk, answers = segment_jobs._chunk, list[bool]()

    async def unanswered(process: Process, job: Job, size: ChunkSize) -> bool:
        answers.append(await chunk(process, job, size))
        if len(answers) == 1:
            raise CommitUnknown("The answer was lost.")
        return answers[-1]

    here = await world(process, acme, 1)
    await made(here, 20)
    monkeypatch.setattr(segment_jobs, "_chunk", unanswered)
    [job] = await process.claim("segment", [], 1)
    await segment_jobs.work(process, job)
    assert len(answers) > 2
    assert [*(await here.kept()).values()] == [(set(here.people), 20)]


@pytest.mark.parametrize("are_held", [False, True], ids=["erased", "held"])
async def test_a_claim_comes_to_those_behind_whom_it_cannot_judge(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, are_held: bool
) -> None:
    """More than it begins with, who are erased by now, or held by others."""
    here = await world(process, acme, 1)
    await touched_crowd(here, 20)
    first, free = set(here.people[:19]), segment_members.lock_free

    async def locked(db: Handle, *, ids: list[str], **whose: Any) -> list[str]:
        return [id for id in await free(db, ids=ids, **whose) if id not in first]

    if are_held:
        monkeypatch.setattr(segment_members, "lock_free", locked)
    else:
        async with process.database.write() as db:
            await db.execute("DELETE FROM contacts WHERE id = ANY(:ids)", ids=sorted(first))
    [job] = await process.claim("segment", [], 1)
    await segment_jobs.work(process, job)
    assert [*(await here.kept()).values()] == [({here.people[19]}, 1)]
    async with process.database.read() as db:
        whose = {"workspace_id": acme, "segment_id": job.id}
        left = await segment_members.touched(db, **whose, limit=100)
    assert {one.contact_id for one in left} == (first if are_held else set())


async def test_a_chunk_judges_touched_and_due_ones_in_turns(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than it is to, together."""
    here = await world(process, acme, 1)
    await touched_crowd(here, 6)
    whose, due = {"workspace_id": acme}, here.people[3:]
    async with process.database.write() as db:
        await db.execute("DELETE FROM segment_touches WHERE contact_id = ANY(:ids)", ids=due)
        [id] = here.segments
        late = [SegmentMembership(one, id, False, await db.now()) for one in due]
        await segment_members.write(db, **whose, rows=late)
    [job] = await process.claim("segment", [], 1)
    for most, members in ((1, 1), (2, 3), (4, 6)):
        assert await segment_jobs._chunk(process, job, ChunkSize(most))
        assert [count for _, count in (await here.kept()).values()] == [members]


@pytest.mark.parametrize("made", CROWDS)
async def test_of_much_to_compare_a_chunk_has_few_contacts_and_so_does_the_next(
    process: Process,
    acme: str,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[World, int], Awaitable[None]],
) -> None:
    monkeypatch.setattr(segment_contacts, "STEP", 4)
    here, size = await world(process, acme, 1), ChunkSize(1_000)
    await made(here, 9)
    [job] = await process.claim("segment", [], 1)
    assert await segment_jobs._chunk(process, job, size)
    assert [count for _, count in (await here.kept()).values()] == [4]
    assert size.contacts <= 4 * chunks.MOST_GROWTH


@pytest.mark.parametrize("made", CROWDS)
async def test_a_chunk_makes_as_many_statements_whatever_its_size(
    process: Process, monkeypatch: pytest.MonkeyPatch, made: Callable[[World, int], Awaitable[None]]
) -> None:
    """Else a batch of events that ten segments name is judged at some hundred a second."""
    use, statements = ConnectedHandle.use, Counter[int]()

    async def counted(db: ConnectedHandle, work: Any) -> Any:
        statements[len(here.people)] += 1
        return await use(db, work)

    for count in (5, 45):
        here = await world(process, await workspace(process, f"Of {count}"), 1)
        await made(here, count)
        [job] = await process.claim("segment", [], 1)
        with monkeypatch.context() as patched:
            patched.setattr(ConnectedHandle, "use", counted)
            assert await segment_jobs._chunk(process, job, ChunkSize(segment_jobs.CHUNK))
        assert [*(await here.kept()).values()] == [(set(here.people), count)]
        await segment_jobs.work(process, job)
    assert 0 < statements[5] == statements[45]


@pytest.mark.parametrize("made", CROWDS)
@pytest.mark.parametrize(
    ("aim", "sizes"), [(60, [8, 64, 512]), (0, [8, 8, 8])], ids=["quick", "slow"]
)
async def test_a_claim_begins_with_few_contacts_and_takes_more_while_that_is_quick(
    process: Process,
    acme: str,
    monkeypatch: pytest.MonkeyPatch,
    aim: float,
    sizes: list[int],
    made: Callable[[World, int], Awaitable[None]],
) -> None:
    """A thousand who have done much would take longer than a statement may."""
    here = await world(process, acme, 1)
    await made(here, 30)
    monkeypatch.setattr(chunks, "AIM_SECONDS", aim)
    asked: list[int] = []
    for module, name in ((segment_fills, "lock_stretch"), (segment_members, "touched")):
        monkeypatch.setattr(module, name, noted(getattr(module, name), asked))
    await settle(process)
    assert asked[: len(sizes)] == sizes
    assert [*(await here.kept()).values()] == [(set(here.people), 30)]


def noted(function: Any, limits: list[int]) -> Any:
    async def asked(*given: Any, limit: int, **named: Any) -> Any:
        limits.append(limit)
        return await function(*given, limit=limit, **named)

    return asked


async def test_a_fill_gives_its_slot_to_others_after_a_while(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "SPELL_SECONDS", 0.1)
    monkeypatch.setattr(chunks, "FIRST", 2)
    here = await world(process, acme, 1)
    await crowd(here, 8)
    slow_down_sql(monkeypatch, 0.06)
    for done in (2, 4):
        [job] = await process.claim("segment", [], 1)
        await segment_jobs.work(process, job)
        assert [count for _, count in (await here.kept()).values()] == [done]
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [8]


async def test_a_worker_that_lost_its_claim_changes_nothing(process: Process, acme: str) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"not": {"event": "x"}})
    [job] = await process.claim("segment", [], 1)
    async with process.database.write() as db:
        await jobs.take(db, "segment", workspace_id=acme, id=job.id)
    await segment_jobs.work(process, job)
    assert [count for _, count in (await here.kept()).values()] == [0]
    async with process.database.write() as db:
        now = await db.now()
        await jobs.rest(db, "segment", workspace_id=acme, id=job.id, wake_at=now)
    await settle(process)
    assert [count for _, count in (await here.kept()).values()] == [1]


async def test_a_segment_that_ends_its_worker_can_be_removed(process: Process, acme: str) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        await here.create(db)
        await here.save(db, {"not": {"event": "x"}})
    await settle(process)
    async with process.database.write() as db:
        await store.remove(db, workspace_id=acme, id=here.segments[0])
        await jobs.wake(db, "segment", workspace_id=acme, ids=here.segments)
        await db.execute(
            "UPDATE jobs SET claims = :most WHERE kind = 'segment'", most=jobs.MAX_CLAIMS
        )
    await settle(process)
    async with process.database.read() as db:
        assert await store.by_id(db, workspace_id=acme, id=here.segments[0]) is None


async def test_a_fill_waits_for_one_whom_somebody_holds_and_for_no_lock_of_its_own(
    process: Process, acme: str
) -> None:
    here = await world(process, acme, 1)
    async with process.database.write() as db:
        for _ in range(5):
            await here.create(db)
        await here.save(db, {"not": {"event": "x"}})
    [job] = await process.claim("segment", [], 1)
    async with process.database.write() as db:
        await contacts.locked(db, workspace_id=acme, id=here.people[2])
        filling = asyncio.create_task(segment_jobs.work(process, job))
        await lock_waiters(process, 1)
        if process.database.engine == "postgresql":  # SQLite has one writer
            assert [count for _, count in (await here.kept()).values()] == [2]
        # Nobody is held by whoever waits for us.
        await contacts.locked(db, workspace_id=acme, id=here.people[4])
    await filling
    assert [count for _, count in (await here.kept()).values()] == [5]
