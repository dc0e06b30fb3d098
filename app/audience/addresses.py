"""Email addresses and phone numbers to their clean form, and nothing beyond: `a+b@x.org` stays."""

from __future__ import annotations

import re
from dataclasses import dataclass

import email_validator
import phonenumbers
from email_validator import EmailNotValidError, validate_email
from phonenumbers import (
    NumberParseException,
    PhoneNumberFormat,
    ValidationResult,
    region_code_for_number,
)

# `.test` and its like are syntax like any other (RFC 6761 §6); the list is the library's own knob.
email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()

MAX_EMAIL_LENGTH = 254  # RFC 3696 erratum 1690
MAX_PHONE_LENGTH = 64  # as typed, with its spaces and brackets
MAX_E164_LENGTH = 1 + 15  # ITU-T E.164 §6: the plus, and fifteen digits at most


class BadAddress(ValueError):
    """Error of a text that is no address; the message is a sentence that says what to write."""


@dataclass(frozen=True, slots=True)
class Email:
    address: str  # as written, but NFC and with the domain in lower case and Unicode
    key: str  # two addresses with one key are one


def is_american(phone: str) -> bool:
    """Return whether a number in E.164 is of the United States or Canada."""
    return region_code_for_number(phonenumbers.parse(phone)) in ("US", "CA")


def email(text: str) -> Email:
    """Raises BadAddress. Judged by syntax alone: nothing is looked up."""
    if len(text) > MAX_EMAIL_LENGTH:
        raise BadAddress(f"An email address has at most {MAX_EMAIL_LENGTH} characters.")
    if plain := _PLAIN.fullmatch(text):
        domain = plain["domain"].lower()
        return Email(f"{plain['local']}@{domain}", f"{plain['local'].lower()}@{domain}")
    try:
        address = validate_email(
            text.strip(" "), strict=True, check_deliverability=False
        ).normalized
    except EmailNotValidError as error:
        raise BadAddress(f"This is not an email address: {error}") from error
    # lower, not casefold: that would also merge look-alikes such as ß with ss and ﬁ with fi.
    return Email(address=address, key=address.lower())


# Nearly all addresses look like this, and email-validator, which is right about all the others too,
# takes a quarter of an event's time to say so.
_PLAIN = re.compile(
    r"(?P<local>(?=.{1,64}@)[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*)"
    r"@(?P<domain>(?:(?=[^.]{1,63}\.)[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*\.)+[A-Za-z]{2,63})"
)


def ascii_lower(text: str) -> str:
    return text.encode().lower().decode()  # bytes.lower knows no other letters


def phone(text: str, country: str | None) -> str:
    """E.164, when the number is possible. A national number is read as one of `country`."""
    if len(text) > MAX_PHONE_LENGTH:
        raise BadAddress(f"A phone number has at most {MAX_PHONE_LENGTH} characters.")
    try:
        number = phonenumbers.parse(text, country)
    except NumberParseException as error:
        raise BadAddress(
            "This is not a phone number: write it as +… with the country code and digits."
        ) from error
    if number.extension:
        raise BadAddress(
            "A phone number with an extension cannot receive messages: leave the extension out."
        )
    possible = phonenumbers.is_possible_number_with_reason(number)
    if possible == ValidationResult.IS_POSSIBLE_LOCAL_ONLY:  # of as many people as there are areas
        raise BadAddress("This is not a whole phone number: its area code is missing.")
    written = phonenumbers.format_number(number, PhoneNumberFormat.E164)
    # Some countries' tables go beyond the fifteen digits of E.164, which nobody delivers to.
    if possible != ValidationResult.IS_POSSIBLE or len(written) > MAX_E164_LENGTH:
        raise BadAddress("This is not a possible phone number: it is too short or too long.")
    return written


def phone_start(text: str, country: str | None) -> str | None:
    """The start of the E.164 numbers that a search text fits; None when it is no number."""
    if not _PARTIAL.fullmatch(text):
        return None
    try:
        return phone(text, country)
    except BadAddress:
        digits = "".join(character for character in text if character.isdigit())
        return "+" + digits.removeprefix("00")


_PARTIAL = re.compile(r"\+?[0-9 ()./-]{2,64}")
