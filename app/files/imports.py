"""A file of contacts comes in: read as a stream, checked row by row, stored five hundred at a time,
or fewer where they are long, or the contacts that they change are, or many segments name what it
changes.

Each batch is a transaction of its own, so what was read is kept when the rest cannot be; a file may
be sent again, and changes nothing the second time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from app.audience import profile, upserts
from app.audience.membership import TooMany
from app.audience.subscriptions import Given
from app.audience.upserts import Entry, Outcome, TooHeavy
from app.audience.workspace_context import WorkspaceContext
from app.audit import trail
from app.audit.trail import Origin
from app.billing import quotas
from app.config.plans import Plan
from app.errors import Duplicate, FieldError, Problem, Unavailable
from app.files import sheets
from app.files.sheets import Record
from app.identity.identity import Recheck
from app.machine import document
from app.machine.content import CHANNELS
from app.machine.program import Json
from app.process import Process
from app.store import topics, workspaces
from app.store.dry_run import DryRunContacts
from app.store.topics import Topic

log = logging.getLogger(__name__)

BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024  # of the file: with the row that goes beyond, a batch is stored
TURN_SECONDS = 0.002  # of checking rows; then others of this process have their turn
PROGRESS_SECONDS = 2.0
# While it sends, a client may not read: what is told early must fit into the buffers in between.
EARLY_BYTES = 32 * 1024
ERRORS = 1_000  # that are listed
FAILED = 10_000  # rows, if they are most of the file: then it is no file of contacts
PART_BYTES = 4_096  # read between two turns
PAUSES = (0.1, 0.5, 2.0)  # before a batch that met a lock or a database away is tried again

ADDRESSES = ("email", "phone", "id")  # by which a contact is found
METADATA = "metadata."
SUBSCRIPTIONS = "subscriptions."
TOPICS = "topics."
READ_ONLY = (
    "createdAt",
    "updatedAt",
    "consents",
)  # an export has them: they may come back, and count nothing
NAMES = tuple(
    name for name in ("id", *profile.WRITABLE, "tags") if name not in ("metadata", "subscriptions")
)
SUBSCRIPTION_COLUMNS = tuple(SUBSCRIPTIONS + channel for channel in CHANNELS)
COLUMNS_THERE_ARE = (
    f"The columns are {', '.join((*NAMES, *SUBSCRIPTION_COLUMNS))}, {TOPICS}<id>.<channel> and"
    f" {METADATA}<name>. To read this one as"
    " one of them, add ?columns[<name in the file>]=<column>; to leave out all others,"
    " ?unknown=skip; to store them as metadata, ?unknown=metadata."
)
NO_CONTACTS = (
    f"More than half of the rows failed, {FAILED:,} or more: the rest of the file was not read."
    " Rows that did not fail are stored. Check the columns, or try a part of the file with"
    " dryRun=true."
)

Values: TypeAlias = Mapping[str, Json]


class Format(Protocol):
    """A kind of file: its rows as a contact's values."""

    reader: sheets.Reader

    def values(self, record: Record) -> Values | Sequence[FieldError] | None:
        """None for a row that is no contact, or what is wrong with it. Raises Problem when the
        file cannot be read at all."""

    def end(self) -> None:
        """Raises Problem when something was missing."""


