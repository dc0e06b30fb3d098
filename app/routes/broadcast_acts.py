"""The acts on a broadcast: previewed, tried, scheduled, paused, resumed, cancelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from app.audience import addresses
from app.broadcasts import audience as audiences
from app.broadcasts import control, guard
from app.broadcasts.audience import Audience, CountedAudience
from app.broadcasts.guard import SendingRefusal
from app.database.db import Handle
from app.errors import FieldError, Problem
from app.machine.categories import TEST
from app.machine.reasons import Reason
from app.messages import parking
from app.messages.create import Order
from app.messages.create import create as create_message
from app.routes.broadcasts import (
    AudienceCounts,
    BroadcastReason,
    BroadcastShape,
    BroadcastSummary,
    counted,
    found,
    locked,
    shown,
    summary,
)
from app.routes.ids import ContactId
from app.routes.messages import MessageQueued, queued
from app.routes.new_messages import TEST_EMAIL, wrong_address, wrong_contact
from app.routes.templates import Preview, Rendered, rendered
from app.store import templates, workspaces
from app.store.broadcasts import Broadcast, State
from app.store.templates import Template
from app.web import reply
from app.web.body import Shape
from app.web.reply import Revised
from app.web.routing import Call, post

SAMPLES = 3
LONGEST = 2_000_000  # characters of samples: after these there is none
NOT_YET = "The broadcast is paused, but what a worker had in hand before may still go out."
CODES = {
    Reason.SUPPRESSED_UNVERIFIED: "forbidden",
    Reason.CHANNEL_NOT_CONFIGURED: "conflict",
    Reason.SEND_AT_PASSED: "conflict",
}


class SteeredBroadcast(BroadcastSummary, Revised):
    """Its new state. Its audience and its progress, which a million recipients make slow to count,
    are in GET."""


class Sample(Shape):
    contact_id: ContactId
    rendered: Rendered


class BroadcastPreview(Shape):
    """The audience that would be frozen now, to the contact, unless `isComplete` is false: then
    time ran out, and `audience` is of the `lookedAt` oldest contacts of the workspace alone. Who is
    `capped` would be so when the message leaves: at `sendAt`, its local time or the end of quiet
    hours. `refusal` is why it could not be scheduled now: a `sendAt` that has passed, a quota, an
    address that no owner has verified, or no provider for the channel. `samples` are rendered for
    the newest contacts who can be written to: up to three, fewer where they are very long."""

    audience: AudienceCounts
    is_complete: bool
    looked_at: int
    refusal: BroadcastReason | None
    samples: list[Sample]


class BroadcastTest(Shape):
    """A test email to this address, rendered for a contact or for none."""

    to: str
    contact_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Looked:
    """A broadcast with its audience as of now."""

    broadcast: Broadcast
    template: Template
    audience: Audience
    counted: CountedAudience
    refusal: SendingRefusal | None


async def _look(call: Call, verb: str, *states: State) -> _Looked:
    """Count the audience: in transactions of its own, for that takes a while. With If-Match, only
    that of the revision it names; and in these states, for once it has ended its segment may be
    gone."""
    process, workspace_id = call.process, call.member.workspace_id
    async with process.database.read() as db:
        broadcast = await found(call, db)
        call.match(broadcast.revision)
        control.require(broadcast, verb, *states)
        template = await templates.by_id(db, workspace_id=workspace_id, id=broadcast.template_id)
        if template is None:
            raise Problem("conflict", "Its template no longer exists; choose another one.")
        workspace = reply.found(await workspaces.by_id(db, id=workspace_id), "workspace")
        now = await db.now()
        begins_at = max(broadcast.send_at or now, now)
        audience = await audiences.of(db, workspace, broadcast, template, begins_at=begins_at)
    if audience.unfilled is not None:
        is_given_up = audience.unfilled.reason_code is not None
        raise Problem("conflict", audiences.GIVEN_UP if is_given_up else audiences.BEING_FILLED)
    counts = await audiences.count(process, audience)
    due_at = audience.clock.turn(None).due_at
    at = due_at if due_at > now else None  # its messages leave by the quotas of that time
    async with process.database.read() as db:
        room = await guard.room(process, db, workspace_id, template.channel, at=at)
    refusal = control.refusal_of_time(broadcast, now)
    wanted = counts.reachable if counts.is_complete else max(1, counts.reachable)
    refusal = refusal or guard.refusal(room, wanted, at=at)
    return _Looked(broadcast, template, audience, counts, refusal)


async def preview(call: Call) -> Response:
    """Preview who would get it, who would not and why, and what it would say; nothing is
    written. Once it has ended, that is a conflict."""
    looked = await _look(call, "previewed", "DRAFT", "SCHEDULED", "SENDING", "PAUSED")
    workspace_id, samples, length = call.member.workspace_id, [], 0
    reachable = await audiences.newest_reachable(call.process, looked.audience, most=SAMPLES)
    for contact_id in reachable:
        wanted = Preview(contactId=contact_id)
        parts = await rendered(call.process, workspace_id, looked.template.id, wanted)
        samples.append({"contactId": contact_id, "rendered": parts})
        length += sum(len(part.get("rendered") or "") for part in parts.values())
        if length >= LONGEST:
            break
    refusal = looked.refusal
    return reply.ok(
        {
            "audience": counted(looked.counted.contacts),
            "isComplete": looked.counted.is_complete,
            "lookedAt": looked.counted.looked_at,
            "refusal": refusal and {"code": refusal.code.value, "sentence": refusal.detail},
            "samples": samples,
        }
    )


async def schedule(call: Call) -> Response:
    """Schedule a broadcast: it is sent at `sendAt`, or at once. A `sendAt` that passed more than
    five minutes ago is a conflict. What a quota or an unverified address would hold back is refused
    now. With If-Match, only as the caller has seen it."""
    looked = await _look(call, "scheduled", "DRAFT")
    _refuse(looked.refusal)

    async def act(db: Handle) -> Response:
        row = await locked(call, db)
        control.require(row, "scheduled", "DRAFT")
        if row.revision != looked.broadcast.revision:
            raise Problem("conflict", "It was changed while its audience was counted; look again.")
        changed = await control.schedule(db, row, looked.counted)
        call.process.hints.due(db, "broadcast", row.workspace_id, row.id)
        await call.note("broadcast.scheduled", row.id, summary(row), summary(changed), db=db)
        return shown(changed)

    return await call.conclude(act)


def _refuse(trouble: SendingRefusal | None) -> None:
    """Raises Problem."""
    if trouble is not None:
        raise Problem(CODES.get(trouble.code, "quota_exceeded"), trouble.detail)


async def pause(call: Call) -> Response:
    """Nothing more leaves once this is answered, but what is being handed over at this moment."""
    row = await locked(call)
    control.require(row, "paused", "SENDING")
    changed = await control.pause(call.db, row)
    await call.note("broadcast.paused", row.id, summary(row), summary(changed))
    return reply.ok(summary(changed), revision=changed.revision)


async def _await_senders(call: Call, answer: Response) -> Response:
    """A copy waits too: that the first one was answered is not known."""
    if answer.status_code == 200:
        await parking.await_senders(call.process, call.member.workspace_id)
    return answer


async def resume(call: Call) -> Response:
    row = await locked(call)
    control.require(row, "resumed", "PAUSED")
    template = await templates.by_id(call.db, workspace_id=row.workspace_id, id=row.template_id)
    if template is None:
        raise Problem("conflict", "Its template no longer exists: cancel the broadcast.")
    _refuse(await guard.refusal_to_resume(call.process, call.db, row, template.channel))
    changed = await control.resume(call.db, row)
    call.process.hints.due(call.db, "broadcast", row.workspace_id, row.id)
    await call.note("broadcast.resumed", row.id, summary(row), summary(changed))
    return reply.ok(summary(changed), revision=changed.revision)


async def cancel(call: Call) -> Response:
    """Cancel it: what has not left never does; who was to get it says so within seconds."""
    row = await locked(call)
    control.require(row, "cancelled", "SCHEDULED", "SENDING", "PAUSED")
    changed = await control.cancel(call.db, row)
    call.process.hints.due(call.db, "broadcast", row.workspace_id, row.id)
    await call.note("broadcast.cancelled", row.id, summary(row), summary(changed))
    return reply.ok(summary(changed), revision=changed.revision)


async def test(call: Call) -> Response:
    """One email to one address, in production a member's; the broadcast stays as it is."""
    wanted, row = call.read(BroadcastTest), await found(call, call.db)
    template = await templates.by_id(call.db, workspace_id=row.workspace_id, id=row.template_id)
    if template is None or template.channel != "email":
        raise Problem("conflict", "Only a broadcast with an email template can be tried.")
    wrong = [
        FieldError(pointer, message)
        for pointer, message in (
            ("/to", await wrong_address(call, wanted.to)),
            ("/contactId", await wrong_contact(call, wanted.contact_id)),
        )
        if message
    ]
    if wrong:
        raise Problem("invalid", "The test cannot be sent like this; see errors.", errors=wrong)
    await call.throttle.check(TEST_EMAIL, row.workspace_id)
    made = await create_message(
        call.process,
        call.db,
        Order(
            workspace_id=row.workspace_id,
            channel="email",
            contact_id=wanted.contact_id,
            to=addresses.email(wanted.to).address,
            template_id=template.id,
            content=None,
            category=TEST,
            data={},
        ),
    )
    noted: dict[str, Any] = {"templateId": template.id, "messageId": made.message_id}
    await call.note("broadcast.tested", row.id, after=noted)
    return queued(made.message_id, made.attempt_id)


