"""Profiles of contacts: values from anybody, checked into a row's columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from app.audience import addresses
from app.config import places
from app.errors import FieldError, Problem
from app.machine import document, spelling
from app.machine.contact_values import STATUSES
from app.machine.content import CHANNELS
from app.machine.program import Json
from app.machine.text import composed, is_line, is_storable

WRITABLE = (
    "email",
    "phone",
    "firstName",
    "lastName",
    "timezone",
    "locale",
    "metadata",
    "subscriptions",
)

# The counts and lengths that Stripe's metadata has made the custom.
NAME_LENGTH = 200
METADATA_FIELDS = 50
METADATA_NAME_LENGTH = 40
METADATA_VALUE_LENGTH = 500
TAG_LENGTH = 100
LOCALE_LENGTH = 100
# Subtags as BCP 47 writes them; many systems put an underscore between them, as POSIX does.
LOCALE = re.compile("^([A-Za-z]{2,8}|[xiXI])([-_][A-Za-z0-9]{1,8})*$")
TAGS = 200

Cleaned = TypeVar("Cleaned")

ERRORS = 100  # that are listed: an answer must not outgrow its question


@dataclass(frozen=True, slots=True)
class Checked:
    """The values that can be stored, and the errors of the others."""

    columns: Mapping[str, Any]
    fields: Mapping[str, str]  # the metadata as text, by which the contact is found
    tags: Sequence[str]
    errors: Sequence[FieldError]

    def raise_errors(self) -> None:
        if self.errors:
            raise invalid(self.errors)


def invalid(errors: Sequence[FieldError]) -> Problem:
    detail = "The contact cannot be stored like this; see errors."
    return Problem("invalid", detail, errors=errors[:ERRORS])


def check(country: str | None, values: Mapping[str, Json], tags: Json) -> Checked:
    """Check the values: what would be stored, and every error."""
    checked = part(country, values, tags)
    if checked.errors:
        return checked
    return replace(checked, errors=whole(checked.columns, checked.tags))


def part(country: str | None, values: Mapping[str, Json], tags: Json) -> Checked:
    """The same for values that are to be joined with others: `whole` judges the result."""
    values = normal(values)
    unknown = islice((name for name in values if name not in WRITABLE), ERRORS)
    errors = [
        FieldError(
            _pointer(name),
            f"This field is unknown or read-only.{spelling.hint(name, WRITABLE)}",
        )
        for name in unknown
    ]
    email = _address(values.get("email"), "/email", addresses.email, errors)
    phone = _address(
        values.get("phone"), "/phone", lambda text: addresses.phone(text, country), errors
    )
    columns: dict[str, Any] = {
        "email": email and email.address,
        "email_key": email and email.key,
        "phone": phone,
        "first_name": read_text(values.get("firstName"), "/firstName", ONE_LINE, errors),
        "last_name": read_text(values.get("lastName"), "/lastName", ONE_LINE, errors),
        "timezone": read_text(values.get("timezone"), "/timezone", TIMEZONE, errors),
        "locale": read_text(values.get("locale"), "/locale", LANGUAGE, errors),
        "metadata": _metadata(values.get("metadata"), errors),
        "subscriptions": _subscriptions(values.get("subscriptions"), errors),
    }
    if columns["locale"] is not None:
        columns["locale"] = columns["locale"].replace("_", "-")
    kept = check_tags(tags, errors)
    return Checked(columns, as_text(columns["metadata"]), kept, errors)


def whole(columns: Mapping[str, Any], tags: Sequence[str]) -> list[FieldError]:
    """The errors of a contact whose parts are each right."""
    errors = []
    if not (columns["email"] or columns["phone"] or columns["metadata"]):
        errors.append(FieldError("", "Give at least an email, a phone or one metadata field."))
    if len(columns["metadata"]) > METADATA_FIELDS:
        errors.append(FieldError("/metadata", f"At most {METADATA_FIELDS} fields."))
    if len(tags) > TAGS:
        errors.append(FieldError("/tags", f"A contact has at most {TAGS} tags."))
    return errors


def normal(value: Json) -> Json:
    """Text in Unicode's NFC, names within too: what reads the same is the same, whether it was
    typed on a phone or comes from a file system. Of two names that become one the later counts."""
    match value:
        case str():
            return composed(value)
        case list() | tuple():
            return [normal(one) for one in value]
        case Mapping():
            return {normal(name): normal(one) for name, one in value.items()}
        case _:
            return value


def as_text(metadata: Mapping[str, Json]) -> dict[str, str]:
    """Convert metadata values to the text by which the contact is found."""
    return {name: document.text(value) for name, value in metadata.items()}


def same(metadata: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    """Return whether both are the same JSON; Python alone would take true for 1."""
    return metadata == other and as_text(metadata) == as_text(other)


def _address(
    value: Json, pointer: str, clean: Callable[[str], Cleaned], errors: list[FieldError]
) -> Cleaned | None:
    if value is None:
        return None
    try:
        return clean(value)
    except (addresses.BadAddress, TypeError, AttributeError) as error:
        message = str(error) if isinstance(error, addresses.BadAddress) else "Must be a string."
        errors.append(FieldError(pointer, message))
        return None


# What a text must be, and the sentence about one that is not.
Form: TypeAlias = tuple[Callable[[str], object], str]
ONE_LINE: Form = (
    lambda text: is_line(text) and len(text) <= NAME_LENGTH,
    f"Must be one line of at most {NAME_LENGTH} characters.",
)
TIMEZONE: Form = (
    lambda text: text in places.TIMEZONES,
    "Must be an IANA time zone, such as Europe/Berlin.",
)
LANGUAGE: Form = (
    lambda text: len(text) <= LOCALE_LENGTH and LOCALE.fullmatch(text),
    "Must be a language tag, such as en-GB (BCP 47).",
)


def read_text(value: Json, pointer: str, form: Form, errors: list[FieldError]) -> str | None:
    """A text that can be stored; None for nothing, or for what is added to `errors`."""
    if value is None or value == "":
        return None
    fits, message = form
    if not isinstance(value, str) or not fits(value):
        errors.append(FieldError(pointer, message))
        return None
    return value


def _subscriptions(value: Json, errors: list[FieldError]) -> dict[str, str]:
    """The subscriptions that are given, by channel."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        message = "Must be an object of channels: subscribed, or unsubscribed."
        errors.append(FieldError("/subscriptions", message))
        return {}
    for channel, status in value.items():
        if channel not in CHANNELS:
            message = f"There is no such channel: {', '.join(CHANNELS)}."
        elif status not in STATUSES:  # of which nobody writes the last two
            message = "Must be subscribed or unsubscribed."
        else:
            continue
        errors.append(FieldError(_pointer("subscriptions", channel), message))
    return {channel: value[channel] for channel in CHANNELS if channel in value}