async def run(
    process: Process,
    workspace_id: str,
    rows: Format,
    pieces: AsyncIterator[bytes],
    *,
    dry_run: bool,
    recheck: Recheck,
    starts: bool = False,
    by: Origin | None = None,
    given: Given | None = None,
    progress_seconds: float = PROGRESS_SECONDS,
) -> AsyncGenerator[bytes, None]:
    """Lines of JSON: progress while it reads, then the errors, then the totals. Who it is `by` is
    noted in the audit trail with the first rows that are stored; `recheck` is awaited before each
    batch, and raises Problem when they may store no more. Without `given` no answer about a topic
    is stored.

    What ends it before the file has ended is the last line instead, or, before any line, a Problem.
    """
    async with process.database.read() as db:
        row = await workspaces.by_id(db, id=workspace_id)
        known = await topics.of_workspace(db, workspace_id=workspace_id)
    workspace = WorkspaceContext(
        workspace_id, row.country if row else None, process.vault, hints=process.hints
    )
    plan = quotas.plan_of(process, row)
    with DryRunContacts() if dry_run else nullcontext() as dry_run_contacts:
        work = _Import(
            process,
            workspace,
            plan,
            rows,
            dry_run_contacts,
            known=known,
            recheck=recheck,
            starts=starts,
            by=by,
            given=given,
        )
        cut_short: Problem | None = None
        try:
            async for piece in pieces:
                for start in range(0, len(piece), PART_BYTES):
                    part = piece[start : start + PART_BYTES]
                    await work.read(rows.reader.feed(part), len(part))
                    if work.mostly_fails:
                        raise Problem("invalid", NO_CONTACTS)
                if line := work.progress(progress_seconds):
                    yield line
            await work.read(rows.reader.end(), 0)
            rows.end()
            await work.flush()
        except Problem as problem:
            if not work.reported_bytes and not work.mostly_fails:
                raise
            cut_short = problem
        for error in sorted(work.errors, key=lambda error: error["row"]):
            yield _line("error", error)
        if cut_short is None:
            yield _line("totals", work.totals)
        else:
            failure = {"code": cut_short.code, "detail": cut_short.detail}
            yield _line("problem", {**work.totals, **failure})


def _line(type: str, values: Mapping[str, Json]) -> bytes:
    return document.dumps({"type": type, **values}) + b"\n"


