"""Addresses: what counts as one, and which two of them are one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import given
from hypothesis import strategies as st

from app.audience import addresses
from app.audience.addresses import BadAddress, Email
from tests.examples import examples

COUNTRIES = [None, "US", "DE", "AQ", "zz", ""]


@pytest.mark.parametrize(
    ("text", "address", "key"),
    [
        ("olivia@acme.example", "olivia@acme.example", "olivia@acme.example"),
        ("Olivia.O@Acme.EXAMPLE", "Olivia.O@acme.example", "olivia.o@acme.example"),
        ("a+tag@b.test", "a+tag@b.test", "a+tag@b.test"),
        ("a@host.localhost", "a@host.localhost", "a@host.localhost"),
        ("a@nowhere.invalid", "a@nowhere.invalid", "a@nowhere.invalid"),
        (" a@b.test ", "a@b.test", "a@b.test"),
        ("É@b.test", "É@b.test", "é@b.test"),
        ("e\u0301@b.test", "é@b.test", "é@b.test"),
        ("a@MÜNCHEN.example", "a@münchen.example", "a@münchen.example"),
        ("a@xn--mnchen-3ya.example", "a@münchen.example", "a@münchen.example"),
        ("postmaster@B.test", "postmaster@b.test", "postmaster@b.test"),
    ],
)
def test_an_email_has_one_clean_form_and_one_key(text: str, address: str, key: str) -> None:
    assert addresses.email(text) == Email(address, key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a",
        "a@",
        "@b.test",
        "a@b",
        "a@localhost",
        "a@@b.test",
        "a b@c.test",
        "a@b.test.",
        ".a@b.test",
        "a..b@c.test",
        "a@-b.test",
        "a@[127.0.0.1]",
        "a@127.0.0.1",
        '"a b"@c.test',
        "A <a@b.test>",
        "<script>@b.test",
        "a@b.test, c@d.test",
        "a@b.test\r\nBcc: c@d.test",
        "a\r\n@b.test",
        "\na@b.test",
        "a@b.test\n",
        "a@b.test\0",
        "a\0@b.test",
        "a\u202e@b.test",
        "a\u200b@b.test",
        "\ud800@b.test",
        "a@\ud800.test",
        "a@xn--a.test",
        "a" * 65 + "@b.test",
        "a@" + "b." * 126 + "test",
        "a" * 1_000_000 + "@b.test",
    ],
)
def test_what_is_no_email_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadAddress, match=r"^[A-Z].+\.$"):
        addresses.email(text)


def test_the_longest_email_has_254_characters() -> None:
    domain = ".".join(["d" * 63, "e" * 63, "f" * 56, "test"])
    longest = "a" * 64 + "@" + domain
    assert len(longest) == 254
    assert addresses.email(longest).address == longest
    with pytest.raises(BadAddress):
        addresses.email(longest + "t")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("paypal@b.test", "p\u0430ypal@b.test"),  # Cyrillic a
        ("a@b.test", "\uff41@b.test"),  # full-width a
        ("fi@b.test", "\ufb01@b.test"),  # the ligature
        ("strasse@b.test", "straße@b.test"),
        ("s@b.test", "\u017f@b.test"),  # long s
        ("a@b.test", "a+x@b.test"),
        ("ab@gmail.com", "a.b@gmail.com"),
    ],
)
def test_addresses_that_only_look_alike_stay_two(one: str, other: str) -> None:
    assert addresses.email(one).key != addresses.email(other).key


@given(st.text(max_size=60) | st.from_regex(r"[^@]{1,9}@[^@]{1,9}\.[^@]{2,5}"))
def test_any_text_is_an_email_or_is_refused(text: str) -> None:
    try:
        email = addresses.email(text)
    except BadAddress:
        return
    assert len(email.address) <= 254
    assert email.key == email.key.lower()
    assert email.address.isprintable()
    assert addresses.email(email.address) == email


@pytest.mark.parametrize(
    ("text", "country", "number"),
    [
        ("+15550001234", None, "+15550001234"),
        ("+1 (555) 000-1234", None, "+15550001234"),
        ("  +1 555 000 1234 ", "DE", "+15550001234"),
        ("(555) 000-1234", "US", "+15550001234"),
        ("011 49 30 123456", "US", "+4930123456"),
        ("030 123456", "DE", "+4930123456"),
        ("0049 30 123456", "DE", "+4930123456"),
        ("+１５５５０００１２３４", None, "+15550001234"),
        ("٠٣٠١٢٣٤٥٦", "DE", "+4930123456"),
        ("+39 02 36618 300", None, "+390236618300"),
    ],
)
def test_a_phone_number_in_every_spelling_is_one(
    text: str, country: str | None, number: str
) -> None:
    assert addresses.phone(text, country) == number


@pytest.mark.parametrize(
    ("text", "country"), [("253-0000", "US"), ("+1 253 0000", None), ("+44 1234", "GB")]
)
def test_a_number_without_its_area_code_is_nobody_s(text: str, country: str | None) -> None:
    """As many people have it as there are areas: one contact would be all of them."""
    with pytest.raises(BadAddress, match="area code"):
        addresses.phone(text, country)


@pytest.mark.parametrize("text", ["+81 1234567890123456", "+62 12345678901234567"])
def test_a_number_has_fifteen_digits_at_most(text: str) -> None:
    with pytest.raises(BadAddress, match="too long"):
        addresses.phone(text, None)


@pytest.mark.parametrize("text", ["(555) 000-1234", "0015550001234", "030 123456"])
def test_a_national_number_without_a_country_says_how_to_write_it(text: str) -> None:
    with pytest.raises(BadAddress, match=r"write it as \+"):
        addresses.phone(text, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\0",
        "+",
        "phone",
        "+1 555",
        "+" + "1" * 40,
        "1" * 1_000_000,
        "+999 123 456 789",
        "+49 30 123456 ext. 7",
        "+1 555 000 1234\r\nBcc: a@b.test",
        "tel:;phone-context=",
        "\ud800",
    ],
)
@pytest.mark.parametrize("country", COUNTRIES)
def test_what_is_no_phone_number_is_refused_with_a_sentence(text: str, country: str | None) -> None:
    with pytest.raises(BadAddress, match=r"^[A-Z].+\.$"):
        addresses.phone(text, country)


@given(
    st.text(max_size=30) | st.from_regex(r"[+＋]?[0-9٠-٩０-９ ()./x;~-]{1,25}"),
    st.sampled_from(COUNTRIES),
)
def test_any_text_is_a_phone_number_or_is_refused(text: str, country: str | None) -> None:
    try:
        number = addresses.phone(text, country)
    except BadAddress:
        return
    assert number.startswith("+")
    assert number[1:].isdecimal()
    assert number.isascii()
    assert len(number) <= 1 + 15
    assert addresses.phone(number, None) == number


def test_importing_addresses_does_not_pay_for_a_name_server_client() -> None:
    check = "import sys, app.audience.addresses; sys.exit('dns' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


LABEL = st.from_regex(r"[A-Za-z0-9-]{1,5}", fullmatch=True)
LOCAL = st.from_regex(r"[A-Za-z0-9._+-]{1,66}", fullmatch=True)
LONG = st.integers(60, 66).map(lambda length: "x" * length)


@examples(300)
@given(
    LOCAL | LONG,
    st.lists(LABEL | LONG, min_size=1, max_size=4),
    st.sampled_from(["com", "Co", "c", "c0m", "1"]),
)
def test_the_short_way_says_what_the_library_says(local: str, labels: list[str], last: str) -> None:
    text = f"{local}@{'.'.join([*labels, last])}"
    try:
        wanted = validate_email(text, strict=True, check_deliverability=False).normalized
    except EmailNotValidError:
        wanted = None
    try:
        found = addresses.email(text).address
    except addresses.BadAddress:
        found = None
    assert found == wanted
