"""Bodies and queries: what is taken, and what is said about the rest."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from time import thread_time
from typing import Annotated, Any, Literal

import orjson
import pytest
from pydantic import Field
from starlette.datastructures import Headers

from app.errors import Problem
from app.machine import document
from app.web import body
from app.web.body import DIGITS, Moment, Name, Query, Shape, Writable

JSON = Headers({"content-type": "application/json"})


class Email(Shape):
    kind: Literal["email"]
    to_address: str


class Wait(Shape):
    kind: Literal["wait"]
    hours: int = Field(ge=1, le=10)


class Thing(Writable):
    name: Annotated[str, Field(min_length=1, max_length=5)]
    first_step: Annotated[Email | Wait, Field(discriminator="kind")] | None = None
    steps: list[Email] = Field(default_factory=list, max_length=2)
    ratio: float = 1.0
    done: bool = False
    labels: dict[str, str] = Field(default_factory=dict)
    free: Any = None
    at: Moment | None = None
    title: Name | None = None


class Search(Query):
    first_name: str | None = None
    limit: Annotated[int, Field(ge=1, le=9), DIGITS] = 5
    since: Moment | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    state: Literal["ACTIVE", "PAUSED"] | None = None


def read(value: object) -> Thing:
    return body.read(Thing, JSON, orjson.dumps(value))


def refused(value: object) -> list[tuple[str, str]]:
    with pytest.raises(Problem) as caught:
        read(value)
    assert caught.value.code == "invalid"
    return [(error.pointer, error.message) for error in caught.value.errors]


# --- bodies ---------------------------------------------------------------------------------------


def test_a_body_becomes_its_model() -> None:
    thing = read({"name": "a", "firstStep": {"kind": "wait", "hours": 2}, "ratio": 2, "done": True})
    assert thing == Thing.model_validate(
        {"name": "a", "firstStep": Wait(kind="wait", hours=2), "ratio": 2.0, "done": True}
    )


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        ({}, [("/name", "This field is required.")]),
        ({"name": "a", "id": "x"}, [("/id", "This field is unknown or read-only.")]),
        (
            {"name": "a", "first_step": None},
            [("/first_step", "This field is unknown or read-only. Did you mean firstStep?")],
        ),
        ({"name": 1}, [("/name", "Must be a string.")]),
        ({"name": None}, [("/name", "Must be a string.")]),
        ({"name": ""}, [("/name", "Must not be empty.")]),
        ({"name": "abcdef"}, [("/name", "Must have at most 5 characters.")]),
        ({"name": "a", "done": "true"}, [("/done", "Must be true or false.")]),
        ({"name": "a", "done": 1}, [("/done", "Must be true or false.")]),
        ({"name": "a", "ratio": "1"}, [("/ratio", "Must be a number.")]),
        ({"name": "a", "labels": []}, [("/labels", "Must be an object.")]),
        ({"name": "a", "labels": {"a/b~c": 1}}, [("/labels/a~1b~0c", "Must be a string.")]),
        ({"name": "a", "steps": {}}, [("/steps", "Must be an array.")]),
        ({"name": "a", "steps": [1]}, [("/steps/0", "Must be an object.")]),
        (
            {"name": "a", "steps": [{"kind": "email"}]},
            [("/steps/0/toAddress", "This field is required.")],
        ),
        (
            {"name": "a", "steps": [{"kind": "email", "toAddress": "x"}] * 3},
            [("/steps", "Must have at most 2 items.")],
        ),
        (
            {"name": "a", "firstStep": {"kind": "wait", "hours": 11}},
            [("/firstStep/hours", "Must be 10 or less.")],
        ),
        (
            {"name": "a", "firstStep": {"kind": "wait", "hours": 0}},
            [("/firstStep/hours", "Must be 1 or more.")],
        ),
        (
            {"name": "a", "firstStep": {"kind": "wait", "hours": 1.5}},
            [("/firstStep/hours", "Must be a whole number.")],
        ),
        (
            {"name": "a", "firstStep": {"kind": "wait"}},
            [("/firstStep/hours", "This field is required.")],
        ),
        (
            {"name": "a", "firstStep": {"kind": "walk"}},
            [("/firstStep", "Must have one of 'email', 'wait' in 'kind'.")],
        ),
        ({"name": "a", "firstStep": {}}, [("/firstStep", "Must say which kind it is in 'kind'.")]),
        (
            {"name": "a", "steps": [{"kind": "sms", "toAddress": "x"}]},
            [("/steps/0/kind", "Must be 'email'.")],
        ),
        ({"name": "a", "at": 5}, [("/at", body._MOMENT)]),
        (
            {"name": "a", "title": "two\nlines"},
            [("/title", "Must be one line of text, without control characters.")],
        ),
        (
            {"name": "a", "free": {"deep": ["\0"]}},
            [("/free/deep/0", "Must not contain a NUL character or half of a surrogate pair.")],
        ),
        (
            {"name": "a", "free": {"\0": 1}},
            [("/free", "Must not contain a NUL character or half of a surrogate pair.")],
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_is(value: dict[str, Any], errors: list[Any]) -> None:
    assert refused(value) == errors


@pytest.mark.alone
def test_what_cannot_be_kept_is_found_as_fast_however_deep_it_stands() -> None:
    """Or a body of 120 KB, which anybody may send, would take a fifth of a second."""
    deep: Any = ["a"] * 25_000 + ["\0"] * 200
    for _ in range(110):
        deep = [deep]
    began = thread_time()
    errors = refused({"name": "a", "free": {"deep": deep}})
    assert thread_time() - began < 0.1
    within = "/free/deep" + "/0" * 110
    assert [pointer for pointer, _ in errors] == [f"{within}/{25_000 + n}" for n in range(100)]


@pytest.mark.alone
def test_of_a_part_that_is_judged_by_itself_the_first_errors_are_said() -> None:
    """Five hundred parts of a body with sixty unknown names each took a second of a process."""
    began = thread_time()
    for place in range(500):
        with pytest.raises(Problem) as refusal:
            body.part(Thing, {"nane": 1, **dict.fromkeys(map(str, range(59)), 1)}, "all", place)
        errors = [(error.pointer, error.message) for error in refusal.value.errors]
        assert len(errors) == body.PART_ERRORS
        assert errors[0] == (f"/all/{place}/name", "This field is required.")
        known = "This field is unknown or read-only. Did you mean name?"
        assert errors[1] == (f"/all/{place}/nane", known)
    assert thread_time() - began < 0.5


def test_everything_wrong_is_said_at_once() -> None:
    value = {"name": 1, "steps": [{"kind": "email"}, {"toAddress": "x"}], "colour": "red"}
    assert {pointer for pointer, _ in refused(value)} == {
        "/name",
        "/steps/0/toAddress",
        "/steps/1/kind",
        "/colour",
    }


def test_the_detail_says_what_to_do() -> None:
    with pytest.raises(Problem) as caught:
        read({})
    assert caught.value.detail == "Correct the body: /name: This field is required."
    with pytest.raises(Problem) as caught:
        read({"colour": "red"})
    assert caught.value.detail == "Correct the body in 2 places; errors names them."


@pytest.mark.parametrize(
    "value",
    [[1.1] * 40_000, ["x"] * 40_000, [[[[]]]] * 10_000, {f"k{n}": n for n in range(40_000)}],
)
def test_a_body_of_more_values_than_are_read_is_refused_unread(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document, "parse", lambda _body: pytest.fail("it is parsed"))
    assert refused({"name": "a", "free": value}) == [("", "Hold at most 30,000 values.")]


def test_what_stands_in_texts_is_no_value() -> None:
    text = '[{"a": 1, \\"b": 2}],' * 20_000
    assert read({"name": "a", "free": text}).free == text


@pytest.mark.parametrize("place", [(), ("inner",), ("inner", "inmost")])
def test_unknown_names_are_refused_before_an_error_is_made_of_each(
    place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    value: dict[str, object] = {f"k{n}": n for n in range(5_000)}
    for name in reversed(place):
        value = {name: value}
    monkeypatch.setattr(Outer, "model_validate", lambda _value: pytest.fail("it is validated"))
    with pytest.raises(Problem) as refused:
        body.read(Outer, JSON, orjson.dumps(value))
    pointers = [error.pointer for error in refused.value.errors]
    assert len(pointers) == body.ERRORS
    assert pointers[0] == document.pointer(*place, "k0")


def test_an_answer_does_not_outgrow_its_question() -> None:
    assert len(refused({str(number): 1 for number in range(1_000)})) == body.ERRORS


@pytest.mark.parametrize("literal", ["1.10", "-0", "1E2", "123456789012345678901"])
def test_free_values_keep_their_literals(literal: str) -> None:
    thing = body.read(Thing, JSON, f'{{"name":"a","free":[{literal}]}}'.encode())
    assert document.dumps(thing.free) == f"[{literal}]".encode()


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "malformed_json"),
        (b"{", "malformed_json"),
        (b'{"name":NaN}', "malformed_json"),
        (b"\xff", "malformed_json"),
        (b"[" * 129 + b"]" * 129, "malformed_json"),
        (b"[]", "invalid"),
        (b"null", "invalid"),
        (b'"x"', "invalid"),
        (rb'{"name":"\ud800"}', "invalid"),
        (rb'{"\udfff":1}', "invalid"),
    ],
)
def test_what_is_no_json_object_is_refused(raw: bytes, code: str) -> None:
    with pytest.raises(Problem) as caught:
        body.read(Thing, JSON, raw)
    assert caught.value.code == code
    if raw in (b"[]", b"null", b'"x"'):
        assert [error.pointer for error in caught.value.errors] == [""]


def test_an_empty_body_is_said_to_be_empty() -> None:
    for headers in (JSON, Headers({})):
        with pytest.raises(Problem, match=r"The body is empty; send a JSON object\."):
            body.read(Thing, headers, b"")


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "APPLICATION/JSON",
        "application/json ",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json;x=y",
    ],
)
def test_json_is_json_however_it_is_spelled(value: str) -> None:
    body.require_media_type(Headers({"content-type": value}))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [("content-type", "")],
        [("content-type", "text/json")],
        [("content-type", "text/plain")],
        [("content-type", "application/jsonx")],
        [("content-type", "xapplication/json")],
        [("content-type", "application/problem+json")],
        [("content-type", "application/merge-patch+json")],
        [("content-type", "application/json, text/plain")],
        [("content-type", "application/json; charset=utf-16")],
        [("content-type", "application/json; Charset=latin-1")],
        [("content-type", "application/json"), ("content-type", "application/json")],
        [("content-type", "application/json"), ("content-encoding", "gzip")],
        [("content-type", "application/json"), ("content-encoding", "identity")],
    ],
)
def test_anything_else_is_unsupported(lines: list[Any]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in lines]
    with pytest.raises(Problem) as caught:
        body.read(Thing, Headers(raw=raw), b'{"name":"a"}')
    assert caught.value.code == "unsupported_media_type"


# --- merge patches --------------------------------------------------------------------------------


STORED = {"name": "a", "labels": {"x": "1", "y": "2"}, "done": True}


def patch(changes: object, headers: Headers = JSON) -> Thing:
    return body.patch(Thing, STORED, headers, orjson.dumps(changes))


def test_a_patch_changes_what_it_names() -> None:
    thing = patch({"labels": {"x": None, "z": "3"}})
    assert (thing.name, thing.labels, thing.done) == ("a", {"y": "2", "z": "3"}, True)


def test_null_clears_what_may_be_empty_and_nothing_else() -> None:
    cleared = patch({"labels": None, "at": None, "firstStep": None})
    assert (cleared.labels, cleared.at, cleared.first_step) == ({}, None, None)
    with pytest.raises(Problem) as caught:
        patch({"name": None, "ratio": None, "done": None})
    assert [error.pointer for error in caught.value.errors] == ["/name", "/ratio", "/done"]


def test_an_unknown_field_is_refused_even_to_clear_it() -> None:
    with pytest.raises(Problem) as caught:
        patch({"id": None, "createdAt": "now", "done": False})
    assert [error.pointer for error in caught.value.errors] == ["/createdAt", "/id"]


@pytest.mark.parametrize(
    ("changes", "pointers"),
    [
        ({"inner": None}, ["/inner"]),
        ({"inner": {"label": None}}, []),
        ({"inner": {"count": None}}, ["/inner/count"]),
        ({"inner": {"unknown": None}}, ["/inner/unknown"]),
        ({"inner": {"inmost": {"unknown": None}}}, ["/inner/inmost/unknown"]),
        ({"perhaps": {"unknown": None}}, ["/perhaps/unknown"]),
        ({"free": {"unknown": None}}, []),
    ],
)  # fmt: skip
def test_within_a_field_too_a_null_clears_only_what_is_known_and_may_be_empty(
    changes: Any, pointers: list[str]
) -> None:
    stored = {"inner": {"label": "x", "count": 3}}
    with pytest.raises(Problem) if pointers else nullcontext() as caught:
        body.patch(Outer, stored, JSON, orjson.dumps(changes))
    assert [error.pointer for error in caught.value.errors] == pointers if caught else not pointers


class Inmost(Shape):
    sure: bool = True


class Inner(Shape):
    label: str | None = None
    count: int = 1
    inmost: Inmost = Inmost()


class Outer(Writable):
    inner: Inner = Inner()
    perhaps: Inner | None = None
    free: Any = None


def test_a_patch_may_come_under_its_own_media_type() -> None:
    merging = Headers({"content-type": "application/merge-patch+json"})
    assert patch({"name": "b"}, merging).name == "b"


@pytest.mark.parametrize(
    "changes",
    [{}, {"name": "a"}, {"done": True, "labels": {}}, {"labels": {"y": "2", "x": "1", "z": None}}],
    ids=str,
)
def test_a_patch_after_which_nothing_is_different_is_no_change(changes: dict[str, Any]) -> None:
    with pytest.raises(body.Unchanged):
        patch(changes)


@pytest.mark.parametrize(
    ("stored", "changes", "is_same"),
    [
        ({"sender": {"label": None, "note": None}}, {"sender": None}, True),
        ({"sender": {"label": None, "note": None}}, {"sender": {}}, True),
        ({"sender": {"label": None, "note": None}}, {"sender": {"note": None}}, True),
        ({"sender": {"label": "x", "note": None}}, {"sender": None}, False),
        ({"sender": None}, {"sender": {}}, True),
        ({"sender": None}, {"sender": {"label": "x"}}, False),
        ({"sender": None}, {"sender": {"secret": None}}, False),
        ({"perhaps": None}, {"perhaps": {}}, False),
        ({"name": "Acme"}, {"name": " Acme "}, True),
        ({"free": {"x": 1}}, {"free": {"x": True}}, False),
        ({"free": {"x": None}}, {"free": None}, False),
        ({"free": None}, {"free": {}}, False),
        ({"name": "a\nb"}, {"name": "ab"}, False),
    ],
    ids=str,
)
def test_a_patch_that_says_the_same_in_other_words_is_no_change(
    stored: Any, changes: Any, is_same: bool
) -> None:
    with pytest.raises(body.Unchanged) if is_same else nullcontext():
        body.patch(Said, stored, JSON, orjson.dumps(changes))


class Words(Shape):
    label: str | None = None
    note: str | None = None
    secret: str | None = Field(None, json_schema_extra=body.WRITE_ONLY)


class Said(Writable):
    name: body.Name = "Acme"
    sender: Words | None = None
    perhaps: Inner | None = None
    free: Any = None


@pytest.mark.parametrize(
    "changes", [{"done": 1}, {"nonsense": None}, {"labels": {"x": 1}}], ids=str
)
def test_what_changes_nothing_must_be_right_all_the_same(changes: dict[str, Any]) -> None:
    with pytest.raises(Problem):
        patch({"name": "a", **changes})


class Kept(Writable):
    note: str | None = None
    secret: str | None = Field(None, json_schema_extra=body.WRITE_ONLY)


@pytest.mark.parametrize("secret", [None, "s"])
def test_what_is_never_read_back_may_always_be_another(secret: str | None) -> None:
    changes = orjson.dumps({"note": None, "secret": secret})
    kept = body.patch(Kept, {"note": None}, JSON, changes)
    assert (kept.secret, kept.model_fields_set) == (secret, {"note", "secret"})
    with pytest.raises(body.Unchanged):
        body.patch(Kept, {"note": None}, JSON, orjson.dumps({"note": None}))


# --- queries --------------------------------------------------------------------------------------


def test_a_query_becomes_its_model() -> None:
    search = body.query(
        Search,
        b"firstName=Zo%C3%AB&limit=9&since=2026-01-31T10:00:00%2B01:00&metadata[city]=New+York",
    )
    assert search.first_name == "Zoë"
    assert search.limit == 9
    assert search.since == datetime(2026, 1, 31, 9, tzinfo=UTC)
    assert search.metadata == {"city": "New York"}


@pytest.mark.parametrize("query_string", [b"", b"&", b"&&"])
def test_nothing_asked_is_everything_by_default(query_string: bytes) -> None:
    assert body.query(Search, query_string) == Search()


@pytest.mark.parametrize(
    ("query_string", "errors"),
    [
        (b"colour=red", [("?colour", "This parameter is unknown.")]),
        (
            b"first_name=x",
            [("?first_name", "This parameter is unknown. Did you mean firstName?")],
        ),
        (b"colour[x]=red", [("?colour", "This parameter is unknown.")]),
        (b"limit=10", [("?limit", "Must be 9 or less.")]),
        (b"limit=ten", [("?limit", "Must be a whole number, in plain digits.")]),
        (b"limit=1_0", [("?limit", "Must be a whole number, in plain digits.")]),
        (b"limit=1&limit=2", [("?limit", "Must be given once.")]),
        (b"metadata[a]=1&metadata[a]=2", [("?metadata[a]", "Must be given once.")]),
        (b"metadata=1&metadata[a]=2", [("?metadata[a]", "Must be given once.")]),
        (b"metadata=1", [("?metadata", "Must be an object.")]),
        (b"since=yesterday", [("?since", body._MOMENT)]),
        (b"since=2026-01-31T10:00:00", [("?since", body._MOMENT)]),
        (b"since=2026-02-31T10:00:00Z", [("?since", body._MOMENT)]),
        (b"since=1700000000", [("?since", body._MOMENT)]),
        (b"state=DRAFT", [("?state", "Must be 'ACTIVE' or 'PAUSED'.")]),
        (
            b"firstName=%00",
            [("?firstName", "Must not contain a NUL character or half of a surrogate pair.")],
        ),
        (b"a=1&b=2", [("?a", "This parameter is unknown."), ("?b", "This parameter is unknown.")]),
    ],
)
def test_what_is_wrong_in_a_query_is_said_by_name(query_string: bytes, errors: list[Any]) -> None:
    with pytest.raises(Problem) as caught:
        body.query(Search, query_string)
    assert caught.value.code == "invalid"
    assert [(error.pointer, error.message) for error in caught.value.errors] == errors


@pytest.mark.parametrize("query_string", [b"a=1&" * 200, b"\xff=1"])
def test_a_query_that_cannot_be_taken_apart_is_malformed(query_string: bytes) -> None:
    with pytest.raises(Problem) as caught:
        body.query(Search, query_string)
    assert caught.value.code == "malformed_request"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T10:00:00Z", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31t10:00:00.5z", datetime(2026, 1, 31, 10, 0, 0, 500_000, UTC)),
        ("2026-01-31T10:00:00.123456-02:30", datetime(2026, 1, 31, 12, 30, 0, 123_456, UTC)),
        ("2026-01-31T10:00:00+01:00", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31T10:00:00 01:00", datetime(2026, 1, 31, 9, tzinfo=UTC)),
    ],
)
def test_times_are_rfc_3339(text: str, moment: datetime) -> None:
    assert read({"name": "a", "at": text}).at == moment


@pytest.mark.parametrize(
    ("given", "after", "before"),
    [
        ("2026-01-31T09:30:00.123Z", "09:30:00.123999", "09:30:00.123000"),
        ("2026-01-31T09:30:00.123001Z", "09:30:00.123999", "09:30:00.124000"),
        ("2026-01-31T09:30:00.9999Z", "09:30:00.999999", "09:30:01"),
        ("9999-12-31T23:59:59.9999Z", "23:59:59.999999", "23:59:59.999900"),
    ],
)
def test_later_and_earlier_mean_what_is_shown(given: str, after: str, before: str) -> None:
    class Between(Query):
        after: body.After
        before: body.Before

    read = body.query(Between, f"after={given}&before={given}".encode())
    assert read.after.time().isoformat() == after
    assert read.before.time().isoformat() == before
