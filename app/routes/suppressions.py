"""Addresses that nobody writes to: on the list by themselves, by providers, or by members."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field
from starlette.responses import Response

from app.audience import addresses, subscriptions
from app.audience.workspace_context import country_of
from app.consent import consent, in_flight
from app.errors import FieldError, Problem
from app.machine.content import CHANNELS, ChannelName
from app.routes.ids import MessageId, SuppressionId
from app.store import erasure, suppressions
from app.store.suppressions import Reason
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import JsonResponse, Page
from app.web.routing import Call, delete, get, post


class NewSuppression(Shape):
    """Suppresses an address manually, with the reason `manual`."""

    channel: ChannelName
    address: str


class Suppression(Shape):
    """`address` is null after an erasure; the suppression still applies. `inFlight` are messages
    that may have arrived after the request was answered: they were being sent, and had not finished
    within the ten seconds that every response waits for them, a retry's too. Only these may."""

    id: SuppressionId
    channel: ChannelName
    address: str | None
    reason: Reason
    source: str
    in_flight: list[MessageId]
    created_at: datetime


class Noted(Shape):
    """The fields that the audit trail shows: it keeps no addresses."""

    channel: ChannelName
    reason: Reason
    source: str


class Filters(Paging):
    channel: ChannelName | None = Field(None, description="The channel on which it is suppressed.")
    reason: Reason | None = Field(None, description="The reason why it is suppressed.")
    address: str | None = Field(
        None, description="An email address or a phone number; also finds erased ones."
    )


async def index(call: Call) -> Response:
    query, workspace_id = call.query(Filters), call.member.workspace_id
    filters = query.filters()
    address = filters.pop("address", None)
    if address is not None:
        country, found = await country_of(call.db, workspace_id), []
        for channel in CHANNELS:  # on each on which it can be an address
            try:
                key = subscriptions.key(channel, subscriptions.clean(channel, address, country))
            except addresses.BadAddress:
                continue
            found.append(subscriptions.hashed(call.process.vault, workspace_id, channel, key))
        if not found:
            errors = [FieldError("?address", "Must be an email address or a phone number.")]
            raise Problem("invalid", "A filter is not valid; see errors.", errors=errors)
        filters["address_hashes"] = found
    rows = await suppressions.page(
        call.db,
        workspace_id=workspace_id,
        filters=filters,
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, Suppression.of)


async def show(call: Call) -> Response:
    return reply.ok(Suppression.of(await _found(call)))


async def create(call: Call) -> Response:
    new, workspace_id = call.read(NewSuppression), call.member.workspace_id
    country = await country_of(call.db, workspace_id)
    try:  # as a contact of the workspace would have it
        address = subscriptions.clean(new.channel, new.address, country)
    except addresses.BadAddress as error:
        errors = [FieldError("/address", str(error))]
        raise Problem("invalid", "The address is not valid; see errors.", errors=errors) from None
    made = await consent.suppress(
        call.process,
        call.db,
        workspace_id=workspace_id,
        channel=new.channel,
        address=address,
        reason="manual",
        source="member",
    )
    row = await suppressions.by_reason(
        call.db, workspace_id=workspace_id, address_hash=made.address_hash, reason="manual"
    )
    assert row is not None  # noqa: S101 - it was made in this transaction, or was there
    if not made.is_new:
        raise Problem("conflict", "The address is already on the list.", existingId=row.id)
    # Not whose: an entry outlives the contact.
    await call.note("suppression.created", row.id, after=Noted.of(row))
    return reply.created(f"/suppressions/{row.id}", Suppression.of(row))


async def _quiet(call: Call, answer: JsonResponse) -> Response:
    """Nothing but what the record names will arrive after any answer that leads to the record: the
    first one, a copy, and that it is there already. What was written down of the first one was so
    before the wait."""
    id = answer.shown.get("id") or answer.shown.get("existingId")
    row = await _row(call, id) if id else None
    if row is None:  # refused, or off the list again
        return answer
    out = consent.Suppression(call.member.workspace_id, row.address_hash, row.reason, is_new=False)
    await in_flight.quiet(call.process, out)
    row = await _row(call, row.id)
    if row is None or answer.status_code != 201:
        return answer
    return reply.amended(answer, inFlight=row.in_flight)


async def _row(call: Call, id: str) -> suppressions.Suppression | None:
    async with call.process.database.read() as db:
        return await suppressions.by_id(db, workspace_id=call.member.workspace_id, id=id)


async def remove(call: Call) -> Response:
    """Messages to the address are allowed again, unless another reason suppresses it."""
    row, workspace_id = await _found(call), call.member.workspace_id
    call.match_shown(Suppression.of(row))
    await consent.lift_one(call.process, call.db, row, workspace_id=workspace_id, source="member")
    # By its row the answer would be found when the person behind the address is erased.
    await erasure.forget_answers(call.db, workspace_id=workspace_id, about=[row.id])
    await call.note("suppression.deleted", row.id, before=Noted.of(row))
    return reply.no_content()


async def _found(call: Call) -> suppressions.Suppression:
    row = await suppressions.by_id(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    return reply.found(row, "suppression")


routes = [
    get(
        "/suppressions",
        index,
        can="suppressions:read",
        query=Filters,
        gives={200: Page[Suppression]},
    ),
    post(
        "/suppressions",
        create,
        can="suppressions:write",
        takes=NewSuppression,
        gives={201: Suppression},
        raises=("conflict",),
        awaits=_quiet,
    ),
    get("/suppressions/{id}", show, can="suppressions:read", gives={200: Suppression}),
    delete("/suppressions/{id}", remove, can="suppressions:write", gives={204: None}),
]
