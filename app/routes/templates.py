"""What messages say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, RootModel
from starlette.responses import Response

from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine.content import ChannelName
from app.machine.fields import Place
from app.machine.kind import missing
from app.machine.program import Finding, Json
from app.routes.ids import TemplateId
from app.runs import facts
from app.runtime import slow_workspaces
from app.store import contacts, definitions, templates
from app.store.db import Handle, Row, new_id
from app.web import paging, reply
from app.web.body import Name, Shape, Writable
from app.web.paging import Changing
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post

Category = Literal["transactional", "marketing"]


class WritableTemplate(Writable):
    name: Name
    channel: ChannelName
    category: Category = "transactional"
    content: dict[str, Any]


class Preview(Shape):
    contact_id: str | None = None
    trigger: dict[str, Any] = Field(default_factory=dict)


class TemplateSummary(Shape):
    """As lists have it, without large fields."""

    id: TemplateId
    name: str
    channel: str
    category: Category
    version: int
    created_at: datetime
    updated_at: datetime


class Template(TemplateSummary, Revised):
    """`variables` are the paths that its parts read."""

    content: dict[str, str | dict[str, str]]
    variables: list[str]


class RenderedPart(Shape):
    """What would be sent, with the paths that had no value, or why it cannot be sent."""

    rendered: str | None = None
    missing: list[str] | None = None
    error: str | None = None


class Rendered(RootModel[dict[str, RenderedPart]]):
    """Each part of the template, by name."""


async def index(call: Call) -> Response:
    return await paging.index(call, Changing, templates.page, summary)


async def show(call: Call) -> Response:
    row = await _found(call, call.db)
    return reply.ok(resource(row), revision=row["revision"])


async def create(call: Call) -> Response:
    new = call.read(WritableTemplate)
    row = await templates.insert(
        call.db,
        workspace_id=call.member.workspace_id,
        id=new_id("tpl"),
        name=new.name,
        channel=new.channel,
        category=new.category,
        content=_checked(new),
    )
    await call.note("template.created", row["id"], after=resource(row))
    return reply.created(f"/templates/{row['id']}", resource(row), revision=row["revision"])


async def update(call: Call) -> Response:
    row = await templates.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    call.match(row["revision"])
    stored = {name: row[name] for name in ("name", "channel", "category", "content")}
    new = call.patch(WritableTemplate, stored)
    if new.channel != row["channel"]:
        raise _invalid([("/channel", "A template keeps its channel; make another one instead.")])
    content = _checked(new, row["content"])
    changed = await templates.update(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row["id"],
        name=new.name,
        category=new.category,
        content=content,
        version=row["version"] + (content != row["content"]),
    )
    await call.note("template.updated", row["id"], resource(row), resource(changed))
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
            f"{users[0]} uses this template; remove it there, or archive that definition, first.",
            usedBy=users,
        )
    await templates.delete(call.db, workspace_id=workspace_id, id=id)
    await call.note("template.deleted", id, before=resource(row))
    return reply.no_content()


async def preview(call: Call) -> Response:
    """Each part as it would be sent, or the reason why it cannot be; includes the text of a mail if
    it is derived from the HTML."""
    await call.receive_body()
    wanted, workspace_id = call.read(Preview), call.member.workspace_id
    async with call.process.database.read() as db:
        row = await _found(call, db)
        contact = await _contact(db, workspace_id, wanted)
        roots = await facts.of_contact(db, workspace_id, contact, wanted.trigger)
    # Without a connection, and beside the loop: intakes do not wait for what takes long.
    return reply.ok(await slow_workspaces.Meter(workspace_id).run_in_thread(_parts, row, roots))


def _parts(row: Row, roots: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    parts = {
        name: _part(row["channel"], name, row["content"][name], roots)
        for name in contents.given(row["channel"], row["content"])
    }
    rendered = {name: part["rendered"] for name, part in parts.items() if "rendered" in part}
    if "error" not in parts.get("text", {}):
        parts |= {name: {"rendered": text} for name, text in contents.derived(rendered).items()}
    return parts


def _part(channel: str, name: str, source: Json, roots: Mapping[str, Json]) -> dict[str, Json]:
    try:
        rendered = contents.render_part(channel, name, source, roots)
        return {"rendered": rendered.text, **missing(rendered.missing)}
    except contents.PartError as error:
        return {"error": error.message}


async def _contact(db: Handle, workspace_id: str, wanted: Preview) -> Row | None:
    if wanted.contact_id is None:
        return None
    row = await contacts.by_id(db, workspace_id=workspace_id, id=wanted.contact_id)
    if row is None:
        raise Problem(
            "invalid",
            "The template cannot be rendered for this contact; see errors.",
            errors=[FieldError("/contactId", "There is no such contact.")],
        )
    return row


def _checked(template: WritableTemplate, stored: Json = None) -> dict[str, Json]:
    """The content without its empty parts. Raises Problem `invalid`, but for no limit that what is
    `stored` already is beyond."""
    findings: list[Finding] = []
    content = contents.read(template.channel, template.content, Place("/content", findings))
    wrong = [one for one in findings if not (one.limit and template.content == stored)]
    if wrong:
        raise _invalid([(finding.pointer, finding.message) for finding in wrong])
    return content


def _invalid(errors: list[tuple[str, str]]) -> Problem:
    listed = [FieldError(pointer, message) for pointer, message in errors]
    return Problem("invalid", "The template is not valid; see errors.", errors=listed)


async def _found(call: Call, db: Handle) -> Row:
    row = await templates.by_id(db, workspace_id=call.member.workspace_id, id=call.path("id"))
    if row is None:
        raise _unknown()
    return row


def _unknown() -> Problem:
    return Problem("not_found", "There is no such template.")


def summary(row: Row) -> dict[str, Any]:
    """As lists have it, without large fields."""
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
        "variables": contents.variables(row["channel"], row["content"]),
    }


routes = [
    get(
        "/templates",
        index,
        can="templates:read",
        query=Changing,
        gives={200: Page[TemplateSummary]},
    ),
    post(
        "/templates", create, can="templates:write", takes=WritableTemplate, gives={201: Template}
    ),
    get("/templates/{id}", show, can="templates:read", gives={200: Template}),
    patch(
        "/templates/{id}",
        update,
        can="templates:write",
        takes=WritableTemplate,
        gives={200: Template},
    ),
    delete(
        "/templates/{id}",
        remove,
        can="templates:write",
        gives={204: None},
        raises=("conflict",),
    ),
    post(
        "/templates/{id}/preview",
        preview,
        can="templates:read",
        tx=None,
        takes=Preview,
        gives={200: Rendered},
    ),
]
