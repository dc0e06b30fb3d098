"""Messages, and every attempt to deliver one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import Field
from starlette.responses import Response

from app import addresses, composing, letters, ordering, subscriptions
from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine import document
from app.machine.fields import Place
from app.machine.program import Finding
from app.routes.contacts import country_of
from app.routes.ids import AttemptId, ContactId, MessageId, RunId, TemplateId
from app.routes.runs import Reason, reason
from app.store import contacts, delivery_attempts, memberships, messages, templates
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, get, post
from app.web.throttle import Rule

TEST_EMAIL = Rule("test-email", 30, 3_600)  # of one workspace
RESENDABLE = ("FAILED", "UNKNOWN")


Status: TypeAlias = Literal[
    "QUEUED",
    "SENDING",
    "SENT",
    "DELIVERED",
    "FAILED",
    "BOUNCED",
    "COMPLAINED",
    "SUPPRESSED",
    "UNKNOWN",
]


class TestEmail(Shape):
    __test__ = False  # pytest: not one of yours

    to: str
    template_id: str | None = None
    subject: str | None = None
    html: str | None = None
    contact_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class NewMessage(Shape):
    """To a contact, or to an address, as seen by a contact or by nobody. `data` is what
    `{{trigger…}}` reads; `content` may name its `category`."""

    channel: Literal["email", "sms", "whatsapp"]
    contact_id: str | None = None
    to: str | None = None
    template_id: str | None = None
    content: dict[str, Any] | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class MessageFilters(Paging):
    contact_id: str | None = Field(None, description="To this contact.")
    run_id: str | None = Field(None, description="Sent by this run.")
    status: Status | None = Field(None, description="What became of it.")


class Filters(Paging):
    message_id: str | None = Field(None, description="Of this message.")
    status: Status | None = Field(None, description="What became of it.")


class MessageQueued(Shape):
    message_id: MessageId
    delivery_attempt_id: AttemptId
    status: Status


class MessageSummary(Shape):
    """`to` is null until it is known: the contact's address at the time of sending."""

    id: MessageId
    channel: str
    contact_id: ContactId | None
    run_id: RunId | None
    node_id: str | None
    template_id: TemplateId | None
    to: str | None
    status: Status
    reason: Reason | None
    created_at: datetime


class Message(MessageSummary):
    """`content` is what was rendered, part by part."""

    content: dict[str, str] | None
    attempts: list[AttemptId]


class AttemptEvent(Shape):
    """What became of an attempt at one time. `missing`: what its content printed in vain."""

    at: datetime
    status: Status
    code: str | None
    detail: str | None
    missing: list[str] = Field(default_factory=list)


class DeliveryAttempt(Shape):
    """One try of a message at a provider, and all that was heard of it."""

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
    query = call.query(MessageFilters)
    rows = await messages.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
        **letters.sight(call.member),
    )
    return paging.page(call, query, rows, summary)


async def create(call: Call) -> Response:
    """One message, to whoever may be written to at the moment of sending."""
    new = call.read(NewMessage)
    to = await _check_new(call, new)
    content = new.content or {}
    category = content.get("category", "transactional")
    made = await ordering.create(
        call.process,
        call.db,
        ordering.Order(
            workspace_id=call.member.workspace_id,
            channel=new.channel,
            contact_id=new.contact_id,
            to=to,
            template_id=new.template_id,
            content=None if new.template_id else content,
            category=category,
            data=new.data,
        ),
    )
    noted = _noted(new.channel, new.template_id, category)
    await call.note("message.created", made.message_id, after=noted)
    return _queued(made.message_id, made.attempt_id)


