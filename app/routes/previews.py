"""A rendered mail as a page of its own, to be shown in a frame in which nothing can run.

A mail is the work of strangers: it is shown under a policy that denies it scripts, forms, the
origin of this service and, unless they are asked for, remote images, which tell who reads it.
"""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from app.accounts import account_mail
from app.errors import FieldError, Problem
from app.machine import document
from app.process import Process
from app.routes import templates
from app.store import messages, sessions
from app.vault.vault import VaultError, digest
from app.web import reply
from app.web.body import Shape
from app.web.routing import PUBLIC, Call, get, post
from app.web.throttle import Rule

PURPOSE = "preview"  # that the vault encrypts for
LIFETIME = timedelta(seconds=60)
ONCE = Rule("preview", 1, int(LIFETIME.total_seconds()))  # each token, which then is over anyway
LONGEST_TOKEN = 8_000  # of a path; servers and proxies take little more

POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:{pictures}"


class MessagePreview(Shape):
    remote_images: bool = False


class TemplatePreview(templates.Preview):
    """For this contact and this event; without them, for nobody in particular."""

    remote_images: bool = False


class PreviewLink(Shape):
    """`url` shows it once, within 60 seconds."""

    url: str


class Ticket(BaseModel):
    """The contents of a token: what is to be shown, and to whom."""

    session_id: str | None  # None: a key asked, which reads messages anyway
    workspace_id: str
    sight: dict[str, Any]
    ends_at: float
    remote_images: bool
    message_id: str | None = None
    template_id: str | None = None
    wanted: TemplatePreview | None = None


async def link_message_preview(call: Call) -> Response:
    """A link to the HTML of the message, for a frame in a page of the console."""
    await call.receive_body()
    given = call.read(MessagePreview)
    return await _linked(call, message_id=call.path("id"), remote_images=given.remote_images)


async def link_template_preview(call: Call) -> Response:
    """A link to the HTML of the template as it would be sent, for a frame in a page of the
    console."""
    await call.receive_body()
    given = call.read(TemplatePreview)
    return await _linked(
        call, template_id=call.path("id"), wanted=given, remote_images=given.remote_images
    )


async def _linked(call: Call, **shown: Any) -> Response:
    """Raises Problem `not_found`, `invalid`."""
    async with call.process.database.read() as db:
        now = await db.now()
    ticket = Ticket(
        session_id=call.member.via_id if call.member.via == "session" else None,
        workspace_id=call.member.workspace_id,
        sight=account_mail.sight(call.member),
        ends_at=(now + LIFETIME).timestamp(),
        **shown,
    )
    await _html(call.process, ticket)  # which says what is wrong with it, before a frame is empty
    payload = ticket.model_dump_json(by_alias=True).encode()
    token = base64.urlsafe_b64encode(call.process.vault.encrypt(PURPOSE, payload)).decode()
    if len(token) > LONGEST_TOKEN:
        detail = "This is too large for a preview; shorten it."
        raise Problem("invalid", detail, errors=[FieldError("/trigger", detail)])
    return reply.created(f"/preview/{token}", {"url": f"/preview/{token}"})


async def show(call: Call) -> Response:
    """The mail, once."""
    token = call.path("token")
    ticket = _opened(call.process, token)
    async with call.process.database.read() as db:
        now = (await db.now()).timestamp()
        whose = {"workspace_id": ticket.workspace_id, "id": ticket.session_id or ""}
        ended = ticket.session_id is not None and await sessions.expiry(db, **whose) is None
    verdict = await call.throttle.hit(ONCE, digest(token).hex())
    if now >= ticket.ends_at or ended or not verdict.allowed:
        raise _gone()
    pictures = " https: http:" if ticket.remote_images else ""
    headers = {
        "Content-Security-Policy": POLICY.format(pictures=pictures),
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(await _html(call.process, ticket), headers=headers)


def _opened(process: Process, token: str) -> Ticket:
    """Raises Problem `not_found`."""
    try:
        sealed = base64.urlsafe_b64decode(token)
        return Ticket.model_validate_json(process.vault.decrypt(PURPOSE, sealed))
    except (VaultError, ValueError):
        raise _gone() from None


async def _html(process: Process, ticket: Ticket) -> str:
    """Raises Problem `not_found`, `invalid`."""
    if ticket.wanted is None or ticket.template_id is None:
        return await _html_of_message(process, ticket)
    parts = await templates.rendered(
        process, ticket.workspace_id, ticket.template_id, ticket.wanted
    )
    html = parts.get("html", {})
    if "rendered" not in html:
        detail = str(html.get("error", "It has no HTML."))
        raise Problem("invalid", detail, errors=[FieldError("", detail)])
    return str(html["rendered"])


async def _html_of_message(process: Process, ticket: Ticket) -> str:
    async with process.database.read() as db:
        row = await messages.by_id(
            db, workspace_id=ticket.workspace_id, id=str(ticket.message_id), **ticket.sight
        )
    content: Any = document.parse(row.content.encode()) if row and row.content else {}
    if "html" not in content:
        raise Problem("not_found", "There is no such message, or it has no HTML.")
    return str(content["html"])


def _gone() -> Problem:
    return Problem("not_found", "This preview has been shown, or is older than a minute.")


routes = [
    post(
        "/messages/{id}/previews",
        link_message_preview,
        can="messages:read",
        tx=None,
        takes=MessagePreview,
        gives={201: PreviewLink},
    ),
    post(
        "/templates/{id}/previews",
        link_template_preview,
        can="templates:read",
        tx=None,
        takes=TemplatePreview,
        gives={201: PreviewLink},
    ),
    get(
        "/preview/{token}",
        show,
        can=PUBLIC,
        tx=None,
        gives={200: ("text/html",)},
        raises=["not_found", "invalid"],
    ),
]
