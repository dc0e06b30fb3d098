"""Reading a definition field by field."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.machine.fields import (
    Field,
    Place,
    choice,
    lasting,
    line,
    liquid,
    parse_duration,
    quote,
    read_object,
)
from app.machine.program import Finding


def place() -> Place:
    return Place("/steps/0", [])


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("PT1H", timedelta(hours=1)),
        ("P3D", timedelta(days=3)),
        ("P1DT2H", timedelta(days=1, hours=2)),
        ("P2W", timedelta(days=14)),
        ("P1W2DT3H4M5S", timedelta(days=9, hours=3, minutes=4, seconds=5)),
        ("PT1.5H", timedelta(minutes=90)),
        ("PT0,25S", timedelta(milliseconds=250)),
        ("PT0.1S", timedelta(milliseconds=100)),
        ("PT90M", timedelta(minutes=90)),
        ("P0D", timedelta(0)),
        ("P99999999W", timedelta(weeks=99_999_999)),
    ],
)
def test_a_duration_has_its_length(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "1H",
        "P1M",
        "P1Y",
        "PT1D",
        "P1H",
        "PT1M1H",
        "PT1.5H1M",
        "PT.5S",
        "PT1.S",
        "-PT1H",
        "PT-1H",
        "+P1D",
        "pt1h",
        " PT1H",
        "PT1H\n",
        "PT１H",
        "P999999999W",
        "1 hour",
    ],
)
def test_other_text_is_not_a_duration(text: str) -> None:
    assert parse_duration(text) is None


def test_a_duration_over_the_longest_stops_an_activation() -> None:
    at = place()
    assert lasting(timedelta(days=366))("P367D", at) is None
    assert at.findings == [Finding("bad_duration", "/steps/0", "This may be at most 366 days.")]


def test_a_pointer_escapes_what_rfc_6901_reserves() -> None:
    assert place().at("a/b~c", 3).pointer == "/steps/0/a~1b~0c/3"


def test_half_a_surrogate_pair_can_still_be_answered() -> None:
    at = place().at("\ud800")
    at.refuse("x", quote("\udfff"))
    assert (at.pointer + at.findings[0].message).encode()


def test_a_quotation_is_short() -> None:
    assert quote("x" * 1_000) == f"“{'x' * 59}…”"


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_box_counts_as_absent(empty: str | None) -> None:
    at = place()
    fields = {"tag": Field(line, "Say which tag."), "note": Field(line)}
    assert read_object({"tag": empty, "note": empty}, fields, at) == {}
    assert at.findings == [Finding("missing", "/steps/0/tag", "Say which tag.")]


def test_an_unknown_field_is_refused_by_name() -> None:
    at = place()
    read_object({"tga": 1}, {"tag": Field(line)}, at)
    message = "There is no field “tga”; known fields are tag."
    assert at.findings == [Finding("unknown_field", "/steps/0/tga", message, draft=True)]


@pytest.mark.parametrize("raw", [None, [], "text", 5, True])
def test_only_an_object_has_fields(raw: Any) -> None:
    at = place()
    assert read_object(raw, {"tag": Field(line)}, at) == {}
    assert [finding.code for finding in at.findings] == ["wrong_type"]


@pytest.mark.parametrize("raw", [5, [], "two\nlines", "\0", "\ud800", "x" * 201])
def test_a_line_is_short_printable_text(raw: Any) -> None:
    at = place()
    assert line(raw, at) is None
    assert [finding.draft for finding in at.findings] == [True]


@pytest.mark.parametrize("raw", ["pigeon", 5, ["email"], {"email": 1}])
def test_a_choice_is_one_of_its_options(raw: Any) -> None:
    at = place()
    assert choice("email", "sms")(raw, at) is None
    assert at.findings[0].message == "This must be one of email, sms."


def test_liquid_that_does_not_parse_is_refused_with_line_and_column() -> None:
    at = place()
    assert liquid("one\n{{ contact.email", at) is None
    (finding,) = at.findings
    assert (finding.code, finding.draft) == ("bad_template", True)
    assert "line 2" in finding.message


def test_two_texts_are_equal_when_their_sources_are() -> None:
    at = place()
    assert liquid("a {{ now }}", at) == liquid("a {{ now }}", at)
    assert liquid("a {{ now }}", at) != liquid("b {{ now }}", at)


def test_an_object_where_text_is_due_is_refused() -> None:
    at = place()
    assert liquid({}, at) is None
    assert [(finding.code, finding.draft) for finding in at.findings] == [("wrong_type", True)]
