"""A rendered mail as a page of its own, to be shown in a frame in which nothing can run.

A mail is the work of strangers: it is shown under a policy that denies it scripts, forms, the
origin of this service and, unless they are asked for, remote images, which tell who reads it.
"""

from __future__ import annotations

import base64
import zlib
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

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
from app.web.routing import PUBLIC, STRANGERS_BYTES, Call, get, post
from app.web.throttle import Rule

PURPOSE = "preview"  # that the vault encrypts for
LIFETIME = timedelta(seconds=60)
ONCE = Rule("preview", 1, int(LIFETIME.total_seconds()))  # each token, which then is over anyway
LONGEST_TICKET = STRANGERS_BYTES - 1_024  # of a body, with the name of its field

POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:{pictures};"
    " frame-ancestors 'self'"
)


class MessagePreview(Shape):
    remote_images: bool = False


class TemplatePreview(templates.UnsavedPreview):
    """For this contact and this event; without them, for nobody in particular."""

    remote_images: bool = False


class PreviewLink(Shape):
    """`url` shows it once, within 60 seconds."""

    url: str


class PreviewForm(PreviewLink):
    """A form that is posted to `url` with this `ticket` is answered with the HTML."""

    ticket: str


class Ticket(BaseModel):
    """The contents of a token: what is to be shown, and to whom."""

    session_id: str | None  # None: a key asked, which reads messages anyway
    workspace_id: str
    sight: dict[str, Any]
    ends_at: float
    remote_images: bool
    message_id: str = ""
    html: str | None = None  # of what is not saved anywhere


async def link_message_preview(call: Call) -> Response:
    """A link to the HTML of the message, for a frame in a page of the console."""
    await call.receive_body()
    given = call.read(MessagePreview)
    ticket = await _issued(call, message_id=call.path("id"), remote_images=given.remote_images)
    await _html(call.process, ticket)  # which says what is wrong with it, before a frame is empty
    url = f"/preview/{_sealed(call.process, ticket)}"
    return reply.created(url, {"url": url})


async def link_template_preview(call: Call) -> Response:
    """A ticket for the HTML of a template, saved or not, as it would be sent: a page of the console
    posts it from a form, to be answered in a frame."""
    await call.receive_body()
    given = call.read(TemplatePreview)
    html = (await templates.rendered_unsaved(call, given)).get("html", {})
    if "rendered" not in html:
        raise _wrong("/template/content/html", str(html.get("error", "It has no HTML.")))
    ticket = await _issued(call, html=html["rendered"], remote_images=given.remote_images)
    sealed = _sealed(call.process, ticket)
    if len(sealed) > LONGEST_TICKET:
        raise _wrong("/template/content/html", "This is too large for a preview; shorten it.")
    return reply.ok({"url": "/preview", "ticket": sealed})


async def _issued(call: Call, **shown: Any) -> Ticket:
    async with call.process.database.read() as db:
        now = await db.now()
    return Ticket(
        session_id=call.member.via_id if call.member.via == "session" else None,
        workspace_id=call.member.workspace_id,
        sight=account_mail.sight(call.member),
        ends_at=(now + LIFETIME).timestamp(),
        **shown,
    )


async def show(call: Call) -> Response:
    """The mail, once."""
    return await _shown(call, call.path("token"))


async def open_preview(call: Call) -> Response:
    """The mail of the ticket, once."""
    body = (await call.receive_body()).decode("utf-8", "replace")
    try:
        return await _shown(call, dict(parse_qsl(body, max_num_fields=1)).get("ticket", ""))
    except ValueError:
        raise _gone() from None


async def _shown(call: Call, token: str) -> Response:
    """To a page of ours, for anybody may have made the ticket, and what is in it."""
    if call.request.headers.get("sec-fetch-site") == "cross-site":
        raise _gone()
    ticket, number = _opened(call.process, token)
    async with call.process.database.read() as db:
        now = (await db.now()).timestamp()
        whose = {"workspace_id": ticket.workspace_id, "id": ticket.session_id or ""}
        ended = ticket.session_id is not None and await sessions.expiry(db, **whose) is None
    verdict = await call.throttle.hit(ONCE, number)
    if now >= ticket.ends_at or ended or not verdict.allowed:
        raise _gone()
    pictures = " https: http:" if ticket.remote_images else ""
    headers = {
        "Content-Security-Policy": POLICY.format(pictures=pictures),
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(await _html(call.process, ticket), headers=headers)


def _sealed(process: Process, ticket: Ticket) -> str:
    """Packed, for most of HTML is repetition."""
    payload = zlib.compress(ticket.model_dump_json(by_alias=True).encode())
    return base64.urlsafe_b64encode(process.vault.encrypt(PURPOSE, payload)).decode()


def _opened(process: Process, token: str) -> tuple[Ticket, str]:
    """The ticket, and a number that it has in each of the spellings that base64 allows. Raises
    Problem `not_found`."""
    try:
        sealed = base64.urlsafe_b64decode(token)
        payload = zlib.decompress(process.vault.decrypt(PURPOSE, sealed))
        ticket = Ticket.model_validate_json(payload)
    except (VaultError, ValueError):
        raise _gone() from None
    return ticket, digest(sealed.hex()).hex()


async def _html(process: Process, ticket: Ticket) -> str:
    """Raises Problem `not_found`."""
    if ticket.html is not None:
        return ticket.html
    async with process.database.read() as db:
        row = await messages.by_id(
            db, workspace_id=ticket.workspace_id, id=ticket.message_id, **ticket.sight
        )
    content: Any = document.parse(row.content.encode()) if row and row.content else {}
    if "html" not in content:
        raise Problem("not_found", "There is no such message, or it has no HTML.")
    return str(content["html"])


def _wrong(pointer: str, detail: str) -> Problem:
    return Problem("invalid", detail, errors=[FieldError(pointer, detail)])


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
        "/templates/previews",
        link_template_preview,
        can="templates:read",
        tx=None,
        takes=TemplatePreview,
        gives={200: PreviewForm},
    ),
    post(
        "/preview",
        open_preview,
        can=PUBLIC,
        tx=None,
        takes=("application/x-www-form-urlencoded",),
        gives={200: ("text/html",)},
        raises=["not_found"],
    ),
    get(
        "/preview/{token}",
        show,
        can=PUBLIC,
        tx=None,
        gives={200: ("text/html",)},
        raises=["not_found"],
    ),
]
