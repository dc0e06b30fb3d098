"""Contacts by the file: in, and out again."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from starlette.responses import Response

from app.audience.subscriptions import Given
from app.errors import FieldError, Problem
from app.files import exports, imports, sheets
from app.routes.contacts import Narrowing, filters_of
from app.web import multipart, stream
from app.web.body import After, Before, Query, require_media_type
from app.web.paging import CREATED_AFTER, CREATED_BEFORE
from app.web.routing import Call, get, post

LARGEST_FILE = 1024 * 1024 * 1024
PIECE_SECONDS = 30.0  # until a client that is sending sends more
TAKEN = (*imports.FORMATS, multipart.FORM)
FILE_TYPES = {  # of a form's file, by how its name ends; browsers may call CSV something else
    **dict.fromkeys(("csv", "tsv", "txt"), "text/csv"),
    **dict.fromkeys(("ndjson", "jsonl"), "application/x-ndjson"),
}
FILE_SECONDS = 3_600.0  # that a client may keep us waiting in all: 2.4 Mbit/s of the largest file

EXPORTS = {
    "csv": (exports.as_csv, "text/csv"),  # starlette adds the charset
    "ndjson": (exports.as_json_lines, stream.JSON_LINES),
}


ConsentSource = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)
]
ConsentEvidence = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]


class Import(Query):
    columns: Annotated[dict[str, str], Field(max_length=sheets.COLUMNS)] | None = Field(
        None,
        description="Which column a column of a CSV file is read as, by its name in the file:"
        " `columns[E-Mail Address]=email`; `columns[Notes]=` leaves one out.",
    )
    unknown: imports.Unknown = Field(
        "refuse",
        description="What becomes of columns of a CSV file that have no other meaning: the file is"
        " refused, they are skipped, or they are stored as metadata of that name.",
    )
    dry_run: bool = Field(
        False, description="Report what would be done, in total and row by row, without doing it."
    )
    start_automations: bool = Field(
        False,
        description="Start workflows and automations that are triggered by a new contact, a tag or"
        " a segment.",
    )

    consent_source: ConsentSource | None = Field(
        None,
        description="Where answers about topics in this file come from, such as the name of a form:"
        " without it a row that would change one is an error.",
    )
    consent_evidence: ConsentEvidence | None = Field(
        None, description="What shows these answers: the words that were agreed to, a URL."
    )

    def given(self) -> Given | None:
        if self.consent_source is None:
            return None
        return Given(self.consent_source, self.consent_evidence)


class Export(Narrowing):
    format: Literal["csv", "ndjson"] = Field(
        "csv", description="CSV for spreadsheets, NDJSON for programs."
    )
    created_after: After | None = CREATED_AFTER
    created_before: Before | None = CREATED_BEFORE


async def import_contacts(call: Call) -> Response:
    """A CSV or NDJSON file, by its Content-Type, or as the one file of a form; the response is
    lines of JSON, sent while the file is read. The first row of a CSV file names its columns, at
    most 1,000: `email`, `phone`, `firstName`, `lastName`, `timezone`, `locale`, `id`, `tags`
    (separated by semicolons; quote a tag that contains one), `metadata.<name>`,
    `subscriptions.<channel>` and `topics.<id>.<channel>`; case, spaces, `-` and `_` do not matter,
    and `columns` and `unknown`
    say what others mean. Columns are separated by commas, semicolons or tabs. A line of NDJSON is a
    contact as POST accepts it, with or without its `id`. A row is matched to a contact by email,
    then by phone, then by id, and updates it: an empty cell changes nothing, tags are added,
    `unsubscribed`, `complained` and `bounced` are applied, consent to a channel is not. Answers
    about topics need a `consentSource`, and take back no opt-out. A row whose `id` matches one
    contact and whose email or phone matches another is an error. Sending a file again is safe. If
    more than half of the rows fail, 10,000 or more, the rest is not read. Text is UTF-8 or UTF-16
    and is stored as POST stores it, in Unicode NFC."""
    query, headers = call.query(Import), call.request.headers
    require_media_type(headers, frozenset(TAKEN))
    body = call.stream_body(LARGEST_FILE, PIECE_SECONDS, FILE_SECONDS)
    media_type = headers["content-type"].partition(";")[0].strip().lower()
    if media_type == multipart.FORM:
        media_type, body = await multipart.file(headers["content-type"], body, FILE_TYPES)
    columns = imports.Columns(query.columns or {}, query.unknown)
    lines = imports.run(
        call.process,
        call.member.workspace_id,
        imports.FORMATS[media_type](columns),
        body,
        dry_run=query.dry_run,
        recheck=call.recheck,
        starts=query.start_automations,
        by=call.origin,
        given=query.given(),
    )
    return await stream.answer(call.request, lines, stream.JSON_LINES, while_reading=True)


async def export_contacts(call: Call) -> Response:
    """Every contact, or those that match the list's filters, in a file that can be imported again
    unchanged. In CSV, all metadata is text, an empty value is an empty cell, and a cell that a
    spreadsheet would treat as a formula begins with an apostrophe."""
    query, workspace_id = call.query(Export), call.member.workspace_id
    async with call.process.database.read() as db:
        given = query.model_dump(exclude={"format"}, exclude_none=True)
        filters = await filters_of(db, workspace_id, given)
    write, media_type = EXPORTS[query.format]
    pieces = write(call.process, workspace_id, filters, call.recheck)
    try:
        return await stream.answer(
            call.request, pieces, media_type, file_name=f"contacts.{query.format}"
        )
    except exports.TooManyColumns as error:
        sentence = f"There are more than {error} metadata names: ask for ndjson."
        errors = [FieldError("?format", sentence)]
        raise Problem(
            "invalid", "Not everything fits in a table; see errors.", errors=errors
        ) from None


routes = [
    post(
        "/contacts/import",
        import_contacts,
        can="contacts:write",
        tx=None,
        takes=TAKEN,
        query=Import,
        gives={200: (stream.JSON_LINES,)},
    ),
    get(
        "/contacts/export",
        export_contacts,
        can="contacts:read",
        tx=None,
        query=Export,
        gives={200: tuple(media_type for _, media_type in EXPORTS.values())},
    ),
]
