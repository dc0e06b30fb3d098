"""Did you mean: the paths that a lookup may have meant, and that would find somebody."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Problem
from app.intake import lookup
from app.machine import path
from app.machine.program import Json

EMAIL = {"contactLookup": "email", "contactPath": "customer_email"}


def refusal(trigger: Any, payload: Any) -> str:
    with pytest.raises(Problem) as refused:
        lookup.resolve(trigger, payload, None)
    assert refused.value.code == "lookup_unresolved"
    return refused.value.detail


def test_a_path_that_would_resolve_is_named_before_one_that_reads_alike() -> None:
    payload = {
        "customer_emails": "none",
        "customer_email_opt_in": True,
        "data": {"object": {"buyer": "ada@example.com"}},
    }
    detail = refusal(EMAIL, payload)
    assert detail.endswith("Did you mean data.object.buyer?")


def test_of_those_that_would_resolve_the_nearest_comes_first() -> None:
    payload = {"data": {"owner": "bob@example.com", "object": {"customer_email": "a@b.example"}}}
    detail = refusal(EMAIL, payload)
    assert "data.object.customer_email or data.owner?" in detail


def test_when_nothing_would_resolve_what_reads_alike_is_named() -> None:
    assert "Did you mean customer_mail?" in refusal(EMAIL, {"customer_mail": "?"})


def test_what_is_there_and_cannot_be_looked_up_is_refused_for_its_own_reason() -> None:
    detail = refusal(EMAIL, {"customer_email": 5})
    assert detail == "customer_email cannot be looked up. It must be a string."
    detail = refusal(EMAIL, {"customer_email": "nobody"})
    assert detail.startswith("customer_email cannot be looked up. This is not an email address: ")


def test_an_empty_body_suggests_nothing() -> None:
    assert refusal(EMAIL, {}) == "customer_email leads to nothing in this body."


@pytest.mark.parametrize(
    ("trigger", "payload", "named"),
    [
        ({"contactLookup": "phone"}, {"tel": "+14155550132", "phones": "x"}, "tel"),
        (
            {"contactLookup": "contact_id"},
            {"contact": {"id": 5}, "contact_ids": [1.5]},
            "contact.id",
        ),
        ({"contactLookup": "email"}, {"email": "nobody", "e": {"mail": "a@b.example"}}, "e.mail"),
    ],
)
def test_each_kind_of_lookup_knows_what_would_do(trigger: Any, payload: Any, named: str) -> None:
    assert refusal(trigger, payload).endswith(f"Did you mean {named}?")


def test_only_so_many_are_asked_whether_they_would_do() -> None:
    asked: list[Json] = []

    def would_not(value: Json) -> bool:
        asked.append(value)
        return False

    document = {f"email{n}": n for n in range(1_000)}
    path.near(document, path.parse("email"), fits=would_not)
    assert len(asked) == path.JUDGED


@pytest.mark.parametrize(
    ("trigger", "payload", "needed"),
    [
        ({"contactLookup": "contact_id"}, {"contact_id": 1}, True),
        ({"contactLookup": "contact_id"}, {"contact_id": "1"}, False),
        ({"contactLookup": "email", "dedupePath": "n"}, {"email": "x", "n": 1.5}, True),
        ({"contactLookup": "email", "dedupePath": "n"}, {"email": "x", "n": "1.5"}, False),
    ],
)
def test_numbers_are_read_as_written_where_they_count(
    trigger: Any, payload: Any, needed: bool
) -> None:
    assert bool(lookup.numbers(trigger, payload)) is needed


def test_a_metadata_field_is_looked_up_as_contacts_keep_it() -> None:
    trigger = {"contactLookup": "contact_id", "contactPath": "k", "metadataField": "Gro\u0308ße"}
    found = lookup.resolve(trigger, {"k": "u\u0308"}, None)
    assert (found.field, found.key, found.value) == ("Gr\u00f6ße", "\u00fc", "\u00fc")
