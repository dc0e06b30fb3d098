"""Contacts as CSV (RFC 4180) and as lines of JSON, read and written piece by piece."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from app.machine import document
from app.machine.program import Json

ROW_BYTES = 256 * 1024  # of one row: a contact as large as one may be
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TOO_LONG = f"The row is longer than {ROW_BYTES} bytes; a quotation mark may be missing."
NOT_UTF_8 = "The row is not UTF-8; save the file in that encoding."
OPEN = "The row begins a quotation that does not end."

STRICT = csv.reader((), strict=True).dialect  # made once: it is asked for with every line

_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as surrogateescape reads them


@dataclass(frozen=True, slots=True)
class Record:
    """A row by its number, the first being 1; or the fault for which there is no value."""

    number: int
    value: Json = None
    fault: str | None = None


class Reader(Protocol):
    """Takes a file piece by piece, and holds little more than a row and a piece of it."""

    def feed(self, piece: bytes) -> Iterator[Record]: ...

    def end(self) -> Iterator[Record]: ...


# --- reading --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lines:
    """Pieces → whole lines. One that grows too long becomes one that will be found too long."""

    _rest: bytes = b""
    _begun: bool = False

    def feed(self, piece: bytes) -> bytes:
        whole, newline, self._rest = (self._rest + piece).rpartition(b"\n")
        if len(self._rest) > ROW_BYTES:
            self._rest = b"." * (ROW_BYTES + 1)
        return self._without_mark(whole + newline)

    def end(self) -> bytes:
        return self._without_mark(self._rest)

    def _without_mark(self, data: bytes) -> bytes:
        if self._begun or not data:
            return data
        self._begun = True
        return data.removeprefix(BYTE_ORDER_MARK)


@dataclass(slots=True)
class JsonLines:
    """Values are objects. Lines are counted, empty ones too."""

    _lines: _Lines = field(default_factory=_Lines)
    _number: int = 0

    def feed(self, piece: bytes) -> Iterator[Record]:
        return self._read(self._lines.feed(piece).split(b"\n")[:-1])

    def end(self) -> Iterator[Record]:
        return self._read([self._lines.end()])

    def _read(self, lines: Iterable[bytes]) -> Iterator[Record]:
        for line in lines:
            self._number += 1
            if line.strip():
                yield self._record(line)

    def _record(self, line: bytes) -> Record:
        if len(line) > ROW_BYTES:
            return Record(self._number, fault=TOO_LONG)
        try:
            value = document.parse(line)
        except document.MalformedJson as error:
            return Record(self._number, fault=str(error).replace("The body", "The line", 1))
        if not isinstance(value, dict):
            return Record(self._number, fault="The line must be an object.")
        return Record(self._number, value)


@dataclass(slots=True)
class Csv:
    """Values are lists of text. Rows are counted as a spreadsheet does: the header is the first,
    and a row may have several lines. After one that cannot be read the next line is a new row."""

    _lines: _Lines = field(default_factory=_Lines)
    _row: list[str] = field(default_factory=list)  # the lines of one that goes on: in a quotation
    _length: int = 0
    _number: int = 0

    def feed(self, piece: bytes) -> Iterator[Record]:
        return self._read(self._lines.feed(piece))

    def end(self) -> Iterator[Record]:
        yield from self._read(self._lines.end())
        if self._row:
            yield from self._broken(OPEN, last=True)

    def _read(self, data: bytes) -> Iterator[Record]:
        for line in io.StringIO(data.decode(errors="surrogateescape"), newline="\n"):
            yield from self._take(line)

    def _take(self, line: str, *, may_go_on: bool = True) -> Iterator[Record]:
        """Each line is looked at by itself, however long its row is by now."""
        fault = _fault(f'"{line}' if self._row else line)
        self._row.append(line)
        self._length += len(line)
        if self._length > ROW_BYTES:
            fault = TOO_LONG
        if fault is None:
            yield from self._whole()
        elif fault != OPEN or not may_go_on:
            yield from self._broken(fault)

    def _whole(self) -> Iterator[Record]:
        lines = self._begin_anew()
        try:
            [cells] = csv.reader(lines, STRICT)
        except csv.Error:  # of a cell, for each line is right
            yield Record(self._number, fault=TOO_LONG)
            return
        if any(map(_ESCAPED.search, lines)):
            yield Record(self._number, fault=NOT_UTF_8)
        elif cells:
            yield Record(self._number, cells)

    def _broken(self, fault: str, *, last: bool = False) -> Iterator[Record]:
        """Its other lines are rows of their own. They were within a quotation that led as far as
        the last of them: one that begins there another leads as far, and is not followed again."""
        begun = self._begin_anew()[1:]
        yield Record(self._number, fault=fault)
        for left, line in enumerate(begun, start=1 - len(begun)):
            yield from self._take(line, may_go_on=left == 0 and not last)

    def _begin_anew(self) -> list[str]:
        lines, self._row, self._length = self._row, [], 0
        self._number += 1
        return lines


def _fault(line: str) -> str | None:
    """What is wrong with a line, were it a row."""
    try:
        list(csv.reader([line], STRICT))
    except csv.Error as error:
        if str(error) == "unexpected end of data":
            return OPEN
        if str(error).startswith("field larger"):
            return TOO_LONG
        return f"The row is not CSV: {error}."
    return None


# --- writing --------------------------------------------------------------------------------------

# What makes a spreadsheet take a text for a formula (OWASP, CSV injection): the full-width variants
# do in some languages. And what was made harmless already, so that both ways are exact.
_STARTS = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_FORMULA = re.compile(f"'*{_STARTS}")
_HARMLESS = re.compile(f"'+{_STARTS}")
BETWEEN = ";"  # what is several in one cell


def csv_text(rows: Iterable[Iterable[str]]) -> bytes:
    """No cell of it is a formula."""
    sheet = io.StringIO()
    writer = csv.writer(sheet)
    for cells in rows:
        writer.writerow([f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells])
    return sheet.getvalue().encode()


def as_written(cell: str) -> str:
    """What was meant, of a cell that `csv_text` wrote or anybody else."""
    return cell[1:] if _HARMLESS.match(cell) else cell


def list_text(values: Sequence[str]) -> str:
    """Several in one cell, apart by semicolons: CSV within CSV, so that each may hold anything."""
    cell = io.StringIO()
    csv.writer(cell, delimiter=BETWEEN, lineterminator="").writerow(values)
    return cell.getvalue()


def list_of(cell: str) -> list[str]:
    """What `list_text` wrote, or anybody else: a quotation that is not whole is taken literally."""
    lines = io.StringIO(cell, newline="\n")
    try:
        return [
            value.strip()
            for values in csv.reader(lines, delimiter=BETWEEN, skipinitialspace=True, strict=True)
            for value in values
            if value.strip()
        ]
    except csv.Error:
        return [value.strip() for value in cell.split(BETWEEN) if value.strip()]


def json_lines(values: Iterable[Json]) -> bytes:
    return b"".join(document.dumps(value) + b"\n" for value in values)
