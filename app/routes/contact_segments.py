"""The segments that a contact is in."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from app.routes.ids import SegmentId
from app.routes.segments import KindName
from app.store import contacts, segment_members
from app.store.row_keys import WorkspaceKey
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Pages
from app.web.reply import Page
from app.web.routing import Call, get


class ContactSegment(Shape):
    """A segment that the contact is in at this moment, or, if it is `frozen`, was in when that was
    saved."""

    id: SegmentId
    name: str
    kind: KindName


async def index(call: Call) -> Response:
    """The newest segment first. One that is being filled is left out until it is."""
    whose: WorkspaceKey = {"workspace_id": call.member.workspace_id}
    id = call.path("id")
    reply.found(await contacts.by_id(call.db, **whose, id=id), "contact")
    read = partial(segment_members.of_contact, contact_id=id)
    return await paging.index(call, Pages, read, ContactSegment.of)


routes = [
    get(
        "/contacts/{id}/segments",
        index,
        can="contacts:read",
        query=Pages,
        gives={200: Page[ContactSegment]},
    )
]
