"""The sandbox's inbox: what was captured instead of being sent, as a list and as a page."""

from __future__ import annotations

import time
from datetime import datetime
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.accounts import account_mail
from app.errors import Problem
from app.machine.content import ChannelName
from app.routes.ids import AttemptId, CapturedId, ContactId, MessageId, RunId
from app.routes.messages import shown_to
from app.runtime.sharing import Shared
from app.store import sandbox
from app.web import console_files, paging
from app.web.body import DIGITS, Shape
from app.web.packing import packed
from app.web.page import script_digest
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import PUBLIC, Call, get

LONGEST_WAIT_SECONDS = 30
LOOK_SECONDS = 5.0  # then it is looked in any case: of two workers the later may write the lower id
ASK_SECONDS = 0.05
LONGEST_PAUSE = 1.0
MOST_WAITING = 20  # of one workspace, for each holds a connection that makes no room
ALL_WAITING = 200  # likewise, of a process; the last quarter is for workspaces of which none waits

PAGE = (files("app.routes") / "sandbox.html").read_text("utf-8")


class Filters(Paging):
    to: str | None = Field(None, description="The address that it went to, in any case.")
    channel: ChannelName | None = Field(None, description="The channel that it went by.")
    contact_id: str | None = Field(None, description="The contact that it went to.")
    run_id: str | None = Field(None, description="The run that sent it.")
    message_id: str | None = Field(None, description="The message that it was.")
    wait: Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS), DIGITS] = Field(
        0, description="Seconds to wait for one when there is none yet."
    )

    def filters(self) -> dict[str, Any]:
        return {name: value for name, value in super().filters().items() if name != "wait"}


class CapturedMessage(Shape):
    """The message that would have been sent. In a test email `to` is null for those who may not
    manage members. In links by which a contact opts out or confirms, the token is `…` for those who
    may not change contacts."""

    id: CapturedId
    message_id: MessageId
    delivery_attempt_id: AttemptId
    run_id: RunId | None
    contact_id: ContactId | None
    channel: str
    to: str | None
    from_: Annotated[str | None, Field(alias="from")]
    subject: str | None
    text: str | None
    html: str | None
    headers: dict[str, str]
    captured_at: datetime


async def index(call: Call) -> Response:
    """List what was captured, at once when there is something to show, else after `wait` seconds.
    Who has waited for longer asks less often."""
    query = call.query(Filters)
    if not query.wait:
        return await _listed(call, query)
    waiting, workspace_id = call.process.sandbox_waits, call.member.workspace_id
    mine, left = waiting[workspace_id], ALL_WAITING - waiting.total()
    if mine >= MOST_WAITING or left <= (ALL_WAITING // 4 if mine else 0):
        raise Problem(
            "rate_limited",
            f"At most {MOST_WAITING} requests of a workspace, and {ALL_WAITING} of all, may wait at"
            " the same time, the last quarter of these for workspaces of which nobody waits; ask"
            " without wait, or let one of them end.",
            headers={"Retry-After": "1"},
        )
    waiting[workspace_id] += 1
    try:
        return await _listed(call, query)
    finally:
        waiting[workspace_id] -= 1
        if not waiting[workspace_id]:
            del waiting[workspace_id]


async def _listed(call: Call, query: Filters) -> Response:
    before = paging.position(call, query)
    process, workspace_id = call.process, call.member.workspace_id

    async def ask() -> str | None:
        async with process.database.read() as db:
            return await sandbox.newest(db, workspace_id=workspace_id)

    # A question that all share who watch a workspace at the time.
    newest = process.newest_captured.setdefault(workspace_id, Shared(ASK_SECONDS))
    began = time.monotonic()
    while True:
        await call.recheck()  # what may be seen follows the role that the member has by then
        seen = await newest.get(ask) if query.wait else None  # first: nothing slips between the two
        # A connection for each look: nobody who waits holds one.
        async with process.database.read() as db:
            rows, rest = await sandbox.page(
                db,
                workspace_id=workspace_id,
                filters=query.filters(),
                before=before,
                limit=query.limit + 1,
                **account_mail.sight(call.member),
            )
        left = began + query.wait - time.monotonic()
        if rows or left <= 0:
            return paging.page(
                call,
                query,
                rows,
                lambda row: captured(shown_to(call, row)),
                rest=rest,
            )
        until = time.monotonic() + min(left, LOOK_SECONDS)
        while (now := time.monotonic()) < until:
            pause = max(ASK_SECONDS, min((now - began) / 10, LONGEST_PAUSE))
            await call.pause(min(pause, until - now))
            if await newest.get(ask) != seen:
                break


async def page(call: Call) -> Response:
    """Lead to the console's inbox. Where there is no console it is a page by itself, which reads
    the list above with the key that it asks for."""
    settings = call.process.settings
    if settings.console and console_files.load().page:
        return RedirectResponse(f"{settings.base_url}/console/inbox", 303)
    headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
    return packed(call.request.headers, HTMLResponse(PAGE, headers=headers))


def captured(row: sandbox.CapturedMessage) -> dict[str, Any]:
    return CapturedMessage.of(
        row, delivery_attempt_id=row.attempt_id, to=row.to_address, from_=row.from_address
    )


# The preview inherits this policy: the mail's own styles show, its scripts never run, and no
# picture is fetched from anywhere.
POLICY = "; ".join(
    [
        "default-src 'none'",
        f"script-src 'sha256-{script_digest(PAGE)}'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)

routes = [
    get("/sandbox", page, can=PUBLIC, tx=None, gives={200: ("text/html",), 303: None}),
    get(
        "/sandbox/messages",
        index,
        can="messages:read",
        tx=None,
        query=Filters,
        gives={200: Page[CapturedMessage]},
    ),
]
