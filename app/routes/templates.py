"""What messages say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from app import facts
from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine.program import Json
from app.store import contacts, definitions, templates
from app.store.db import Row, new_id
from app.web import paging, reply
from app.web.body import Name, Shape
from app.web.paging import Paging
from app.web.routing import Call, delete, get, patch, post

Category = Literal["transactional", "marketing"]


class Template(Shape):
    name: Name
    channel: Literal["email"]
    category: Category = "transactional"
    content: dict[str, Any]


class Preview(Shape):
    contact_id: str | None = None
    trigger: dict[str, Any] = Field(default_factory=dict)


async def index(call: Call) -> Response:
    query = call.query(Paging)
    rows = await templates.page(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, summary)


async def show(call: Call) -> Response:
    row = await _found(call)
    return reply.ok(resource(row), revision=row["revision"])


async def create(call: Call) -> Response:
    new = call.read(Template)
    row = await templates.insert(
        call.db,
        workspace_id=call.member.workspace_id,
        id=new_id("tpl"),
        name=new.name,
        channel=new.channel,
        category=new.category,
        content=_checked(new),
    )
    return reply.created(f"/templates/{row['id']}", resource(row), revision=row["revision"])


async def update(call: Call) -> Response:
    row = await templates.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    call.match(row["revision"])
    new = call.patch(
        Template, {name: row[name] for name in ("name", "channel", "category", "content")}
    )
    if new.channel != row["channel"]:
        raise _invalid([("/channel", "A template keeps its channel; make another one instead.")])
    content = _checked(new)
    changed = await templates.update(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row["id"],
        name=new.name,
        category=new.category,
        content=content,
        version=row["version"] + (content != row["content"]),
    )
    return reply.ok(resource(changed), revision=changed["revision"])


async def remove(call: Call) -> Response:
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = await templates.locked(call.db, workspace_id=workspace_id, id=id)
    if row is None:
        raise _unknown()
    call.match(row["revision"])
    users = await definitions.naming_template(call.db, workspace_id=workspace_id, template_id=id)
    if users:
        raise Problem(
            "conflict",
            f"{users[0]} sends this template; take it out there, or archive that one, first.",
            usedBy=users,
        )
    await templates.delete(call.db, workspace_id=workspace_id, id=id)
    return reply.no_content()


async def preview(call: Call) -> Response:
    """Each part as it would be sent, or the sentence that says why not."""
    row, wanted = await _found(call), call.read(Preview)
    roots = await facts.of_contact(
        call.db, call.member.workspace_id, await _contact(call, wanted), wanted.trigger
    )
    return reply.ok(
        {
            name: _part(row["channel"], name, source, roots)
            for name, source in row["content"].items()
        }
    )


def _part(channel: str, name: str, source: str, roots: Mapping[str, Json]) -> dict[str, str]:
    try:
        return {"rendered": contents.render_part(channel, name, source, roots)}
    except contents.PartError as error:
        return {"error": error.message}


async def _contact(call: Call, wanted: Preview) -> Row | None:
    if wanted.contact_id is None:
        return None
    row = await contacts.by_id(call.db, workspace_id=call.member.workspace_id, id=wanted.contact_id)
    if row is None:
        raise _invalid([("/contactId", "There is no such contact.")])
    return row


def _checked(template: Template) -> dict[str, Json]:
    """The content without its empty parts."""
    found = contents.check(template.channel, template.content)
    if found:
        raise _invalid([(_pointer(part), sentence) for part, sentence in found])
    return {name: source for name, source in template.content.items() if source}


def _pointer(part: str) -> str:
    """RFC 6901 §3: an unknown part may be called anything."""
    return "/content/" + part.replace("~", "~0").replace("/", "~1")


def _invalid(errors: list[tuple[str, str]]) -> Problem:
    listed = [FieldError(pointer, message) for pointer, message in errors]
    return Problem("invalid", "The template cannot be saved like this; see errors.", errors=listed)


async def _found(call: Call) -> Row:
    row = await templates.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    return row


def _unknown() -> Problem:
    return Problem("not_found", "There is no such template.")


def summary(row: Row) -> dict[str, Any]:
    """As lists have it: without what is heavy."""
    return {
        "id": row["id"],
        "name": row["name"],
        "channel": row["channel"],
        "category": row["category"],
        "version": row["version"],
        "createdAt": row["created_at"],
        "updatedAt": row["updated_at"],
    }


def resource(row: Row) -> dict[str, Any]:
    return {
        **summary(row),
        "content": row["content"],
        "variables": contents.variables(row["content"]),
    }


routes = [
    get("/templates", index, can="templates:read"),
    post("/templates", create, can="templates:write"),
    get("/templates/{id}", show, can="templates:read"),
    patch("/templates/{id}", update, can="templates:write"),
    delete("/templates/{id}", remove, can="templates:write"),
    post("/templates/{id}/preview", preview, can="templates:read", tx="read"),
]
