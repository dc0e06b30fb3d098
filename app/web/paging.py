"""Lists: a limit, and signed keyset cursors bound to workspace, path and filters; newest first."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field
from starlette.responses import Response

from app.database.db import Handle
from app.errors import FieldError, Problem
from app.web import reply
from app.web.body import DIGITS, After, Before, Query
from app.web.routing import Call

Item = TypeVar("Item")
Read_co = TypeVar("Read_co", covariant=True)

CURSOR = "cursor"  # the purpose that the vault signs for
LARGEST_PAGE = 200
BINDING_BYTES = 16


CREATED_AFTER = Field(None, description="Created after this time.")
CREATED_BEFORE = Field(None, description="Created before this time.")


class Pages(Query):
    """The beginning and length of a page."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE), DIGITS] = Field(
        50,
        description="Page size. A page of large items may have fewer: the list ends where"
        " `nextCursor` is null.",
    )
    cursor: str | None = Field(
        None, description="The `nextCursor` of the previous page; use the same filters."
    )

    def filters(self) -> dict[str, Any]:
        """The filters that were asked for: all parameters but the page's beginning and length."""
        return self.model_dump(exclude={"limit", "cursor"}, exclude_none=True)


class Paging(Pages):
    """The parameters that every list takes; a resource adds its own filters in a subclass."""

    created_after: After | None = CREATED_AFTER
    created_before: Before | None = CREATED_BEFORE


class Changing(Paging):
    """The parameters of lists of resources that say when they were changed."""

    updated_after: After | None = Field(None, description="Created or changed after this time.")


class ReadPage(Protocol[Read_co]):
    """The rows of a workspace that the filters let through, whose ids are below `before`; newest
    first, at most `limit`."""

    def __call__(
        self,
        db: Handle,
        /,
        *,
        workspace_id: str,
        filters: Mapping[str, object],
        before: str | None,
        limit: int,
    ) -> Awaitable[Sequence[Read_co]]: ...


async def index(
    call: Call, shape: type[Pages], read: ReadPage[Item], resource: Callable[[Item], Any]
) -> Response:
    """Answer the page that the query, of that shape, asks for. Raises Problem `invalid`."""
    query = call.query(shape)
    rows = await read(
        call.db,
        workspace_id=call.member.workspace_id,
        filters=query.filters(),
        before=position(call, query),
        limit=query.limit + 1,
    )
    return page(call, query, rows, resource)


def position(call: Call, query: Pages) -> str | None:
    """The id of the last row on the page before: list rows with `id < position`, by id descending,
    for ids are ordered by time. None from the start. Raises Problem `invalid`."""
    if query.cursor is None:
        return None
    payload = call.process.vault.unsign(CURSOR, query.cursor)
    if payload is None or payload[:BINDING_BYTES] != _binding(call, query):
        message = "Must be the nextCursor of a page of this list, sent with the same filters."
        raise Problem(
            "invalid",
            "The cursor belongs to another list; start without one.",
            errors=[FieldError("?cursor", message)],
        )
    return payload[BINDING_BYTES:].decode()


def page(
    call: Call,
    query: Pages,
    rows: Sequence[Item],
    resource: Callable[[Item], Any],
    *,
    rest: str | None = None,
) -> Response:
    """Answer `rows`, read with LIMIT `query.limit + 1`: one too many tells of a next page. Of a
    page that ends before, `rest` is the id below which the next one goes on."""
    shown, next_cursor, last = rows[: query.limit], None, rest
    if len(rows) > query.limit:
        item: Any = shown[-1]  # a row, or what is shown of it already
        last = item["id"] if isinstance(item, Mapping) else item.id
    if last is not None:
        next_cursor = call.process.vault.sign(CURSOR, _binding(call, query) + last.encode())
    return reply.page([resource(row) for row in shown], next_cursor)


def _binding(call: Call, query: Pages) -> bytes:
    """Names the list: whose it is, its path, and how it is filtered."""
    name = [call.member.workspace_id, call.request.scope["path"], query.filters()]
    text = json.dumps(name, sort_keys=True, default=str)  # the order of metadata too says nothing
    return sha256(text.encode()).digest()[:BINDING_BYTES]