def _metadata(value: Json, errors: list[FieldError]) -> dict[str, Json]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        errors.append(FieldError("/metadata", "Must be an object of names and scalar values."))
        return {}
    if len(value) > METADATA_FIELDS:
        errors.append(FieldError("/metadata", f"At most {METADATA_FIELDS} fields."))
        return {}
    kept = {}
    for name, field in value.items():
        if not 1 <= len(name) <= METADATA_NAME_LENGTH or not is_line(name):
            wrong = f"A name is 1 to {METADATA_NAME_LENGTH} printable characters."
        elif not is_scalar(field):
            longest = f"Must be a string of at most {METADATA_VALUE_LENGTH} characters"
            wrong = f"{longest}, {NUMBER}, true, false or null."
        else:
            if field is not None:
                kept[name] = plain(field)
            continue
        errors.append(FieldError(_pointer("metadata", name), wrong))
    return kept


NUMBER = "a number that fits a double (a whole one: up to 2^53)"


def _pointer(*names: str) -> str:
    """A JSON pointer to the field; a name that cannot be printed is not echoed."""
    return document.pointer(*(name if is_line(name) else "?" for name in names))


def is_scalar(value: Json) -> bool:
    """Return whether a metadata field may hold the value."""
    match value:
        case None | bool():
            return True
        case str():
            return len(value) <= METADATA_VALUE_LENGTH and is_storable(value)
        case int():
            return abs(value) <= 2**53
        case float():
            return math.isfinite(value)
        case _:
            return False


def plain(value: Json) -> Json:
    """A number without its sender's literal, which a JSONB column cannot keep: 1.10 is 1.1."""
    match value:
        case bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case _:
            return value


def check_tags(tags: Json, errors: list[FieldError]) -> list[str]:
    if tags is None:
        return []
    if not isinstance(tags, list | tuple):
        errors.append(FieldError("/tags", "Must be an array."))
        return []
    if len(tags) > TAGS:
        errors.append(FieldError("/tags", f"At most {TAGS} tags."))
        return []
    kept = []
    for index, given in enumerate(normal(tags)):
        tag = given.strip() if isinstance(given, str) else given
        if isinstance(tag, str) and 1 <= len(tag) <= TAG_LENGTH and is_line(tag):
            if tag not in kept:
                kept.append(tag)
        else:
            message = f"A tag is 1 to {TAG_LENGTH} printable characters."
            errors.append(FieldError(f"/tags/{index}", message))
    return kept


def tag(text: str) -> str:
    """One as contacts hold it, so that it is the same one. Raises ValueError."""
    errors: list[FieldError] = []
    tags = check_tags([text], errors)
    if errors:
        raise ValueError(errors[0].message)
    return tags[0]
