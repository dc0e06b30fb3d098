"""The audience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints, WithJsonSchema
from starlette.responses import Response

from app.audience import addresses, erasing, profile, shapes, subscriptions, writing
from app.audience.pii_search import Search
from app.audience.workspace_context import WorkspaceContext, context_of, country_of
from app.audit import trail
from app.billing import quotas
from app.config.plans import PLANS
from app.consent import in_flight
from app.database.db import Handle
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.contact_values import STATUSES, State, Status
from app.machine.content import CHANNELS, ChannelName
from app.machine.program import Json
from app.machine.text import CONTROL
from app.outbound import chains
from app.routes.ids import ContactId, SuppressionId
from app.store import contact_lists, contacts, searches, suppressions
from app.store.suppressions import Reason as BarringReason
from app.web import paging, reply
from app.web.body import After, Query, Shape, Writable
from app.web.paging import Paging
from app.web.reply import JsonResponse, Page, Revised
from app.web.routing import Call, delete, get, patch, post

# What app/audience/profile.py takes, for the document alone: it judges every way in, with all
# that is wrong.
PRINTABLE = rf"^[^{CONTROL}]*$"
NULL = {"type": "null"}
LINE = {"type": "string", "maxLength": profile.NAME_LENGTH, "pattern": PRINTABLE}
EMAIL = {"type": "string", "format": "idn-email", "maxLength": addresses.MAX_EMAIL_LENGTH}
PHONE = {
    "type": "string",
    "maxLength": addresses.MAX_PHONE_LENGTH,
    "description": "In any format; stored as +… (E.164). A number without a country code is read"
    " as one of the workspace's country.",
}
LOCALE = {
    "type": "string",
    "maxLength": profile.LOCALE_LENGTH,
    "pattern": f"^$|{profile.LOCALE.pattern}",  # of nothing at all it is null
}
TIMEZONE = {
    "type": "string",
    "maxLength": profile.NAME_LENGTH,
    "description": "An IANA time zone, such as Europe/Berlin.",
}
METADATA = {
    "type": "object",
    "maxProperties": profile.METADATA_FIELDS,
    "propertyNames": {
        "minLength": 1,
        "maxLength": profile.METADATA_NAME_LENGTH,
        "pattern": PRINTABLE,
    },
    "additionalProperties": {
        "anyOf": [
            {"type": "string", "maxLength": profile.METADATA_VALUE_LENGTH},
            {"type": "number"},
            {"type": "boolean"},
            NULL,
        ]
    },
}
SUBSCRIPTIONS = {
    "type": "object",
    "description": "By channel. `bounced` and `complained` are read-only; they may be sent back"
    " unchanged.",
    "properties": {channel: {"type": "string", "enum": list(STATUSES)} for channel in CHANNELS},
    "additionalProperties": False,
}
TAGS = {
    "type": "array",
    "maxItems": profile.TAGS,
    "items": {
        "type": "string",
        "minLength": 1,
        "maxLength": profile.TAG_LENGTH,
        "pattern": PRINTABLE,
    },
}


def documented(schema: dict[str, Any]) -> WithJsonSchema:
    """Allow null in the document for what may be left out."""
    rest = {name: value for name, value in schema.items() if name != "description"}
    kept = {name: schema[name] for name in ("description",) if name in schema}
    return WithJsonSchema({"anyOf": [rest, NULL], **kept})


class WritableContact(Writable, extra="allow", json_schema_extra={"additionalProperties": False}):
    """Contact to write, with at least an email, a phone or one metadata field."""

    @classmethod
    def normal(cls, changes: dict[str, Json]) -> dict[str, Json]:
        return dict(profile.normal(changes))

    email: Annotated[Json, documented(EMAIL)] = None
    phone: Annotated[Json, documented(PHONE)] = None
    first_name: Annotated[Json, documented(LINE)] = None
    last_name: Annotated[Json, documented(LINE)] = None
    timezone: Annotated[Json, documented(TIMEZONE)] = None
    locale: Annotated[Json, documented(LOCALE)] = None
    metadata: Annotated[Json, documented(METADATA)] = Field(default_factory=dict)
    subscriptions: Annotated[Json, documented(SUBSCRIPTIONS)] = Field(default_factory=dict)
    tags: Annotated[Json, documented(TAGS)] = Field(default_factory=list)


class Contact(Revised):
    """Somebody who receives messages. Text is stored and compared in Unicode NFC, but for one with
    more than 30 combining marks in a row, which stays as it is."""

    id: ContactId
    email: str | None
    phone: str | None
    first_name: str | None
    last_name: str | None
    timezone: str | None
    locale: str | None
    metadata: dict[str, str | int | float | bool]
    tags: list[str]
    subscriptions: dict[ChannelName, Status]
    topics: Annotated[
        dict[str, dict[ChannelName, State]],
        Field(description="Answers about topics, by their ids. Absent: never asked."),
    ]
    created_at: datetime
    updated_at: datetime


class Held(Shape):
    """Suppression of an address of the contact, and its reason. An admin lifts it: DELETE
    `/suppressions/:id`."""

    id: SuppressionId
    channel: ChannelName
    reason: BarringReason


class ContactInFull(Contact):
    """`suppressions` are those of the contact's addresses. Once all of a channel's are deleted, the
    contact is subscribed to it again."""

    suppressions: list[Held]


class Tags(Shape):
    tags: Annotated[list[str], WithJsonSchema(TAGS)]


MOST_IDS = 32 * paging.LARGEST_PAGE  # characters: of an id and its comma, a page
Beginning = Annotated[str, StringConstraints(strip_whitespace=True, min_length=2, max_length=200)]


class Narrowing(Query):
    """Filters of contacts: all that are given must hold."""

    email: str | None = Field(
        None, description="The contact's email address; case does not matter."
    )
    phone: str | None = Field(None, description="The contact's phone number, in any format.")
    tag: str | None = Field(None, description="A tag of the contact.")
    metadata: Annotated[dict[str, str], Field(max_length=contact_lists.FIELDS)] | None = Field(
        None, description="Metadata fields, compared as text: `metadata[plan]=pro`."
    )
    q: Beginning | None = Field(
        None,
        description="Prefix of the email, phone number, full name or last name; case does not"
        " matter. If very many match, a page may have fewer than `limit` items, or none:"
        " the list ends where `nextCursor` is null.",
    )
    updated_after: After | None = Field(
        None,
        description="Created or changed after this time. If very many were, a page may have fewer"
        " than `limit` items, as with `q`.",
    )


class Filters(Narrowing, Paging):
    ids: Annotated[str, StringConstraints(min_length=1, max_length=MOST_IDS)] | None = Field(
        None, description="Of these contacts alone: their IDs, with commas between them."
    )


async def index(call: Call) -> Response:
    query = call.query(Filters)
    workspace_id = call.member.workspace_id
    rows, rest = await searches.page(
        call.db,
        workspace_id=workspace_id,
        filters=await filters_of(call.db, workspace_id, query.filters()),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    tags = await contacts.tags_of(
        call.db, workspace_id=workspace_id, contact_ids=[row.id for row in rows]
    )
    return paging.page(call, query, rows, lambda row: shapes.resource(row, tags[row.id]), rest=rest)


async def show(call: Call) -> Response:
    row = await _found(call)
    return await _answer(call, row, await resource_of(call, row))


async def create(call: Call) -> Response:
    values = call.read(WritableContact).model_dump(by_alias=True, exclude_unset=True)
    tags = values.pop("tags", None)
    row = await writing.create(call.db, await own_workspace(call), values, tags)
    await quotas.require_contact(call.db, call.member.workspace_id, PLANS[call.member.plan])
    resource = shapes.resource(row, await _tags(call, row.id))
    await call.note("contact.created", row.id, after=resource)
    return await answer_created(call, row, resource)


async def answer_created(
    call: Call, row: contacts.Contact, resource: Mapping[str, Any]
) -> Response:
    held = await _held(call, row)
    return reply.created(
        f"/contacts/{row.id}",
        {**resource, "suppressions": held},
        revision=row.revision,
        beside=held or None,
    )


async def update(call: Call) -> Response:
    row, before = await locked(call)
    stored = shapes.writable(row, before["tags"])
    new = call.patch(WritableContact, stored).model_dump(by_alias=True)
    tags = new.pop("tags")
    changed = await writing.replace(call.db, await own_workspace(call), row, new, tags)
    return await answer_changed(call, row, before, changed)


async def remove(call: Call) -> Response:
    """Erase the contact, including its data in runs and messages."""
    # In as many transactions as its history is long; the contact goes in the last.
    match: Callable[[int], None] | None = call.match
    search = Search()
    erased: erasing.Erasure = "more"
    row: contacts.Contact | None = None
    while erased == "more":
        async with call.process.database.write() as db:
            workspace = await context_of(call.process, db, call.member.workspace_id)
            row = await contacts.by_id(db, workspace_id=workspace.id, id=call.path("id")) or row
            erased = await erasing.erase(db, workspace, call.path("id"), match, search)
            if erased == "done":
                await call.note("contact.erased", call.path("id"), db=db)
                await trail.forget(
                    db, call.process.vault, workspace_id=workspace.id, resource_id=call.path("id")
                )
        if erased == "unknown" and match is not None:  # else somebody else did the rest of it
            raise reply.unknown("contact")
        match = None
    if row is not None:
        await in_flight.all_quiet(call.process, in_flight.erased(call.process, workspace.id, row))
    return reply.no_content()


async def add_tags(call: Call) -> Response:
    row, before = await locked(call)
    await writing.add_tags(call.db, await own_workspace(call), row.id, call.read(Tags).tags)
    return await answer_changed(call, row, before, await _found(call))


async def remove_tag(call: Call) -> Response:
    row, before = await locked(call)
    if not await writing.remove_tag(call.db, await own_workspace(call), row.id, call.path("tag")):
        raise Problem("not_found", "The contact does not have this tag.")
    await answer_changed(call, row, before, await _found(call))
    return reply.no_content()


CONSENT = frozenset({"subscriptions", "email", "phone", "match"})


async def quiet(call: Call, answer: JsonResponse) -> Response:
    """Wait for sends: what unsubscribes somebody, or an address of theirs, is not answered while
    something is on its way to them; be they so before, for nobody may have heard of it. By what is
    answered: the contact may have another address by now."""
    shown = answer.shown
    # The body was taken, so it is an object.
    if "subscriptions" in shown and not CONSENT.isdisjoint(document.parse(call.body)):
        out = in_flight.withdrawn(call.process, call.member.workspace_id, shown)
        await in_flight.all_quiet(call.process, out)
    return answer


async def _found(call: Call) -> contacts.Contact:
    row = await contacts.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(row, "contact")


async def locked(call: Call) -> tuple[contacts.Contact, dict[str, Any]]:
    """Lock the contact to change it. Nobody else does meanwhile, and it is still what If-Match
    names. The resource is what it was before."""
    row = await contacts.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    row = reply.found(row, "contact")
    call.match(row.revision)
    return row, await resource_of(call, row)


async def answer_changed(
    call: Call, row: contacts.Contact, before: dict[str, Any], changed: contacts.Contact
) -> Response:
    if changed.revision == row.revision:  # it was so already
        return await _answer(call, row, before)
    after = await resource_of(call, changed)
    await call.note("contact.updated", row.id, before, after)
    return await _answer(call, changed, after)


async def _answer(call: Call, row: contacts.Contact, resource: Mapping[str, Any]) -> Response:
    held = await _held(call, row)
    return reply.ok({**resource, "suppressions": held}, revision=row.revision, beside=held or None)


async def _held(call: Call, row: contacts.Contact) -> list[dict[str, Json]]:
    """The suppressions of the contact's addresses, which change by themselves."""
    workspace_id = call.member.workspace_id
    hashes = subscriptions.hashes(call.process.vault, workspace_id, row)
    rows = await suppressions.of_addresses(
        call.db, workspace_id=workspace_id, address_hashes=list(hashes.values())
    )
    return [{"id": one.id, "channel": one.channel, "reason": one.reason} for one in rows]


