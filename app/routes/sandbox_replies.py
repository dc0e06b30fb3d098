"""What a person would text back, said in the sandbox by whoever wants to see what comes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from starlette.responses import Response

from app.contacts import addresses, consent, keywords
from app.contacts.keywords import Meaning
from app.errors import FieldError, Problem
from app.store import workspaces
from app.web import reply
from app.web.body import Shape
from app.web.routing import Call, post

LONGEST = 1_600  # characters, as of a text message in parts


class NewReply(Shape):
    """To the workspace. STOP, START and HELP, and their like, do what they do anywhere;
    what is none of these and sounds like one is flagged in the contact's activity."""

    channel: Literal["sms", "whatsapp"]
    from_: Annotated[str, Field(alias="from")]
    text: Annotated[str, Field(max_length=LONGEST)]


class HeardReply(Shape):
    """What it meant, and what the person is answered, once: null is silence."""

    meaning: Meaning
    answer: str | None


async def create(call: Call) -> Response:
    """Answered when nothing more is on its way to who opted out."""
    new, workspace_id = call.read(NewReply), call.member.workspace_id
    workspace = await workspaces.by_id(call.db, id=workspace_id)
    assert workspace is not None  # noqa: S101 - its member has asked
    try:
        sender = addresses.phone(new.from_, workspace["country"])
    except addresses.BadAddress as error:
        errors = [FieldError("/from", str(error))]
        raise Problem("invalid", "No contact has this number; see errors.", errors=errors) from None
    heard = await keywords.obey(
        call.process,
        call.db,
        workspace_id=workspace_id,
        sender=sender,
        text=new.text,
        workspace_name=workspace["name"],
        channel=new.channel,
    )
    if heard.suppression is not None:
        out = heard.suppression
        call.before_answering(lambda: consent.quiet(call.process, out))
    noted = {"channel": new.channel, "meaning": heard.meaning}  # not whose: see suppressions
    await call.note("sandbox_reply.heard", workspace_id, after=noted)
    return reply.ok({"meaning": heard.meaning, "answer": heard.reply})


routes = [
    post(
        "/sandbox/replies",
        create,
        can="messages:write",
        takes=NewReply,
        gives={200: HeardReply},
    ),
]