async def resend(call: Call) -> Response:
    """A new attempt of what surely failed, or of what nobody knows the outcome of."""
    workspace_id, id = call.member.workspace_id, call.path("id")
    sight = letters.sight(call.member)
    row = await messages.by_id(call.db, workspace_id=workspace_id, id=id, **sight)
    if row is None:
        raise Problem("not_found", "There is no such message.")
    attempt_id = await ordering.resend(call.process, call.db, workspace_id, id, RESENDABLE)
    if attempt_id is None:
        raise Problem("conflict", "Only a message that is FAILED or UNKNOWN can be sent again.")
    noted = {"channel": row["channel"], "templateId": row["template_id"], "attempt": attempt_id}
    await call.note("message.resent", id, after=noted)
    return _queued(id, attempt_id)


def _noted(channel: str, template_id: str | None, category: str) -> dict[str, str | None]:
    """What the audit trail keeps of a message. Not to whom: an entry outlives the contact."""
    return {"channel": channel, "templateId": template_id, "category": category}


def _queued(message_id: str, attempt_id: str) -> Response:
    return reply.accepted(
        {"messageId": message_id, "deliveryAttemptId": attempt_id, "status": "QUEUED"}
    )


async def test_email(call: Call) -> Response:
    """One message to one address, through the same delivery as every other."""
    wanted = call.read(TestEmail)
    await _check(call, wanted)
    await call.throttle.check(TEST_EMAIL, call.member.workspace_id)
    made = await ordering.create(
        call.process,
        call.db,
        ordering.Order(
            workspace_id=call.member.workspace_id,
            channel="email",
            contact_id=wanted.contact_id,
            to=addresses.email(wanted.to).address,
            template_id=wanted.template_id,
            content=None if wanted.template_id else _content(wanted),
            category=composing.TEST,
            data=wanted.data,
        ),
    )
    noted = _noted("email", wanted.template_id, composing.TEST)
    await call.note("message.tested", made.message_id, after=noted)
    return _queued(made.message_id, made.attempt_id)


async def show(call: Call) -> Response:
    workspace_id, id = call.member.workspace_id, call.path("id")
    sight = letters.sight(call.member)
    row = await messages.by_id(call.db, workspace_id=workspace_id, id=id, **sight)
    if row is None:
        raise Problem("not_found", "There is no such message.")
    attempts = await delivery_attempts.of_message(call.db, workspace_id=workspace_id, message_id=id)
    return reply.ok(message(row, attempts))


async def index_attempts(call: Call) -> Response:
    query = call.query(Filters)
    rows = await delivery_attempts.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
        **letters.sight(call.member),
    )
    return paging.page(call, query, rows, attempt)


async def show_attempt(call: Call) -> Response:
    row = await delivery_attempts.by_id(
        call.db,
        workspace_id=call.member.workspace_id,
        id=call.path("id"),
        **letters.sight(call.member),
    )
    if row is None:
        raise Problem("not_found", "There is no such delivery attempt.")
    return reply.ok(attempt(row))


def summary(row: Row) -> dict[str, Any]:
    """As lists have it: without what was said."""
    return {
        "id": row["id"],
        "channel": row["channel"],
        "contactId": row["contact_id"],
        "runId": row["run_id"],
        "nodeId": row["node_id"],
        "templateId": row["template_id"],
        "to": row["to_address"],
        "status": row["status"],
        "reason": reason(row),
        "createdAt": row["created_at"],
    }


def message(row: Row, attempts: list[str]) -> dict[str, Any]:
    content = row["content"] and document.parse(row["content"].encode())
    return {**summary(row), "content": content, "attempts": attempts}


def attempt(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "messageId": row["message_id"],
        "runId": row["run_id"],
        "nodeId": row["node_id"],
        "contactId": row["contact_id"],
        "channel": row["channel"],
        "to": row["to_address"],
        "provider": row["provider"],
        "number": row["number"],
        "status": row["status"],
        "reason": reason(row),
        "providerMessageId": row["provider_message_id"],
        "createdAt": row["created_at"],
        "sentAt": row["sent_at"],
        "finishedAt": row["finished_at"],
        "events": row["events"],
    }


# --- what a message may be ------------------------------------------------------------------------


