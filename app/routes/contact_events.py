"""Events of contacts: reported by a program, read in their activity and by id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field
from starlette.responses import Response

from app.audience import reactions
from app.audience.reactions import ContactEvent as Happened
from app.audience.tracking import Recorded
from app.errors import FieldError, Problem
from app.machine import document
from app.routes.contacts import locked, own_workspace
from app.routes.ids import ContactId, EventId
from app.store import contact_events
from app.web import reply
from app.web.body import Name, Shape
from app.web.routing import Call, get, post

LARGEST = 64 * 1024  # it may become part of a run's state


class WritableEvent(Shape):
    """An action of the contact: an order, a visit, a click."""

    name: Name
    properties: dict[str, Any] = Field(default_factory=dict)


class ContactEventSummary(Shape):
    """The event was recorded: automations that it triggers have started, and waiting runs will be
    woken."""

    id: EventId
    contact_id: ContactId
    name: str
    at: datetime


class ContactEvent(ContactEventSummary):
    properties: dict[str, Any]


async def show(call: Call) -> Response:
    """Show an event with its properties, which lists omit."""
    row = await contact_events.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    row = reply.found(row, "event")
    return reply.ok(ContactEvent.of(row, properties=document.parse(row.properties.encode())))


async def create(call: Call) -> Response:
    """An action of the contact: it starts automations and ends waits."""
    row, _ = await locked(call)
    new = call.read(WritableEvent)
    refuse_large(new)
    workspace = await own_workspace(call)
    event = await reactions.happened(call.db, workspace, row.id, new.name, new.properties)
    await call.note("contact.event", row.id, {}, {"event": new.name})
    return reply.accepted(answer_of(event))


def refuse_large(new: WritableEvent, *place: int | str) -> None:
    """Raises Problem `invalid`; `place` is where the event stands in the body."""
    if len(document.dumps(new.properties)) > LARGEST:
        pointer = document.pointer(*place, "properties")
        errors = [FieldError(pointer, f"At most {LARGEST // 1024} KiB of JSON.")]
        raise Problem("invalid", "The event is too large; see errors.", errors=errors)


def answer_of(event: Happened | Recorded) -> dict[str, Any]:
    return ContactEventSummary.of(event)


routes = [
    post(
        "/contacts/{id}/events",
        create,
        can="contacts:write",
        takes=WritableEvent,
        gives={202: ContactEventSummary},
    ),
    get("/contact-events/{id}", show, can="contacts:read", gives={200: ContactEvent}),
]
