"""Samples of a sender's bodies: every path once, in the grammar that a trigger takes."""

from __future__ import annotations

import json
from pathlib import Path as File
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import document, path, sample
from tests.examples import examples

PAYLOADS = File(__file__).parents[1] / "payloads"


def places(*bodies: Any) -> dict[str, sample.Place]:
    parsed = [document.parse(json.dumps(body).encode()) for body in bodies]
    return {place.path: place for place in sample.read(parsed).places()}


def test_a_path_says_what_is_there_and_how_often() -> None:
    found = places(
        {"customer": {"email": "new@example.com", "age": None}, "paid": True},
        {"customer": {"email": "old@example.com", "age": 5}},
        {"customer": {"email": "", "age": "five"}},
        {"other": 1},
    )
    assert list(found) == ["paid", "customer.email", "customer.age", "other"]
    email = found["customer.email"]
    assert (email.types, email.presence, email.example) == (["string"], 0.75, "new@example.com")
    age = found["customer.age"]
    assert (age.types, age.presence, age.example) == (["null", "number", "string"], 0.75, 5)
    assert (found["paid"].types, found["paid"].presence) == (["boolean"], 0.25)


def test_the_items_of_an_array_are_shown_as_one() -> None:
    items = [{"sku": "A", "price": 1.5}, {"sku": "B", "price": None, "gift": True}]
    found = places({"items": items, "tags": ["a", "b"]}, {"items": items[:1], "tags": []})
    assert list(found) == ["tags[0]", "items[0].sku", "items[0].price", "items[1].gift", "tags"]
    assert found["items[0].sku"].presence == 1
    assert found["items[0].price"].types == ["null", "number"]
    assert (found["tags[0]"].presence, found["tags"].types) == (0.5, ["array"])


def test_the_fields_of_a_form_are_shown_each() -> None:
    def form(*answers: Any) -> Any:
        labels = ("Name", "Email", "Seats")
        fields = [{"label": f, "value": a} for f, a in zip(labels, answers, strict=True)]
        return {"fields": fields}

    found = places(form("Ada", "ada@example.com", 2), form("Bo", "bo@example.com", 1))
    assert [name for name in found if name.endswith("value")] == [
        f"fields[{n}].value" for n in range(3)
    ]
    assert found["fields[1].value"].example == "ada@example.com"


def test_keys_that_need_it_are_quoted() -> None:
    found = places({"a.b": {"c d": 1}, "": 2, 'q"': 3, "$id": 4, "ü": 5})
    assert list(found) == ['[""]', 'q"', "$id", "ü", '["a.b"]["c d"]']


def test_an_example_keeps_its_literal_and_is_cut_when_it_is_long() -> None:
    body = b'{"price": 1.10, "id": 123456789012345678901, "text": "%s", "n": %s}'
    parsed = document.parse(body % (b"x" * 1_000, b"7" * 1_000))
    found = {place.path: place.example for place in sample.read([parsed]).places()}
    assert document.dumps(found["price"]) == b"1.10"
    assert document.dumps(found["id"]) == b"123456789012345678901"
    assert found["text"] == "x" * 199 + "…"
    assert found["n"] == "7" * 199 + "…"


def test_what_is_common_is_told_for_every_item() -> None:
    bodies = [{"a": [{"b": n}, {"b": n}]} for n in range(10)] + [{"a": [{"b": 0}]}]
    common = {str(path): len(values) for path, values in sample.read(bodies).common(0.9)}
    assert common == {"a[0].b": 11, "a[1].b": 10}


def test_of_nothing_there_is_nothing_to_tell() -> None:
    assert sample.read([]).places() == []
    assert sample.read([{}]).places() == []
    assert list(sample.read([]).common(0.9)) == []


@pytest.mark.parametrize("name", sorted(file.stem for file in PAYLOADS.glob("*.json")))
def test_every_path_of_a_real_body_leads_to_its_example(name: str) -> None:
    body = document.parse((PAYLOADS / f"{name}.json").read_bytes())
    found = sample.read([body]).places()
    assert found
    for place in found:
        value = path.parse(place.path).find(body)
        assert document.text(value)[:190] == document.text(place.example)[:190]


@pytest.mark.timeout(10)  # what is quadratic takes more
@pytest.mark.parametrize(
    "body",
    [
        {f"key{n}": n for n in range(100_000)},
        {"a": [["a"] * 1_000] * 1_000},
        {f"{n}" + "k" * 300: {"e" * 200: {"e" * 200: 1}} for n in range(2_000)},
        {"k" * 1_000_000: "x"},
    ],
    ids=["wide", "square", "long", "key"],
)
def test_a_hostile_body_costs_no_more_than_a_small_one(body: Any) -> None:
    assert len(sample.read([body] * 50).places()) <= sample.PATHS


def test_nothing_is_told_deeper_than_a_path_may_lead() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = {"a": deep}
    assert sample.read([deep]).places() == []


KEYS = st.text(st.characters(codec=None, categories=None), max_size=6)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5))
JSON = st.recursive(
    SCALARS,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(KEYS, one, max_size=3),
    max_leaves=8,
)


@examples(200)
@given(st.lists(st.dictionaries(KEYS, JSON, max_size=3), min_size=1, max_size=3))
def test_every_path_told_is_one_that_a_trigger_takes_and_leads_somewhere(bodies: list[Any]) -> None:
    for place in sample.read(bodies).places():
        found = path.parse(place.path)
        there = [found.find(body) is not path.MISSING for body in bodies]
        assert round(sum(there) / len(bodies), 3) >= place.presence > 0
