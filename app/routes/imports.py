"""Contacts by the file: in, and out again."""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from app import exports, imports
from app.errors import FieldError, Problem
from app.routes.contacts import Narrowing, filters_of
from app.web import stream
from app.web.body import Moment, Query, require_media_type
from app.web.routing import Call, get, post

LARGEST_FILE = 1024 * 1024 * 1024
PIECE_SECONDS = 30.0  # until a client that is sending sends more

EXPORTS = {
    "csv": (exports.as_csv, "text/csv"),  # starlette adds the charset
    "ndjson": (exports.as_json_lines, stream.JSON_LINES),
}


class Import(Query):
    dry_run: bool = False


class Export(Narrowing):
    format: Literal["csv", "ndjson"] = "csv"
    created_after: Moment | None = None
    created_before: Moment | None = None


async def receive(call: Call) -> Response:
    """A CSV or NDJSON file, by its Content-Type; answered by lines of JSON while it is read."""
    query, headers = call.query(Import), call.request.headers
    require_media_type(headers, frozenset(imports.FORMATS))
    media_type = headers["content-type"].partition(";")[0].strip().lower()
    lines = imports.run(
        call.process,
        call.member.workspace_id,
        imports.FORMATS[media_type](),
        call.stream_body(LARGEST_FILE, PIECE_SECONDS),
        dry_run=query.dry_run,
    )
    return await stream.answer(call.request, lines, stream.JSON_LINES, while_reading=True)


async def send(call: Call) -> Response:
    """Every contact, or those that the filters of the list name."""
    query, workspace_id = call.query(Export), call.member.workspace_id
    async with call.process.database.read() as db:
        given = query.model_dump(exclude={"format"}, exclude_none=True)
        filters = await filters_of(db, workspace_id, given)
    write, media_type = EXPORTS[query.format]
    pieces = write(call.process, workspace_id, filters)
    try:
        return await stream.answer(
            call.request, pieces, media_type, file_name=f"contacts.{query.format}"
        )
    except exports.TooManyColumns as error:
        sentence = f"There are more than {error} metadata names: ask for ndjson."
        errors = [FieldError("?format", sentence)]
        raise Problem("invalid", "A table cannot hold all; see errors.", errors=errors) from None


routes = [
    post("/contacts/import", receive, can="contacts:write", tx=None),
    get("/contacts/export", send, can="contacts:read", tx=None),
]
