"""A rendered mail as a page of its own, to be shown in a frame in which nothing can run.

A mail is the work of strangers: it is shown under a policy that denies it scripts, forms, the
origin of this service and, unless they are asked for, remote images, which tell who reads it.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, Response

from app.accounts import account_mail
from app.errors import Problem
from app.machine import document
from app.messages.redaction import readable
from app.process import Process
from app.store import messages, sessions
from app.store.row_keys import RowKey
from app.vault.vault import VaultError, digest
from app.web import reply
from app.web.body import Shape
from app.web.routing import MEMBER, PUBLIC, Call, get, post
from app.web.throttle import Rule

PURPOSE = "preview"  # that the vault encrypts for
LIFETIME = timedelta(seconds=60)
ONCE = Rule("preview", 1, int(LIFETIME.total_seconds()))  # each token, which then is over anyway
LARGEST = 4 * 1024 * 1024  # as a simulation's messages are, all together

# A form with one field, html, as a browser writes it in plain text (HTML Standard, 4.10.22.8).
FIELD, END = b"html=", b"\r\n"
SHOWING = ("contacts:write", "memberships:write")  # a message whole: see messages/redaction.py

POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:{pictures};"
    " frame-ancestors 'self'"
)


class MessagePreview(Shape):
    remote_images: bool = False


class HtmlPreview(Shape):
    """HTML that is stored nowhere, by its length and its SHA-256 as it will be posted: in UTF-8,
    with CRLF at the end of each line."""

    length: Annotated[int, Field(ge=0, le=LARGEST)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    remote_images: bool = False


class PreviewLink(Shape):
    """`url` shows it once, within 60 seconds."""

    url: str


class Ticket(BaseModel):
    """The contents of a token: what is to be shown, and to whom."""

    session_id: str | None  # None: a key asked, which reads messages anyway
    workspace_id: str
    ends_at: float
    remote_images: bool
    message_id: str | None = None
    sight: dict[str, Any] = Field(default_factory=dict)  # of the message's reader
    permissions: list[str] = Field(default_factory=list)  # likewise, of SHOWING
    length: int = 0
    sha256: str = ""


async def link_message_preview(call: Call) -> Response:
    """A link to the HTML of the message, for a frame in a page of the console."""
    await call.receive_body()
    given = call.read(MessagePreview)
    shown = {
        "message_id": call.path("id"),
        "sight": account_mail.sight(call.member),
        "permissions": [one for one in SHOWING if one in call.member.permissions],
    }
    ticket = await _issued(call, **shown, remote_images=given.remote_images)
    await _html(call.process, ticket)  # which says what is wrong with it, before a frame is empty
    return _linked(call.process, ticket)


async def link_preview(call: Call) -> Response:
    """A link to HTML that only the caller has, such as that of a template that is being typed: a
    page of the console posts it there from a form (`enctype="text/plain"`, its one field `html`),
    to be answered in a frame. Any other HTML is refused there."""
    await call.receive_body()
    given = call.read(HtmlPreview)
    shown = {"length": given.length, "sha256": given.sha256}
    return _linked(call.process, await _issued(call, **shown, remote_images=given.remote_images))


async def _issued(call: Call, **shown: object) -> Ticket:
    async with call.process.database.read() as db:
        now = await db.now()
    return Ticket(
        session_id=call.member.via_id if call.member.via == "session" else None,
        workspace_id=call.member.workspace_id,
        ends_at=(now + LIFETIME).timestamp(),
        **shown,
    )


def _linked(process: Process, ticket: Ticket) -> Response:
    sealed = process.vault.encrypt(PURPOSE, ticket.model_dump_json(exclude_defaults=True).encode())
    url = f"/preview/{base64.urlsafe_b64encode(sealed).decode()}"
    return reply.created(url, {"url": url})


async def show(call: Call) -> Response:
    """The message, once."""
    ticket = await _opened(call)
    if ticket.message_id is None:
        raise _gone()
    return _shown(ticket, await _html(call.process, ticket))


async def open_preview(call: Call) -> Response:
    """The HTML that is posted, once, if the link was made for it."""
    ticket = await _opened(call)
    if ticket.message_id is not None:
        raise _gone()
    call.expect_body(ticket.workspace_id, len(FIELD) + ticket.length + len(END))
    body = await call.receive_body()
    html = body.removeprefix(FIELD).removesuffix(END)
    found = await asyncio.to_thread(sha256, html)
    if found.hexdigest() != ticket.sha256:
        raise _gone()
    return _shown(ticket, html)


def _shown(ticket: Ticket, html: str | bytes) -> Response:
    pictures = " https: http:" if ticket.remote_images else ""
    headers = {
        "Content-Security-Policy": POLICY.format(pictures=pictures),
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(html, headers=headers)


async def _opened(call: Call) -> Ticket:
    """Open the link, for a page of ours: whoever registers can make one. Raises Problem
    `not_found`."""
    if call.request.headers.get("sec-fetch-site") == "cross-site":
        raise _gone()
    try:
        sealed = base64.urlsafe_b64decode(call.path("token"))
        ticket = Ticket.model_validate_json(call.process.vault.decrypt(PURPOSE, sealed))
    except (VaultError, ValueError):
        raise _gone() from None
    async with call.process.database.read() as db:
        now = (await db.now()).timestamp()
        whose: RowKey = {"workspace_id": ticket.workspace_id, "id": ticket.session_id or ""}
        ended = ticket.session_id is not None and await sessions.expiry(db, **whose) is None
    # By its bytes: base64 allows several spellings of them.
    verdict = await call.throttle.hit(ONCE, digest(sealed.hex()).hex())
    if now >= ticket.ends_at or ended or not verdict.allowed:
        raise _gone()
    return ticket


async def _html(process: Process, ticket: Ticket) -> str:
    """Raises Problem `not_found`."""
    async with process.database.read() as db:
        row = await messages.by_id(
            db, workspace_id=ticket.workspace_id, id=ticket.message_id or "", **ticket.sight
        )
    shown = row and readable(ticket.permissions, row)
    content: Any = document.parse(shown.content.encode()) if shown and shown.content else {}
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
        "/previews",
        link_preview,
        can=MEMBER,
        tx=None,
        takes=HtmlPreview,
        gives={201: PreviewLink},
    ),
    get(
        "/preview/{token}",
        show,
        can=PUBLIC,
        tx=None,
        gives={200: ("text/html",)},
        raises=["not_found"],
    ),
    post(
        "/preview/{token}",
        open_preview,
        can=PUBLIC,
        tx=None,
        takes=("text/plain",),
        gives={200: ("text/html",)},
        raises=["not_found"],
    ),
]
