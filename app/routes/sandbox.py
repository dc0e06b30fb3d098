"""The sandbox's inbox: what was captured instead of being sent, as a list and as a page."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from importlib.resources import files
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import HTMLResponse, Response

from app.accounts import letters
from app.machine.content import ChannelName
from app.routes.ids import AttemptId, CapturedId, ContactId, MessageId, RunId
from app.routes.messages import readable
from app.store import sandbox
from app.store.db import Row
from app.web import paging
from app.web.body import DIGITS, Shape
from app.web.page import script_digest
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import PUBLIC, Call, get

LONGEST_WAIT_SECONDS = 30
LOOK_AGAIN_SECONDS = 0.05

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
    """What would have been sent. In a test email `to` is null for those who may not manage
    members."""

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
    """At once when there is something to show, else after `wait` seconds at the latest."""
    query = call.query(Filters)
    before = paging.position(call, query)
    deadline = time.monotonic() + query.wait
    while True:
        await call.recheck()  # what may be seen follows the role that the member has by then
        # A connection for each look: nobody who waits holds one.
        async with call.process.database.read() as db:
            rows = await sandbox.page(
                db,
                workspace_id=call.member.workspace_id,
                filters=query.filters(),
                before=before,
                limit=query.limit + 1,
                **letters.sight(call.member),
            )
        if rows or time.monotonic() >= deadline:
            return paging.page(call, query, rows, lambda row: captured(readable(call, row)))
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def page(_call: Call) -> Response:
    """Reads the list above with the key that it asks for."""
    return HTMLResponse(
        PAGE, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
    )


def captured(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "messageId": row["message_id"],
        "deliveryAttemptId": row["attempt_id"],
        "runId": row["run_id"],
        "contactId": row["contact_id"],
        "channel": row["channel"],
        "to": row["to_address"],
        "from": row["from_address"],
        "subject": row["subject"],
        "text": row["text"],
        "html": row["html"],
        "headers": row["headers"],
        "capturedAt": row["captured_at"],
    }


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
    get("/sandbox", page, can=PUBLIC, tx=None, gives={200: ("text/html",)}),
    get(
        "/sandbox/messages",
        index,
        can="messages:read",
        tx=None,
        query=Filters,
        gives={200: Page[CapturedMessage]},
    ),
]
