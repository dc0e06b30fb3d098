"""Paths mean the same everywhere: keys and indexes, nothing else."""

from __future__ import annotations

from collections import UserList
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import path
from app.machine.path import MISSING, BadPath, Path
from app.machine.program import Json
from tests.examples import examples


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("email", ("email",)),
        ("data.object.customer_email", ("data", "object", "customer_email")),
        ("fields[0].email", ("fields", 0, "email")),
        ("a[0][1].b", ("a", 0, 1, "b")),
        ("[0].a", (0, "a")),
        ('["any key"]', ("any key",)),
        ('["a.b"].c["d]"][2]', ("a.b", "c", "d]", 2)),
        ('a["b"]["c"]', ("a", "b", "c")),
        (r'["say \"hi\"\u0000\\"]', ('say "hi"\0\\',)),
        ('[""]', ("",)),
        ("a[10]", ("a", 10)),
        ("a[99999999999999999999]", ("a", 99999999999999999999)),
        ("$id", ("$id",)),
        ("@type.xml:lang", ("@type", "xml:lang")),
        ("2fa.0.-1", ("2fa", "0", "-1")),
        ('say"hi', ('say"hi',)),
        ("první.Größe", ("první", "Größe")),
        ("size.first.last.and.or", ("size", "first", "last", "and", "or")),
        ("__class__.__mro__", ("__class__", "__mro__")),
        (".".join("a" * 32), tuple("a" * 32)),
        ("a" * 512, ("a" * 512,)),
    ],
)
def test_a_path_is_read_into_keys_and_indexes(text: str, segments: tuple[str | int, ...]) -> None:
    assert path.parse(text).segments == segments


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", ".a", "a.", "a..b", "a b", " a", "a ", "a\n", "a\u00a0b", "a\tb"),
        *("a[-1]", "a[01]", "a[+1]", "a[1_0]", "a[٣]", "a[1e1]", "a[1.0]", "a[]", "a[*]", "a[ 0]"),
        *("a[?(@.b)]", "a[b]", "a['b']", "a[0", "a]", "[", "]", "a[0]b", "a.[0]", 'a.["b"]'),
        *('a["b]', '["b"]c', r'["\x"]', r'["\ud83"]', "a\0", "a\ud800", '["\0"]', '["\ud800"]'),
        *("a" * 513, ".".join("a" * 33), "[0]" * 33),
    ],
)
def test_what_is_not_a_path_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadPath) as caught:
        path.parse(text)
    assert str(caught.value).endswith(".")


def test_the_sentence_says_where_and_how() -> None:
    with pytest.raises(BadPath, match=r"from character 6, '\[-1\]\.a': write data\.items\[0\]"):
        path.parse("items[-1].a")


DOCUMENT = {
    "a": {"b": [{"c": 1}, [True]]},
    "null": None,
    "": "empty",
    "0": "zero",
    "any key": "spaced",
    "size": 3,
    "list": ["x", "y"],
    "text": "words",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.b[0].c", 1),
        ("a.b[1][0]", True),
        ("null", None),
        ('[""]', "empty"),
        ("0", "zero"),
        ('["any key"]', "spaced"),
        ("size", 3),
        ("a.b", [{"c": 1}, [True]]),
    ],
)
def test_a_path_finds_what_is_there_and_null_is_there(text: str, found: Any) -> None:
    assert path.parse(text).find(DOCUMENT) == found


@pytest.mark.parametrize(
    "text",
    [
        *("b", "a.c", "a.b.c", "a.b[2]", "a.b[99999999999999999999]", "null.x", "size.x"),
        *("list.0", "list.size", "list.first", "list.x", "text[0]", "text.upper", "a[0]", "[0]"),
        *("__class__", "a.__class__", "a.keys", "list.__len__", "size.real", "constructor"),
    ],
)
def test_a_path_that_leads_nowhere_finds_missing(text: str) -> None:
    assert path.parse(text).find(DOCUMENT) is MISSING


@pytest.mark.parametrize("segment", [-1, True, False])
def test_no_index_is_negative_or_a_truth_value(segment: bool | int) -> None:
    assert Path(("list", segment)).find(DOCUMENT) is MISSING


