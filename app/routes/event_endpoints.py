"""Endpoints that events are posted to: URLs, their secrets, and every attempt."""

from __future__ import annotations

from datetime import datetime
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app.database.db import new_id
from app.errors import FieldError, Problem
from app.net import egress
from app.outbound import deliver
from app.outbound.events import Type
from app.routes.ids import EndpointId, EventAttemptId, EventId
from app.store import event_endpoints, outbound_events
from app.vault import standard_webhooks
from app.web import paging, reply
from app.web.body import Moment, Name, Shape, Writable
from app.web.paging import Changing, Paging
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post
from app.web.throttle import Rule

MOST = 20  # endpoints of a workspace: every event is written once for each
REPLAYED_AT_ONCE = 1_000
REPLAYS = Rule("replays", 10, 60)  # of one workspace: each has us call somebody so many times

# --- shapes -------------------------------------------------------------------------------------


def _url(text: str) -> str:
    url = egress.parse_url(text)
    if url.userinfo:
        raise ValueError(
            "Must not contain credentials: requests are authenticated by their signature."
        )
    return text


class WritableEndpoint(Writable):
    """`types` are the events to receive; none means all, including types added later."""

    url: Annotated[str, AfterValidator(_url)]
    description: Name | None = None
    types: list[Type] = Field(default_factory=list)
    enabled: bool = True


class EndpointFields(Shape):
    """`url` is no secret among members: all who read endpoints read it whole, its query too.
    `disabledReason` is `gone` when it answered 410, `failing` after five days without a 2xx."""

    id: EndpointId
    url: str
    description: str | None
    types: list[Type]
    enabled: bool
    disabled_reason: Literal["manual", "gone", "failing"] | None
    disabled_at: datetime | None
    failing_since: datetime | None
    created_at: datetime
    updated_at: datetime


class Endpoint(EndpointFields, Revised):
    pass


class NewEndpoint(EndpointFields, Revised):
    """The only responses that contain the secret, which signs with HMAC-SHA256 (Standard
    Webhooks)."""

    secret: str


class EventTry(Shape):
    """`status` is that of the response, or null if there was none; `code` says what went wrong."""

    at: str
    status: int | None
    code: str | None
    duration_ms: int


class EventAttemptReason(Shape):
    code: str
    detail: str


class EventAttempt(Shape):
    """The delivery of one event to one endpoint; `eventId` is the webhook-id that the receiver
    sees. `response` is the latest response, with at most 1 KiB of its body."""

    id: EventAttemptId
    endpoint_id: EndpointId
    event_id: EventId
    type: Type
    status: Literal["QUEUED", "SUCCEEDED", "FAILED"]
    reason: EventAttemptReason | None
    response: dict[str, Any] | None
    tries: list[EventTry]
    next_try_at: datetime | None
    created_at: datetime
    finished_at: datetime | None


class Attempts(Paging):
    status: Literal["QUEUED", "SUCCEEDED", "FAILED"] | None = Field(
        None, description="How far it is."
    )


class Since(Shape):
    since: Moment


class Replayed(Shape):
    """`more`: ask again with the same `since`; what has been taken up is not repeated."""

    replayed: int
    more: bool


def resource(row: event_endpoints.EventEndpoint) -> dict[str, Any]:
    return Endpoint.of(row, enabled=row.disabled_reason is None)


def attempt_resource(row: outbound_events.EventAttempt) -> dict[str, Any]:
    reason = {"code": row.reason_code, "detail": row.reason_detail}
    response = {"status": row.response_status, "body": row.response_excerpt}
    return EventAttempt.of(
        row,
        reason=reason if row.reason_code else None,
        response=response if row.response_status else None,
        next_try_at=row.wake_at,
    )


# --- endpoints ----------------------------------------------------------------------------------


async def index(call: Call) -> Response:
    return await paging.index(call, Changing, event_endpoints.page, resource)


async def show(call: Call) -> Response:
    row = await _found(call)
    return reply.ok(resource(row), revision=row.revision, beside=row.failing_since)


