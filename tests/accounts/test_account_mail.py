"""Names in letters: words, and nothing that a reader's program makes a link of."""

from __future__ import annotations

import pytest

from app.accounts import account_mail


@pytest.mark.parametrize(
    "name",
    [
        "https://evil.test/win",
        "HTTP://EVIL",
        "Visit www.evil",
        "evil.com",
        "You won! See evil.zip now",
        "bank\uff0ecom",
        "bank\u3002com",
        "bank\u200b.com",
        "ba\u200bnk.c\u2060om",
        "b\u00fccher.example",
        "10.1.2.3",
        "mail eve@evil",
        "javascript://x",
        "\uff57\uff57\uff57.evil",
        "\uff48\uff54\uff54\uff50\uff1a//x",
        "xn--bcher-kva.example",
    ],
)
def test_a_name_that_reads_as_an_address_stays_out(name: str) -> None:
    assert account_mail.called(name, "A member") == "A member"
    assert account_mail.greeting(name) == "Hello,"


@pytest.mark.parametrize(
    "name", ["Ada", "Acme Inc.", "FC St. Pauli e.V.", "Dr. O'Neil-Lovelace", "Acme 2.0", "7.5 GmbH"]
)
def test_a_name_that_is_one_is_said(name: str) -> None:
    assert account_mail.called(name, "A member") == name
    assert account_mail.greeting(name) == f"Hello {name},"


def test_a_long_name_is_cut() -> None:
    assert account_mail.called("a" * 60, "") == "a" * 60
    assert account_mail.called("a" * 200, "") == "a" * 59 + "…"