async def _check_new(call: Call, new: NewMessage) -> str | None:
    """Raises Problem `invalid` with everything that is wrong; else `to` in its clean form."""
    to, wrong_to = await _clean_to(call, new)
    found = [
        ("/to", wrong_to),
        ("/contactId", await _wrong_contact(call, new.contact_id)),
        ("/templateId", await _wrong_template(call, new.channel, new.template_id)),
    ]
    if new.template_id is None and new.content is None:
        found.append(("/content", "Say what to send: a templateId, or content."))
    if new.template_id is not None and new.content is not None:
        found.append(("/content", "Give a templateId, or content, not both."))
    elif new.content is not None:
        findings: list[Finding] = []
        contents.read(new.channel, new.content, Place("/content", findings), contents.CATEGORY)
        found += [(finding.pointer, finding.message) for finding in findings]
    _refuse("The message cannot be sent like this; see errors.", found)
    return to


async def _clean_to(call: Call, new: NewMessage) -> tuple[str | None, str | None]:
    """And what is wrong with it."""
    if new.to is None:
        return None, None if new.contact_id else "Say to whom: a contactId, or to."
    country = await country_of(call.db, call.member.workspace_id)
    try:
        return subscriptions.clean(new.channel, new.to, country), None
    except addresses.BadAddress as error:
        return None, str(error)


def _refuse(detail: str, found: Sequence[tuple[str, str | None]]) -> None:
    errors = [FieldError(pointer, sentence) for pointer, sentence in found if sentence]
    if errors:
        raise Problem("invalid", detail, errors=errors)


# --- what a test email may be -------------------------------------------------------------------


async def _check(call: Call, wanted: TestEmail) -> None:
    """Raises Problem `invalid` with everything that is wrong."""
    found = [
        ("/to", await _wrong_address(call, wanted.to)),
        ("/contactId", await _wrong_contact(call, wanted.contact_id)),
        ("/templateId", await _wrong_template(call, "email", wanted.template_id)),
        *_wrong_content(wanted),
    ]
    _refuse("The test email cannot be sent like this; see errors.", found)


async def _wrong_address(call: Call, to: str) -> str | None:
    """Production is no relay for mail to strangers."""
    workspace_id = call.member.workspace_id
    try:
        key = addresses.email(to).key
    except addresses.BadAddress as error:
        return str(error)
    if call.process.settings.production and not await memberships.has_email(
        call.db, workspace_id=workspace_id, email_key=key
    ):
        return (
            "In production a test email goes to members of the workspace only, at addresses that"
            " they have verified: POST /auth/email/verification sends another letter for that."
        )
    return None


async def _wrong_contact(call: Call, id: str | None) -> str | None:
    workspace_id = call.member.workspace_id
    if id is None or await contacts.by_id(call.db, workspace_id=workspace_id, id=id):
        return None
    return "There is no such contact."


async def _wrong_template(call: Call, channel: str, id: str | None) -> str | None:
    if id is None:
        return None
    row = await templates.by_id(call.db, workspace_id=call.member.workspace_id, id=id)
    return None if row and row["channel"] == channel else f"There is no such {channel} template."


def _wrong_content(wanted: TestEmail) -> list[tuple[str, str]]:
    if wanted.template_id is not None:
        both = "Give a templateId, or subject and html, not both."
        return [("/templateId", both)] if _content(wanted) else []
    findings: list[Finding] = []
    contents.read("email", _content(wanted), Place("", findings))
    return [(finding.pointer, finding.message) for finding in findings]


def _content(wanted: TestEmail) -> dict[str, str]:
    given = {"subject": wanted.subject, "html": wanted.html}
    return {name: source for name, source in given.items() if source is not None}


routes = [
    get(
        "/messages",
        index,
        can="messages:read",
        query=MessageFilters,
        gives={200: Page[MessageSummary]},
    ),
    post(
        "/messages",
        create,
        can="messages:write",
        takes=NewMessage,
        gives={202: MessageQueued},
    ),
    post(
        "/messages/test-email",
        test_email,
        can="messages:write",
        takes=TestEmail,
        gives={202: MessageQueued},
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
]
