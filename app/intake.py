"""1. An event comes in: token → signature → body → key → lookup → contact → run row.

The order of the checks, and what each answers, is the specification's (§4.2, §5, §7). The caller
has counted the request and read its body under the cap; nothing is written before every check has
passed, and the answer waits for the commit. What needs the database is asked for many requests at
once: the doors here, the rest in app/webhooks/acceptance.py.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import orjson
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from app.contacts import reactions
from app.contacts.audience import Lookup
from app.contacts.reactions import Workspace
from app.errors import FieldError, Problem, Unavailable
from app.machine import document, path
from app.machine.document import MalformedJson
from app.machine.path import MISSING
from app.machine.program import Json
from app.process import Process
from app.runtime.batching import BatchKind
from app.store import definitions
from app.store.db import Row, new_id
from app.webhooks import acceptance, lookup, webhook_requests
from app.webhooks.acceptance import ACCEPT, Accepted, Event, Outdated
from app.webhooks.webhook_requests import Head, Note, Visit

SIGNATURE = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)
LONGEST_KEY = 255
TRIES = 5  # a definition may be changed while an event is judged by it, but hardly time and again


class Secret:
    """A signing secret, made ready once for all events of a batch."""

    def __init__(self, secret: bytes) -> None:
        self._keyed = HMAC(secret, SHA256())

    def signs(self, body: bytes, signature: bytes) -> bool:
        mac = self._keyed.copy()
        mac.update(body)
        return hmac.compare_digest(mac.finalize(), signature)


@dataclass(frozen=True, slots=True)
class Door:
    """What a webhook token leads to, as it is at this moment."""

    workspace: Workspace
    definition_id: str
    revision: int
    trigger: Mapping[str, Json]
    secret: Secret | None
    shut: str | None  # why it takes nothing, for the owner


async def receive(
    process: Process,
    *,
    token: str,
    body: bytes,
    signatures: Sequence[str] = (),
    head: Head | None = None,
) -> Accepted:
    """Start exactly one run, or find the one that this is a repeat of; or raise the Problem that
    says why not.

    `signatures` are the values of every X-Service-Signature header. Raises CommitUnknown, a 503,
    only when even a second look could not tell whether the run exists.
    """
    head = head or Head()
    return await settled(lambda: _received(process, token, body, signatures, head))


async def settled(judge: Callable[[], Awaitable[Accepted]]) -> Accepted:
    """Judged by what holds when the run is inserted: a secret that has been replaced, or a pause,
    counts from the moment that it is committed. Raises Unavailable."""
    for _ in range(TRIES):
        try:
            return await judge()
        except Outdated:
            continue
    raise Unavailable("The webhook keeps changing; retry the request.")


async def _received(
    process: Process, token: str, body: bytes, signatures: Sequence[str], head: Head
) -> Accepted:
    door = await process.batches.submit(DOORS, process, token)
    if door is None:
        raise unknown_token()
    visit = Visit(new_id("req"), door.workspace.id, door.definition_id, head, body)
    try:
        if door.shut is not None:
            raise unknown_token()
        verify(door.secret, signatures, body)
    except Problem as problem:
        cause = partial(_cause, door.secret, signatures, body) if door.shut is None else None
        _note(process, visit, problem, door.shut, cause)
        raise
    return await admit(process, door, visit)


def unknown_token() -> Problem:
    return Problem(
        "not_found",
        "No active workflow or automation has this webhook URL; check it, and that it is active.",
    )


async def admit(process: Process, door: Door, visit: Visit) -> Accepted:
    """What comes after the signature: of a sender, or of a member who vouches for it. Raises
    Problem, or Outdated when the door is no longer what it was."""
    try:
        event = await _judged(process, door, visit)
    except Problem as problem:
        _note(process, visit, problem)
        raise
    return await process.batches.submit(ACCEPT, process, event)


async def _judged(process: Process, door: Door, visit: Visit) -> Event:
    depth = reactions.depth_told(visit.head.values(reactions.DEPTH.encode()))
    reactions.refuse_too_deep(depth)
    payload = parse(visit.body)
    if lookup.needs_literals(door.trigger, payload):
        payload = await acceptance.parse(visit.body)
    key = key_of(door, visit.head, payload)
    return Event(
        visit=visit,
        workspace=replace(door.workspace, depth=depth) if depth else door.workspace,
        trigger=door.trigger,
        revision=door.revision,
        lookup=_looked_up(door, payload, is_keyed=key is not None),
        receipt=key and process.vault.keyed_hash("receipt", key),
    )


def _note(
    process: Process,
    visit: Visit,
    problem: Problem,
    detail: str | None = None,
    cause: Callable[[], str | None] | None = None,
) -> None:
    webhook_requests.note(process, Note(webhook_requests.refusal(visit, problem, detail), cause))


# --- the door -------------------------------------------------------------------------------------


async def _doors(process: Process, tokens: Sequence[str]) -> Sequence[Door | None]:
    async with process.database.read(acceptance.TIMEOUTS) as db:
        rows = await definitions.by_tokens(db, tokens=sorted(set(tokens)))
    doors = {row["token"]: door_of(process, row) for row in rows}
    return [doors.get(token) for token in tokens]


DOORS: BatchKind[Process, str, Door | None] = BatchKind(_doors)


def door_of(process: Process, row: Row) -> Door:
    return Door(
        workspace=Workspace(
            row["workspace_id"], row["country"], process.vault, queue=process.queue
        ),
        definition_id=row["id"],
        revision=row["revision"],
        trigger=row["trigger_config"],
        secret=_secret_of(process, row),
        shut=_shut(row),
    )


def _shut(row: Row) -> str | None:
    if row["suspended"]:
        return "The workspace is suspended."
    if row["state"] != "ACTIVE":
        return f"It is {row['state']}, not ACTIVE."
    if row["trigger_config"]["source"] != "inbound_webhook":
        return "Its trigger takes no webhooks any more."
    return None


def _secret_of(process: Process, row: Row) -> Secret | None:
    sealed = row["signing_secret"]
    if sealed is None:
        return None
    return Secret(process.vault.decrypt("signing secret", sealed, row["workspace_id"], row["id"]))


# --- the signature --------------------------------------------------------------------------------


def verify(secret: Secret | None, signatures: Sequence[str], body: bytes) -> None:
    """Raises Problem `invalid_signature`, the same for every reason (specification §5)."""
    if secret is None:
        return
    match = SIGNATURE.fullmatch(signatures[0]) if len(signatures) == 1 else None
    if match is None or not secret.signs(body, bytes.fromhex(match[1])):
        raise Problem(
            "invalid_signature",
            "Send exactly one X-Service-Signature header: sha256= and the hexadecimal HMAC-SHA256"
            " of the raw body, keyed with the current signing secret.",
        )


def _cause(secret: Secret | None, signatures: Sequence[str], body: bytes) -> str | None:
    """Which of the reasons it was: for the owner, never for the sender."""
    if secret is None:
        return None
    match = SIGNATURE.fullmatch(signatures[0]) if len(signatures) == 1 else None
    if match is None:
        return "malformed" if signatures else "missing"
    given = bytes.fromhex(match[1])
    is_reserialised = webhook_requests.is_reserialised(body, lambda it: secret.signs(it, given))
    return "reserialised" if is_reserialised else "wrong"


# --- the body -------------------------------------------------------------------------------------


def parse(body: bytes) -> Mapping[str, Json]:
    """Its numbers without their literals."""
    if not body:
        raise Problem("malformed_json", "The body is empty; send a JSON object.")
    try:
        payload = document.skim(body)
    except MalformedJson as error:
        raise Problem("malformed_json", str(error)) from None
    if not isinstance(payload, dict):
        raise Problem(
            "invalid",
            "Send a JSON object as the body.",
            errors=[FieldError("", "Must be an object.")],
        )
    return payload


# --- the key --------------------------------------------------------------------------------------


def key_of(door: Door, head: Head, payload: Json) -> bytes | None:
    """What makes a repeat: the sender's key, else a Standard Webhooks id, else a value in the body.

    Raises Problem `malformed_request`.
    """
    for kind, find in _KEYS.items():
        value = find(door, head, payload)
        if value is not None:
            return orjson.dumps([door.definition_id, kind, value])
    return None


def _idempotency_key(_door: Door, head: Head, _payload: Json) -> str | None:
    # Any characters, unlike in a member's key (web/idempotency.py): a sender of webhooks cannot
    # always choose what its system makes keys of.
    given = head.values(b"idempotency-key")
    if len(given) > 1 or not all(0 < len(key) <= LONGEST_KEY for key in given):
        raise Problem(
            "malformed_request",
            f"Send one Idempotency-Key of 1 to {LONGEST_KEY} characters, or none.",
        )
    return given[0] if given else None


def _webhook_id(_door: Door, head: Head, _payload: Json) -> str | None:
    given = head.values(b"webhook-id")
    is_good = len(given) == 1 and 0 < len(given[0]) <= LONGEST_KEY
    return given[0] if is_good else None


def _deduped(door: Door, _head: Head, payload: Json) -> str | None:
    where = door.trigger.get("dedupePath")
    value = path.parse(where).find(payload) if where else None
    if value is MISSING or isinstance(value, dict | list):
        return None
    return document.text(value) or None


_KEYS: Mapping[str, Callable[[Door, Head, Json], str | None]] = {
    "idempotency-key": _idempotency_key,
    "webhook-id": _webhook_id,
    "path": _deduped,
}


# --- the lookup -----------------------------------------------------------------------------------


def _looked_up(door: Door, payload: Json, *, is_keyed: bool) -> Lookup | Problem:
    """Of an event that may be a repeat the refusal is held back: a repeat gets its ids whatever it
    says."""
    try:
        return lookup.resolve(door.trigger, payload, door.workspace.country)
    except Problem as problem:
        if is_keyed:
            return problem
        raise