routes = [
    post(
        "/broadcasts/{id}/preview",
        preview,
        can="broadcasts:read",
        tx=None,
        gives={200: BroadcastPreview},
        raises=("conflict",),
    ),
    post(
        "/broadcasts/{id}/schedule",
        schedule,
        can="broadcasts:send",
        tx=None,
        concludes=True,
        matches=True,
        gives={200: BroadcastShape},
        raises=("conflict", "quota_exceeded"),
    ),
    post(
        "/broadcasts/{id}/pause",
        pause,
        can="broadcasts:send",
        gives={200: SteeredBroadcast},
        raises=("conflict", "unavailable"),
        awaits=_await_senders,
    ),
    post(
        "/broadcasts/{id}/resume",
        resume,
        can="broadcasts:send",
        gives={200: SteeredBroadcast},
        raises=("conflict", "quota_exceeded"),
    ),
    post(
        "/broadcasts/{id}/cancel",
        cancel,
        can="broadcasts:send",
        gives={200: SteeredBroadcast},
        raises=("conflict", "unavailable"),
        awaits=_await_senders,
    ),
    post(
        "/broadcasts/{id}/test",
        test,
        can="broadcasts:write",
        takes=BroadcastTest,
        gives={202: MessageQueued},
        raises=("conflict",),
    ),
]
