"""PUT /contacts: a contact is found by what is known of it and changed, or created."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from app.audience import audience, lookups, profile
from app.audience.audience import Lookup
from app.audience.reactions import WorkspaceContext
from app.billing import quotas
from app.config.plans import PLANS
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Json
from app.routes.contacts import (
    ContactInFull,
    WritableContact,
    answer_changed,
    answer_created,
    own_workspace,
    quiet,
    resource_of,
)
from app.routes.matching import Match
from app.web.routing import Call, put


class IdentifiedContact(WritableContact, extra="forbid"):
    """The contact that `match` finds, created if there is none. What is left out stays as it is;
    null removes (RFC 7396), and `tags` replace those that it has."""

    match: Match


async def identify(call: Call) -> Response:
    """Creates the contact or changes it, by what is known of it: an address, an id of ours, or one
    of yours in its metadata. `If-None-Match: *` only creates, If-Match only changes. Sending the
    same again changes nothing."""
    new = call.read(IdentifiedContact)
    values = new.model_dump(by_alias=True, exclude_unset=True, exclude={"match"})
    workspace = await own_workspace(call)
    lookup = new.match.lookup(workspace.country, "match")
    row = await lookups.find_locked(call.db, workspace.id, lookup)
    if row is None:
        call.match(None)
        try:
            return await _identified(call, workspace, lookup, {**new.match.given()}, values)
        except Problem as problem:
            if problem.code != "conflict":
                raise
            row = await lookups.find_locked(call.db, workspace.id, lookup)
            if row is None:  # else somebody was faster
                raise
    call.match(row["revision"])
    before = await resource_of(call, row)
    stored = audience.writable(row, before["tags"])
    values = document.merge(stored, profile.normal(values))
    tags = values.pop("tags", [])
    changed = await audience.replace(call.db, workspace, row, values, tags)
    return await answer_changed(call, row, before, changed)


async def _identified(
    call: Call,
    workspace: WorkspaceContext,
    lookup: Lookup,
    match: Mapping[str, Json],
    values: Mapping[str, Json],
) -> Response:
    """Create the contact with what it is matched by. Raises Problem; then nothing was done, and
    nothing stays locked."""
    if lookup.kind == "contact_id":
        raise lookups.unknown(lookup, "match it by what you know of it, and it is created")
    async with call.db.savepoint():
        given = document.merge(match, values)
        tags = given.pop("tags", None)
        row = await audience.create(call.db, workspace, given, tags)
        if not lookups.fits(row, lookup):
            message = (
                "There is no such contact, and the new one would not have it: the fields differ."
            )
            [kind] = match
            raise profile.invalid([FieldError(document.pointer("match", kind), message)])
        await quotas.require_contact(call.db, workspace.id, PLANS[call.member.plan])
    resource = await resource_of(call, row)
    await call.note("contact.created", row["id"], after=resource)
    return await answer_created(call, row, resource)


routes = [
    put(
        "/contacts",
        identify,
        can="contacts:write",
        takes=IdentifiedContact,
        gives={200: ContactInFull, 201: ContactInFull},
        raises=("conflict", "contact_not_found", "quota_exceeded"),
        awaits=quiet,
    ),
]
