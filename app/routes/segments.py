"""Segments of the audience: rules by which contacts belong together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from app.audience import membership, segment_contacts, segments, shapes
from app.audience.chunks import LookingTime
from app.audience.segment_contacts import Past, judge
from app.audience.segments import Readable
from app.broadcasts import audience as audiences
from app.database.db import Handle, new_id
from app.errors import FieldError, Problem
from app.machine import document, reasons
from app.machine.condition import Verdict
from app.machine.condition_schema import OPERAND
from app.machine.content import ChannelName
from app.machine.program import Json
from app.machine.schema import ref
from app.routes.contacts import Contact
from app.routes.definition_shapes import Finding
from app.routes.ids import ContactId, SegmentId
from app.routes.runs import Reason
from app.runtime.compute import Computation
from app.store import contacts, definitions, jobs, segment_members, workspaces
from app.store import segments as store
from app.store.row_keys import ContactKey, WorkspaceKey
from app.store.segments import Segment
from app.web import paging, reply
from app.web.body import Name, Query, Shape, Unchanged, Writable
from app.web.paging import Changing
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, patch, post
from app.web.schemas import described

FilterJson = Annotated[dict[str, Any], described(ref("SegmentFilter"))]


KindName = Literal["live", "frozen"]


class Saving(Query):
    start_automations: bool = Field(
        False,
        description="Whether the contacts that are found when it is filled have entered it, and"
        " those that no longer fit have left it: for the flows that this starts.",
    )


class WritableSegment(Writable):
    """Contacts that fit the `filter` are in the segment, from the moment on at which they do; in a
    `frozen` one are those that fitted when it was saved."""

    name: Name
    kind: KindName = "live"
    filter: FilterJson


class SegmentShape(Revised):
    """`prose` is the filter in words. `count` is null until the segment has been filled; until then
    those who enter or leave it start flows only if it was saved with `startAutomations`. With a
    `reason`, the work on it was given up, and its members may be out of date until its filter is
    saved again."""

    id: SegmentId
    name: str
    kind: KindName
    filter: FilterJson
    prose: str
    count: int | None
    counted_at: datetime | None
    reason: Reason | None
    created_at: datetime
    updated_at: datetime


class SegmentUses(Shape):
    """The ids of segments, broadcasts, automations and workflows."""

    used_by: list[str]


class FilterPreview(Shape):
    """`{"filter": {"segmentId": …}}` previews a segment. With `contactId`, the answer says whether
    that contact fits, and why."""

    filter: FilterJson
    contact_id: str | None = None


class Reach(Shape):
    """`reachable` contacts can be written to; of the others the first reason that holds counts.
    `unsubscribed` are also those who sent STOP, or whom a member has suppressed; in the counts of a
    broadcast these are `suppressed`."""

    reachable: int
    no_address: int
    complained: int
    bounced: int
    unsubscribed: int


class Fit(Shape):
    """Judgement of a contact: whether it fits, and the comparisons that decided it."""

    contact_id: ContactId
    holds: bool
    operands: Annotated[list[dict[str, Any]], described({"type": "array", "items": OPERAND})]


class FilterPreviewed(Shape):
    """`count` is exact, unless `isComplete` is false: then only the newest contacts could be looked
    at in time. `findings` warn of metadata fields, tags and events in the filter that are nobody's.
    `sample` are the newest contacts who fit."""

    count: int
    is_complete: bool
    prose: str
    findings: list[Finding]
    reachable: dict[ChannelName, Reach]
    sample: list[Contact]
    contact: Fit | None


class SegmentFilters(Changing):
    name: str | None = Field(None, description="The exact name.")


async def index(call: Call) -> Response:
    query, whose = call.query(SegmentFilters), WorkspaceKey(workspace_id=call.member.workspace_id)
    rows, rest = await store.page(
        call.db,
        **whose,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    names = await store.names(call.db, **whose)
    # With turns for others; below they are in memory.
    await segments.filters_of({segment.id: segment for segment in rows})
    counted = await _counts(call)
    return paging.page(call, query, rows, lambda one: resource(one, names, counted), rest=rest)


async def show(call: Call) -> Response:
    existing = await store.of_workspace(call.db, workspace_id=call.member.workspace_id)
    return await _shown(call, _found(call, existing), existing)


async def create(call: Call) -> Response:
    new, workspace_id = call.read(WritableSegment), call.member.workspace_id
    await store.lock(call.db, workspace_id=workspace_id)
    existing = await store.of_workspace(call.db, workspace_id=workspace_id)
    if len(existing) >= segments.MOST:
        message = f"A workspace has at most {segments.MOST} segments; delete one first."
        raise Problem("conflict", message)
    readable = await _read(call, call.db, new.filter, existing)
    segment = await store.insert(
        call.db,
        workspace_id=workspace_id,
        id=new_id("seg"),
        name=new.name,
        kind=new.kind,
        filter=document.dumps(readable.raw).decode(),
        starts=call.query(Saving).start_automations,
        fill_to=await membership.fill_to(call.db, workspace_id=workspace_id),
    )
    await _begin_filling(call, [segment], {**existing, segment.id: segment})
    names = segments.names_of(existing)
    await call.note("segment.created", segment.id, after=written(segment, names))
    shown = resource(segment, names, await _counts(call))
    return reply.created(f"/segments/{segment.id}", shown, revision=segment.revision)


async def update(call: Call) -> Response:
    """A filter is replaced as a whole. Another filter, or another kind, is filled anew. While a
    scheduled broadcast goes to it, only who may send broadcasts changes whom it finds."""
    segment, existing = await _locked(call)
    workspace_id, filter = call.member.workspace_id, segment.filter
    kept = {} if gives_filter(call) else {"filter": document.parse(filter.encode())}
    new = call.patch(WritableSegment, {"name": segment.name, "kind": segment.kind, **kept})
    if not kept or (segment.kind, new.kind) == ("frozen", "live"):
        # While it was frozen, what its filter asks for might go.
        readable = await _read(call, call.db, new.filter, existing, segment.id)
        filter = document.dumps(readable.raw).decode()
    is_filled_so = (new.kind, filter) == (segment.kind, segment.filter)
    is_filled_so = is_filled_so and segment.reason_code is None
    if is_filled_so and new.name == segment.name:
        raise Unchanged
    if new.kind == "frozen" != segment.kind:
        await _refuse_followed(call, segment, existing)
    if is_filled_so:
        changed = await store.rename(
            call.db, workspace_id=workspace_id, id=segment.id, name=new.name
        )
    else:
        leading = await segments.leading_to(segment.id, existing)
        ids = [segment.id, *leading]
        await audiences.require_sender(call.db, call.member, segment_ids=ids)
        await _refuse_outgrown(call, ids, {**existing, segment.id: replace(segment, filter=filter)})
        changed = await store.refill(
            call.db,
            workspace_id=workspace_id,
            id=segment.id,
            name=new.name,
            kind=new.kind,
            filter=filter,
            starts=call.query(Saving).start_automations,
            fill_to=await membership.fill_to(call.db, workspace_id=workspace_id),
        )
        if leading:
            await store.refill_again(
                call.db, workspace_id=workspace_id, ids=leading, fill_to=changed.fill_to
            )
        filling = [changed, *(existing[id] for id in leading)]
        await _begin_filling(call, filling, {**existing, segment.id: changed})
    names = segments.names_of(existing)
    before, after = written(segment, names), written(changed, names)
    await call.note("segment.updated", segment.id, before, after)
    return await _shown(call, changed, existing)


async def _refuse_followed(call: Call, segment: Segment, existing: Mapping[str, Segment]) -> None:
    """Raises Problem `invalid`: nobody enters a frozen segment or leaves it, and a filter that
    names it would go on asking for what its own asks for."""
    workspace_id = call.member.workspace_id
    following = await definitions.following_segment(
        call.db, workspace_id=workspace_id, segment_id=segment.id
    )
    naming = [existing[id].name for id in await segments.naming(segment.id, existing)]
    naming += await audiences.filtering_by(call.db, workspace_id, segment_id=segment.id)
    users = [
        *(f"{name} names this segment" for name in naming),
        *(f"{name} follows who enters this segment or leaves it" for name in following),
    ]
    if users:
        errors = [FieldError("/kind", f"{users[0]}, so it cannot be frozen.")]
        raise Problem("invalid", "The segment cannot be saved; see errors.", errors=errors)


async def _refuse_outgrown(
    call: Call, ids: Collection[str], existing: Mapping[str, Segment]
) -> None:
    """Raises Problem `invalid`: the filter of a broadcast that is yet to be frozen would no longer
    be one that can be saved."""
    found = await audiences.outgrown(
        call.db, workspace_id=call.member.workspace_id, segment_ids=ids, existing=existing
    )
    if found:
        errors = [FieldError("/filter", one) for one in found[: segments.ERRORS]]
        raise Problem("invalid", "The filter is not valid; see errors.", errors=errors)


async def _begin_filling(
    call: Call, saved: Sequence[Segment], existing: Mapping[str, Segment]
) -> None:
    await membership.begin_filling(
        call.db, call.process.hints, saved, existing, workspace_id=call.member.workspace_id
    )


async def remove(call: Call) -> Response:
    segment, existing = await _locked(call)
    workspace_id = call.member.workspace_id
    users = await _users(call, segment, existing)
    if users:
        message = f"{users[0]} names this segment; change that first."
        raise Problem("conflict", message, usedBy=users)
    await store.remove(call.db, workspace_id=workspace_id, id=segment.id)
    whose: WorkspaceKey = {"workspace_id": workspace_id}
    await segment_members.set_names(call.db, **whose, segment_id=segment.id, names=[])
    await jobs.wake(call.db, "segment", **whose, ids=[segment.id])
    call.process.hints.due(call.db, "segment", workspace_id, segment.id)
    await call.note(
        "segment.deleted", segment.id, before=written(segment, segments.names_of(existing))
    )
    return reply.no_content()


async def uses(call: Call) -> Response:
    """List what keeps the segment from being deleted: segments that name it, broadcasts that have
    not ended, and flows that are not archived."""
    existing = await store.of_workspace(call.db, workspace_id=call.member.workspace_id)
    return reply.ok({"usedBy": await _users(call, _found(call, existing), existing)})


async def _users(call: Call, segment: Segment, existing: Mapping[str, Segment]) -> list[str]:
    workspace_id, id = call.member.workspace_id, segment.id
    return [
        *await segments.naming(id, existing),
        *await audiences.naming(call.db, workspace_id, segment_id=id),
        *await definitions.naming_segment(call.db, workspace_id=workspace_id, segment_id=id),
    ]


async def members(call: Call) -> Response:
    """Newest first. If few of very many contacts fit, or they are large, a page may have fewer than
    `limit` items; `nextCursor` goes on all the same."""
    query, workspace_id = call.query(Changing), call.member.workspace_id
    async with call.process.database.read() as db:
        existing = await store.of_workspace(db, workspace_id=workspace_id)
        segment = _found(call, existing)
        if segment.state == "filled":
            rows, rest = await segment_members.page(
                db,
                workspace_id=workspace_id,
                segment_id=segment.id,
                filters=query.filters(),
                before=paging.position(call, query),
                limit=query.limit + 1,
            )
            ids = [row.id for row in rows]
            tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids)
            return paging.page(
                call, query, rows, lambda row: shapes.resource(row, tags[row.id]), rest=rest
            )
    readable = segments.with_referenced(segments.parse(segment.filter), existing)
    found = await segment_contacts.page(
        call.process,
        readable,
        workspace_id=workspace_id,
        filters=query.filters(),
        before=paging.position(call, query),
        limit=query.limit + 1,
    )
    return paging.page(
        call,
        query,
        found.rows,
        lambda row: shapes.resource(row, found.tags[row.id]),
        rest=found.rest,
    )


async def preview(call: Call) -> Response:
    """Preview who fits a filter, and how many of them can be written to; nothing is written."""
    await call.receive_body()
    wanted, workspace_id = call.read(FilterPreview), call.member.workspace_id
    async with call.process.database.read() as db:
        existing = await store.of_workspace(db, workspace_id=workspace_id)
        readable = await _read(call, db, wanted.filter, existing, is_preview=True)
        fit = await _fit(db, readable, workspace_id, wanted.contact_id)
        doubts = await segments.doubts(db, readable.filter, workspace_id=workspace_id)
    counted = await segment_contacts.count(call.process, readable, workspace_id=workspace_id)
    sample = await segment_contacts.page(
        call.process,
        readable,
        workspace_id=workspace_id,
        filters={},
        before=None,
        limit=segment_contacts.SAMPLE,
        # None of them where their turn does not come: the count stands.
        looking=LookingTime(segment_contacts.PAGE_SECONDS, has_looked=True),
    )
    shown = None
    if fit is not None:
        verdict = (
            fit
            if isinstance(fit, Verdict)
            else await call.process.compute.call(Computation(workspace_id, judge, (readable, fit)))
        )
        shown = {
            "contactId": wanted.contact_id,
            "holds": verdict.holds,
            "operands": list(verdict.operands),
        }
    return reply.ok(
        {
            "count": counted.count,
            "isComplete": counted.is_complete,
            "prose": readable.prose,
            "findings": [Finding.of(one, severity="warning") for one in doubts],
            "reachable": counted.reachable,
            "sample": [shapes.resource(row, sample.tags[row.id]) for row in sample.rows],
            "contact": shown,
        }
    )


async def _fit(
    db: Handle, readable: Readable, workspace_id: str, contact_id: str | None
) -> Past | Verdict | None:
    """Read what decides whether the contact fits; of a frozen segment that is known."""
    if contact_id is None:
        return None
    row = await contacts.by_id(db, workspace_id=workspace_id, id=contact_id)
    if row is None:
        errors = [FieldError("/contactId", "There is no such contact.")]
        raise Problem("invalid", "The filter cannot be tried; see errors.", errors=errors)
    if readable.frozen_id is not None:
        whose: ContactKey = {"workspace_id": workspace_id, "contact_id": contact_id}
        return await segment_contacts.judge_frozen(db, readable.frozen_id, **whose)
    return await segment_contacts.past(db, readable, workspace_id=workspace_id, contact=row)


async def _read(
    call: Call,
    db: Handle,
    raw: Json,
    existing: Mapping[str, Segment],
    own_id: str | None = None,
    *,
    is_preview: bool = False,
) -> Readable:
    workspace = await workspaces.by_id(db, id=call.member.workspace_id)
    days = workspace and workspace.retention_days
    return await segments.read(
        db,
        raw,
        workspace_id=call.member.workspace_id,
        kept=timedelta(days=days or call.process.settings.retention_days),
        existing=existing,
        own_id=own_id,
        is_preview=is_preview,
    )


def gives_filter(call: Call) -> bool:
    """Return whether a patch has a filter. Merged with the old one it would mean something else."""
    with suppress(document.MalformedJson):  # which the patch is refused for
        given = document.parse(call.body)
        return isinstance(given, dict) and given.get("filter") is not None
    return False


async def _locked(call: Call) -> tuple[Segment, Mapping[str, Segment]]:
    await store.lock(call.db, workspace_id=call.member.workspace_id)
    existing = await store.of_workspace(call.db, workspace_id=call.member.workspace_id)
    segment = _found(call, existing)
    call.match(segment.revision)
    return segment, existing


def _found(call: Call, existing: Mapping[str, Segment]) -> Segment:
    return reply.found(existing.get(call.path("id")), "segment")


@dataclass(frozen=True, slots=True)
class _Counts:
    """Number of contacts in each segment, at that time."""

    by_id: Mapping[str, int]
    at: datetime


async def _counts(call: Call) -> _Counts:
    found = await segment_members.counts(call.db, workspace_id=call.member.workspace_id)
    return _Counts(found, await call.db.now())


async def _shown(call: Call, segment: Segment, existing: Mapping[str, Segment]) -> Response:
    """The ETag covers the names in its prose, the count and the reason."""
    names = segments.names_of(existing)
    shown = resource(segment, names, await _counts(call))
    named = [names[id] for id in segments.parse(segment.filter).segments]
    beside = [*named, str(shown["count"]), str(segment.reason_code)]
    return reply.ok(shown, revision=segment.revision, beside=beside)


def resource(segment: Segment, names: Mapping[str, str], counts: _Counts) -> dict[str, Any]:
    is_filled, is_given_up = segment.state == "filled", segment.reason_code is not None
    counted_at = segment.filled_at if segment.kind == "frozen" else counts.at
    return {
        **written(segment, names),
        "count": counts.by_id.get(segment.id, 0) if is_filled else None,
        "countedAt": counted_at if is_filled and not is_given_up else None,
        "reason": GIVEN_UP if is_given_up else None,
    }


GIVEN_UP = {
    "code": reasons.Reason.POISONED,
    "detail": "The work on the segment ended its worker several times and was given up; save its"
    " filter again to have it done anew.",
}


def written(segment: Segment, names: Mapping[str, str]) -> dict[str, Any]:
    """The form that its audit trail has."""
    return {
        "id": segment.id,
        "name": segment.name,
        "kind": segment.kind,
        "filter": document.parse(segment.filter.encode()),
        "prose": segments.prose(segment, names),
        "createdAt": segment.created_at,
        "updatedAt": segment.updated_at,
    }


routes = [
    get(
        "/segments",
        index,
        can="contacts:read",
        query=SegmentFilters,
        gives={200: Page[SegmentShape]},
    ),
    post(
        "/segments",
        create,
        can="contacts:write",
        takes=WritableSegment,
        query=Saving,
        gives={201: SegmentShape},
        raises=("conflict",),
    ),
    post(
        "/segments/preview",
        preview,
        can="contacts:read",
        tx=None,
        takes=FilterPreview,
        gives={200: FilterPreviewed},
    ),
    get("/segments/{id}", show, can="contacts:read", gives={200: SegmentShape}),
    patch(
        "/segments/{id}",
        update,
        can="contacts:write",
        takes=WritableSegment,
        query=Saving,
        gives={200: SegmentShape},
        raises=("conflict",),
    ),
    delete(
        "/segments/{id}",
        remove,
        can="contacts:write",
        gives={204: None},
        raises=("conflict",),
    ),
    get(
        "/segments/{id}/contacts",
        members,
        can="contacts:read",
        tx=None,
        query=Changing,
        gives={200: Page[Contact]},
    ),
    get("/segments/{id}/uses", uses, can="contacts:read", gives={200: SegmentUses}),
]