async def create(call: Call) -> Response:
    """Create an endpoint, which receives events from now on."""
    new, workspace_id = call.read(WritableEndpoint), call.member.workspace_id
    _refuse_inward(call, new.url)
    if await event_endpoints.count(call.db, workspace_id=workspace_id) >= MOST:
        raise Problem("conflict", f"A workspace has at most {MOST} endpoints; remove one first.")
    id, secret = new_id("ep"), standard_webhooks.new_secret()
    row = await event_endpoints.insert(
        call.db,
        workspace_id=workspace_id,
        id=id,
        **_columns(new),
        secret=deliver.sealed(call.process, workspace_id, id, secret),
        disabled_reason=None if new.enabled else "manual",
    )
    await call.note("event_endpoint.created", id, after=resource(row))
    shown = {**resource(row), "secret": secret}
    return reply.created(f"/event-endpoints/{id}", shown, revision=row.revision, secret=True)


async def update(call: Call) -> Response:
    """`enabled: true` enables a disabled endpoint; replay the events it missed."""
    row = await _locked(call)
    call.match(row.revision)
    new = call.patch(
        WritableEndpoint, WritableEndpoint.of(row, enabled=row.disabled_reason is None)
    )
    if new.url != row.url:
        _refuse_inward(call, new.url)
    changed = await event_endpoints.update(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row.id,
        **_columns(new),
        disabled_reason=None if new.enabled else row.disabled_reason or "manual",
    )
    await call.note("event_endpoint.updated", row.id, resource(row), resource(changed))
    return reply.ok(resource(changed), revision=changed.revision, beside=changed.failing_since)


async def remove(call: Call) -> Response:
    """Events still to be delivered to it are dropped."""
    row = await _locked(call)
    call.match(row.revision)
    await event_endpoints.delete(call.db, workspace_id=call.member.workspace_id, id=row.id)
    await call.note("event_endpoint.deleted", row.id, before=resource(row))
    return reply.no_content()


async def rotate(call: Call) -> Response:
    """A new secret. The old one also signs for 24 hours, so that receivers can be switched over."""
    row, workspace_id = await _locked(call), call.member.workspace_id
    secret = standard_webhooks.new_secret()
    changed = await event_endpoints.rotate(
        call.db,
        workspace_id=workspace_id,
        id=row.id,
        secret=deliver.sealed(call.process, workspace_id, row.id, secret),
        overlap=deliver.OVERLAP,
    )
    await call.note("event_endpoint.secret_rotated", row.id)
    shown = {**resource(changed), "secret": secret}
    return reply.ok(shown, revision=changed.revision, beside=changed.failing_since, secret=True)


def _columns(new: WritableEndpoint) -> dict[str, Any]:
    types = list(dict.fromkeys(new.types))
    return {"url": new.url, "description": new.description, "types": types}


def _refuse_inward(call: Call, text: str) -> None:
    """Refuse what can be refused without a name server; the rest is judged at each try."""
    url = egress.parse_url(text)
    if url.netloc == egress.parse_url(call.process.settings.base_url).netloc:
        raise _refused(
            "Must not be an address of this service: an event that is posted here causes the next"
            " one, and so on for ever."
        )
    try:
        address = str(ip_address(url.host))
    except ValueError:
        return
    port = url.port or (443 if url.scheme == "https" else 80)
    if not call.process.egress.may_reach(address, port):
        raise _refused(egress.REFUSED.detail)


def _refused(sentence: str) -> Problem:
    errors = [FieldError("/url", sentence)]
    return Problem("invalid", "Events cannot be sent to this address; see errors.", errors=errors)


async def _found(call: Call) -> event_endpoints.EventEndpoint:
    row = await event_endpoints.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    return reply.found(row, "event endpoint")


