"""Broadcasts: a message to an audience."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field
from starlette.responses import Response

from app.audience import profile, segments
from app.broadcasts import audience as audiences
from app.broadcasts import control, progress
from app.broadcasts.audience import NONE
from app.database.db import Handle, new_id
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.categories import MARKETING
from app.machine.fields import YEAR
from app.machine.program import Json
from app.machine.reasons import Reason
from app.routes.ids import BroadcastId, ContactId, MessageId, SegmentId, TemplateId, TopicId
from app.routes.segments import FilterJson, gives_filter
from app.routes.templates import wrong_topic
from app.store import broadcast_recipients as recipients
from app.store import broadcasts as store
from app.store import segments as stored_segments
from app.store import templates, workspaces
from app.store.broadcast_recipients import RecipientStatus
from app.store.broadcasts import Broadcast, Written
from app.web import paging, reply
from app.web.auth import permit
from app.web.body import Moment, Name, Shape, TimeOfDay, Unchanged, Writable
from app.web.paging import Changing, Pages
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post

MOST = 1_000  # of a workspace that have not ended
FASTEST = 1_000_000  # messages a minute
NO_RECIPIENTS: Mapping[str, int] = {}
# What an audience is given by, and the column of each.
AUDIENCES = {"segmentId": "segment_id", "filter": "filter", "tag": "tag"}

State = Literal["DRAFT", "SCHEDULED", "SENDING", "PAUSED", "SENT", "CANCELLED"]


def _tag(text: str) -> str:
    tag = profile.tag(text)
    audiences.tagged(tag)
    return tag


Tag = Annotated[str, AfterValidator(_tag)]


class WritableBroadcast(Writable):
    """The audience is one of `segmentId`, `filter` and `tag`. `sendAt` is at most 366 days ahead,
    and not in the past; without it, it is sent once it is scheduled; with `localTime`, at that time
    of the day where the contact is. `perMinute` is the pace, to which it rises in five minutes."""

    name: Name
    segment_id: str | None = None
    filter: FilterJson | None = None
    tag: Tag | None = None
    template_id: str
    topic_id: Annotated[
        str | None, Field(description="Of marketing, in place of the template's.")
    ] = None
    send_at: Moment | None = None
    local_time: TimeOfDay | None = None
    per_minute: Annotated[int, Field(ge=1, le=FASTEST)] | None = None


class BroadcastReason(Shape):
    code: str
    sentence: str


class AudienceCounts(Shape):
    """`reachable` contacts can be written to; of the others the first reason that holds counts."""

    total: int
    reachable: int
    erased: int
    no_address: int
    suppressed: int
    unsubscribed: int
    no_consent: int
    capped: int


class AudienceShape(Shape):
    """The counts of who was in it when it was `previewed`, as it was scheduled, and when it was
    `frozen`, which goes on while `isComplete` is false. `difference` is what changed between. Where
    there was no time to count all contacts as it was scheduled, `previewed` and `difference` are
    null, and while it is SCHEDULED its `reason` is `audience_not_counted`: whether the messages
    left are enough for all is not known."""

    previewed: AudienceCounts | None
    frozen: AudienceCounts | None
    is_complete: bool
    difference: AudienceCounts | None


class ProgressShape(Shape):
    """Every contact of the frozen audience is counted once."""

    total: int
    pending: int
    queued: int
    sent: int
    delivered: int
    bounced: int
    complained: int
    failed: int
    unknown: int
    suppressed: int
    cancelled: int


class BroadcastSummary(Shape):
    """A broadcast as lists have it, without its progress."""

    id: BroadcastId
    name: str
    state: State
    reason: BroadcastReason | None
    segment_id: SegmentId | None
    filter: FilterJson | None
    tag: str | None
    template_id: TemplateId
    topic_id: TopicId | None
    send_at: datetime | None
    local_time: str | None
    per_minute: int | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class BroadcastShape(BroadcastSummary, Revised):
    audience: AudienceShape
    progress: ProgressShape


class BroadcastFilters(Changing):
    state: State | None = Field(None, description="Filter by state.")
    name: str | None = Field(None, description="The exact name.")


class RecipientFilters(Pages):
    status: RecipientStatus | None = Field(None, description="Filter by status.")
    reason: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="Filter by the reason."
    )


class RecipientShape(Shape):
    """A contact of the frozen audience, with its message or the reason for none: `erased`,
    `no_address`, `suppressed`, `unsubscribed`, `no_consent`, `capped`, `quota`, or what
    became of the message. Who is PENDING waits for the end of `quiet_hours`, for others at a
    `busy_domain`, or, without a reason, for its turn; who is QUEUED with one, for the recipient:
    `recipient_deferred` or `quiet_hours`. `dueAt` says until when a PENDING one waits."""

    contact_id: ContactId
    status: RecipientStatus
    reason: str | None
    message_id: MessageId | None
    due_at: datetime


async def index(call: Call) -> Response:
    return await paging.index(call, BroadcastFilters, store.page, summary)


async def show(call: Call) -> Response:
    async with call.process.database.read() as db:
        row = await found(call, db)
    return shown(row, await progress.of(call.process, row))


async def create(call: Call) -> Response:
    new, workspace_id = call.read(WritableBroadcast), call.member.workspace_id
    written = await _written(call, new)
    if await store.count_unfinished(call.db, workspace_id=workspace_id, most=MOST) >= MOST:
        message = f"At most {MOST} broadcasts can be unfinished; delete or cancel one first."
        raise Problem("conflict", message)
    row = await store.insert(call.db, workspace_id=workspace_id, id=new_id("bro"), written=written)
    made = resource(row, NO_RECIPIENTS)
    await call.note("broadcast.created", row.id, after=summary(row))
    return reply.created(f"/broadcasts/{row.id}", made, revision=row.revision, beside=_beside(made))


async def update(call: Call) -> Response:
    """A filter is replaced as a whole. A SCHEDULED broadcast that is changed is a DRAFT again, and
    says so until it is scheduled: nothing is sent at its time; that needs `broadcasts:send`, as
    cancelling it does."""
    row = await locked(call)
    call.match(row.revision)
    kept = {} if gives_filter(call) or row.filter is None else {"filter": _filter(row)}
    # Every field that a client may write: what the change leaves out stays as it is here.
    stored: dict[str, Json] = {
        "name": row.name,
        "segmentId": row.segment_id,
        "tag": row.tag,
        "templateId": row.template_id,
        "topicId": row.topic_id,
        "sendAt": None if row.send_at is None else document.text(row.send_at),
        "localTime": row.local_time,
        "perMinute": row.per_minute,
        **kept,
    }
    new = call.patch(WritableBroadcast, stored)
    control.require(row, "changed", "DRAFT", "SCHEDULED")
    written = await _written(call, new, row)
    if all(getattr(row, one.name) == getattr(written, one.name) for one in fields(Written)):
        raise Unchanged
    _require_sender(call, row)
    was_scheduled = row.state == "SCHEDULED"
    changed = await store.update(
        call.db,
        workspace_id=call.member.workspace_id,
        id=row.id,
        written=written,
        reason_code=Reason.CHANGED_SINCE_SCHEDULED if was_scheduled else row.reason_code,
    )
    await call.note("broadcast.updated", row.id, summary(row), summary(changed))
    return shown(changed)


async def remove(call: Call) -> Response:
    """Delete a broadcast, only before its audience was frozen. Afterwards it is a record, which is
    kept as long as messages are. While it is SCHEDULED this needs `broadcasts:send`, as cancelling
    it does."""
    row = await locked(call)
    call.match(row.revision)
    if row.frozen_at is not None:
        control.require(row, "deleted", "DRAFT", "SCHEDULED")
    _require_sender(call, row)
    await store.delete(call.db, workspace_id=call.member.workspace_id, id=row.id)
    await call.note("broadcast.deleted", row.id, before=summary(row))
    return reply.no_content()


async def index_recipients(call: Call) -> Response:
    """List the recipients by contact, newest first."""
    query, broadcast = call.query(RecipientFilters), await found(call, call.db)
    rows = await recipients.page(
        call.db,
        workspace_id=call.member.workspace_id,
        broadcast_id=broadcast.id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(call, query, rows, RecipientShape.of)


def _require_sender(call: Call, row: Broadcast) -> None:
    """Require who undoes what was scheduled to be one who may cancel it. Raises Problem
    `forbidden`."""
    if row.state not in ("DRAFT", "CANCELLED"):
        permit(call.member, audiences.SENDS)


# --- found and shown ------------------------------------------------------------------------------


async def found(call: Call, db: Handle) -> Broadcast:
    row = await store.by_id(db, workspace_id=call.member.workspace_id, id=call.path("id"))
    return reply.found(row, "broadcast")


async def locked(call: Call, db: Handle | None = None) -> Broadcast:
    row = await store.locked(
        db or call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    return reply.found(row, "broadcast")


def shown(row: Broadcast, counts: Mapping[str, int] = NO_RECIPIENTS) -> Response:
    """Show a broadcast with its recipients by status; none are before its audience is frozen."""
    made = resource(row, counts)
    return reply.ok(made, revision=row.revision, beside=_beside(made))


def _beside(made: Mapping[str, Json]) -> Json:
    """The part that changes without a revision."""
    return [made["audience"], made["progress"]]


def summary(row: Broadcast) -> dict[str, Any]:
    sentence = control.sentence(row)
    reason = None if sentence is None else {"code": row.reason_code, "sentence": sentence}
    return BroadcastSummary.of(row, filter=_filter(row), reason=reason)


def _filter(row: Broadcast) -> Json:
    return None if row.filter is None else document.parse(row.filter.encode())


def resource(row: Broadcast, by_status: Mapping[str, int]) -> dict[str, Any]:
    counts = {status.lower(): by_status.get(status, 0) for status in get_args(RecipientStatus)}
    difference = None
    if row.is_frozen and row.previewed is not None:
        reasons = {*row.previewed, *row.frozen}
        difference = {one: row.frozen.get(one, 0) - row.previewed.get(one, 0) for one in reasons}
    return {
        **summary(row),
        "audience": {
            "previewed": None if row.previewed is None else counted(row.previewed),
            "frozen": None if row.frozen_at is None else counted(row.frozen),
            "isComplete": row.is_frozen,
            "difference": None if difference is None else counted(difference),
        },
        "progress": {"total": sum(counts.values()), **counts},
    }


def counted(contacts: Mapping[str, int]) -> dict[str, int]:
    """Contacts by reason, as clients see them."""
    return {
        "total": sum(contacts.values()),
        "reachable": contacts.get(NONE, 0),
        "erased": contacts.get("erased", 0),
        "noAddress": contacts.get("no_address", 0),
        "suppressed": contacts.get("suppressed", 0),
        "unsubscribed": contacts.get("unsubscribed", 0),
        "noConsent": contacts.get("no_consent", 0),
        "capped": contacts.get("capped", 0),
    }


# --- what a broadcast may be ----------------------------------------------------------------------


async def _written(call: Call, new: WritableBroadcast, row: Broadcast | None = None) -> Written:
    """The part that its author writes; `row` is what it is so far. Raises Problem `invalid`."""
    workspace_id = call.member.workspace_id
    errors = []
    given = [name for name, column in AUDIENCES.items() if getattr(new, column) is not None]
    if len(given) != 1:
        pointer, message = "", f"Give exactly one of {', '.join(AUDIENCES)}"
        if given:  # of a change, that which it leaves as it is
            kept = [one for one in given if row and getattr(row, AUDIENCES[one]) is not None]
            over = (kept or given)[-1]
            other = next(one for one in given if one != over)
            pointer, message = f"/{over}", f'{message}: beside {other} send "{over}": null'
        errors.append(FieldError(pointer, f"{message}."))
    # What it names must not be deleted meanwhile.
    if new.tag is None or new.topic_id is not None:
        await stored_segments.lock(call.db, workspace_id=workspace_id)
    await templates.lock(call.db, workspace_id=workspace_id, ids=[new.template_id])
    existing = await stored_segments.of_workspace(call.db, workspace_id=workspace_id)
    if new.segment_id is not None and new.segment_id not in existing:
        errors.append(FieldError("/segmentId", "There is no such segment."))
    template = await templates.by_id(call.db, workspace_id=workspace_id, id=new.template_id)
    if template is None:
        errors.append(FieldError("/templateId", "There is no such template."))
    elif new.topic_id is not None:
        wrong = await wrong_topic(call.db, workspace_id, new.topic_id, template.channel)
        if template.category != MARKETING:
            wrong = "Only marketing has a topic; the template is transactional."
        errors += [FieldError("/topicId", wrong)] if wrong else []
    # A time that has passed meanwhile was not chosen by who leaves it as it is.
    wrong_time = _wrong_time(new.send_at, row.send_at if row else None, await call.db.now())
    errors += [FieldError("/sendAt", wrong_time)] if wrong_time else []
    if errors:
        raise Problem("invalid", "The broadcast is not valid; see errors.", errors=errors)
    filter = mentions = None
    if new.filter is not None:
        workspace = await workspaces.by_id(call.db, id=workspace_id)
        days = workspace and workspace.retention_days
        readable = await segments.read(
            call.db,
            new.filter,
            workspace_id=workspace_id,
            kept=timedelta(days=days or call.process.settings.retention_days),
            existing=existing,
        )
        filter = document.dumps(readable.raw).decode()
        mentions = audiences.mentions(readable.filter)
    return Written(
        name=new.name,
        segment_id=new.segment_id,
        filter=filter,
        mentions=mentions,
        tag=new.tag,
        template_id=new.template_id,
        topic_id=new.topic_id,
        send_at=new.send_at,
        local_time=new.local_time,
        per_minute=new.per_minute,
    )


def _wrong_time(new: datetime | None, old: datetime | None, now: datetime) -> str | None:
    if new is not None and new > now + YEAR:
        return f"Must be at most {YEAR.days} days ahead."
    is_chosen = document.text(new) != document.text(old)  # as far as clients see them
    if is_chosen and control.has_passed(new, now):
        return "Must not be in the past; null sends it at once."
    return None


routes = [
    get(
        "/broadcasts",
        index,
        can="broadcasts:read",
        query=BroadcastFilters,
        gives={200: Page[BroadcastSummary]},
    ),
    post(
        "/broadcasts",
        create,
        can="broadcasts:write",
        takes=WritableBroadcast,
        gives={201: BroadcastShape},
        raises=("conflict",),
    ),
    get("/broadcasts/{id}", show, can="broadcasts:read", tx=None, gives={200: BroadcastShape}),
    patch(
        "/broadcasts/{id}",
        update,
        can="broadcasts:write",
        takes=WritableBroadcast,
        gives={200: BroadcastShape},
        raises=("conflict",),
    ),
    delete(
        "/broadcasts/{id}",
        remove,
        can="broadcasts:write",
        gives={204: None},
        raises=("conflict",),
    ),
    get(
        "/broadcasts/{id}/recipients",
        index_recipients,
        can="broadcasts:read",
        query=RecipientFilters,
        gives={200: Page[RecipientShape]},
    ),
]
