"""Messages that are asked for by themselves: one to anybody, and a test email."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pydantic import Field
from starlette.responses import Response

from app.audience import addresses, subscriptions
from app.audience.workspace_context import country_of
from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine.categories import TEST, TRANSACTIONAL
from app.machine.content import ChannelName
from app.messages.create import Order
from app.messages.create import create as create_message
from app.routes.definition_shapes import Finding
from app.routes.messages import MessageQueued, queued
from app.routes.templates import without_address, wrong_topic
from app.runtime.compute import Computation
from app.store import contacts, memberships, templates
from app.web.body import Moment, Shape
from app.web.routing import Call, post
from app.web.throttle import Rule

FARTHEST = timedelta(days=90)  # ahead
TEST_EMAIL = Rule("test-email", 30, 3_600)  # of one workspace


class TestEmail(Shape):
    __test__ = False  # pytest: not one of yours

    to: str
    template_id: str | None = None
    subject: str | None = None
    html: str | None = None
    text: str | None = None
    contact_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class NewMessage(Shape):
    """Message to a contact or an address; rendered for a contact, or for none. `data` is available
    as `{{trigger…}}`; `content` may name its `category` and `topicId`. With `sendAt`, at most 90
    days ahead, it leaves then, and is judged then."""

    channel: ChannelName
    contact_id: str | None = None
    to: str | None = None
    template_id: str | None = None
    content: dict[str, Any] | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    send_at: Moment | None = None


class MessageAccepted(MessageQueued):
    """`findings`, if there are any, warn of what the message lacks."""

    findings: list[Finding] = Field(default_factory=list)


async def create(call: Call) -> Response:
    """Send one message, if the recipient may be written to at the time of sending."""
    new = call.read(NewMessage)
    to = await _check_new(call, new)
    content = new.content or {}
    category = content.get("category", TRANSACTIONAL)
    made = await create_message(
        call.process,
        call.db,
        Order(
            workspace_id=call.member.workspace_id,
            channel=new.channel,
            contact_id=new.contact_id,
            to=to,
            template_id=new.template_id,
            content=None if new.template_id else content,
            category=category,
            data=new.data,
            send_at=new.send_at,
        ),
    )
    noted = _noted(new.channel, new.template_id, category)
    await call.note("message.created", made.message_id, after=noted)
    effective, pointer = category, "/content"
    if new.template_id is not None:
        whose = call.member.workspace_id
        template = await templates.by_id(call.db, workspace_id=whose, id=new.template_id)
        effective, pointer = template.category if template else category, "/templateId"
    findings = await without_address(
        call.db, call.member.workspace_id, new.channel, effective, pointer
    )
    return queued(made.message_id, made.attempt_id, **({"findings": findings} if findings else {}))


async def test_email(call: Call) -> Response:
    """One message to one address, through the same delivery as every other. In production that is a
    member's; whoever may not manage members cannot read it afterwards."""
    wanted = call.read(TestEmail)
    given = {"subject": wanted.subject, "html": wanted.html, "text": wanted.text}
    content = {name: source for name, source in given.items() if source is not None}
    found = [
        ("/to", await wrong_address(call, wanted.to)),
        ("/contactId", await wrong_contact(call, wanted.contact_id)),
        ("/templateId", await _wrong_template(call, "email", wanted.template_id)),
    ]
    if wanted.template_id is None:
        found += _wrong_parts(call, ("email", content, ""))
    elif content:
        found.append(("/templateId", "Give a templateId, or subject and html or text, not both."))
    _refuse("The test email cannot be sent like this; see errors.", found)
    await call.throttle.check(TEST_EMAIL, call.member.workspace_id)
    made = await create_message(
        call.process,
        call.db,
        Order(
            workspace_id=call.member.workspace_id,
            channel="email",
            contact_id=wanted.contact_id,
            to=addresses.email(wanted.to).address,
            template_id=wanted.template_id,
            content=None if wanted.template_id else content,
            category=TEST,
            data=wanted.data,
        ),
    )
    noted = _noted("email", wanted.template_id, TEST)
    await call.note("message.tested", made.message_id, after=noted)
    return queued(made.message_id, made.attempt_id)


def _noted(channel: str, template_id: str | None, category: str) -> dict[str, str | None]:
    """The message as the audit trail keeps it. Not to whom: an entry outlives the contact."""
    return {"channel": channel, "templateId": template_id, "category": category}


# --- what a message may be ------------------------------------------------------------------------


async def _check_new(call: Call, new: NewMessage) -> str | None:
    """Raises Problem `invalid` with everything that is wrong; else `to` in its clean form."""
    to: str | None = None
    wrong_to: str | None = None
    if new.to is not None:
        country = await country_of(call.db, call.member.workspace_id)
        try:
            to = subscriptions.clean(new.channel, new.to, country)
        except addresses.BadAddress as error:
            wrong_to = str(error)
    elif not new.contact_id:
        wrong_to = "Say to whom: a contactId, or to."
    is_far = new.send_at is not None and new.send_at > await call.db.now() + FARTHEST
    found = [
        ("/to", wrong_to),
        ("/contactId", await wrong_contact(call, new.contact_id)),
        ("/templateId", await _wrong_template(call, new.channel, new.template_id)),
        ("/sendAt", f"Must be at most {FARTHEST.days} days ahead." if is_far else None),
    ]
    if new.template_id is None and new.content is None:
        found.append(("/content", "Say what to send: a templateId, or content."))
    if new.template_id is not None and new.content is not None:
        found.append(("/content", "Give a templateId, or content, not both."))
    elif new.content is not None:
        given = (new.channel, new.content, "/content", tuple(contents.CATEGORY))
        found += _wrong_parts(call, given)
        topic_id = new.content.get("topicId")
        if isinstance(topic_id, str):
            topic = await wrong_topic(call.db, call.member.workspace_id, topic_id, new.channel)
            found.append(("/content/topicId", topic))
    _refuse("The message cannot be sent like this; see errors.", found)
    return to


def _refuse(detail: str, found: Sequence[tuple[str, str | None]]) -> None:
    errors = [FieldError(pointer, sentence) for pointer, sentence in found if sentence]
    if errors:
        raise Problem("invalid", detail, errors=errors)


# --- what a test email may be ---------------------------------------------------------------------


async def wrong_address(call: Call, to: str) -> str | None:
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
            " they have verified: POST /auth/email/verification sends another email for that."
        )
    return None


async def wrong_contact(call: Call, id: str | None) -> str | None:
    workspace_id = call.member.workspace_id
    if id is None or await contacts.by_id(call.db, workspace_id=workspace_id, id=id):
        return None
    return "There is no such contact."


async def _wrong_template(call: Call, channel: str, id: str | None) -> str | None:
    if id is None:
        return None
    row = await templates.by_id(call.db, workspace_id=call.member.workspace_id, id=id)
    return None if row and row.channel == channel else f"There is no such {channel} template."


def _wrong_parts(call: Call, given: tuple[Any, ...]) -> list[tuple[str, str]]:
    """Raises Heavy."""
    computation = Computation(call.member.workspace_id, contents.checked, given)
    _, findings = call.process.compute.here(computation)
    return [(finding.pointer, finding.message) for finding in findings]


routes = [
    post(
        "/messages",
        create,
        can="messages:write",
        takes=NewMessage,
        gives={202: MessageAccepted},
    ),
    post(
        "/messages/test-email",
        test_email,
        can="messages:write",
        takes=TestEmail,
        gives={202: MessageQueued},
    ),
]
