"""A contact is recognised in what came in, however it is written there; nobody else is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.audience.pii_search import Identifiers
from app.store.contacts import Addresses, Contact


def contact(id: str, email: str | None, phone: str | None) -> Contact:
    at = datetime.now(UTC)
    return Contact(email, email, phone, id, None, None, None, None, {}, {}, {}, 1, at, at)


ADA = Identifiers.of(contact("con_1Ab", "ada@example.com", "+491712345678"))


@pytest.mark.parametrize(
    "raw",
    [
        b'{"email": "Ada@EXAMPLE.com"}',
        b'{"email": "ada\\u0040example.com"}',
        b'{"email": "ada@example.com", "cut": "sho',
        b'{"phone": "+49 (171) 234-5678"}',
        b'{"phone": "0171 2345678"}',
        b'{"contact_id": "con_1ab"}',
        b"\xff not JSON, but ada@example.com",
    ],
)
def test_whoever_is_named_is_found(raw: bytes) -> None:
    assert ADA.are_in(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b'{"email": "bob@example.com", "phone": "+491712345679"}', b'"\\ud800"']
)
def test_nobody_else_is(raw: bytes) -> None:
    assert not ADA.are_in(raw)


def test_whoever_is_named_by_a_former_address_is_found() -> None:
    moved = Identifiers.of(
        contact("con_1", "new@example.com", None),
        [
            Addresses("ada@example.com", "ada@example.com", None),
            Addresses(None, None, "+491712345678"),
        ],
    )
    for raw in (b'{"to": "new@example.com"}', b'{"to": "Ada@example.com"}', b"0171 / 234 56 78"):
        assert moved.are_in(raw)
    assert not moved.are_in(b'{"to": "bob@example.com"}')


@pytest.mark.parametrize(
    "raw",
    [
        '{"email": "Ärger@Beispiel.example"}',
        '{"email": "\\u00c4RGER@beispiel.example"}',
        "ÄRGER@BEISPIEL.EXAMPLE",
    ],
)
def test_capital_letters_of_every_alphabet_are_the_same_as_small_ones(raw: str) -> None:
    named = Identifiers.of(contact("con_1", "ärger@beispiel.example", None))
    assert named.are_in(raw.encode())


def test_a_contact_without_addresses_is_named_by_its_id_alone() -> None:
    nobody = Identifiers.of(contact("con_1", None, None))
    assert nobody.are_in(b'{"contact": "con_1"}')
    assert not nobody.are_in(b'{"email": "", "phone": "+"}')
