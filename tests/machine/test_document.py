"""JSON from strangers keeps its literals, and bad JSON is refused with a sentence and a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import document
from app.machine.document import LiteralFloat, LiteralInt, MalformedJson
from tests.examples import examples

LITERALS = [
    *("0", "-0", "7", "-12", "1.10", "1.0", "0.1000000000000000055511151231257827", "1E2", "-1e-7"),
    *("1e400", "-1e400", "1e131073", "0e0", "9223372036854775808", "123456789012345678901"),
    *("9" * 20, "9" * 400, "9" * 4_300, "9" * 4_301, "-" + "1" * 5_000),
]


@pytest.mark.parametrize("literal", LITERALS)
def test_a_number_prints_and_is_written_back_as_its_literal(literal: str) -> None:
    value = document.parse(f'{{"x": [{literal}]}}'.encode())["x"][0]
    assert document.text(value) == literal
    assert str(value) == literal
    assert document.dumps({"x": [value]}) == f'{{"x":[{literal}]}}'.encode()


def test_literals_are_numbers() -> None:
    total, big, zero, huge = document.parse(b"[1.10, 123456789012345678901, -0, 1e400]")
    endless = document.parse(b"9" * 5_000)
    assert total == 1.1
    assert total * 2 == 2.2
    assert big + 1 == 123456789012345678902
    assert zero == 0
    assert huge > big
    assert endless > 10**300
    assert isinstance(big, LiteralInt)
    assert isinstance(huge, LiteralFloat)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Expecting value at line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b'{"a":1} x', "Extra data at line 1, column 9"),
        (b"{'a':1}", "line 1, column 2"),
        (b'{"a":1,}', "column"),
        (b'{"a":1,\n "b" 2}', "line 2, column 6"),
        (b'{"a":1 /* no */}', "line 1"),
        (b"\x0b{}", "line 1, column 1"),
        (b'{"a":NaN}', "NaN is not a JSON number"),
        (b'{"a":Infinity}', "Infinity is not a JSON number"),
        (b'{"a":-Infinity}', "-Infinity is not a JSON number"),
        (b'{"a":01}', "line 1"),
        (b'{"a":+1}', "line 1"),
        (b'{"a":.5}', "line 1"),
        (b'{"a":1.}', "line 1"),
        (b'"a\x01b"', "control character"),
        (b'"a\nb"', "control character"),
        (b'"\\x41"', "escape"),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", "line 1, column 1"),
        (b"{\xef\xbb\xbf}", "line 1, column 2"),
        (b'{"a":"\xe9"}', "byte 0xe9 at offset 6"),
        (b'"\xc0\xaf"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'"\xf0\x9f"', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "line 1"),
        ('{"a":1}'.encode("utf-32"), "not UTF-8"),
        ('{"a":1}'.encode("utf-32-be"), "line 1"),
    ],
)
def test_what_is_not_json_is_refused_with_a_place(body: bytes, says: str) -> None:
    with pytest.raises(MalformedJson) as caught:
        document.parse(body)
    assert says.lower() in str(caught.value).lower()
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"true", b" \t\r\n{} "])
def test_any_json_value_is_parsed(body: bytes) -> None:
    assert document.parse(body) == json.loads(body)


@pytest.mark.parametrize("read", [document.parse, document.skim])
def test_a_byte_order_mark_is_skipped(read: Callable[[bytes], Any]) -> None:
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


def _nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + closing * depth).encode()


@pytest.mark.parametrize(
    "body",
    [
        _nested(128),
        _nested(127, '{"a":[', "]}")[: 6 * 64] + b"1" + b"]}" * 64,
        b'{"a":"' + b"[" * 10_000 + b'"}',
        b'["' + rb"\"[" * 500 + b'"]',
        b'["' + rb"\\" * 500 + b'",' + b"[]," * 500 + b"[]]",
        b"[" + b"[]," * 100_000 + b"[]]",
    ],
)
def test_nesting_to_128_is_parsed_and_brackets_in_strings_do_not_count(body: bytes) -> None:
    assert document.parse(body) == json.loads(body)


@pytest.mark.parametrize(
    "body",
    [
        _nested(129),
        _nested(990),
        _nested(100_000),
        b"[" * 1_000_000,
        b'{"a":' * 129 + b"1" + b"}" * 129,
        b'{"a":' * 100_000,
        b'["\\\\",' + _nested(128) + b"]",
        b'["\\"",' + _nested(128) + b"]",
    ],
)
def test_deeper_nesting_is_refused_before_it_costs_anything(body: bytes) -> None:
    with pytest.raises(MalformedJson, match="nested deeper than 128 levels"):
        document.parse(body)


def test_what_is_shown_as_it_came_has_all_but_its_byte_order_mark() -> None:
    body = b'{"a": 1.50, "a" : "\\u00e9"}'
    assert document.as_it_came(b"\xef\xbb\xbf" + body) == body.decode()
    assert document.as_it_came(body) == body.decode()


def test_of_doubled_keys_the_last_wins_however_it_is_spelled() -> None:
    assert document.parse(b'{"email":"a","\\u0065mail":"b"}') == {"email": "b"}


@pytest.mark.parametrize(
    ("body", "printed", "written"),
    [
        (rb'"a\u0000b"', "a\ufffdb", rb'"a\u0000b"'),
        (rb'"\ud800"', "\ufffd", '"\ufffd"'.encode()),
        (rb'"\udc00\ud800"', "\ufffd\ufffd", '"\ufffd\ufffd"'.encode()),
        (rb'{"\ud800":["\udfff"]}', '{"\ufffd":["\ufffd"]}', '{"\ufffd":["\ufffd"]}'.encode()),
        (rb'"\ud83d\ude00"', "\U0001f600", '"\U0001f600"'.encode()),
        ('"\uffff\u202e\u0301"'.encode(), "\uffff\u202e\u0301", '"\uffff\u202e\u0301"'.encode()),
    ],
)
def test_what_cannot_be_printed_is_a_replacement_character(
    body: bytes, printed: str, written: bytes
) -> None:
    value = document.parse(body)
    assert document.text(value) == printed
    assert document.dumps(value) == written


@pytest.mark.parametrize(
    "key",
    ["__proto__", "constructor", "__class__", "$where", "$ref", "a.b", " ", "", "0", "__globals__"],
)
def test_every_key_is_plain_data(key: str) -> None:
    body = json.dumps({key: {key: 1}}, separators=(",", ":")).encode()
    assert document.dumps(document.parse(body)) == body


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (2.5, "2.5"),
        ("x", "x"),
        ([1, None, True], "[1,null,true]"),
        ({"a": {"b": "č"}}, '{"a":{"b":"č"}}'),
        (datetime(2026, 11, 2, 9, 0, 0, 123456, UTC), "2026-11-02T09:00:00.123Z"),
        (
            datetime(2026, 11, 2, 10, 0, tzinfo=timezone(timedelta(hours=1))),
            "2026-11-02T09:00:00.000Z",
        ),
    ],
)
def test_values_print_as_people_read_them(value: Any, printed: str) -> None:
    assert document.text(value) == printed


def test_times_are_written_in_utc_and_need_a_zone() -> None:
    moment = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
    assert document.dumps({"now": moment}) == b'{"now":"2026-11-02T09:00:00.000Z"}'
    with pytest.raises(TypeError):
        document.dumps({"now": moment.replace(tzinfo=None)})


def test_mappings_and_strings_of_any_class_are_written() -> None:
    class Words(str):
        __slots__ = ()

    value = MappingProxyType({"a": MappingProxyType({"b": Words("c")}), "d": [Words("\ud800")]})
    assert document.dumps(value) == '{"a":{"b":"c"},"d":["\ufffd"]}'.encode()
    assert document.dumps({"a": Words("b")}) == b'{"a":"b"}'


def test_what_is_not_json_is_not_written() -> None:
    with pytest.raises(TypeError):
        document.dumps({"a": object()})


def test_results_beyond_64_bits_are_written() -> None:
    assert document.dumps({"a": [2**64 + 1]}) == b'{"a":[18446744073709551617]}'


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [  # the cases of RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_changes_only_what_it_names(
    target: dict[str, Any] | list[Any], patch: Any, merged: Any
) -> None:
    before = json.dumps(target)
    assert document.merge(target, patch) == merged
    assert json.dumps(target) == before


NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(10**18, 10**30).map(str),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z"),
)
TEXTS = st.text(st.characters(codec=None, categories=None), max_size=20)
DOCUMENTS = st.recursive(
    st.one_of(NUMBERS, st.sampled_from(["true", "false", "null"]), TEXTS.map(json.dumps)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(TEXTS.map(json.dumps), inner, max_size=4).map(
            lambda items: "{" + ",".join(f"{key}:{value}" for key, value in items.items()) + "}"
        ),
    ),
    max_leaves=12,
)


@examples(200)
@given(DOCUMENTS)
def test_writing_and_parsing_again_changes_nothing(source: Any) -> None:
    written = document.dumps(document.parse(source.encode()))
    assert document.dumps(document.parse(written)) == written


@examples(100)
@given(st.lists(NUMBERS, max_size=8))
def test_lists_of_numbers_come_back_to_the_letter(literals: list[str]) -> None:
    body = f"[{','.join(literals)}]".encode()
    assert document.dumps(document.parse(body)) == body


@examples(300)
@given(st.one_of(st.binary(max_size=60), st.text('{}[]",:0123456789.eE+-\\ utfalsn', max_size=40)))
def test_the_parser_accepts_what_the_standard_library_does_and_nothing_crashes_it(
    body: bytes,
) -> None:
    body = body.encode() if isinstance(body, str) else body
    try:
        text = body.decode().removeprefix("\ufeff")  # which the parser ignores, as it may
        expected = json.loads(text, parse_constant=_refuse)
    except ValueError:
        with pytest.raises(MalformedJson):
            document.parse(body)
    else:
        assert document.parse(body) == expected


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


HANG = pytest.mark.timeout(10)  # the longest that any body may take; what is quadratic takes more


@HANG
@pytest.mark.parametrize(
    "body",
    [
        b"9" * 1_000_000,
        b"-" + b"9" * 1_000_000,
        b"0." + b"1" * 1_000_000,
        b"[" * 1_000_000,
        b"[" + b"[]," * 300_000 + b"0]",
        b"{" + b",".join(b'"%x":1' % n for n in range(100_000)) + b',"z":0}',
        b'{"' + b"k" * 1_000_000 + b'":1}',
        b'"' + rb"\"" * 500_000 + b'"',
    ],
    ids=["digits", "negative", "fraction", "deep", "wide", "keys", "key", "escapes"],
)
def test_no_megabyte_hangs(body: bytes) -> None:
    with suppress(MalformedJson):
        document.parse(body)
