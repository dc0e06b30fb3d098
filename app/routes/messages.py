"""Messages, and every attempt to deliver one."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from pydantic import Field
from starlette.responses import Response

from app.accounts import account_mail
from app.audience import subscriptions
from app.errors import Problem
from app.machine import document
from app.machine.program import Json
from app.messages import create, reports
from app.messages.redaction import Shown, readable
from app.routes.ids import AttemptId, BroadcastId, ContactId, MessageId, RunId, TemplateId
from app.routes.runs import Reason, reason
from app.store import broadcasts, delivery_attempts, messages, suppressions
from app.store.delivery_attempts import Attempt
from app.store.messages import MessageStatus as Status
from app.web import paging, reply
from app.web.body import Name, Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, get, post

RESENDABLE = ("FAILED", "BOUNCED", "UNKNOWN")


class MessageFilters(Paging):
    contact_id: str | None = Field(None, description="Filter by contact.")
    run_id: str | None = Field(None, description="Filter by run.")
    status: Status | None = Field(None, description="Its status.")


class Filters(Paging):
    message_id: str | None = Field(None, description="Filter by message.")
    status: Status | None = Field(None, description="Its status.")


class MessageQueued(Shape):
    message_id: MessageId
    delivery_attempt_id: AttemptId
    status: Status


class MessageSummary(Shape):
    """`to` is null until it is known: it is the contact's address at the time of sending. In a test
    email it is null for those who may not manage members. `until`: what waits for its `sendAt` or
    for the end of quiet hours leaves then. `resendable`: a new attempt can be asked for."""

    id: MessageId
    channel: str
    contact_id: ContactId | None
    run_id: RunId | None
    node_id: str | None
    broadcast_id: BroadcastId | None
    template_id: TemplateId | None
    to: str | None
    status: Status
    reason: Reason | None
    until: datetime | None
    resendable: bool
    created_at: datetime


class Message(MessageSummary):
    """`content` is what was rendered, part by part. In links by which a contact opts out or
    confirms, the token is `…` for those who may not change contacts."""

    content: dict[str, str] | None
    attempts: list[AttemptId]


class MessageResolution(Shape):
    """A finding of somebody who looked: in the provider's log, or by asking the recipient. `note`
    says where, and is kept in the attempt's history."""

    arrived: bool
    note: Name | None = None


class AttemptEvent(Shape):
    """One change of an attempt's status. `missing`: paths in its content that had no value."""

    at: datetime
    status: Status
    code: str | None
    detail: str | None
    missing: list[str] = Field(default_factory=list)


class DeliveryAttempt(Shape):
    """One attempt to send a message through a provider, with its history. `to` is that of the
    message."""

    id: AttemptId
    message_id: MessageId
    run_id: RunId | None
    node_id: str | None
    contact_id: ContactId | None
    channel: str
    to: str | None
    provider: str | None
    number: int
    status: Status
    reason: Reason | None
    provider_message_id: str | None
    created_at: datetime
    sent_at: datetime | None
    finished_at: datetime | None
    events: list[AttemptEvent]


async def index(call: Call) -> Response:
    read = partial(messages.page, **account_mail.sight(call.member))
    return await paging.index(call, MessageFilters, read, lambda row: summary(shown_to(call, row)))


async def resend(call: Call) -> Response:
    """A new attempt for a message that is FAILED, BOUNCED or UNKNOWN, or that was SUPPRESSED for
    what may be over by now: the workspace was unverified or beyond a limit, the contact had got
    enough marketing, or quiet hours lasted too long. While the address is suppressed for the
    bounce: 409; delete that suppression first. A message of a CANCELLED
    broadcast, or about an account, is not sent again: 409."""
    workspace_id, row = call.member.workspace_id, await _found(call)
    id = row.id
    if row.account_mail is not None:
        raise Problem(
            "conflict",
            "What an email about an account says is not kept: invite again, or ask for another.",
        )
    if row.status == "BOUNCED":
        await _refuse_suppressed(call, row)
    # It would be suppressed, and what is known of it lost. Nobody cancels it before the commit.
    whose = {"workspace_id": workspace_id, "id": row.broadcast_id or ""}
    if row.broadcast_id and await broadcasts.state_of(call.db, **whose) == "CANCELLED":
        raise Problem(
            "conflict",
            f"Its broadcast ({row.broadcast_id}) is CANCELLED: nothing of it is sent again.",
        )
    attempt_id = await create.resend(
        call.process, call.db, workspace_id, id, RESENDABLE, unsent=messages.UNSENT
    )
    if attempt_id is None:
        raise Problem(
            "conflict",
            "Only a message that is FAILED, BOUNCED or UNKNOWN can be sent again, or one that was"
            f" suppressed for {', '.join(messages.UNSENT)}.",
        )
    noted = {"channel": row.channel, "templateId": row.template_id, "attempt": attempt_id}
    await call.note("message.resent", id, after=noted)
    return queued(id, attempt_id)


