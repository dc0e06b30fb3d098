"""CSV and JSON lines in pieces of any size, and what is wrong with a row in words."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.files import sheets
from app.files.sheets import Csv, JsonLines, Reader, Record
from tests.examples import examples


def read(reader: Callable[[], Reader], data: bytes, size: int = 1_000_000) -> list[Record]:
    """Read in pieces of so many bytes."""
    one = reader()
    records: list[Record] = []
    for first in range(0, len(data), size):
        records += one.feed(data[first : first + size])
    return [*records, *one.end()]


def values_of(records: list[Record]) -> list[object]:
    """The values, and in their place the faults."""
    return [record.fault or record.value for record in records]


NO_COMMA = "The row is not CSV: ',' expected after '\"'."
LEFT = [(3, ["c"]), (4, ['d" e'])]  # of a row that was given up

SHEETS: list[tuple[bytes, list[tuple[int, object]]]] = [
    (b"", []),
    (b"a,b", [(1, ["a", "b"])]),
    (b"a,b\r\n", [(1, ["a", "b"])]),
    (b"\xef\xbb\xbfa,b\n", [(1, ["a", "b"])]),
    (b'\xef\xbb\xbf"a",b\n', [(1, ["a", "b"])]),
    (b"a;b\n1;2,3\n", [(1, ["a", "b"]), (2, ["1", "2,3"])]),
    (b"sep=;\r\na,b;c\n", [(2, ["a,b", "c"])]),
    ("a,é\n".encode("utf-16"), [(1, ["a", "é"])]),
    ("a\té\n".encode("utf-16-be"), [(1, ["a", "é"])]),
    (
        "a\nb\ud800c\nd\n".encode("utf-16-le", "surrogatepass"),
        [(1, ["a"]), (2, sheets.NOT_UTF_8), (3, ["d"])],
    ),
    ("a\nb".encode("utf-16") + b"x", [(1, ["a"]), (2, sheets.NOT_UTF_8)]),
    (b"a\n\n\nb\n", [(1, ["a"]), (4, ["b"])]),
    (b'"a\r\nb","c ""d"", e"\nf\n', [(1, ["a\r\nb", 'c "d", e']), (2, ["f"])]),
    ("é,名前,\u2028\x0b\n".encode(), [(1, ["é", "名前", "\u2028\x0b"])]),
    (b"a\nb\xff\nc\n", [(1, ["a"]), (2, sheets.NOT_UTF_8), (3, ["c"])]),
    (
        b'a\n"b" c\nd\n',
        [(1, ["a"]), (2, NO_COMMA), (3, ["d"])],
    ),
    (
        b'a\n"b\nc\nd\n',
        [(1, ["a"]), (2, sheets.OPEN), (3, ["c"]), (4, ["d"])],
    ),
    (b'a\n"b\n"c\nd\n', [(1, ["a"]), (2, NO_COMMA), (3, sheets.OPEN), (4, ["d"])]),
    (b'a\n"b\nc\nd" e\n"f\ng"\n', [(1, ["a"]), (2, NO_COMMA), *LEFT, (5, ["f\ng"])]),
]


def test_blank_lines_beyond_so_many_are_faults() -> None:
    within = b"a,b\n" + b"\r\n" * sheets.BLANK_LINES + b"1,2\n"
    assert values_of(read(Csv, within)) == [["a", "b"], ["1", "2"]]
    beyond = values_of(read(Csv, b"a,b\n" + b"\n" * (sheets.BLANK_LINES + 7) + b"1,2\n"))
    assert beyond == [["a", "b"], *[sheets.TOO_BLANK] * 7, ["1", "2"]]


def test_lines_within_a_quotation_are_looked_at_only_where_it_may_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, judge = [], sheets._fault

    def counted(line: str, delimiter: str) -> str | None:
        looked.append(line)
        return judge(line, delimiter)

    monkeypatch.setattr(sheets, "_fault", counted)
    [record] = read(Csv, b'"begun\n' + b"x\n" * 5_000 + b'ended"\n')
    assert record.fault is None
    assert len(looked) == 2


def test_of_a_first_line_no_more_cells_are_looked_at_than_there_may_be_columns() -> None:
    """Of 128,000 cells, each by itself, an event loop has an eighth of a second to do."""
    looked = []

    def is_column(cell: str) -> bool:
        looked.append(cell)
        return False

    cells = b"a," * 100_000
    [record] = read(lambda: Csv(is_column), cells + b"a\n1,2\n")[:1]
    assert len(record.value) == 100_001
    assert len(looked) < 2 * sheets.COLUMNS


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
@pytest.mark.parametrize(("data", "rows"), SHEETS)
def test_a_sheet_is_the_same_in_pieces_of_any_size(
    data: bytes, rows: list[object], size: int
) -> None:
    records = read(lambda: Csv("email".__eq__), data, size)
    assert [(one.number, one.fault or one.value) for one in records] == rows


LINES: list[tuple[bytes, list[tuple[int, object]]]] = [
    (b"", []),
    (b'{"a":1}', [(1, {"a": 1})]),
    (b'\xef\xbb\xbf{"a":1}\r\n\r\n{"b":2}\n', [(1, {"a": 1}), (3, {"b": 2})]),
    (b"[1]\n", [(1, "The line must be an object.")]),
    (b'{"a":1\n{"b":2}', [(1, None), (2, {"b": 2})]),
    (b'{"a":"\xff"}\n{}', [(1, None), (2, {})]),
    (b'{"a":NaN}', [(1, None)]),
    ('{"a":"é"}\n'.encode("utf-16"), [(1, {"a": "é"})]),
]


@pytest.mark.parametrize("size", [1, 3, 1_000])
@pytest.mark.parametrize(("data", "rows"), LINES)
def test_lines_of_json_are_the_same_in_pieces_of_any_size(
    data: bytes, rows: list[Any], size: int
) -> None:
    records = read(JsonLines, data, size)
    assert [record.number for record in records] == [number for number, _ in rows]
    for record, (_, expected) in zip(records, rows, strict=True):
        if expected is None:
            assert record.fault is not None
            assert record.fault.startswith("The line is not")
        else:
            assert (record.fault or record.value) == expected


def test_a_line_of_more_values_than_a_contact_has_is_not_read() -> None:
    """Half a million of them take half a second of the event loop, and there may be a thousand."""
    full = b'{"x":[' + b"1," * sheets.LINE_VALUES + b"1]}"
    text = b'{"x":"' + b"1," * sheets.LINE_VALUES + b'1"}'
    rows = [sheets.LINE_TOO_FULL, {"x": "1," * sheets.LINE_VALUES + "1"}]
    assert values_of(read(JsonLines, full + b"\n" + text + b"\n")) == rows


@pytest.mark.parametrize("size", [1_000, 65_536, 10_000_000])
def test_a_row_that_grows_too_long_is_told_and_the_next_one_read(size: int) -> None:
    long = b"x" * (sheets.ROW_BYTES * 3)
    assert values_of(read(Csv, b"a\n" + long + b",b\nc\n", size)) == [["a"], sheets.TOO_LONG, ["c"]]
    long = b"x" * (sheets.LINE_BYTES * 2)
    rows = [{}, sheets.LINE_TOO_LONG, {}]
    assert values_of(read(JsonLines, b"{}\n" + long + b"\n{}\n", size)) == rows


def test_a_row_of_a_cell_that_is_too_long_is_one_fault_and_a_row_of_many_lines_is_none() -> None:
    cell = b'"' + b"line\n" * (sheets.ROW_BYTES // 8) + b'"\n'  # more than csv takes of a cell
    assert values_of(read(Csv, b"a\n" + cell + b"b\n")) == [["a"], sheets.TOO_LONG, ["b"]]
    lines = "line\n" * 20_000
    assert values_of(read(Csv, f'"{lines}",b\n'.encode())) == [[lines, "b"]]


@pytest.mark.parametrize("size", [15, 65_536])
def test_lines_that_begin_a_quotation_each_are_looked_at_a_few_times_each(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the rest of the row read with every line, it would be ten thousand times."""
    looked, reader = 0, csv.reader

    def counting(lines: Iterable[str], *dialect: Any, **options: Any) -> Iterable[list[str]]:
        nonlocal looked
        given = list(lines)
        looked += sum(map(len, given))
        return reader(given, *dialect, **options)

    monkeypatch.setattr(csv, "reader", counting)
    data = b"email\n" + b'ada@x.test",",\n' * 30_000
    assert set(values_of(read(Csv, data, size))[1:]) <= {sheets.OPEN, sheets.TOO_LONG}
    assert looked < 4 * len(data)


