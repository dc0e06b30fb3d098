"""The tags that contacts have."""

from __future__ import annotations

from starlette.responses import Response

from app.store import contact_lists
from app.web import paging
from app.web.body import Shape
from app.web.paging import Pages
from app.web.reply import Page
from app.web.routing import Call, get


class Tag(Shape):
    name: str


async def index(call: Call) -> Response:
    """List the tags by name. The number of contacts per tag is not included, because counting them
    is expensive."""
    query = call.query(Pages)
    names = await contact_lists.tag_names(
        call.db,
        workspace_id=call.member.workspace_id,
        after=paging.position(call, query),
        limit=query.limit + 1,
    )
    tags = [{"id": name} for name in names]
    return paging.page(call, query, tags, lambda tag: {"name": tag["id"]})


routes = [
    get("/tags", index, can="contacts:read", query=Pages, gives={200: Page[Tag]}),
]