async def _locked(call: Call) -> event_endpoints.EventEndpoint:
    row = await event_endpoints.locked(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    return reply.found(row, "event endpoint")


# --- what they were told ------------------------------------------------------------------------


async def index_attempts(call: Call) -> Response:
    query, endpoint = call.query(Attempts), await _found(call)
    rows = await outbound_events.attempts_page(
        call.db,
        workspace_id=call.member.workspace_id,
        endpoint_id=endpoint.id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, attempt_resource)


async def replay(call: Call) -> Response:
    """Resends the event of this attempt, with the same webhook-id, in a new attempt; at any time,
    also while this one is still retried."""
    endpoint, workspace_id = await _ready(call), call.member.workspace_id
    where = {"workspace_id": workspace_id, "endpoint_id": endpoint.id}
    old = await outbound_events.attempt(call.db, **where, id=call.path("attemptId"))
    if old is None:
        raise Problem("not_found", "The endpoint has no such attempt.")
    id = new_id("eva")
    await outbound_events.insert_attempts(
        call.db, workspace_id=workspace_id, rows=[(id, endpoint.id, old.event_id)]
    )
    made = await outbound_events.attempt(call.db, **where, id=id)
    assert made is not None  # noqa: S101 - it was made in this transaction
    await call.note("event_endpoint.replayed", endpoint.id, after={"eventId": old.event_id})
    return reply.accepted(attempt_resource(made))


async def replay_events_since(call: Call) -> Response:
    """Resends all events since then that the endpoint subscribes to and did not accept, a thousand
    at a time: those that failed, and those that happened while it was disabled. A workspace may
    ask ten times a minute; a refusal says when to go on."""
    since, workspace_id = call.read(Since).since, call.member.workspace_id
    await call.throttle.check(REPLAYS, workspace_id)
    endpoint = await _ready(call)
    missed = await outbound_events.missed(
        call.db,
        workspace_id=workspace_id,
        endpoint_id=endpoint.id,
        types=endpoint.types,
        since=since,
        limit=REPLAYED_AT_ONCE + 1,
    )
    taken = missed[:REPLAYED_AT_ONCE]
    await outbound_events.insert_attempts(
        call.db,
        workspace_id=workspace_id,
        rows=[(new_id("eva"), endpoint.id, event_id) for event_id in taken],
    )
    recorded = {"since": since, "events": len(taken)}
    await call.note("event_endpoint.replayed", endpoint.id, after=recorded)
    return reply.accepted({"replayed": len(taken), "more": len(missed) > len(taken)})


async def _ready(call: Call) -> event_endpoints.EventEndpoint:
    """Locked, so that two replays do not take up the same events."""
    row = await _locked(call)
    if row.disabled_reason is not None:
        raise Problem("conflict", "The endpoint is disabled; enable it first.")
    return row


routes = [
    get(
        "/event-endpoints",
        index,
        can="event_endpoints:read",
        query=Changing,
        gives={200: Page[Endpoint]},
    ),
    post(
        "/event-endpoints",
        create,
        can="event_endpoints:write",
        takes=WritableEndpoint,
        gives={201: NewEndpoint},
        raises=("conflict",),
    ),
    get("/event-endpoints/{id}", show, can="event_endpoints:read", gives={200: Endpoint}),
    patch(
        "/event-endpoints/{id}",
        update,
        can="event_endpoints:write",
        takes=WritableEndpoint,
        gives={200: Endpoint},
    ),
    delete("/event-endpoints/{id}", remove, can="event_endpoints:write", gives={204: None}),
    post(
        "/event-endpoints/{id}/rotate",
        rotate,
        can="event_endpoints:write",
        gives={200: NewEndpoint},
    ),
    get(
        "/event-endpoints/{id}/attempts",
        index_attempts,
        can="event_endpoints:read",
        query=Attempts,
        gives={200: Page[EventAttempt]},
    ),
    post(
        "/event-endpoints/{id}/replay",
        replay_events_since,
        can="event_endpoints:write",
        takes=Since,
        gives={202: Replayed},
        raises=("conflict",),
    ),
    post(
        "/event-endpoints/{id}/attempts/{attemptId}/replay",
        replay,
        can="event_endpoints:write",
        gives={202: EventAttempt},
        raises=("conflict",),
    ),
]