async def resource_of(call: Call, row: contacts.Contact) -> dict[str, Any]:
    return shapes.resource(row, await _tags(call, row.id))


async def _tags(call: Call, id: str) -> list[str]:
    return await contacts.tags(call.db, workspace_id=call.member.workspace_id, contact_id=id)


async def own_workspace(call: Call) -> WorkspaceContext:
    """An HTTP step may call us, too."""
    workspace = await context_of(call.process, call.db, call.member.workspace_id)
    return replace(
        workspace,
        depth=chains.depth_of(call.request.headers.getlist(chains.DEPTH)),
        root=chains.root_of(
            call.process.vault, workspace.id, call.request.headers.getlist(chains.CHAIN)
        ),
    )


async def filters_of(db: Handle, workspace_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Column filters; what is compared is the clean form."""
    country = await country_of(db, workspace_id)
    clean: Mapping[str, tuple[str, Callable[[str], str]]] = {
        "email": ("email_key", lambda text: addresses.email(text).key),
        "phone": ("phone", lambda text: addresses.phone(text, country)),
    }
    filters: dict[str, Any] = profile.normal(given)
    errors: list[FieldError] = []
    for name, (column, cleaned) in clean.items():
        if name in filters:
            try:
                filters[column] = cleaned(filters.pop(name))
            except addresses.BadAddress as error:
                errors.append(FieldError(f"?{name}", str(error)))
    if errors:
        raise Problem("invalid", "A filter is not valid; see errors.", errors=errors)
    if "q" in filters:
        filters["q_phone"] = addresses.phone_start(filters["q"], country)
    if "ids" in filters:
        filters["ids"] = filters["ids"].split(",")
    return filters


routes = [
    get("/contacts", index, can="contacts:read", query=Filters, gives={200: Page[Contact]}),
    post(
        "/contacts",
        create,
        can="contacts:write",
        takes=WritableContact,
        gives={201: ContactInFull},
        raises=("conflict", "quota_exceeded"),
        awaits=quiet,
    ),
    get("/contacts/{id}", show, can="contacts:read", gives={200: ContactInFull}),
    patch(
        "/contacts/{id}",
        update,
        can="contacts:write",
        takes=WritableContact,
        gives={200: ContactInFull},
        raises=("conflict",),
        awaits=quiet,
    ),
    delete("/contacts/{id}", remove, can="contacts:write", tx=None, gives={204: None}),
    post(
        "/contacts/{id}/tags",
        add_tags,
        can="contacts:write",
        takes=Tags,
        gives={200: ContactInFull},
    ),
    # A tag may hold a slash.
    delete("/contacts/{id}/tags/{tag:path}", remove_tag, can="contacts:write", gives={204: None}),
]
