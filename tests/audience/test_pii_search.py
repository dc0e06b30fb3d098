"""A contact is recognised in what came in, however it is written there; nobody else is."""

from __future__ import annotations

import pytest

from app.audience.pii_search import Identifiers

ADA = Identifiers.of({"id": "con_1Ab", "email_key": "ada@example.com", "phone": "+491712345678"})


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
def test_whoever_is_named_is_found(raw: bytes):
    assert ADA.are_in(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b'{"email": "bob@example.com", "phone": "+491712345679"}', b'"\\ud800"']
)
def test_nobody_else_is(raw: bytes):
    assert not ADA.are_in(raw)


def test_whoever_is_named_by_a_former_address_is_found():
    moved = Identifiers.of(
        {"id": "con_1", "email_key": "new@example.com", "phone": None},
        [
            {"email_key": "ada@example.com", "phone": None},
            {"email_key": None, "phone": "+491712345678"},
        ],
    )
    for raw in (b'{"to": "new@example.com"}', b'{"to": "Ada@example.com"}', b"0171 / 234 56 78"):
        assert moved.are_in(raw)
    assert not moved.are_in(b'{"to": "bob@example.com"}')


def test_a_contact_without_addresses_is_named_by_its_id_alone():
    nobody = Identifiers.of({"id": "con_1", "email_key": None, "phone": None})
    assert nobody.are_in(b'{"contact": "con_1"}')
    assert not nobody.are_in(b'{"email": "", "phone": "+"}')
