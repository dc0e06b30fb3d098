"""1. An event comes in: token → signature → body → lookup → contact → run row.

The order of the checks, and what each answers, is the specification's (§4.2, §5, §7). The caller
has counted the request and read its body under the cap; nothing is written before every check has
passed, and the answer waits for the commit.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import addresses, audience
from app.audience import Lookup, Workspace
from app.errors import CommitUnknown, FieldError, Problem, Unavailable
from app.machine import document, path, template
from app.machine.path import MISSING
from app.machine.program import Json
from app.process import Process
from app.store import definitions, runs
from app.store.db import Handle, Row, new_id

TOKEN = re.compile(r"[A-Za-z0-9]{30}", re.ASCII)
SETTLE_SECONDS = 2.0  # to find out whether a run exists; then the sender is told that we cannot
SIGNATURE = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Accepted:
    run_id: str
    contact_id: str


@dataclass(frozen=True, slots=True)
class Event:
    """A request that passed every check but the last: whether its contact exists."""

    run_id: str
    definition_id: str
    workspace: Workspace
    trigger: Mapping[str, Json]
    lookup: Lookup
    payload: Json
    body: bytes


async def receive(
    process: Process, *, token: str, signatures: Sequence[str], body: bytes
) -> Accepted:
    """Start exactly one run, or raise the Problem that says why not.

    `signatures` are the values of every X-Service-Signature header. Raises CommitUnknown, a 503,
    only when even a second look could not tell whether the run exists.
    """
    async with process.database.read() as db:
        definition = await definitions.by_token(db, token=token)
    if definition is None:
        raise unknown_token()
    verify(_secret_of(process, definition), signatures, body)
    payload = parse(body)
    trigger = definition["trigger_config"]
    workspace = Workspace(id=definition["workspace_id"], country=definition["country"])
    event = Event(
        run_id=new_id("run"),
        definition_id=definition["id"],
        workspace=workspace,
        trigger=trigger,
        lookup=resolve(trigger, payload, workspace.country),
        payload=payload,
        body=body,
    )
    try:
        return await _accept(process, event)
    except CommitUnknown as unknown:
        return await _settled(process, event, unknown)


async def _settled(process: Process, event: Event, unknown: CommitUnknown) -> Accepted:
    """COMMIT was sent and its answer lost. The same ids again: when the first commit did arrive
    this finds its row, waiting for it if need be, and otherwise it is the first."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        try:
            return await _accept(process, event, again=True)
        except Unavailable:
            await asyncio.sleep(0.1)
    raise unknown


def unknown_token() -> Problem:
    return Problem(
        "not_found",
        "No active workflow or automation has this webhook URL; check it, and that it is active.",
    )


def verify(secret: bytes | None, signatures: Sequence[str], body: bytes) -> None:
    """Raises Problem `invalid_signature`, the same for every reason (specification §5)."""
    if secret is None:
        return
    match = SIGNATURE.fullmatch(signatures[0]) if len(signatures) == 1 else None
    expected = hmac.digest(secret, body, "sha256")
    if match is None or not hmac.compare_digest(bytes.fromhex(match[1]), expected):
        raise Problem(
            "invalid_signature",
            "Send exactly one X-Service-Signature header: sha256= and the hexadecimal HMAC-SHA256"
            " of the raw body, keyed with the current signing secret.",
        )


def parse(body: bytes) -> Mapping[str, Json]:
    if not body:
        raise Problem("malformed_json", "The body is empty; send a JSON object.")
    try:
        payload = document.parse(body)
    except document.MalformedJson as error:
        raise Problem("malformed_json", str(error)) from None
    if not isinstance(payload, dict):
        raise Problem(
            "invalid",
            "Send a JSON object as the body.",
            errors=[FieldError("", "Must be an object.")],
        )
    return payload


def resolve(trigger: Mapping[str, Json], payload: Json, country: str | None) -> Lookup:
    """Who the payload is about. Raises Problem `lookup_unresolved`, naming paths that do exist."""
    kind = trigger["contactLookup"]
    where = path.parse(contact_path(trigger) or "")
    value = where.find(payload)
    if value is MISSING or value is None or value == "":
        raise _unresolved(f"{where} leads to nothing in this body.", payload, where)
    try:
        return _LOOKUPS[kind](value, trigger, country)
    except ValueError as error:
        raise _unresolved(
            f"{where} is no {kind.replace('_', ' ')}: {error}", payload, where
        ) from None


