"""Who an event is about: the value at the trigger's path, as something that finds a contact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from app.contacts import addresses, profile
from app.contacts.audience import Lookup
from app.errors import Problem
from app.machine import document, path
from app.machine.path import MISSING
from app.machine.program import Json
from app.machine.text import is_storable

Trigger: TypeAlias = Mapping[str, Json]


def contact_path(trigger: Trigger) -> str | None:
    """Where the value is: by default at the lookup kind's own name (specification §2)."""
    where: str | None = trigger.get("contactPath") or trigger.get("contactLookup")
    return where


def needs_literals(trigger: Trigger, payload: Json) -> bool:
    """Whether a number is looked up, which counts as its sender wrote it."""
    for where in (contact_path(trigger), trigger.get("dedupePath")):
        if where and isinstance(path.parse(where).find(payload), int | float):
            return True
    return False


def resolve(trigger: Trigger, payload: Json, country: str | None) -> Lookup:
    """Raises Problem `lookup_unresolved`, which names paths that would do."""
    kind = trigger["contactLookup"]
    where = path.parse(contact_path(trigger) or "")
    value = where.find(payload)
    try:
        return _read(kind, value, trigger, country)
    except ValueError as error:
        reason = (
            f"{where} leads to nothing in this body."
            if value is MISSING or value is None or value == ""
            else f"{where} is no {kind.replace('_', ' ')}: {error}"
        )

    def fits(other: Json) -> bool:
        try:
            return bool(_read(kind, other, trigger, country))
        except ValueError:
            return False

    near = path.near(payload, where, fits=fits)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise Problem("lookup_unresolved", reason + hint)


def _read(kind: str, value: object, trigger: Trigger, country: str | None) -> Lookup:
    if value is MISSING or value is None or value == "":
        raise ValueError("there is nothing.")
    return _KINDS[kind](value, trigger, country)


def _by_email(value: Json, _trigger: Trigger, _country: str | None) -> Lookup:
    email = addresses.email(_text(value))
    return Lookup("email", value=email.address, key=email.key)


def _by_phone(value: Json, _trigger: Trigger, country: str | None) -> Lookup:
    number = addresses.phone(_text(value), country)
    return Lookup("phone", value=number, key=number)


def _by_id(value: Json, trigger: Trigger, _country: str | None) -> Lookup:
    # A sender's own id may be a number: 981230455 equals "981230455".
    number = isinstance(value, int) and not isinstance(value, bool)
    text = document.text(value) if number else _text(value)
    if not is_storable(text):
        raise ValueError("it contains characters that no ID has.")
    field = trigger.get("metadataField")
    if field is None:
        return Lookup("contact_id", value=text, key=text)
    text = profile.normal(text)
    return Lookup("metadata", value=text, key=text, field=profile.normal(field))


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a string.")
    return value


_KINDS: Mapping[str, Callable[[Json, Trigger, str | None], Lookup]] = {
    "email": _by_email,
    "phone": _by_phone,
    "contact_id": _by_id,
}