class _Import:
    """A file that is being read: the rows of the next batch, and what became of those before."""

    def __init__(
        self,
        process: Process,
        workspace: WorkspaceContext,
        plan: Plan,
        rows: Format,
        dry_run_contacts: DryRunContacts | None,
        *,
        known: Mapping[str, Topic],
        recheck: Recheck,
        starts: bool,
        by: Origin | None,
        given: Given | None,
    ) -> None:
        self._process = process
        self._workspace = workspace
        self._plan = plan
        self._rows = rows
        self._dry_run_contacts = dry_run_contacts
        self._dry_run = dry_run_contacts is not None
        self._recheck = recheck
        self._known = known
        self._given = given
        self._starts = starts
        self._by = None if self._dry_run else by
        self._batch: list[tuple[int, Entry]] = []
        self._batch_bytes = 0  # read since the one before
        self._most = BATCH  # rows of one
        self._turn_ends_at = time.monotonic() + TURN_SECONDS
        self._counts: Counter[str] = Counter()
        self._reported_at = time.monotonic()
        self.reported_bytes = 0  # bytes
        self.errors: list[Mapping[str, Json]] = []

    @property
    def totals(self) -> Mapping[str, Json]:
        names = ("created", "updated", "unchanged", "failed")
        return {**{name: self._counts[name] for name in names}, "dryRun": self._dry_run}

    @property
    def mostly_fails(self) -> bool:
        failed = self._counts["failed"]
        return failed >= FAILED and 2 * failed > self._counts.total()

    def progress(self, every: float) -> bytes | None:
        if time.monotonic() < self._reported_at + every or self.reported_bytes > EARLY_BYTES:
            return None
        line = _line("progress", self.totals)
        self._reported_at = time.monotonic()
        self.reported_bytes += len(line)
        return line

    async def read(self, records: Iterator[Record], length: int) -> None:
        """Take the rows that so many bytes of the file have ended."""
        self._batch_bytes += length
        for record in records:
            values = self._rows.values(record)
            if isinstance(values, Mapping):
                entry = Entry.read(self._workspace.country, values, self._known)
                if entry.checked.errors:
                    self._fail(record.number, entry.checked.errors)
                else:
                    self._batch.append((record.number, entry))
            elif values is not None:
                self._fail(record.number, values)
            if len(self._batch) >= self._most or self._batch_bytes >= BATCH_BYTES:
                await self.flush()
            await self._leave_a_turn()
        await self._leave_a_turn()  # of lines that are blank, or go on

    async def _leave_a_turn(self) -> None:
        if time.monotonic() > self._turn_ends_at:
            await asyncio.sleep(0)
            self._turn_ends_at = time.monotonic() + TURN_SECONDS

    async def flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch:
            return
        outcomes = await self._stored([entry for _, entry in batch])
        for (number, _), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, str):
                self._counts[outcome] += 1
            else:
                self._fail(number, outcome)

    def _fail(self, number: int, errors: Sequence[FieldError]) -> None:
        self._counts["failed"] += 1
        for error in errors[: ERRORS - len(self.errors)]:
            error_line = {"row": number, "pointer": error.pointer, "message": error.message}
            self.errors.append(error_line)

    async def _stored(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Tried again after what may pass: it is an upsert, and does nothing twice."""
        for pause in (*PAUSES, None):
            try:
                return await self._once(entries)
            except Duplicate:
                # Somebody was faster, or two of the rows exchange an address: in steps it works.
                if pause is None:
                    raise
                if len(entries) > 1:
                    return [one for entry in entries for one in await self._stored([entry])]
            except TooMany as many:  # as will be those that follow
                self._most = many.contacts
                return await self._in_parts(entries, many.contacts)
            except TooHeavy as heavy:
                return await self._in_parts(entries, heavy.entries)
            except Unavailable as problem:
                if pause is None:
                    raise
                log.info("import tries a batch again", extra={"cause": problem.detail})
                await asyncio.sleep(pause)
        raise AssertionError("the last pause is None")

    async def _in_parts(self, entries: Sequence[Entry], size: int) -> list[Outcome]:
        parts = [entries[at : at + size] for at in range(0, len(entries), size)]
        return [one for part in parts for one in await self._stored(part)]

    async def _once(self, entries: Sequence[Entry]) -> list[Outcome]:
        await self._recheck()
        database = self._process.database
        async with database.read() if self._dry_run else database.write() as db:
            room = await quotas.room(db, self._workspace.id, self._plan, only_looks=self._dry_run)
            if room is not None and self._dry_run:  # which has made none of those that it counted
                room -= self._counts["created"]
            outcomes = await upserts.upsert(
                db,
                self._workspace,
                entries,
                room=room,
                dry_run_contacts=self._dry_run_contacts,
                starts=self._starts,
                given=self._given,
            )
            if self._by is not None:
                await trail.note(
                    db,
                    self._process.vault,
                    self._by,
                    workspace_id=self._workspace.id,
                    action="contact.imported",
                    resource_id=self._by.request_id,
                )
        self._by = None
        return outcomes


# --- the two formats ------------------------------------------------------------------------------


Unknown: TypeAlias = Literal["refuse", "skip", "metadata"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Reading of a file's header, by columns. `given` names the columns of cells, an empty name
    leaves one out; `unknown` says what becomes of those that are neither given nor ours."""

    given: Mapping[str, str] = field(default_factory=dict)
    unknown: Unknown = "refuse"

    def is_column(self, cell: str) -> bool:
        return cell in self.given or _folded(cell) in _OURS

    def named(self, cell: str) -> str:
        """The column of a cell of the header; "" for one that is left out."""
        if cell in self.given:
            return self.given[cell]
        if name := _OURS.get(_folded(cell)):
            return name
        # Spaces around a name count nothing; but those at the end of a metadata name are its own.
        name = cell.lstrip()
        if name.startswith((METADATA, TOPICS)):
            return name
        name = name.rstrip()
        is_kept = self.unknown == "refuse" or name.startswith(SUBSCRIPTIONS)
        return name if is_kept else METADATA + name if name and self.unknown == "metadata" else ""

    def read(self, header: Sequence[str]) -> Sequence[str]:
        """Raises Problem `invalid` with everything that is wrong with the header."""
        if len(header) > sheets.COLUMNS:
            raise _bad_header([FieldError("", f"At most {sheets.COLUMNS} columns.")])
        cells = [sheets.as_written(cell) for cell in header]
        names = [self.named(cell) for cell in cells]
        errors = [
            FieldError(f"?columns[{cell}]", f"The file has no column {cell}.")
            for cell in self.given
            if cell not in cells
        ]
        before: set[str] = set()
        for cell, name in zip(cells, names, strict=True):
            pointer = f"?columns[{cell}]" if cell in self.given else f"/{name}"
            if name in before:
                errors.append(FieldError(pointer, "This column is there twice."))
            elif not is_name(name) and (name or (pointer == "/" and self.unknown == "refuse")):
                detail = f"There is no such column. {COLUMNS_THERE_ARE}"
                errors.append(FieldError(pointer, detail))
            if name:
                before.add(name)
        if not errors and not set(ADDRESSES) & set(names):
            errors.append(FieldError("", f"Add a column email, phone or id. {COLUMNS_THERE_ARE}"))
        if errors:
            raise _bad_header(errors)
        return names


class CsvFormat:
    """The first row names the columns: email, phone, firstName, …, tags, metadata.<name>,
    subscriptions.<channel>, topics.<id>.<channel>; others as `columns` says."""

    def __init__(self, columns: Columns | None = None) -> None:
        self._header = columns or Columns()
        self.reader: sheets.Reader = sheets.Csv(self._header.is_column)
        self._columns: Sequence[str] | None = None

    def values(self, record: Record) -> Values | Sequence[FieldError] | None:
        cells: list[str] = record.value
        if self._columns is None:
            if record.fault is not None or any("\0" in cell for cell in cells):
                raise _bad_header([FieldError("", record.fault or sheets.NOT_UTF_8)], UNREADABLE)
            self._columns = self._header.read(cells)
            return None
        if record.fault is not None:
            return [FieldError("", record.fault)]
        if len(cells) > len(self._columns) and any(cells[len(self._columns) :]):
            sentence = f"The row has {len(cells)} cells, the header {len(self._columns)}."
            return [FieldError("", sentence)]
        given = {
            name: sheets.as_written(cell)
            for name, cell in zip(self._columns, cells, strict=False)
            if cell and name and name not in READ_ONLY  # an empty cell says nothing
        }
        values: dict[str, Json] = {name: cell for name, cell in given.items() if "." not in name}
        for group, prefix in (("metadata", METADATA), ("subscriptions", SUBSCRIPTIONS)):
            within = {
                name.removeprefix(prefix): cell
                for name, cell in given.items()
                if name.startswith(prefix)
            }
            if within:
                values[group] = within
        for name, cell in given.items():
            if name.startswith(TOPICS):
                _, topic_id, channel = name.split(".")
                values.setdefault("topics", {}).setdefault(topic_id, {})[channel] = cell
        if "tags" in given:
            values["tags"] = sheets.list_of(given["tags"])
        return values

    def end(self) -> None:
        if self._columns is None:
            raise _bad_header(
                [FieldError("", "The file is empty; it must begin with a header row.")]
            )


class JsonLinesFormat:
    """A contact a line, as in the body of POST /contacts, with an optional id."""

    def __init__(self) -> None:
        self.reader: sheets.Reader = sheets.JsonLines()

    def values(self, record: Record) -> Values | Sequence[FieldError] | None:
        if record.fault is not None:
            return [FieldError("", record.fault)]
        return {name: value for name, value in record.value.items() if name not in READ_ONLY}

    def end(self) -> None:
        """A file of no lines is one of no contacts."""


FORMATS: Mapping[str, Callable[[Columns], Format]] = {
    "text/csv": CsvFormat,
    **dict.fromkeys(
        ("application/x-ndjson", "application/ndjson", "application/jsonl"),
        lambda _columns: JsonLinesFormat(),
    ),
}


def _folded(cell: str) -> str:
    """Fold a cell of the header, as spreadsheets write First Name, first_name or E-Mail."""
    return re.sub(r"[\s_-]", "", cell).casefold()


_OURS = {_folded(name): name for name in (*NAMES, *READ_ONLY, *SUBSCRIPTION_COLUMNS)}


def is_name(name: str) -> bool:
    """Return whether a column may have this name."""
    is_metadata = name.startswith(METADATA) and name != METADATA
    is_topic = _TOPIC.fullmatch(name) is not None
    return is_metadata or is_topic or name in (*NAMES, *READ_ONLY, *SUBSCRIPTION_COLUMNS)


_TOPIC = re.compile(rf"{re.escape(TOPICS)}[^.]+\.({'|'.join(CHANNELS)})")


UNREADABLE = (
    "The header row cannot be read. Save the file as CSV in UTF-8 or UTF-16, with columns separated"
    " by commas, semicolons or tabs and one row per line."
)


def _bad_header(
    errors: Sequence[FieldError], detail: str = "The header row is not valid; see errors."
) -> Problem:
    return Problem("invalid", detail, errors=errors[:100])
