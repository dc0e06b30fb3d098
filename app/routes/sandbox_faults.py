"""Faults of the sandbox's provider, asked for by whoever wants to see what a flow does then."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from app.database.db import new_id
from app.errors import Problem
from app.machine.content import ChannelName
from app.routes.ids import FaultId
from app.store import sandbox_faults
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, delete, get, post

MOST = 50  # that wait

FaultKind = Literal[
    "fail", "throttle", "stall", "accept_then_drop", "duplicate_callback", "bounce", "complain"
]


class NewProviderFault(Shape):
    """`fail`: refused for good. `throttle`: not now, again in five seconds. `stall`: no answer for
    ten seconds, and the message is lost. `accept_then_drop`: the message is taken, and the answer
    is lost. `duplicate_callback`: the message is taken, and a second later its delivery is reported
    twice; whatever comes of that comes of it once. `bounce`, `complain`: the message is taken, and
    a second later reported as bounced for good, or as unwanted: its address is suppressed."""

    kind: FaultKind
    count: Annotated[int, Field(ge=1, le=1_000)] = 1
    channel: ChannelName | None = None


class ProviderFault(Shape):
    """`remaining` of `count` messages are still to come. Without a channel it befalls any."""

    id: FaultId
    kind: FaultKind
    count: int
    remaining: int
    channel: ChannelName | None
    created_at: datetime


async def index(call: Call) -> Response:
    """The oldest that is not used up befalls the next message."""
    return await paging.index(call, Paging, sandbox_faults.page, ProviderFault.of)


async def create(call: Call) -> Response:
    new, workspace_id = call.read(NewProviderFault), call.member.workspace_id
    if await sandbox_faults.waiting(call.db, workspace_id=workspace_id) >= MOST:
        raise Problem("conflict", f"{MOST} faults are waiting: send messages, or clear them.")
    row = await sandbox_faults.insert(
        call.db,
        workspace_id=workspace_id,
        id=new_id("flt"),
        kind=new.kind,
        channel=new.channel,
        count=new.count,
    )
    await call.note("sandbox_fault.created", row.id, after=NewProviderFault.of(row))
    return reply.created("/sandbox/faults", ProviderFault.of(row))


async def clear(call: Call) -> Response:
    """Clear the faults: from now on nothing goes wrong on purpose."""
    await sandbox_faults.clear(call.db, workspace_id=call.member.workspace_id)
    await call.note("sandbox_faults.cleared", call.member.workspace_id)
    return reply.no_content()


PLACE = "/sandbox/faults"

routes = [
    get(PLACE, index, can="messages:read", query=Paging, gives={200: Page[ProviderFault]}),
    post(
        PLACE,
        create,
        can="messages:write",
        takes=NewProviderFault,
        gives={201: ProviderFault},
        raises=("conflict",),
    ),
    delete(PLACE, clear, can="messages:write", gives={204: None}),
]
