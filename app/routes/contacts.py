"""The audience."""

from __future__ import annotations

from typing import Any

from pydantic import Field
from starlette.responses import Response

from app import addresses, audience
from app.audience import Workspace
from app.errors import FieldError, Problem
from app.machine.program import Json
from app.store import contacts, workspaces
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Moment, Shape
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


class Filters(Paging):
    email: str | None = None
    phone: str | None = None
    tag: str | None = None
    updated_after: Moment | None = None


async def index(call: Call) -> Response:
    query = call.query(Filters)
    workspace_id = call.member.workspace_id
    rows = await contacts.page(
        call.db,
        workspace_id=workspace_id,
        filters=await _filters(call, query),
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
    row = await _locked(call)
    await audience.erase(call.db, await _workspace(call), row["id"])
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
    row = await workspaces.by_id(call.db, id=call.member.workspace_id)
    return Workspace(id=call.member.workspace_id, country=row["country"] if row else None)


async def _filters(call: Call, query: Filters) -> dict[str, Any]:
    """Column filters; an address is compared in its clean form."""
    country = (await _workspace(call)).country
    filters, errors = query.filters(), []
    for name, column, clean in (
        ("email", "email_key", lambda text: addresses.email(text).key),
        ("phone", "phone", lambda text: addresses.phone(text, country)),
    ):
        if name in filters:
            try:
                filters[column] = clean(filters.pop(name))
            except addresses.BadAddress as error:
                errors.append(FieldError(f"?{name}", str(error)))
    if errors:
        raise Problem("invalid", "A filter is not valid; see errors.", errors=errors)
    return filters


def _unknown() -> Problem:
    return Problem("not_found", "There is no such contact.")


routes = [
    get("/contacts", index, can="contacts:read"),
    post("/contacts", create, can="contacts:write"),
    get("/contacts/{id}", show, can="contacts:read"),
    patch("/contacts/{id}", update, can="contacts:write"),
    delete("/contacts/{id}", remove, can="contacts:write"),
    post("/contacts/{id}/tags", add_tags, can="contacts:write"),
    delete("/contacts/{id}/tags/{tag}", remove_tag, can="contacts:write"),
]
