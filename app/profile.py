"""What a contact may hold: values from anybody, checked into a row's columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import addresses, places
from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Json

# The counts and lengths that Stripe's metadata has made the custom.
NAME_LENGTH = 200
METADATA_FIELDS = 50
METADATA_NAME_LENGTH = 40
METADATA_VALUE_LENGTH = 500
TAG_LENGTH = 100
TAGS = 200


@dataclass(frozen=True, slots=True)
class Checked:
    """What can be stored of what was given, and what was wrong with the rest."""

    columns: Mapping[str, Any]
    fields: Mapping[str, str]  # the metadata as text, by which the contact is found
    tags: Sequence[str]
    errors: Sequence[FieldError]

    def raise_errors(self) -> None:
        if self.errors:
            raise invalid(self.errors)


def invalid(errors: Sequence[FieldError]) -> Problem:
    return Problem("invalid", "The contact cannot be stored like this; see errors.", errors=errors)


def check(country: str | None, values: Mapping[str, Json], tags: Sequence[Json]) -> Checked:
    errors: list[FieldError] = []
    email = _address(values.get("email"), "/email", addresses.email, errors)
    phone = _address(
        values.get("phone"), "/phone", lambda text: addresses.phone(text, country), errors
    )
    metadata = _metadata(values.get("metadata") or {}, errors)
    columns = {
        "email": email and email.address,
        "email_key": email and email.key,
        "phone": phone,
        "first_name": _line(values.get("firstName"), "/firstName", errors),
        "last_name": _line(values.get("lastName"), "/lastName", errors),
        "timezone": _timezone(values.get("timezone"), errors),
        "locale": _line(values.get("locale"), "/locale", errors),
        "metadata": metadata,
    }
    if not errors and not (email or phone or metadata):
        errors.append(FieldError("", "Give at least an email, a phone or one metadata field."))
    fields = {name: document.text(value) for name, value in metadata.items()}
    return Checked(columns, fields, check_tags(tags, errors), errors)


def _address(
    value: Json, pointer: str, clean: Callable[[str], Any], errors: list[FieldError]
) -> Any:
    if value is None:
        return None
    try:
        return clean(value)
    except (addresses.BadAddress, TypeError, AttributeError) as error:
        message = str(error) if isinstance(error, addresses.BadAddress) else "Must be a string."
        errors.append(FieldError(pointer, message))
        return None


def _line(value: Json, pointer: str, errors: list[FieldError]) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not _printable(value) or len(value) > NAME_LENGTH:
        message = f"Must be one line of at most {NAME_LENGTH} characters."
        errors.append(FieldError(pointer, message))
        return None
    return value


def _timezone(value: Json, errors: list[FieldError]) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in places.TIMEZONES:
        errors.append(FieldError("/timezone", "Must be an IANA time zone, such as Europe/Berlin."))
        return None
    return value


def _metadata(value: Json, errors: list[FieldError]) -> dict[str, Json]:
    if not isinstance(value, Mapping):
        errors.append(FieldError("/metadata", "Must be an object of names and scalar values."))
        return {}
    if len(value) > METADATA_FIELDS:
        errors.append(FieldError("/metadata", f"At most {METADATA_FIELDS} fields."))
        return {}
    kept = {}
    for name, field in value.items():
        message = _metadata_error(name, field)
        if message is None:
            kept[name] = field
        else:
            errors.append(FieldError("/metadata/" + _pointer_token(name), message))
    return kept


def _metadata_error(name: str, field: Json) -> str | None:
    if not 1 <= len(name) <= METADATA_NAME_LENGTH or not _printable(name):
        return f"A name is 1 to {METADATA_NAME_LENGTH} printable characters."
    if not _scalar(field):
        return (
            f"Must be a string of at most {METADATA_VALUE_LENGTH} characters, a number that fits"
            " a double, true or false."
        )
    return None


def _pointer_token(name: str) -> str:
    """RFC 6901 section 3; what cannot be printed is not echoed."""
    return name.replace("~", "~0").replace("/", "~1") if _printable(name) else "?"


def _scalar(value: Json) -> bool:
    match value:
        case bool():
            return True
        case str():
            return len(value) <= METADATA_VALUE_LENGTH and _storable(value)
        case int():
            return abs(value) <= 2**53
        case float():
            return math.isfinite(value)
        case _:
            return False


def check_tags(tags: Sequence[Json], errors: list[FieldError]) -> list[str]:
    if len(tags) > TAGS:
        errors.append(FieldError("/tags", f"At most {TAGS} tags."))
        return []
    kept = []
    for index, tag in enumerate(tags):
        if isinstance(tag, str) and 1 <= len(tag) <= TAG_LENGTH and _printable(tag):
            kept.append(tag)
        else:
            message = f"A tag is 1 to {TAG_LENGTH} printable characters."
            errors.append(FieldError(f"/tags/{index}", message))
    return kept


def _printable(text: str) -> bool:
    return _storable(text) and all(ord(c) >= 32 and ord(c) != 127 for c in text)


def _storable(text: str) -> bool:
    """PostgreSQL's text holds no NUL, and no half of a surrogate pair."""
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text)
