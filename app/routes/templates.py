"""Templates: what messages say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, RootModel
from starlette.responses import Response

from app.audience.topics import wrong_channel
from app.broadcasts import audience as audiences
from app.database.db import Handle, new_id
from app.definitions import activation, inspection
from app.errors import FieldError, Problem
from app.machine import content as contents
from app.machine import content_schema
from app.machine.categories import MARKETING, TRANSACTIONAL, Category
from app.machine.content import ChannelName
from app.machine.lint import Review
from app.machine.program import Facts, Json
from app.machine.schema import ref
from app.messages import facts, footers
from app.process import Process
from app.routes.definition_shapes import Finding
from app.routes.ids import TemplateId, TopicId
from app.runtime.compute import Computation
from app.store import contacts, definitions, templates, topics, workspaces
from app.web import paging, reply
from app.web.body import Name, Shape, Writable
from app.web.paging import Changing
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post
from app.web.schemas import described, referring


class WritableTemplate(
    Writable, json_schema_extra={"allOf": referring(content_schema.by_channel("Content"))}
):
    """`content` has the parts of its `channel`, at most 256 KiB of JSON: see EmailContent,
    SmsContent, WhatsappContent."""

    name: Name
    channel: ChannelName
    category: Category = TRANSACTIONAL
    topic_id: Annotated[
        str | None,
        Field(description="Of marketing: its readers must have agreed to get this topic."),
    ] = None
    content: Annotated[dict[str, Any], described(ref("Content"))]


class UncheckedTemplate(Shape):
    """A template that is being typed: nothing of its `content` has to be there or right."""

    channel: ChannelName
    category: Category = TRANSACTIONAL
    content: dict[str, Any]


class Preview(Shape):
    contact_id: str | None = None
    trigger: dict[str, Any] = Field(default_factory=dict)


class UnsavedPreview(Preview):
    """`template` is as POST `/templates` takes it."""

    template: WritableTemplate


class TemplateCheck(Shape):
    """`variables` are the paths that its parts read. A finding is an error where it could not be
    saved."""

    variables: list[str]
    findings: list[Finding]


class TemplateSummary(Shape):
    """A template as lists have it, without large fields."""

    id: TemplateId
    name: str
    channel: str
    category: Category
    topic_id: TopicId | None
    version: int
    created_at: datetime
    updated_at: datetime


class Template(TemplateSummary, Revised):
    """`variables` are the paths that its parts read; `findings` warn of those that are in no
    contact, workspace or run."""

    content: dict[str, str | dict[str, str]]
    variables: list[str]
    findings: list[Finding]


class TemplateUses(Shape):
    """The ids of automations, workflows and broadcasts."""

    used_by: list[str]


class RenderedPart(Shape):
    """The part as it would be sent, with the paths that had no value, or why it cannot be sent."""

    rendered: str | None = None
    missing: list[str] | None = None
    error: str | None = None


class Rendered(RootModel[dict[str, RenderedPart]]):
    """Each part of the template, by name."""


async def index(call: Call) -> Response:
    return await paging.index(call, Changing, templates.page, TemplateSummary.of)


async def show(call: Call) -> Response:
    row = await _found(call, call.db)
    shown = await _warned(call, row, resource(call, row))
    return reply.ok(shown, revision=row.revision)


async def create(call: Call) -> Response:
    new = call.read(WritableTemplate)
    await _check_topic(call.db, call.member.workspace_id, new)
    row = await templates.insert(
        call.db,
        workspace_id=call.member.workspace_id,
        id=new_id("tpl"),
        name=new.name,
        channel=new.channel,
        category=new.category,
        topic_id=new.topic_id,
        content=_checked(call, new),
    )
    shown = resource(call, row)
    await call.note("template.created", row.id, after=shown)
    shown = await _warned(call, row, shown)
    return reply.created(f"/templates/{row.id}", shown, revision=row.revision)


async def update(call: Call) -> Response:
    """Change a template. While a scheduled broadcast uses it, only who may send broadcasts changes
    what it says."""
    row = await templates.locked(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    row = reply.found(row, "template")
    call.match(row.revision)
    stored = WritableTemplate.of(row)
    new = call.patch(WritableTemplate, stored)
    if new.channel != row.channel:
        raise _invalid([("/channel", "A template keeps its channel; make another one instead.")])
    await _check_topic(call.db, call.member.workspace_id, new)
    content = _checked(call, new, row.content)
    if (new.category, new.topic_id, content) != (row.category, row.topic_id, row.content):
        await audiences.require_sender(call.db, call.member, template_id=row.id)
    changed = await templates.update(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row.id,
        name=new.name,
        category=new.category,
        topic_id=new.topic_id,
        content=content,
        version=row.version + (content != row.content),
    )
    shown = resource(call, changed)
    await call.note("template.updated", row.id, resource(call, row), shown)
    return reply.ok(await _warned(call, changed, shown), revision=changed.revision)


async def remove(call: Call) -> Response:
    workspace_id, id = call.member.workspace_id, call.path("id")
    row = reply.found(await templates.locked(call.db, workspace_id=workspace_id, id=id), "template")
    call.match(row.revision)
    users = await _users(call.db, workspace_id, id)
    if users:
        raise Problem(
            "conflict",
            f"{users[0]} uses this template; remove it there, or archive or cancel that, first.",
            usedBy=users,
        )
    await templates.delete(call.db, workspace_id=workspace_id, id=id)
    await call.note("template.deleted", id, before=resource(call, row))
    return reply.no_content()


async def uses(call: Call) -> Response:
    """List what keeps the template from being deleted: flows that are not archived, and broadcasts
    that have not ended."""
    row = await _found(call, call.db)
    return reply.ok({"usedBy": await _users(call.db, call.member.workspace_id, row.id)})


async def _users(db: Handle, workspace_id: str, id: str) -> list[str]:
    users = await definitions.mentioning(db, workspace_id=workspace_id, id=id)
    return [*users, *await audiences.naming(db, workspace_id, template_id=id)]


async def preview(call: Call) -> Response:
    """Each part as it would be sent, or the reason why it cannot be; includes the text of a mail if
    it is derived from the HTML."""
    await call.receive_body()
    wanted, workspace_id = call.read(Preview), call.member.workspace_id
    return reply.ok(await rendered(call.process, workspace_id, call.path("id"), wanted))


async def rendered(
    process: Process, workspace_id: str, id: str, wanted: Preview
) -> Mapping[str, Mapping[str, Json]]:
    """Each part, by name. Raises Problem `not_found`, `invalid`."""
    async with process.database.read() as db:
        row = reply.found(await templates.by_id(db, workspace_id=workspace_id, id=id), "template")
        known = await _facts(db, workspace_id, wanted)
    what = Previewed(row.channel, row.category, row.content)
    return await _previewed(process, workspace_id, what, known)


async def check(call: Call) -> Response:
    """Return what saving the template would say of it; nothing is written."""
    await call.receive_body()
    new, compute = call.read(UncheckedTemplate), call.process.compute
    workspace_id, given = call.member.workspace_id, (new.channel, new.content)
    content, found = await compute.call(Computation(workspace_id, contents.checked, given))
    review = Review([], found)
    if not found:
        computation = Computation(
            workspace_id, inspection.review, (new.channel, new.category, content)
        )
        review = await compute.call(computation)
    async with call.process.database.read() as db:
        beside = await without_address(db, workspace_id, new.channel, new.category, "/content")
    listed = activation.listed(review.findings)
    return reply.ok({"variables": review.variables, "findings": [*listed, *beside]})


async def preview_unsaved_template(call: Call) -> Response:
    """The same of a template that is not saved; nothing is written."""
    await call.receive_body()
    wanted, workspace_id = call.read(UnsavedPreview), call.member.workspace_id
    template = wanted.template
    computation = Computation(
        workspace_id, contents.checked, (template.channel, template.content, "/template/content")
    )
    content, wrong = await call.process.compute.call(computation)
    if wrong:
        raise _invalid([(finding.pointer, finding.message) for finding in wrong])
    async with call.process.database.read() as db:
        await _check_topic(db, workspace_id, template, "/template")
        known = await _facts(db, workspace_id, wanted)
    what = Previewed(template.channel, template.category, content)
    return reply.ok(await _previewed(call.process, workspace_id, what, known))


async def _facts(db: Handle, workspace_id: str, wanted: Preview) -> Facts:
    contact = None
    if wanted.contact_id is not None:
        contact = await contacts.by_id(db, workspace_id=workspace_id, id=wanted.contact_id)
        if contact is None:
            raise Problem(
                "invalid",
                "The template cannot be rendered for this contact; see errors.",
                errors=[FieldError("/contactId", "There is no such contact.")],
            )
    return await facts.of_contact(db, workspace_id, contact, wanted.trigger)


@dataclass(frozen=True, slots=True)
class Previewed:
    """A template, saved or not, as far as a preview needs it."""

    channel: str
    category: str
    content: Mapping[str, Json]


async def _previewed(
    process: Process, workspace_id: str, template: Previewed, known: Facts
) -> Mapping[str, Mapping[str, Json]]:
    url = footers.example_url(process.settings.base_url)
    roots = footers.with_links(known, url)
    footer = None
    if template.category == MARKETING:
        footer = footers.footer_of(roots, template.content, url, takes_replies=True)
    # Without a connection: it may wait for its turn.
    computation = Computation(
        workspace_id, footers.preview, (template.channel, template.content, roots, footer)
    )
    return await process.compute.call(computation)


async def _check_topic(
    db: Handle, workspace_id: str, template: WritableTemplate, at: str = ""
) -> None:
    """`at` is where the template stands in the body. Raises Problem `invalid`."""
    if template.topic_id is None:
        return
    message: str | None = contents.UNASKED
    if template.category == MARKETING:
        message = await wrong_topic(db, workspace_id, template.topic_id, template.channel)
    if message:
        raise _invalid([(f"{at}/topicId", message)])


async def wrong_topic(db: Handle, workspace_id: str, topic_id: str, channel: str) -> str | None:
    """Explain why marketing on the channel cannot be about the topic; None when it can. One that is
    deleted meanwhile is of no harm: nobody has agreed to get it."""
    topic = await topics.by_id(db, workspace_id=workspace_id, id=topic_id)
    return "There is no such topic." if topic is None else wrong_channel(topic, channel)


def _checked(call: Call, template: WritableTemplate, stored: Json = None) -> dict[str, Json]:
    """The content without its empty parts. Raises Problem `invalid`, but for no limit that what is
    `stored` already is beyond; and Heavy."""
    computation = Computation(
        call.member.workspace_id, contents.checked, (template.channel, template.content)
    )
    content, findings = call.process.compute.here(computation)
    wrong = [one for one in findings if not (one.limit and template.content == stored)]
    if wrong:
        raise _invalid([(finding.pointer, finding.message) for finding in wrong])
    return content


def _invalid(errors: list[tuple[str, str]]) -> Problem:
    listed = [FieldError(pointer, message) for pointer, message in errors]
    return Problem("invalid", "The template is not valid; see errors.", errors=listed)


async def _found(call: Call, db: Handle) -> templates.Template:
    row = await templates.by_id(db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(row, "template")


def resource(call: Call, row: templates.Template) -> dict[str, Any]:
    """Raises Heavy."""
    given = row.channel, row.category, row.content
    computation = Computation(call.member.workspace_id, inspection.review, given)
    review: Review = call.process.compute.here(computation)
    findings = activation.listed(review.findings)
    return Template.of(row, variables=review.variables, findings=findings)


async def _warned(call: Call, row: templates.Template, shown: dict[str, Any]) -> dict[str, Any]:
    """Add the findings that are not of the template alone."""
    found = await without_address(
        call.db, call.member.workspace_id, row.channel, row.category, "/content"
    )
    return {**shown, "findings": [*shown["findings"], *found]}


async def without_address(
    db: Handle, workspace_id: str, channel: str, category: str, pointer: str
) -> list[dict[str, str]]:
    """The finding about marketing mail of a workspace that has not said where it is, as clients see
    it."""
    if channel != "email" or category != MARKETING:
        return []
    workspace = await workspaces.by_id(db, id=workspace_id)
    if workspace is not None and workspace.postal_address:
        return []
    return activation.listed([inspection.postal_address_missing(pointer)])


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
    post(
        "/templates/check",
        check,
        can="templates:read",
        tx=None,
        takes=UncheckedTemplate,
        gives={200: TemplateCheck},
    ),
    post(
        "/templates/preview",
        preview_unsaved_template,
        can="templates:read",
        tx=None,
        takes=UnsavedPreview,
        gives={200: Rendered},
    ),
    get("/templates/{id}", show, can="templates:read", gives={200: Template}),
    patch(
        "/templates/{id}",
        update,
        can="templates:write",
        takes=WritableTemplate,
        gives={200: Template},
        raises=("conflict",),
    ),
    delete(
        "/templates/{id}",
        remove,
        can="templates:write",
        gives={204: None},
        raises=("conflict",),
    ),
    get("/templates/{id}/uses", uses, can="templates:read", gives={200: TemplateUses}),
    post(
        "/templates/{id}/preview",
        preview,
        can="templates:read",
        tx=None,
        takes=Preview,
        gives={200: Rendered},
    ),
]
