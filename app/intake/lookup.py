"""The contact of an event: the value at the trigger's path, as something that finds a contact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app.audience import lookups
from app.audience.writing import Lookup
from app.errors import FieldError, Problem
from app.machine import document, path
from app.machine.document import MalformedJson
from app.machine.path import MISSING
from app.machine.program import Json

Trigger: TypeAlias = Mapping[str, Json]

SHORT = 16 * 1024  # bytes that are judged at once, whatever they hold
MANY = 30_000  # values that take milliseconds to read, even where no number counts as written


def contact_path(trigger: Trigger) -> str | None:
    """The path of the value: by default the lookup kind's own name (specification §2)."""
    where: str | None = trigger.get("contactPath") or trigger.get("contactLookup")
    return where


def numbers(trigger: Trigger, payload: Json) -> list[str]:
    """The paths at which a number is looked up, which counts as its sender wrote it."""
    paths = [where for where in (contact_path(trigger), trigger.get("dedupePath")) if where]
    return [where for where in paths if isinstance(path.parse(where).find(payload), int | float)]


@dataclass(frozen=True, slots=True)
class Found:
    """All that is asked of an event's body."""

    deduped: str | None  # the text at the trigger's dedupePath
    lookup: Lookup | str  # or why there is none


def judge(body: bytes, trigger: Trigger, country: str | None) -> Found:
    """Take as long as it takes. Raises Problem, `malformed_json` or `invalid`."""
    payload = parse(body)
    if numbers(trigger, payload):
        payload = parse(body, document.parse)
    return _found(payload, trigger, country)


def judge_here(body: bytes, trigger: Trigger, country: str | None) -> Found | None:
    """The same within a few milliseconds; None for a body that takes more. Raises as `judge`."""
    if len(body) <= SHORT:
        return judge(body, trigger, country)
    if document.seems_to_hold(body, MANY):
        return None
    try:
        payload = _object(document.glance(body))
    except MalformedJson:
        return None  # or a number that only the slow parser reads
    return None if numbers(trigger, payload) else _found(payload, trigger, country)


def parse(body: bytes, read: Callable[[bytes], Json] = document.skim) -> Mapping[str, Json]:
    """The body as a JSON object. Raises Problem, `malformed_json` or `invalid`."""
    if not body:
        raise Problem("malformed_json", "The body is empty; send a JSON object.")
    try:
        return _object(read(body))
    except MalformedJson as error:
        raise Problem("malformed_json", str(error)) from None


def _object(payload: Json) -> Mapping[str, Json]:
    if isinstance(payload, dict):
        return payload
    raise Problem(
        "invalid",
        "Send a JSON object as the body.",
        errors=[FieldError("", "Must be an object.")],
    )


def _found(payload: Json, trigger: Trigger, country: str | None) -> Found:
    where = trigger.get("dedupePath")
    value = path.parse(where).find(payload) if where else None
    is_text = value is not MISSING and not isinstance(value, dict | list)
    deduped = document.text(value) or None if is_text else None
    try:
        return Found(deduped, resolve(trigger, payload, country))
    except Problem as problem:
        return Found(deduped, problem.detail)


def resolve(trigger: Trigger, payload: Json, country: str | None) -> Lookup:
    """Raises Problem `lookup_unresolved`, which names paths that would do."""
    where = path.parse(contact_path(trigger) or "")
    try:
        found = _read(where.find(payload), trigger, country)
    except ValueError as error:
        reason = f"{where} cannot be looked up. {error}"
    else:
        if found is not None:
            return found
        reason = f"{where} leads to nothing in this body."

    def fits(other: Json) -> bool:
        try:
            return _read(other, trigger, country) is not None
        except ValueError:
            return False

    near = path.near(payload, where, fits=fits)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise Problem("lookup_unresolved", reason + hint)


def _read(value: object, trigger: Trigger, country: str | None) -> Lookup | None:
    """None where there is nothing. Raises ValueError with a sentence."""
    if value is MISSING or value is None or value == "":
        return None
    kind, field = trigger["contactLookup"], trigger.get("metadataField")
    return lookups.read(kind, value, country, field if kind == "contact_id" else None)
