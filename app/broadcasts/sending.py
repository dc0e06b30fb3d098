"""The work on a broadcast: frozen → its messages made as they are sent → settled; or cancelled.

Each step is one transaction that locks the broadcast's job first and reads from its row how far the
work has come, so that a worker that dies, or sleeps through its lease, doubles and loses nothing.
Messages are delivered like all others; no more than WINDOW of them are under way, so that a pause
finds few, and a million recipients are a million jobs at no time. Those that wait for their
recipients (a full mailbox is tried for days) keep nobody else from being sent to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from app.audience.chunks import ChunkSize, work_in_chunks
from app.broadcasts import audience as audiences
from app.broadcasts import control, freezing, guard, pacing
from app.broadcasts.guard import SendingRefusal
from app.broadcasts.turns import GRACE, Clock
from app.consent import gate
from app.consent.gate import QuietHours
from app.database import pipelining
from app.database.db import Handle
from app.machine import document
from app.machine.reasons import SENTENCES, Reason
from app.messages import settling
from app.messages.create import Order, create
from app.messages.settling import Transition
from app.process import Process
from app.store import broadcast_recipients as recipients
from app.store import broadcasts, held_messages, jobs, templates, workspaces
from app.store.broadcast_recipients import DueRecipient
from app.store.broadcasts import Broadcast
from app.store.held_messages import UnsettledMessage
from app.store.jobs import Job
from app.store.row_keys import BroadcastKey, RowKey
from app.store.templates import Template
from app.store.workspaces import Workspace

FILLED_IN = timedelta(seconds=1)  # until it is looked again whether a frozen segment is filled
WINDOW = 1_000  # messages under way
WAITING = 20_000  # messages that wait for their recipients; more of them count as under way
BATCH = 250  # messages made in one transaction
# While the audience is being frozen some messages leave already, but few: it is to be done soon.
FROZEN_BETWEEN = 20  # chunks, between two batches
BATCH_MEANWHILE = 50
MISSED_AT_ONCE = 1_000
CANCELLED_AT_ONCE = 2_000
SETTLED_AT_ONCE = 100


async def move(process: Process, job: Job) -> None:
    """Work on the claimed broadcast for a while; it is due again, if something is left to do."""
    async with process.lease(job) as lease:
        if await work_in_chunks(lease, job, partial(step, process, job)):
            async with process.database.write() as db:
                if await jobs.lock(db, [job]):
                    await _rest(process, db, job, await db.now())


async def step(process: Process, job: Job, size: ChunkSize) -> bool:
    """One transaction's worth, of a chunk that has this size while the audience is frozen; whether
    to go on at once. Done again after a COMMIT whose answer was lost, it finds what it did. Raises
    CutOff."""
    async with process.database.write() as db:
        if not await jobs.lock(db, [job]):
            return False
        broadcast = await broadcasts.held(db, workspace_id=job.workspace_id, id=job.id)
        if broadcast is None:
            await jobs.delete(db, "broadcast", workspace_id=job.workspace_id, ids=[job.id])
            return False
        if broadcast.ending:
            return await _cancel(process, db, job)
        if job.claims > jobs.MAX_CLAIMS:
            trouble = SendingRefusal(Reason.POISONED, SENTENCES[Reason.POISONED])
            await control.pause_by_itself(process, db, broadcast, trouble)
            return False
        if broadcast.state == "SCHEDULED":
            if broadcast.send_at is not None and broadcast.send_at > await db.now():
                await _rest(process, db, job, broadcast.send_at)  # its job was lost, and is due now
            else:
                await control.begin(process, db, broadcast)
            return False
        if broadcast.state == "SENDING":
            return await _send(process, db, job, broadcast, size=size)
        await jobs.delete(db, "broadcast", workspace_id=job.workspace_id, ids=[job.id])
        return False


async def _rest(process: Process, db: Handle, job: Job, wake_at: datetime) -> None:
    whose: RowKey = {"workspace_id": job.workspace_id, "id": job.id}
    await broadcasts.rest(db, **whose, until=wake_at)
    await jobs.rest(db, "broadcast", **whose, wake_at=wake_at)
    if wake_at <= await db.now():
        process.hints.due(db, "broadcast", job.workspace_id, job.id)


async def _send(
    process: Process, db: Handle, job: Job, broadcast: Broadcast, *, size: ChunkSize
) -> bool:
    template = await templates.by_id(db, workspace_id=job.workspace_id, id=broadcast.template_id)
    if template is None:
        trouble = SendingRefusal(Reason.TEMPLATE_MISSING, "Its template no longer exists.")
        await control.pause_by_itself(process, db, broadcast, trouble)
        return False
    workspace = await workspaces.by_id(db, id=job.workspace_id)
    now, due_at = await db.now(), broadcast.goes_on_at
    whose: RowKey = {"workspace_id": broadcast.workspace_id, "id": broadcast.id}
    if workspace is None:  # its row is gone
        await jobs.delete(db, "broadcast", workspace_id=job.workspace_id, ids=[job.id])
        return False
    if workspace.sending_paused or workspace.suspended:
        which: BroadcastKey = {"workspace_id": job.workspace_id, "broadcast_id": job.id}
        is_made = broadcast.is_frozen and await recipients.next_due(db, **which) is None
        if is_made and not (await recipients.queued(db, **which, limit=1)).messages:
            await control.finish(db, broadcast)  # whatever bounced: nothing is left to hold back
        else:
            # It stands still, so that `goes_on_at` stays: local times pass meanwhile.
            await jobs.rest(db, "broadcast", **whose, wake_at=now + pacing.PATIENT_BEAT)
        return False
    if broadcast.local_time is not None and due_at is not None and now > due_at + GRACE:
        # A pause or an outage took longer than local times are still good.
        await broadcasts.note(db, **whose, goes_on_at=now, resumed_at=now)
        broadcast = replace(broadcast, goes_on_at=now, resumed_at=now)
    if not broadcast.is_frozen:
        begins_at = broadcast.frozen_at or now
        audience = await audiences.of(db, workspace, broadcast, template, begins_at=begins_at)
        if audience.unfilled is not None:  # somebody has saved it again
            if audience.unfilled.reason_code is not None:
                trouble = SendingRefusal(Reason.POISONED, audiences.GIVEN_UP)
                await control.pause_by_itself(process, db, broadcast, trouble)
            else:
                await _rest(process, db, job, await db.now() + FILLED_IN)
            return False
        is_turn = size.chunks_done % FROZEN_BETWEEN == 0
        broadcast = await freezing.freeze(process, db, broadcast, audience, size)
        if not broadcast.is_frozen and not is_turn:
            return True
    return await _make(process, db, job, broadcast, template, workspace=workspace)


# --- messages made --------------------------------------------------------------------------------


async def _make(
    process: Process,
    db: Handle,
    job: Job,
    broadcast: Broadcast,
    template: Template,
    *,
    workspace: Workspace,
) -> bool:
    """Make the messages whose turn it is, unless something is wrong with those that left."""
    which: BroadcastKey = {"workspace_id": job.workspace_id, "broadcast_id": job.id}
    if await _put_off_missed(db, workspace, broadcast, template):
        return True
    now, queued = await db.now(), await recipients.queued(db, **which, limit=WINDOW + WAITING)
    in_flight = queued.messages - min(queued.waiting, WAITING)
    pace = pacing.Allowance(BATCH, now, timedelta(0))
    if broadcast.per_minute is not None:
        began = broadcast.paced_from or now  # the first of them, which may wait for its time
        pace = pacing.allowance(broadcast.per_minute, began, broadcast.paced_at, now)
    most = BATCH if broadcast.is_frozen else min(BATCH, BATCH_MEANWHILE)
    limit = max(0, min(most, WINDOW - in_flight, pace.messages))
    due = await recipients.due(db, template.channel, **which, by=now, limit=limit)
    trouble = await guard.outcomes(process, db, broadcast)
    wanted = len(due)
    if due and trouble is None:
        due, trouble = await _within_room(process, db, job, template.channel, due)
    if trouble is not None:
        await control.pause_by_itself(process, db, broadcast, trouble)
        return False
    made = await _make_some(process, db, workspace, broadcast, template, due=due) if due else 0
    if broadcast.per_minute is not None:
        paced_at = pace.next_at - (pace.messages - made + 1) * pace.interval
        since = broadcast.paced_from or (now if made else None)
        await broadcasts.note(
            db, workspace_id=job.workspace_id, id=job.id, paced_at=paced_at, paced_from=since
        )
    if not broadcast.is_frozen or made == BATCH:
        return True
    pending_at = await recipients.next_due(db, **which)
    if pending_at is None and not queued.messages and not made:
        await control.finish(db, broadcast)
        return False
    next_look = pacing.next_look(
        now,
        pace,
        is_under_way=bool(in_flight or made or len(due) < wanted),
        is_awaited=bool(queued.messages),
        pending_at=pending_at,
    )
    await _rest(process, db, job, next_look)
    return False


async def _put_off_missed(
    db: Handle, workspace: Workspace, broadcast: Broadcast, template: Template
) -> bool:
    """Put off some of those whose local time passed while the work stood still, to their next one;
    whether there were any."""
    if broadcast.local_time is None or broadcast.resumed_at is None:
        return False
    which: BroadcastKey = {"workspace_id": broadcast.workspace_id, "broadcast_id": broadcast.id}
    begins_at = broadcast.frozen_at or broadcast.resumed_at
    clock = Clock.of(broadcast, begins_at, workspace.timezone)
    too_late, limit = clock.since - datetime.resolution, MISSED_AT_ONCE
    missed = await recipients.due(db, template.channel, **which, by=too_late, limit=limit)
    later = {one.contact_id: clock.turn(one.timezone).due_at for one in missed}
    await recipients.postpone(db, **which, until=later)
    return bool(missed)


async def _within_room(
    process: Process, db: Handle, job: Job, channel: str, due: list[DueRecipient]
) -> tuple[list[DueRecipient], SendingRefusal | None]:
    """The recipients for whose messages the workspace has room, beside what its broadcasts have
    under way and no quota has counted; and why there is none for anybody. Nobody while another of
    its broadcasts asks."""
    room = await guard.room(process, db, job.workspace_id, channel)
    if room.left is None:
        return due, None
    if not await broadcasts.try_lock_room(db, workspace_id=job.workspace_id):
        return [], None
    under_way = await guard.made(process, db, job.workspace_id)
    # Read after them: what has left meanwhile counts twice, and not never.
    room = await guard.room(process, db, job.workspace_id, channel, under_way=under_way)
    due = due if room.left is None else due[: max(0, room.left)]
    return due, None if due or under_way.messages else guard.refusal(room, 1)


async def _make_some(
    process: Process,
    db: Handle,
    workspace: Workspace,
    broadcast: Broadcast,
    template: Template,
    *,
    due: Sequence[DueRecipient],
) -> int:
    """Make the messages of those who are there still, and are not one too many at their domain;
    how many."""
    which: BroadcastKey = {"workspace_id": broadcast.workspace_id, "broadcast_id": broadcast.id}
    gone = {one.contact_id: "erased" for one in due if not one.is_there}
    await recipients.judge(db, **which, reasons=gone)
    there = await _awake(db, workspace, broadcast, template, [one for one in due if one.is_there])
    if template.channel == "email":
        taken = broadcast.domain_slots.items()
        slots = {domain: datetime.fromisoformat(slot) for domain, slot in taken}
        most = process.settings.broadcast_domain_per_minute
        spread = pacing.spread(there, slots, most, await db.now())
        if spread.later:  # they have turns of their own
            reason = recipients.BUSY_DOMAIN
            await recipients.postpone(db, **which, until=spread.later, reason=reason)
        if spread.slots or slots:
            kept = {domain: document.text(slot) for domain, slot in spread.slots.items()}
            await broadcasts.note(
                db, workspace_id=broadcast.workspace_id, id=broadcast.id, domain_slots=kept
            )
        there = spread.now
    works = [partial(_make_one, process, broadcast, template, one.contact_id) for one in there]
    await pipelining.run_all(db, works)
    return len(there)


async def _make_one(
    process: Process, broadcast: Broadcast, template: Template, contact_id: str, db: Handle
) -> None:
    made = await create(
        process,
        db,
        Order(
            workspace_id=broadcast.workspace_id,
            channel=template.channel,
            contact_id=contact_id,
            to=None,
            template_id=template.id,
            content=None,
            category=template.category,
            topic_id=broadcast.topic_id,
            data={},
            broadcast_id=broadcast.id,
        ),
    )
    await recipients.queue(
        db,
        workspace_id=broadcast.workspace_id,
        broadcast_id=broadcast.id,
        contact_id=contact_id,
        message_id=made.message_id,
    )


async def _awake(
    db: Handle,
    workspace: Workspace,
    broadcast: Broadcast,
    template: Template,
    due: Sequence[DueRecipient],
) -> list[DueRecipient]:
    """The recipients for whom no quiet hours are now. The others are due behind these: a message
    that waited for them would be under way all the time. What waits too long is made, and says
    so."""
    quiet = QuietHours.of(workspace.quiet_hours)
    if quiet is None or not quiet.applies(template.category, template.channel):
        return list(due)
    now, later = await db.now(), {}
    for one in due:
        ends = quiet.until(now, one.timezone, workspace.timezone)
        if ends is not None and not quiet.are_too_long(now, ends):
            later[one.contact_id] = gate.released(ends, f"{broadcast.id}|{one.contact_id}")
    which: BroadcastKey = {"workspace_id": broadcast.workspace_id, "broadcast_id": broadcast.id}
    await recipients.postpone(db, **which, until=later, reason=Reason.QUIET_HOURS)
    return [one for one in due if one.contact_id not in later]


# --- cancelled ------------------------------------------------------------------------------------


async def _cancel(process: Process, db: Handle, job: Job) -> bool:
    """End some of what has not left; what is being sent is left to arrive."""
    which: BroadcastKey = {"workspace_id": job.workspace_id, "broadcast_id": job.id}
    cancelled = await recipients.cancel(db, **which, limit=CANCELLED_AT_ONCE)
    ids = await recipients.unsent(db, **which, limit=SETTLED_AT_ONCE)
    rows = await held_messages.take(db, workspace_id=job.workspace_id, ids=ids)
    unsent = [row for row in rows if row.status == "QUEUED"]
    await pipelining.run_all(db, [partial(_settle_cancelled, process, row) for row in unsent])
    if cancelled or ids:
        return True
    await broadcasts.note(
        db,
        workspace_id=job.workspace_id,
        id=job.id,
        ending=False,
        finished_at=await db.now(),
    )
    await jobs.delete(db, "broadcast", workspace_id=job.workspace_id, ids=[job.id])
    return False


async def _settle_cancelled(process: Process, row: UnsettledMessage, db: Handle) -> None:
    await settling.settle(process, db, row, Transition("SUPPRESSED", Reason.BROADCAST_CANCELLED))
