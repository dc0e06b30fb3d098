"""Replies that a person would text back, simulated in the sandbox."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from app.audience import addresses
from app.consent import in_flight, keywords
from app.consent.keywords import Meaning
from app.errors import FieldError, Problem
from app.store import workspaces
from app.web import reply
from app.web.body import Shape
from app.web.reply import JsonResponse
from app.web.routing import Call, post

LONGEST = 1_600  # characters, as of a text message in parts


class NewReply(Shape):
    """Reply to the workspace. STOP, START and HELP, and their like, do what they do anywhere; what
    is none of these and sounds like one is flagged in the contact's activity."""

    channel: Literal["sms", "whatsapp"]
    from_: Annotated[str, Field(alias="from")]
    text: Annotated[str, Field(max_length=LONGEST)]


class ReceivedReply(Shape):
    """The meaning of the reply, and what the person is answered, once: null is silence."""

    meaning: Meaning
    answer: str | None


async def create(call: Call) -> Response:
    new, workspace_id = call.read(NewReply), call.member.workspace_id
    workspace = await workspaces.by_id(call.db, id=workspace_id)
    assert workspace is not None  # noqa: S101 - its member has asked
    meaning = await keywords.apply(
        call.process,
        call.db,
        workspace_id=workspace_id,
        senders=[_sender(new, workspace)],
        text=new.text,
        workspace_name=workspace.name,
        channel=new.channel,
    )
    noted = {"channel": new.channel, "meaning": meaning.meaning}  # not whose: see suppressions
    await call.note("sandbox_reply.received", workspace_id, after=noted)
    return reply.ok({"meaning": meaning.meaning, "answer": meaning.reply})


async def _quiet(call: Call, answer: JsonResponse) -> Response:
    """Nothing more is on its way to who opted out, when a STOP is answered, or answered again."""
    if answer.shown.get("meaning") != "stop":
        return answer
    new, workspace_id = call.read(NewReply), call.member.workspace_id
    async with call.process.database.read() as db:
        workspace = await workspaces.by_id(db, id=workspace_id)
    if workspace is not None:
        sender = _sender(new, workspace)
        out = in_flight.known(call.process, workspace_id, new.channel, sender, "stopped")
        await in_flight.quiet(call.process, out)
    return answer


def _sender(new: NewReply, workspace: workspaces.Workspace) -> str:
    """Read the sender's number, in E.164. Raises Problem `invalid`."""
    try:
        return addresses.phone(new.from_, workspace.country)
    except addresses.BadAddress as error:
        errors = [FieldError("/from", str(error))]
        raise Problem("invalid", "No contact has this number; see errors.", errors=errors) from None


routes = [
    post(
        "/sandbox/replies",
        create,
        can="messages:write",
        takes=NewReply,
        gives={200: ReceivedReply},
        awaits=_quiet,
    ),
]
