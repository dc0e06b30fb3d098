"""Contacts as CSV (RFC 4180) and as lines of JSON, read and written piece by piece."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from app.machine import document
from app.machine.program import Json

COLUMNS = 1_000  # of a CSV file: about twice as many as an export writes
ROW_BYTES = 256 * 1024  # of one row: a contact as large as one may be
LINE_BYTES = 1024 * 1024  # of a line of JSON, which has a hundred answers with their evidence
LINE_VALUES = 10_000  # of a line of JSON, more than a contact has; beyond, reading takes long
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

TOO_LONG = f"The row is longer than {ROW_BYTES} bytes; a quotation mark may be missing."
LINE_TOO_LONG = f"The line is longer than {LINE_BYTES} bytes."
LINE_TOO_FULL = f"The line holds more than {LINE_VALUES:,} values."
NOT_UTF_8 = "The row is not UTF-8; save the file in that encoding."
BLANK_LINES = 10_000  # in a row, beyond which each is a fault
TOO_BLANK = f"More than {BLANK_LINES:,} blank lines in a row."
PLAIN_LENGTH = 1_000  # of a line within a quotation that cannot end it, and is not looked at
OPEN = "The row begins a quotation that does not end."

# Made once: a dialect is needed for every line.
DIALECTS = {
    delimiter: csv.reader((), delimiter=delimiter, strict=True).dialect for delimiter in ",;\t"
}
COMMA = ","
UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
NOT_A_BYTE_OF_UTF_8 = b"\xff"

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


class _Text:
    """The bytes of a file in any Unicode encoding → UTF-8, without a byte order mark.

    UTF-16, in which spreadsheets save "Unicode text", is recognised by its mark, or by the NUL in
    its first character. What is wrong in it becomes a byte that UTF-8 does not have.
    """

    def __init__(self) -> None:
        self._head = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._begun = False

    def feed(self, piece: bytes, *, final: bool = False) -> bytes:
        if not self._begun:
            self._head += piece
            if len(self._head) < len(BYTE_ORDER_MARK) and not final:
                return b""
            self._begun, head = True, self._head
            encoding = UTF_16.get(head[:2])
            if encoding is not None:
                head = head[2:]
            elif len(head) > 1 and head[:2].count(0) == 1:
                encoding = "utf-16-le" if head[1] == 0 else "utf-16-be"
            if encoding is not None:
                self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            piece = head.removeprefix(BYTE_ORDER_MARK)
        if self._decoder is None:
            return piece
        utf_8 = self._decoder.decode(piece, final=final).encode()
        return utf_8.replace("\ufffd".encode(), NOT_A_BYTE_OF_UTF_8)


@dataclass(slots=True)
class _Lines:
    """Pieces → whole lines. One that grows too long becomes one that will be found too long."""

    _longest: int = ROW_BYTES
    _text: _Text = field(default_factory=_Text)
    _rest: bytes = b""

    def feed(self, piece: bytes) -> bytes:
        whole, newline, self._rest = (self._rest + self._text.feed(piece)).rpartition(b"\n")
        if len(self._rest) > self._longest:
            self._rest = b"." * (self._longest + 1)
        return whole + newline

    def end(self) -> bytes:
        return self._rest + self._text.feed(b"", final=True)


@dataclass(slots=True)
class JsonLines:
    """Values are objects. Lines are counted, empty ones too."""

    _lines: _Lines = field(default_factory=lambda: _Lines(LINE_BYTES))
    _number: int = 0

    def feed(self, piece: bytes) -> Iterator[Record]:
        return self._read(self._lines.feed(piece).split(b"\n")[:-1])

    def end(self) -> Iterator[Record]:
        return self._read(self._lines.end().split(b"\n"))

    def _read(self, lines: Iterable[bytes]) -> Iterator[Record]:
        for line in lines:
            self._number += 1
            if line.strip():
                yield self._record(line)

    def _record(self, line: bytes) -> Record:
        if len(line) > LINE_BYTES:
            return Record(self._number, fault=LINE_TOO_LONG)
        try:
            document.refuse_many(line, LINE_VALUES)
            value = document.parse(line)
        except document.TooManyValues:
            return Record(self._number, fault=LINE_TOO_FULL)
        except document.MalformedJson as error:
            return Record(self._number, fault=str(error).replace("The body", "The line", 1))
        if not isinstance(value, dict):
            return Record(self._number, fault="The line must be an object.")
        return Record(self._number, value)


@dataclass(slots=True)
class Csv:
    """Values are lists of text. Rows are counted as a spreadsheet does: the header is the first,
    and a row may have several lines. After one that cannot be read the next line is a new row.

    Cells are separated by commas, semicolons or tabs: by what separates a cell of the first line
    that `is_column` knows, else by what is there most often. A line `sep=;` before it says so too.
    """

    is_column: Callable[[str], bool] = lambda _cell: True
    _delimiter: str | None = None  # until the first line
    _lines: _Lines = field(default_factory=_Lines)
    _row: list[str] = field(default_factory=list)  # the lines of one that goes on: in a quotation
    _length: int = 0
    _number: int = 0
    _blank: int = 0  # lines, up to here

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
        if not self._row and line in _BLANK:
            self._number += 1
            self._blank += 1
            if self._blank > BLANK_LINES:
                yield Record(self._number, fault=TOO_BLANK)
            return
        self._blank = 0
        if self._delimiter is None:
            if separator := _SEPARATOR.fullmatch(line):
                self._delimiter = separator[1]
                self._number += 1
                return
            self._delimiter = self._delimiter_of(line)
        if self._row and len(line) < PLAIN_LENGTH and '"' not in line:
            fault: str | None = OPEN
        else:
            fault = _fault(f'"{line}' if self._row else line, self._delimiter or COMMA)
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
            [cells] = csv.reader(lines, DIALECTS[self._delimiter or COMMA])
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

    def _delimiter_of(self, line: str) -> str | None:
        """None while there is nothing to go by."""
        if not line.strip():
            return None
        for delimiter in DIALECTS:
            # The cells as far as they are known: a quotation may go on in the next line.
            with suppress(csv.Error):  # of a cell that is too long
                cells = next(csv.reader([line], delimiter=delimiter), [])
                if any(map(self.is_column, cells[:COLUMNS])):
                    return delimiter
        return max(DIALECTS, key=line.count)

    def _begin_anew(self) -> list[str]:
        lines, self._row, self._length = self._row, [], 0
        self._number += 1
        return lines


_BLANK = frozenset({"\n", "\r\n", "\r", ""})
_SEPARATOR = re.compile("sep=([,;\t])\r?\n", re.IGNORECASE)


def _fault(line: str, delimiter: str) -> str | None:
    """The fault of a line, were it a row."""
    try:
        list(csv.reader([line], DIALECTS[delimiter]))
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
    """The value meant by a cell that `csv_text`, or anybody else, wrote."""
    return cell[1:] if _HARMLESS.match(cell) else cell


def list_text(values: Sequence[str]) -> str:
    """Several in one cell, apart by semicolons: CSV within CSV, so that each may hold anything."""
    cell = io.StringIO()
    csv.writer(cell, delimiter=BETWEEN, lineterminator="").writerow(values)
    return cell.getvalue()


def list_of(cell: str) -> list[str]:
    """The list that `list_text`, or anybody else, wrote; an unfinished quotation is taken
    literally."""
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
