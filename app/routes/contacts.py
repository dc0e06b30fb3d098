"""The audience."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app import addresses, audience
from app.audience import Workspace
from app.errors import FieldError, Problem
from app.machine.program import Json
from app.store import contacts, workspaces
from app.store.db import Handle, Row
from app.web import paging, reply
from app.web.body import Moment, Query, Shape
from app.web.paging import Paging
from app.web.routing import Call, delete, get, patch, post


class Contact(Shape, extra="allow"):
    """The names. What they may hold, and that there are no others, is said in one place for every
    way in, so that all that is wrong is found at once: app/profile.py."""

    email: Json = None
    phone: Json = None
    first_name: Json = None
    last_name: Json = None
    timezone: Json = None
    locale: Json = None
    metadata: Json = Field(default_factory=dict)
    tags: Json = Field(default_factory=list)


class Tags(Shape):
    tags: list[str]


class Narrowing(Query):
    """Which contacts: all that is said must hold. `q` is how the email, the phone number, the full
    name or the last name begins, in any case; metadata is compared as text."""

    email: str | None = None
    phone: str | None = None
    tag: str | None = None
    metadata: Annotated[dict[str, str], Field(max_length=contacts.FIELDS)] | None = None
    q: Annotated[str, AfterValidator(str.strip), Field(min_length=2, max_length=200)] | None = None
    updated_after: Moment | None = None


class Filters(Narrowing, Paging):
    pass


async def index(call: Call) -> Response:
    query = call.query(Filters)
    workspace_id = call.member.workspace_id
    rows = await contacts.page(
        call.db,
        workspace_id=workspace_id,
        filters=await filters_of(call.db, workspace_id, query.filters()),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    tags = await contacts.tags_of(
        call.db, workspace_id=workspace_id, contact_ids=[row["id"] for row in rows]
    )
    return paging.page(call, query, rows, lambda row: audience.resource(row, tags[row["id"]]))


async def show(call: Call) -> Response:
    return await _answer(call, await _found(call))


async def create(call: Call) -> Response:
    values = call.read(Contact).model_dump(by_alias=True, exclude_unset=True)
    tags = values.pop("tags", None)
    row = await audience.create(call.db, await _workspace(call), values, tags)
    resource = audience.resource(row, await _tags(call, row["id"]))
    return reply.created(f"/contacts/{row['id']}", resource, revision=row["revision"])


async def update(call: Call) -> Response:
    row = await _locked(call)
    stored = audience.writable(row, await _tags(call, row["id"]))
    new = call.patch(Contact, stored).model_dump(by_alias=True)
    tags = new.pop("tags")
    return await _answer(
        call, await audience.replace(call.db, await _workspace(call), row, new, tags)
    )


async def remove(call: Call) -> Response:
    """In as many transactions as its history is long; the contact goes in the last."""
    call.query(Query)
    match: Callable[[int], None] | None = call.match
    erased: audience.Erasure = "more"
    while erased == "more":
        async with call.process.database.write() as db:
            workspace = await workspace_of(db, call.member.workspace_id)
            erased = await audience.erase(db, workspace, call.path("id"), match)
        if erased == "unknown" and match is not None:  # else somebody else did the rest of it
            raise _unknown()
        match = None
    return reply.no_content()


async def add_tags(call: Call) -> Response:
    row = await _locked(call)
    await audience.add_tags(call.db, await _workspace(call), row["id"], call.read(Tags).tags)
    return await _answer(call, await _found(call))


async def remove_tag(call: Call) -> Response:
    row = await _locked(call)
    if not await audience.remove_tag(call.db, await _workspace(call), row["id"], call.path("tag")):
        raise Problem("not_found", "The contact does not have this tag.")
    return reply.no_content()


async def _found(call: Call) -> Row:
    row = await contacts.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    return row


async def _locked(call: Call) -> Row:
    """To change it: nobody else does meanwhile, and it is still what If-Match names."""
    row = await contacts.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    call.match(row["revision"])
    return row


async def _answer(call: Call, row: Row) -> Response:
    resource = audience.resource(row, await _tags(call, row["id"]))
    return reply.ok(resource, revision=row["revision"])


async def _tags(call: Call, id: str) -> list[str]:
    tags = await contacts.tags_of(call.db, workspace_id=call.member.workspace_id, contact_ids=[id])
    return tags[id]


async def _workspace(call: Call) -> Workspace:
    return await workspace_of(call.db, call.member.workspace_id)


async def workspace_of(db: Handle, id: str) -> Workspace:
    row = await workspaces.by_id(db, id=id)
    return Workspace(id=id, country=row["country"] if row else None)


async def filters_of(db: Handle, workspace_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Column filters; what is compared is the clean form."""
    country = (await workspace_of(db, workspace_id)).country
    clean: Mapping[str, tuple[str, Callable[[str], str]]] = {
        "email": ("email_key", lambda text: addresses.email(text).key),
        "phone": ("phone", lambda text: addresses.phone(text, country)),
    }
    filters, errors = dict(given), []
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
        filters["q"] = contacts.search_key(filters["q"])
    return filters


def _unknown() -> Problem:
    return Problem("not_found", "There is no such contact.")


routes = [
    get("/contacts", index, can="contacts:read"),
    post("/contacts", create, can="contacts:write"),
    get("/contacts/{id}", show, can="contacts:read"),
    patch("/contacts/{id}", update, can="contacts:write"),
    delete("/contacts/{id}", remove, can="contacts:write", tx=None),
    post("/contacts/{id}/tags", add_tags, can="contacts:write"),
    # A tag may hold a slash.
    delete("/contacts/{id}/tags/{tag:path}", remove_tag, can="contacts:write"),
]
