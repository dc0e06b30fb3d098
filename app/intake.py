"""1. An event comes in: token → signature → body → key → lookup → contact → run row.

The order of the checks, and what each answers, is the specification's (§4.2, §5, §7). The caller
has counted the request and read its body under the cap; nothing is written before every check has
passed, and the answer waits for the commit. What needs the database is asked for many requests at
once: the webhooks' targets here, the rest in app/webhooks/acceptance.py.
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
from app.contacts.reactions import WorkspaceContext
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
from app.webhooks.acceptance import ACCEPT, Accepted, InboundEvent, Outdated
from app.webhooks.webhook_requests import Head, Note, WebhookRequest

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
class WebhookTarget:
    """The definition that a webhook token belongs to, as it is at this moment."""

    workspace: WorkspaceContext
    definition_id: str
    revision: int
    trigger: Mapping[str, Json]
    secret: Secret | None
    closed_reason: str | None  # why it accepts no events, for the owner; None when it does


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
    target = await process.batches.submit(TARGETS, process, token)
    if target is None:
        raise unknown_token()
    request = WebhookRequest(new_id("req"), target.workspace.id, target.definition_id, head, body)
    try:
        if target.closed_reason is not None:
            raise unknown_token()
        verify(target.secret, signatures, body)
    except Problem as problem:
        is_open = target.closed_reason is None
        cause = partial(_cause, target.secret, signatures, body) if is_open else None
        _note(process, request, problem, target.closed_reason, cause)
        raise
    return await admit(process, target, request)


def unknown_token() -> Problem:
    return Problem(
        "not_found",
        "No active workflow or automation has this webhook URL; check it, and that it is active.",
    )


async def admit(process: Process, target: WebhookTarget, request: WebhookRequest) -> Accepted:
    """The checks after the signature, of a sender's request or of one that a member retries. Raises
    Problem, or Outdated when the target was changed meanwhile."""
    try:
        event = await _judged(process, target, request)
    except Problem as problem:
        _note(process, request, problem)
        raise
    return await process.batches.submit(ACCEPT, process, event)


async def _judged(process: Process, target: WebhookTarget, request: WebhookRequest) -> InboundEvent:
    depth = reactions.depth_told(request.head.values(reactions.DEPTH.encode()))
    reactions.refuse_too_deep(depth)
    payload = parse(request.body)
    if lookup.needs_literals(target.trigger, payload):
        payload = await acceptance.parse(request.body)
    key = key_of(target, request.head, payload)
    return InboundEvent(
        request=request,
        workspace=replace(target.workspace, depth=depth) if depth else target.workspace,
        trigger=target.trigger,
        revision=target.revision,
        lookup=_looked_up(target, payload, is_keyed=key is not None),
        receipt=key and process.vault.keyed_hash("receipt", key),
    )


def _note(
    process: Process,
    request: WebhookRequest,
    problem: Problem,
    detail: str | None = None,
    cause: Callable[[], str | None] | None = None,
) -> None:
    webhook_requests.note(process, Note(webhook_requests.refusal(request, problem, detail), cause))


# --- the target -----------------------------------------------------------------------------------


async def _load_targets(process: Process, tokens: Sequence[str]) -> Sequence[WebhookTarget | None]:
    async with process.database.read(acceptance.TIMEOUTS) as db:
        rows = await definitions.by_tokens(db, tokens=sorted(set(tokens)))
    targets = {row["token"]: target_of(process, row) for row in rows}
    return [targets.get(token) for token in tokens]


TARGETS: BatchKind[Process, str, WebhookTarget | None] = BatchKind(_load_targets)


def target_of(process: Process, row: Row) -> WebhookTarget:
    return WebhookTarget(
        workspace=WorkspaceContext(
            row["workspace_id"], row["country"], process.vault, queue=process.queue
        ),
        definition_id=row["id"],
        revision=row["revision"],
        trigger=row["trigger_config"],
        secret=_secret_of(process, row),
        closed_reason=_closed_reason(row),
    )


def _closed_reason(row: Row) -> str | None:
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
    given = _given(signatures)
    if given is None or not secret.signs(body, given):
        raise Problem(
            "invalid_signature",
            "Send exactly one X-Service-Signature header: sha256= and the hexadecimal HMAC-SHA256"
            " of the raw body, keyed with the current signing secret.",
        )


def _cause(secret: Secret | None, signatures: Sequence[str], body: bytes) -> str | None:
    """Which of the reasons it was: for the owner, never for the sender."""
    if secret is None:
        return None
    given = _given(signatures)
    if given is None:
        return "malformed" if signatures else "missing"
    is_reserialised = webhook_requests.is_reserialised(body, lambda it: secret.signs(it, given))
    return "reserialised" if is_reserialised else "wrong"


def _given(signatures: Sequence[str]) -> bytes | None:
    match = SIGNATURE.fullmatch(signatures[0]) if len(signatures) == 1 else None
    return bytes.fromhex(match[1]) if match else None


# --- the body -------------------------------------------------------------------------------------


def parse(body: bytes) -> Mapping[str, Json]:
    """The body as a JSON object, with plain numbers. Raises `malformed_json` or `invalid`."""
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


def key_of(target: WebhookTarget, head: Head, payload: Json) -> bytes | None:
    """What makes a repeat: the sender's key, else a Standard Webhooks id, else a value in the body.

    Raises Problem `malformed_request`.
    """
    for kind, find in _KEYS.items():
        value = find(target, head, payload)
        if value is not None:
            return orjson.dumps([target.definition_id, kind, value])
    return None


def _idempotency_key(_target: WebhookTarget, head: Head, _payload: Json) -> str | None:
    # Any characters, unlike in a member's key (web/idempotency.py): a sender of webhooks cannot
    # always choose what its system makes keys of.
    given = head.values(b"idempotency-key")
    if len(given) > 1 or not all(0 < len(key) <= LONGEST_KEY for key in given):
        raise Problem(
            "malformed_request",
            f"Send one Idempotency-Key of 1 to {LONGEST_KEY} characters, or none.",
        )
    return given[0] if given else None


def _webhook_id(_target: WebhookTarget, head: Head, _payload: Json) -> str | None:
    given = head.values(b"webhook-id")
    is_good = len(given) == 1 and 0 < len(given[0]) <= LONGEST_KEY
    return given[0] if is_good else None


def _deduped(target: WebhookTarget, _head: Head, payload: Json) -> str | None:
    where = target.trigger.get("dedupePath")
    value = path.parse(where).find(payload) if where else None
    if value is MISSING or isinstance(value, dict | list):
        return None
    return document.text(value) or None


_KEYS: Mapping[str, Callable[[WebhookTarget, Head, Json], str | None]] = {
    "idempotency-key": _idempotency_key,
    "webhook-id": _webhook_id,
    "path": _deduped,
}


# --- the lookup -----------------------------------------------------------------------------------


def _looked_up(target: WebhookTarget, payload: Json, *, is_keyed: bool) -> Lookup | Problem:
    """Of an event that may be a repeat the refusal is held back: a repeat gets its ids whatever it
    says."""
    try:
        return lookup.resolve(target.trigger, payload, target.workspace.country)
    except Problem as problem:
        if is_keyed:
            return problem
        raise