@pytest.mark.parametrize(
    ("reader", "most"), [(Csv, sheets.ROW_BYTES), (JsonLines, sheets.LINE_BYTES)]
)
@pytest.mark.parametrize("line", [b"x" * 1_000, b'"' + b"x" * 999, b'"\n'])
def test_little_more_than_a_row_is_kept(
    reader: Callable[[], Reader], most: int, line: bytes
) -> None:
    one = reader()
    for _ in range(3_000):
        for record in one.feed(line):
            assert len(str(record.value)) <= most
    assert isinstance(one, Csv | JsonLines)
    assert len(one._lines._rest) <= most + 1
    if isinstance(one, Csv):
        assert sum(map(len, one._row)) <= sheets.ROW_BYTES + len(line)


CELLS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9), min_size=1
)


FORMULAS = tuple("=+-@\t\r\n＝＋－＠")


@pytest.mark.parametrize("start", FORMULAS)
@pytest.mark.parametrize("before", ["", "'", "''"])
def test_what_a_spreadsheet_takes_for_a_formula_gets_an_apostrophe(start: str, before: str) -> None:
    text = f'{before}{start}HYPERLINK("http://evil")'
    [record] = read(Csv, sheets.csv_text([[text]]))
    assert record.value == [f"'{text}"]
    assert sheets.as_written(record.value[0]) == text


@examples(100)
@given(
    rows=st.lists(CELLS.filter(lambda cells: cells != [""]), max_size=9), size=st.integers(1, 30)
)
def test_what_is_written_is_read_back_and_no_cell_of_it_is_a_formula(
    rows: list[list[str]], size: int
) -> None:
    records = read(Csv, sheets.csv_text(rows), size)
    assert not any(cell[:1] in FORMULAS for one in records for cell in one.value if cell)
    assert [[sheets.as_written(cell) for cell in one.value] for one in records] == rows


@examples(100)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=9)))
def test_a_list_in_a_cell_is_read_back(texts: list[str]) -> None:
    texts = [text.strip() for text in texts if text.strip()]
    assert sheets.list_of(sheets.list_text(texts)) == texts


LISTS: list[tuple[str, list[str]]] = [
    ("", []),
    (" ; ;", []),
    ("vip; lead;;vip", ["vip", "lead", "vip"]),
    ('5" pipe; "a;b"; c', ['5" pipe', "a;b", "c"]),
    ("a\r\nb;\n", ["a", "b"]),
    # A quotation that is not whole is none.
    ('"VIP" customer', ['"VIP" customer']),
    ('a;"b', ["a", '"b']),
    ('"a" ; b', ['"a"', "b"]),
]


@pytest.mark.parametrize(("cell", "texts"), LISTS)
def test_a_list_may_be_written_by_anybody(cell: str, texts: list[str]) -> None:
    assert sheets.list_of(cell) == texts
