"""Events of contacts who are named by what the sender knows of them: one, or up to 500."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation
from starlette.responses import Response

from app.audience import tracking
from app.audience.tracking import Outcome, Recorded, ReportedEvent, Room
from app.audience.workspace_context import WorkspaceContext
from app.billing import quotas
from app.config.plans import PLANS
from app.errors import FieldError, Problem
from app.machine import document
from app.routes.contact_events import ContactEventSummary, WritableEvent, answer_of, refuse_large
from app.routes.contacts import own_workspace
from app.routes.matching import Match
from app.web import body, reply
from app.web.body import Moment, Name, Shape
from app.web.routing import Call, post

MOST = 500  # events of one request
RECENT = timedelta(hours=1)
AHEAD = timedelta(seconds=10)  # of the sender's clock, at most: such an event happened just now


class ReportableEvent(WritableEvent):
    """An action of the contact whom `match` finds. With `createContact`, one who is not there is
    created by its email or phone. `occurredAt` may be in the past; an event older than an hour is
    only recorded, and starts no run and ends no wait, unless `whenOld` is `react`. An event with an
    `id` is recorded once in 24 hours, however often it is sent."""

    match: Match
    occurred_at: Moment | None = None
    id: Name | None = None
    create_contact: bool = False
    when_old: Literal["record", "react"] = "record"


class ReportedEvents(Shape):
    events: Annotated[
        list[SkipValidation[ReportableEvent]], Field(min_length=1, max_length=MOST)
    ]  # each is checked by itself


class RecordedEvent(ContactEventSummary):
    """`replayed` when an event with the same `id` was recorded before: this is that one."""

    replayed: bool


class WrongField(Shape):
    pointer: str
    message: str


class EventRefusal(Shape):
    """Refusal of an event, of which nothing was recorded; pointers are those of the whole body."""

    code: str
    detail: str
    errors: list[WrongField]


class EventOutcome(Shape):
    """The status that the event would have had alone, and either the event or why not. 503: an old
    event of one contact more than segments are judged for at once, to be sent again."""

    status: int
    event: RecordedEvent | None
    problem: EventRefusal | None


class EventOutcomes(Shape):
    """An outcome for each event, in their order."""

    recorded: int
    refused: int
    outcomes: list[EventOutcome]


async def track(call: Call) -> Response:
    """An action of a contact: it starts automations and ends waits."""
    new = call.read(ReportableEvent)
    workspace = await own_workspace(call)
    event = _reported(call, workspace, new, await call.db.now())
    [outcome] = await _recorded(call, workspace, [event])
    if isinstance(outcome, Problem):
        raise outcome
    if not outcome.replayed:
        await call.note("contact.event", outcome.contact_id, {}, {"event": outcome.name})
    return reply.accepted(_shown(outcome))


async def track_many(call: Call) -> Response:
    """Track up to 500 events, each recorded or refused by itself."""
    given: Sequence[Any] = call.read(ReportedEvents).events
    workspace, now = await own_workspace(call), await call.db.now()
    read: list[ReportedEvent | Problem] = []
    for place, one in enumerate(given):
        try:
            new = body.part(ReportableEvent, one, "events", place)
            read.append(_reported(call, workspace, new, now, "events", place))
        except Problem as problem:
            read.append(problem)
    right = [one for one in read if isinstance(one, ReportedEvent)]
    found = iter(await _recorded(call, workspace, right))
    outcomes = [one if isinstance(one, Problem) else next(found) for one in read]
    recorded = [one for one in outcomes if isinstance(one, Recorded)]
    if count := sum(not one.replayed for one in recorded):
        await call.note("contact.events", call.request_id, {}, {"events": count})
    shown: list[dict[str, Any]] = []
    for outcome in outcomes:
        if isinstance(outcome, Recorded):
            shown.append({"status": 202, "event": _shown(outcome), "problem": None})
            continue
        errors = [{"pointer": one.pointer, "message": one.message} for one in outcome.errors]
        refusal = {"code": outcome.code, "detail": outcome.detail, "errors": errors}
        shown.append({"status": outcome.status, "event": None, "problem": refusal})
    refused = len(outcomes) - len(recorded)
    return reply.ok({"recorded": len(recorded), "refused": refused, "outcomes": shown})


def _reported(
    call: Call, workspace: WorkspaceContext, new: ReportableEvent, now: datetime, *place: int | str
) -> ReportedEvent:
    """Raises Problem `invalid`."""
    lookup = new.match.lookup(workspace.country, *place, "match")
    refuse_large(new, *place)
    at = now if new.occurred_at is None else new.occurred_at
    if at > now + AHEAD:
        raise _wrong("Must not be in the future.", *place, "occurredAt")
    if new.create_contact and not lookup.is_address:
        message = "A contact is created by an email or a phone alone; match one of those."
        raise _wrong(message, *place, "createContact")
    receipt = None
    if new.id is not None:
        key = document.dumps([workspace.id, new.id])
        receipt = call.process.vault.keyed_hash("contact event", key)
    return ReportedEvent(
        lookup,
        new.name,
        new.properties,
        min(at, now),
        reacts=new.when_old == "react" or now - at <= RECENT,
        receipt=receipt,
        creates=new.create_contact,
    )


def _wrong(message: str, *place: int | str) -> Problem:
    errors = [FieldError(document.pointer(*place), message)]
    return Problem("invalid", "The event cannot be recorded; see errors.", errors=errors)


async def _recorded(
    call: Call, workspace: WorkspaceContext, events: Sequence[ReportedEvent]
) -> list[Outcome]:
    plan, left = PLANS[call.member.plan], None
    if any(event.creates for event in events):
        left = await quotas.room(call.db, workspace.id, plan)
    refusal = quotas.exceeded(plan, f"{plan.contacts} contacts")
    return await tracking.record(call.db, workspace, events, Room(left, refusal))


def _shown(recorded: Recorded) -> dict[str, Any]:
    return {**answer_of(recorded), "replayed": recorded.replayed}


routes = [
    post(
        "/events",
        track,
        can="contacts:write",
        takes=ReportableEvent,
        gives={202: RecordedEvent},
        raises=("contact_not_found", "conflict", "quota_exceeded"),
    ),
    post(
        "/events/batch",
        track_many,
        can="contacts:write",
        takes=ReportedEvents,
        gives={200: EventOutcomes},
    ),
]