def contact_path(trigger: Mapping[str, Json]) -> str | None:
    """Where the lookup value is: by default at the lookup kind's own name (specification §2)."""
    where: str | None = trigger.get("contactPath") or trigger.get("contactLookup")
    return where


def _by_email(value: Json, _trigger: Mapping[str, Json], _country: str | None) -> Lookup:
    email = addresses.email(_text(value))
    return Lookup("email", value=email.address, key=email.key)


def _by_phone(value: Json, _trigger: Mapping[str, Json], country: str | None) -> Lookup:
    number = addresses.phone(_text(value), country)
    return Lookup("phone", value=number, key=number)


def _by_id(value: Json, trigger: Mapping[str, Json], _country: str | None) -> Lookup:
    # A sender's own id may be a number: 981230455 equals "981230455".
    number = isinstance(value, int) and not isinstance(value, bool)
    text = document.text(value) if number else _text(value)
    if "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("it holds characters that no id has.")
    field = trigger.get("metadataField")
    if field is None:
        return Lookup("contact_id", value=text, key=text)
    return Lookup("metadata", value=text, key=text, field=field)


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("it must be a string.")
    return value


_LOOKUPS = {"email": _by_email, "phone": _by_phone, "contact_id": _by_id}


def _unresolved(sentence: str, payload: Json, where: path.Path) -> Problem:
    near = path.near(payload, where)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return Problem("lookup_unresolved", sentence + hint)


def _secret_of(process: Process, definition: Row) -> bytes | None:
    sealed = definition["signing_secret"]
    if sealed is None:
        return None
    return process.vault.decrypt(
        "signing secret", sealed, definition["workspace_id"], definition["id"]
    )


# --- the one transaction ------------------------------------------------------------------------


async def _accept(process: Process, event: Event, *, again: bool = False) -> Accepted:
    async with process.database.write() as db:
        earlier = again and await _earlier(db, event)
        if earlier:
            process.queue.advance(db, event.workspace.id, event.run_id)
            return Accepted(event.run_id, earlier)
        contact_id = await _contact_of(db, event)
        inserted = await runs.insert(
            db,
            workspace_id=event.workspace.id,
            id=event.run_id,
            definition_id=event.definition_id,
            contact_id=contact_id,
            body=event.body,
        )
        if not inserted:
            # Our own first try was under way until now; or the definition was paused meanwhile.
            earlier = await _earlier(db, event)
            if earlier is None:
                raise unknown_token()
            contact_id = earlier
        process.queue.advance(db, event.workspace.id, event.run_id)
        return Accepted(event.run_id, contact_id)


async def _earlier(db: Handle, event: Event) -> str | None:
    """The contact of the run, when an earlier try of this very request made it."""
    return await runs.contact_of(db, workspace_id=event.workspace.id, id=event.run_id)


async def _contact_of(db: Handle, event: Event) -> str:
    trigger, lookup = event.trigger, event.lookup
    if trigger.get("createContact") and lookup.kind in ("email", "phone"):
        values, tags = defaults(trigger.get("contactDefaults") or {}, event.payload)
        row = await audience.find_or_create(db, event.workspace, lookup, values, tags)
        return str(row["id"])
    found = await audience.find(db, event.workspace, lookup)
    if found is None:
        raise Problem(
            "contact_not_found",
            f"No contact matches the {lookup.kind.replace('_', ' ')} at {contact_path(trigger)};"
            " create it first, or switch on createContact for an email or phone lookup.",
        )
    return str(found["id"])


def defaults(raw: Mapping[str, Json], payload: Json) -> tuple[dict[str, Json], list[Json]]:
    """The fields and tags of a new contact; strings are Liquid, one that fails is left out."""
    values = {
        name: _rendered(value, payload) for name, value in raw.items() if name not in ("tags",)
    }
    tags = [_rendered(tag, payload) for tag in raw.get("tags") or ()]
    return {name: value for name, value in values.items() if value is not None}, tags


def _rendered(value: Json, payload: Json) -> Json:
    match value:
        case str():
            try:
                return template.parse(value).render({"trigger": payload}).text or None
            except (template.TemplateError, template.RenderError):
                return None  # a default may fail; the event may not
        case dict():
            return {name: _rendered(inner, payload) for name, inner in value.items()}
        case _:
            return value
