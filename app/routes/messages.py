"""Messages, and every attempt to deliver one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from app import addresses, delivery, letters
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
    await _check(call, wanted)
    await call.throttle.check(TEST_EMAIL, call.member.workspace_id)
    made = await delivery.create(
        call.process,
        call.db,
        delivery.Order(
            workspace_id=call.member.workspace_id,
            channel="email",
            contact_id=wanted.contact_id,
            to=addresses.email(wanted.to).address,
            template_id=wanted.template_id,
            content=None if wanted.template_id else _content(wanted),
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
    sight = letters.sight(call.member)
    row = await messages.by_id(call.db, workspace_id=workspace_id, id=id, **sight)
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
        **letters.sight(call.member),
    )
    return paging.page(call, query, rows, attempt)


async def show_attempt(call: Call) -> Response:
    row = await messages.attempt_by_id(
        call.db,
        workspace_id=call.member.workspace_id,
        id=call.path("id"),
        **letters.sight(call.member),
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


async def _check(call: Call, wanted: TestEmail) -> None:
    """Raises Problem `invalid` with everything that is wrong."""
    found = [
        ("/to", await _wrong_address(call, wanted.to)),
        ("/contactId", await _wrong_contact(call, wanted.contact_id)),
        ("/templateId", await _wrong_template(call, wanted)),
        *_wrong_content(wanted),
    ]
    errors = [FieldError(pointer, sentence) for pointer, sentence in found if sentence]
    if errors:
        detail = "The test email cannot be sent like this; see errors."
        raise Problem("invalid", detail, errors=errors)


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
        return "In production a test email goes to members of the workspace only."
    return None


async def _wrong_contact(call: Call, id: str | None) -> str | None:
    workspace_id = call.member.workspace_id
    if id is None or await contacts.by_id(call.db, workspace_id=workspace_id, id=id):
        return None
    return "There is no such contact."


async def _wrong_template(call: Call, wanted: TestEmail) -> str | None:
    workspace_id, id = call.member.workspace_id, wanted.template_id
    if id is None:
        return None
    if _content(wanted):
        return "Give a templateId, or subject and html, not both."
    row = await templates.by_id(call.db, workspace_id=workspace_id, id=id)
    return None if row and row["channel"] == "email" else "There is no such email template."


def _wrong_content(wanted: TestEmail) -> list[tuple[str, str]]:
    if wanted.template_id is not None:
        return []
    found = contents.check("email", _content(wanted))
    return [(f"/{part}", sentence) for part, sentence in found]


def _content(wanted: TestEmail) -> dict[str, str]:
    given = {"subject": wanted.subject, "html": wanted.html}
    return {name: source for name, source in given.items() if source is not None}


routes = [
    post("/messages/test-email", test_email, can="messages:write"),
    get("/messages/delivery-attempts", index_attempts, can="messages:read"),
    get("/messages/delivery-attempts/{id}", show_attempt, can="messages:read"),
    get("/messages/{id}", show, can="messages:read"),
]