async def resolve(call: Call) -> Response:
    """Record what somebody found about a message that is UNKNOWN: it is SENT if it arrived, else
    FAILED, and can be sent again. A later report of its provider counts more. Saying the same again
    changes nothing."""
    given, row = call.read(MessageResolution), await _found(call)
    found = reports.ARRIVED if given.arrived else reports.LOST
    what = "arrived" if given.arrived else "did not arrive"
    words = f"{call.member.name} found that it {what}"
    resolved = await reports.resolve(
        call.process,
        call.db,
        workspace_id=call.member.workspace_id,
        id=row.id,
        found=found,
        detail=f"{words}: {given.note}" if given.note else f"{words}.",
    )
    if resolved is None:
        raise Problem("conflict", "Only a message that is UNKNOWN can be resolved; read it again.")
    if resolved:
        noted = {"channel": row.channel, "templateId": row.template_id, "status": found.status}
        await call.note("message.resolved", row.id, {"status": row.status}, noted)
    return await show(call)


async def _found(call: Call) -> messages.WholeMessage:
    """The message of the path, if the caller may read it."""
    row = await messages.by_id(
        call.db,
        workspace_id=call.member.workspace_id,
        id=call.path("id"),
        **account_mail.sight(call.member),
    )
    return reply.found(row, "message")


async def _refuse_suppressed(call: Call, row: messages.WholeMessage) -> None:
    """Refuse to send to a suppressed address. The message would end there, SUPPRESSED for good."""
    workspace_id, channel, to = call.member.workspace_id, row.channel, row.to_address
    if to is None:
        return
    hash = subscriptions.hashed(
        call.process.vault, workspace_id, channel, subscriptions.key(channel, to)
    )
    held = await suppressions.by_reason(
        call.db, workspace_id=workspace_id, address_hash=hash, reason="bounced"
    )
    if held is not None:
        raise Problem(
            "conflict",
            f"The address is suppressed since it bounced ({held.id}): if it gets mail again,"
            f" DELETE /suppressions/{held.id}, then send the message again.",
        )


def queued(message_id: str, attempt_id: str, **more: Json) -> Response:
    return reply.accepted(
        {"messageId": message_id, "deliveryAttemptId": attempt_id, "status": "QUEUED", **more}
    )


async def show(call: Call) -> Response:
    row = await _found(call)
    attempts = await delivery_attempts.of_message(
        call.db, workspace_id=call.member.workspace_id, message_id=row.id
    )
    return reply.ok(message(shown_to(call, row), attempts))


async def index_attempts(call: Call) -> Response:
    read = partial(delivery_attempts.page, **account_mail.sight(call.member))
    return await paging.index(call, Filters, read, lambda row: attempt(shown_to(call, row)))


async def show_attempt(call: Call) -> Response:
    row = await delivery_attempts.by_id(
        call.db,
        workspace_id=call.member.workspace_id,
        id=call.path("id"),
        **account_mail.sight(call.member),
    )
    row = reply.found(row, "delivery attempt")
    return reply.ok(attempt(shown_to(call, row)))


def shown_to(call: Call, row: Shown) -> Shown:
    """The part of a message, of an attempt at it or of its capture that the caller may read."""
    return readable(call.member.permissions, row)


def summary(row: messages.Message) -> dict[str, Any]:
    return MessageSummary.of(
        row,
        to=row.to_address,
        reason=reason(row),
        until=row.waits_until,
        resendable=is_resendable(row),
    )


def is_resendable(row: messages.Message) -> bool:
    is_unsent = row.status == "SUPPRESSED" and row.reason_code in messages.UNSENT
    is_refused = row.account_mail is not None or row.broadcast_state == "CANCELLED"
    return (is_unsent or row.status in RESENDABLE) and not is_refused


def message(row: messages.WholeMessage, attempts: list[str]) -> dict[str, Any]:
    content = None if row.content is None else document.parse(row.content.encode())
    return {**summary(row), "content": content, "attempts": attempts}


def attempt(row: Attempt) -> dict[str, Any]:
    return DeliveryAttempt.of(row, to=row.to_address, reason=reason(row))


routes = [
    get(
        "/messages",
        index,
        can="messages:read",
        query=MessageFilters,
        gives={200: Page[MessageSummary]},
    ),
    get(
        "/messages/delivery-attempts",
        index_attempts,
        can="messages:read",
        query=Filters,
        gives={200: Page[DeliveryAttempt]},
    ),
    get(
        "/messages/delivery-attempts/{id}",
        show_attempt,
        can="messages:read",
        gives={200: DeliveryAttempt},
    ),
    get("/messages/{id}", show, can="messages:read", gives={200: Message}),
    post(
        "/messages/{id}/resend",
        resend,
        can="messages:write",
        gives={202: MessageQueued},
        raises=("conflict",),
    ),
    post(
        "/messages/{id}/resolve",
        resolve,
        can="messages:write",
        takes=MessageResolution,
        gives={200: Message},
        raises=("conflict",),
    ),
]
