"""Messages, and every attempt to deliver one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from app import addresses, delivery
from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine import document
from app.routes.runs import reason
from app.store import contacts, memberships, messages, templates
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.routing import Call, get, post
from app.web.throttle import Rule

TEST_EMAIL = Rule("test-email", 30, 3_600)  # of one workspace


class TestEmail(Shape):
    __test__ = False  # pytest: not one of yours

    to: str
    template_id: str | None = None
    subject: str | None = None
    html: str | None = None
    contact_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class Filters(Paging):
    message_id: str | None = None
    status: (
        Literal[
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
        | None
    ) = None


async def test_email(call: Call) -> Response:
    """One message to one address, through the same delivery as every other."""
    wanted = call.read(TestEmail)
    to = _address(wanted.to)
    if call.process.settings.production:
        await _only_members(call, to)
    await call.throttle.check(TEST_EMAIL, call.member.workspace_id)
    made = await delivery.create(
        call.process,
        call.db,
        delivery.Order(
            workspace_id=call.member.workspace_id,
            channel="email",
            contact_id=await _known_contact(call, wanted.contact_id),
            to=to.address,
            template_id=await _known_template(call, wanted),
            content=_content(wanted),
            data=wanted.data,
        ),
    )
    return reply.accepted(
        {
            "messageId": made.message_id,
            "deliveryAttemptId": made.attempt_id,
            "status": "QUEUED",
        }
    )


async def show(call: Call) -> Response:
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await messages.by_id(call.db, workspace_id=workspace_id, id=id)
    if row is None:
        raise Problem("not_found", "There is no such message.")
    attempts = await messages.attempts_of(call.db, workspace_id=workspace_id, message_id=id)
    return reply.ok(message(row, attempts))


async def index_attempts(call: Call) -> Response:
    query = call.query(Filters)
    rows = await messages.attempts_page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, attempt)


async def show_attempt(call: Call) -> Response:
    row = await messages.attempt_by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    if row is None:
        raise Problem("not_found", "There is no such delivery attempt.")
    return reply.ok(attempt(row))


def message(row: Row, attempts: list[str]) -> dict[str, Any]:
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
        "content": row["content"] and document.parse(row["content"].encode()),
        "attempts": attempts,
        "createdAt": row["created_at"],
    }


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


# --- what a test email may be -------------------------------------------------------------------


def _address(text: str) -> addresses.Email:
    try:
        return addresses.email(text)
    except addresses.BadAddress as error:
        raise _invalid("/to", str(error)) from None


async def _only_members(call: Call, to: addresses.Email) -> None:
    """Production is no relay for mail to strangers."""
    if not await memberships.has_email(
        call.db, workspace_id=call.member.workspace_id, email_key=to.key
    ):
        raise _invalid("/to", "In production a test email goes to members of the workspace only.")


async def _known_contact(call: Call, id: str | None) -> str | None:
    if id is not None and not await contacts.by_id(
        call.db, workspace_id=call.member.workspace_id, id=id
    ):
        raise _invalid("/contactId", "There is no such contact.")
    return id


async def _known_template(call: Call, wanted: TestEmail) -> str | None:
    if wanted.template_id is None:
        return None
    row = await templates.by_id(
        call.db, workspace_id=call.member.workspace_id, id=wanted.template_id
    )
    if row is None or row["channel"] != "email":
        raise _invalid("/templateId", "There is no such email template.")
    return wanted.template_id


def _content(wanted: TestEmail) -> dict[str, str] | None:
    given = {"subject": wanted.subject, "html": wanted.html}
    content = {name: source for name, source in given.items() if source is not None}
    if wanted.template_id is not None:
        if content:
            raise _invalid("/templateId", "Give a templateId, or subject and html, not both.")
        return None
    found = contents.check("email", content)
    if found:
        raise Problem(
            "invalid",
            "The test email cannot be sent like this; see errors.",
            errors=[FieldError(f"/{part}", sentence) for part, sentence in found],
        )
    return content


def _invalid(pointer: str, message: str) -> Problem:
    return Problem(
        "invalid",
        "The test email cannot be sent like this; see errors.",
        errors=[FieldError(pointer, message)],
    )


routes = [
    post("/messages/test-email", test_email, can="messages:write"),
    get("/messages/delivery-attempts", index_attempts, can="messages:read"),
    get("/messages/delivery-attempts/{id}", show_attempt, can="messages:read"),
    get("/messages/{id}", show, can="messages:read"),
]
