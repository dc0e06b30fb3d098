"""Topics of marketing, which contacts agree to get one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from app.audience import topics
from app.audience.segments import filters_of
from app.broadcasts import audience as audiences
from app.database.db import new_id
from app.definitions import findings
from app.errors import FieldError, Problem
from app.machine.content import CHANNELS, ChannelName
from app.routes.ids import TopicId
from app.store import definitions, segments, templates
from app.store import topics as store
from app.store.row_keys import WorkspaceKey
from app.store.topics import Topic
from app.web import paging, reply
from app.web.body import Name, Writable
from app.web.paging import Changing
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post

LONGEST_DESCRIPTION = 500
Description = Annotated[str, Field(max_length=LONGEST_DESCRIPTION)]
Channels = Annotated[list[ChannelName], Field(min_length=1, max_length=3)]


class WritableTopic(Writable):
    """A subject of marketing. Contacts get it on the `channels` on which they have said yes, with
    `doubleOptIn` once they have confirmed that by the link in a message. One topic may be the
    default: it is the subscription to each channel, for marketing that names no topic."""

    name: Name
    description: Description | None = None
    channels: Channels
    double_opt_in: bool = False
    is_default: bool = False


class TopicShape(Revised):
    id: TopicId
    name: str
    description: str | None
    channels: list[ChannelName]
    double_opt_in: bool
    is_default: bool
    created_at: datetime
    updated_at: datetime


class TopicFilters(Changing):
    name: str | None = Field(None, description="The exact name.")


async def index(call: Call) -> Response:
    return await paging.index(call, TopicFilters, store.page, TopicShape.of)


async def show(call: Call) -> Response:
    topic = await _found(call)
    return reply.ok(TopicShape.of(topic), revision=topic.revision)


async def create(call: Call) -> Response:
    new, workspace_id = call.read(WritableTopic), call.member.workspace_id
    await store.lock(call.db, workspace_id=workspace_id)
    existing = await store.of_workspace(call.db, workspace_id=workspace_id)
    if len(existing) >= topics.MOST:
        message = f"A workspace has at most {topics.MOST} topics; delete one first."
        raise Problem("conflict", message)
    other = store.default_of(existing)
    if new.is_default and other is not None:
        message = f"{other.name} is the default topic of this workspace; there can be one."
        raise Problem("conflict", message, existingId=other.id)
    _check(new)
    topic = await store.insert(
        call.db,
        workspace_id=workspace_id,
        id=new_id("top"),
        **_columns(new),
        is_default=new.is_default,
    )
    shown = TopicShape.of(topic)
    await call.note("topic.created", topic.id, after=shown)
    return reply.created(f"/topics/{topic.id}", shown, revision=topic.revision)


async def update(call: Call) -> Response:
    topic = await _locked(call)
    new = call.patch(WritableTopic, WritableTopic.of(topic))
    if new.is_default != topic.is_default:
        message = "isDefault cannot be changed; create another topic."
        raise _invalid([FieldError("/isDefault", message)])
    _check(new)
    await _refuse_used(call, topic, [one for one in topic.channels if one not in new.channels])
    changed = await store.update(
        call.db, workspace_id=call.member.workspace_id, id=topic.id, **_columns(new)
    )
    shown = TopicShape.of(changed)
    await call.note("topic.updated", topic.id, TopicShape.of(topic), shown)
    return reply.ok(shown, revision=changed.revision)


async def remove(call: Call) -> Response:
    """Delete a topic: what contacts have answered about it is forgotten but in their histories, of
    many contacts bit by bit."""
    topic, workspace_id = await _locked(call), call.member.workspace_id
    of: WorkspaceKey = {"workspace_id": workspace_id}
    await segments.lock(call.db, **of)  # nothing that names it is being saved
    existing = await segments.of_workspace(call.db, **of)
    users = [
        *await templates.naming_topic(call.db, **of, topic_id=topic.id, channels=CHANNELS),
        *await definitions.mentioning(call.db, **of, id=topic.id),
        *(id for id, one in (await filters_of(existing)).items() if topic.id in dict(one.topics)),
        *await audiences.naming(call.db, workspace_id, topic_id=topic.id),
    ]
    if users:
        message = f"{users[0]} names this topic; change that first."
        raise Problem("conflict", message, usedBy=users)
    await store.delete(call.db, **of, id=topic.id)
    # As many as nobody waits long for; a worker forgets the rest.
    await store.forget_some(call.db, **of, id=topic.id, walk=topics.WALK)
    await call.note("topic.deleted", topic.id, before=TopicShape.of(topic))
    return reply.no_content()


async def _refuse_used(call: Call, topic: Topic, left: Sequence[str]) -> None:
    """Refuse to take a channel on which something is sent about the topic, or asked."""
    of: WorkspaceKey = {"workspace_id": call.member.workspace_id}
    users: list[str] = []
    if left:
        await segments.lock(call.db, **of)  # nothing that names it is being saved
        users = await templates.naming_topic(call.db, **of, topic_id=topic.id, channels=left)
        existing = await segments.of_workspace(call.db, **of)
        asked = {(topic.id, channel) for channel in left}
        users += [id for id, one in (await filters_of(existing)).items() if asked & one.topics]
        users += await audiences.about_topic(call.db, **of, topic_id=topic.id, channels=left)
        users += await findings.about_topic(call.db, **of, topic_id=topic.id, channels=left)
    if users:
        named = " or ".join(left)
        message = f"{users[0]} names this topic for {named}; change that first."
        raise Problem("conflict", message, usedBy=users)


def _check(new: WritableTopic) -> None:
    errors = []
    if len(set(new.channels)) < len(new.channels):
        errors.append(FieldError("/channels", "Name each channel once."))
    if new.is_default and new.double_opt_in:
        message = "A new contact is subscribed to the default topic: there is nothing to confirm."
        errors.append(FieldError("/doubleOptIn", message))
    if errors:
        raise _invalid(errors)


def _invalid(errors: list[FieldError]) -> Problem:
    return Problem("invalid", "The topic is not valid; see errors.", errors=errors)


def _columns(new: WritableTopic) -> dict[str, Any]:
    return {
        "name": new.name,
        "description": new.description or None,
        "channels": new.channels,
        "double_opt_in": new.double_opt_in,
    }


async def _locked(call: Call) -> Topic:
    await store.lock(call.db, workspace_id=call.member.workspace_id)
    topic = await _found(call)
    call.match(topic.revision)
    return topic


async def _found(call: Call) -> Topic:
    topic = await store.by_id(call.db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(topic, "topic")


routes = [
    get("/topics", index, can="contacts:read", query=TopicFilters, gives={200: Page[TopicShape]}),
    post(
        "/topics",
        create,
        can="contacts:write",
        takes=WritableTopic,
        gives={201: TopicShape},
        raises=("conflict",),
    ),
    get("/topics/{id}", show, can="contacts:read", gives={200: TopicShape}),
    patch(
        "/topics/{id}",
        update,
        can="contacts:write",
        takes=WritableTopic,
        gives={200: TopicShape},
        raises=("conflict",),
    ),
    delete(
        "/topics/{id}",
        remove,
        can="contacts:write",
        gives={204: None},
        raises=("conflict",),
    ),
]