@pytest.mark.parametrize("stranger", [SimpleNamespace(a=1), UserList([1]), "abc", 5, None])
def test_attributes_and_foreign_sequences_are_not_followed(stranger: Any) -> None:
    assert path.parse("a").find(stranger) is MISSING
    assert path.parse("[0]").find(stranger) is MISSING


def test_any_mapping_may_be_the_document() -> None:
    assert path.parse("a.b").find(MappingProxyType({"a": MappingProxyType({"b": 1})})) == 1


def test_a_path_is_parsed_once() -> None:
    assert path.parse("once.only") is path.parse("once.only")


KEYS = st.text(st.characters(codec=None, categories=None), max_size=12)
INDEXES = st.integers(0, 10**6)


@examples(300)
@given(st.lists(st.one_of(KEYS, INDEXES), min_size=1, max_size=6))
def test_every_path_can_be_written_and_read_again(segments: tuple[str | int, ...]) -> None:
    written = Path(tuple(segments))
    assert path.parse(str(written)) == written


@examples(300)
@given(st.one_of(st.text(max_size=20), st.text('ab.[]"0123\\ ', max_size=20)))
def test_whatever_is_read_is_written_as_the_same_path(text: str) -> None:
    try:
        found = path.parse(text)
    except BadPath:
        return
    assert path.parse(str(found)) == found


@examples(100)
@given(
    st.dictionaries(KEYS, st.lists(st.dictionaries(KEYS, st.integers(), max_size=2), max_size=3))
)
def test_near_names_only_paths_that_exist(document: Any) -> None:
    for text in path.near(document, path.parse("email"), limit=5):
        assert path.parse(text).find(document) is not MISSING


@pytest.mark.parametrize(
    ("document", "wanted", "nearest"),
    [
        ({"data": {"email": "a@b.c"}, "event": "x"}, "email", "data.email"),
        ({"email": "a@b.c", "event": "x"}, "data.email", "email"),
        ({"data": {"mail": "x", "total": 5}}, "data.email", "data.mail"),
        (
            {"data": {"object": {"customer_email": "x", "id": 1}}},
            "email",
            "data.object.customer_email",
        ),
        ({"a": [{"phone_number": "1"}, {"x": 1}]}, "a[1].phone", "a[0].phone_number"),
        ({"E-mail address": "x", "Name": "y"}, "email", '["E-mail address"]'),
        ({"contactId": "x", "content": "y"}, "contact_id", "contactId"),
    ],
)
def test_near_names_the_likeliest_path_first(
    document: dict[str, Any], wanted: str, nearest: str
) -> None:
    assert path.near(document, path.parse(wanted))[0] == nearest


def test_near_leaves_out_what_cannot_be_looked_up() -> None:
    document = {"email": 5, "emails": [], "email2": None, "email3": "", "email4": {}, "other": "x"}
    assert path.near(document, path.parse("email")) == ["other"]
    assert path.near(5, path.parse("email")) == []


def test_near_gives_as_many_as_asked() -> None:
    document = {f"email{n}": "x" for n in range(10)}
    assert len(path.near(document, path.parse("email"))) == 3
    assert len(path.near(document, path.parse("email"), limit=5)) == 5


@pytest.mark.timeout(10)  # no request may hang longer; what is quadratic takes more
@pytest.mark.parametrize(
    "document",
    [
        {f"key{n}": n for n in range(200_000)},
        [["a"] * 1_000] * 1_000,
        {f"{n}" + "k" * 300: {"e" * 200: 1} for n in range(3_000)},
        {"k" * 1_000_000: "x"},
    ],
    ids=["wide", "square", "long", "key"],
)
def test_near_does_bounded_work_on_a_hostile_document(document: Any) -> None:
    found = path.near(document, path.parse("e" * 500))
    assert len(found) <= 3


def test_near_looks_no_deeper_than_a_path_may_be() -> None:
    document: Json = {"x": "here"}
    for _ in range(100):
        document = {"a": document}
    assert path.near(document, path.parse("email")) == []
