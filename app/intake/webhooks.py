"""1. An event comes in: token → signature → body → key → lookup → contact → run row.

The order of the checks, and what each answers, is the specification's (§4.2, §5, §7). The caller
has counted the request and read its body under the cap; nothing is written before every check has
passed, and the answer waits for the commit. What needs the database is asked for many requests at
once: the webhooks' targets here, the rest in app/intake/acceptance.py.

Targets are remembered. What was remembered leads to one answer only, a fresh 202, whose statement
confirms it: every refusal and every repeat is judged by what the database says now.
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

from app.audience import lookups
from app.audience.workspace_context import WorkspaceContext
from app.audience.writing import Lookup
from app.database.db import new_id
from app.errors import Problem, Unavailable
from app.intake import acceptance, lookup, webhook_requests
from app.intake.acceptance import Accepted, InboundEvent, Outdated
from app.intake.lookup import Found
from app.intake.webhook_requests import Head, IncomingRequest, Note
from app.machine.program import Json
from app.machine.reasons import STATES
from app.outbound import chains
from app.process import Process
from app.runtime.batching import batched
from app.runtime.compute import Busy, Computation, Heavy
from app.store import definition_starts
from app.store.definition_starts import TargetRow
from app.store.directory import Place
from app.vault.vault import Vault

SIGNATURE = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)
LONGEST_KEY = 255
TARGET_BYTES = 2_000  # of each that is remembered, and for each byte of its trigger:
TRIGGER_WEIGHT = 8
PLACE_BYTES = 500  # of each whose flow alone is remembered
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
    event = _judged_by_memory(process, token, body, signatures, head)
    if event is not None:
        accepted = await process.batches.run(acceptance.start_known, process, event)
        if accepted is not None:
            return accepted
    tries_known = event is None  # else that was tried
    # Under the same number: a run that it made after all, and whose COMMIT was not answered, is
    # found by that, and is not made twice.
    id = new_id("req") if event is None else event.request.id
    return await until_current(
        lambda: _received(process, token, body, signatures, head, id=id, tries_known=tries_known)
    )


def _judged_by_memory(
    process: Process, token: str, body: bytes, signatures: Sequence[str], head: Head
) -> InboundEvent | None:
    """The event, as it may be accepted by what is remembered; None when that has to be read, or
    when its body takes more than the event loop should do: then it is judged once, by what is so
    now."""
    target: WebhookTarget | None = process.targets.get(token)
    if target is None:
        return None
    request = IncomingRequest(new_id("req"), target.workspace.id, target.definition_id, head, body)
    try:
        verify(target.secret, signatures, body)
        workspace = _chained(process, target, head)
        found = lookup.judge_here(body, target.trigger, target.workspace.country)
        if found is None:
            return None
        event = _judged(process, target, request, workspace, found)
    except Problem:
        return None
    return event if acceptance.is_known(process, event) else None


async def until_current(judge: Callable[[], Awaitable[Accepted]]) -> Accepted:
    """Judged by what holds when the run is inserted: a secret that has been replaced, or a pause,
    counts from the moment that it is committed. Raises Unavailable."""
    for _ in range(TRIES):
        try:
            return await judge()
        except Outdated:
            continue
    raise Unavailable("The webhook keeps changing; retry the request.")


async def _received(
    process: Process,
    token: str,
    body: bytes,
    signatures: Sequence[str],
    head: Head,
    *,
    id: str,
    tries_known: bool,
) -> Accepted:
    target = await _present(process, token)
    request = IncomingRequest(id, target.workspace.id, target.definition_id, head, body)
    try:
        if target.closed_reason is not None:
            raise unknown_token()
        verify(target.secret, signatures, body)
    except Problem as problem:
        is_open = target.closed_reason is None
        cause = partial(_cause, target.secret, signatures, body) if is_open else None
        _note(process, target, request, problem, detail=target.closed_reason, cause=cause)
        raise
    return await admit(process, target, request, tries_known=tries_known)


def remembered(process: Process, token: str) -> str | None:
    """The workspace of a webhook that is remembered; None for any other token."""
    place = process.places.get(token)
    return None if place is None else place.workspace_id


async def whose(process: Process, token: str) -> str:
    """The workspace of a token that is not remembered. Raises Problem `not_found` for one that
    nobody has."""
    return (await _present(process, token)).workspace.id


async def _present(process: Process, token: str) -> WebhookTarget:
    """The target of the token as it is now, which is remembered while it is open. Raises Problem
    `not_found`."""
    target = await process.batches.run(load_targets, process, token)
    if target is None or target.closed_reason is not None:
        process.targets.drop(token)
        process.places.drop(token)
    else:
        weight = TARGET_BYTES + TRIGGER_WEIGHT * len(orjson.dumps(target.trigger))
        process.targets.keep(token, target, weight)
        process.places.keep(token, Place(target.workspace.id, target.definition_id), PLACE_BYTES)
    if target is None:
        raise unknown_token()
    return target


def unknown_token() -> Problem:
    return Problem(
        "not_found",
        "No active workflow or automation has this webhook URL; check it, and that it is active.",
    )


async def admit(
    process: Process,
    target: WebhookTarget,
    request: IncomingRequest,
    *,
    found: Found | None = None,
    tries_known: bool = True,
) -> Accepted:
    """The checks after the signature, of a sender's request or of one that a member retries. Raises
    Problem, or Outdated when the target was changed meanwhile. `found`: what was found in its body
    already; `tries_known`: the statement for events of contacts that exist was not tried yet."""
    try:
        workspace = _chained(process, target, request.head)
        found = found or await found_in(process, target, request.body)
        event = _judged(process, target, request, workspace, found)
    except Problem as problem:
        _note(process, target, request, problem)
        raise
    if tries_known and acceptance.is_known(process, event):
        accepted = await process.batches.run(acceptance.start_known, process, event)
        if accepted is not None:
            return accepted
    try:
        return await process.batches.run(acceptance.accept, process, event)
    except Heavy:
        await acceptance.with_defaults(process, event)
        return await process.batches.run(acceptance.accept, process, event)


async def found_in(process: Process, target: WebhookTarget, body: bytes) -> Found:
    """All that is asked of the body, of which one that takes long is judged in the compute process.
    Raises Problem."""
    given = (body, target.trigger, target.workspace.country)
    found = lookup.judge_here(*given)
    if found is not None:
        return found
    try:
        return await process.compute.apart(Computation(target.workspace.id, lookup.judge, given))
    except Busy as busy:
        raise Unavailable(busy.detail) from None  # also for its own share: 503, not 429


def _chained(process: Process, target: WebhookTarget, head: Head) -> WorkspaceContext:
    """The workspace, at the place in a chain that the headers name. Raises Problem
    `chain_too_long`."""
    depth = chains.depth_of(head.values(chains.DEPTH.encode()))
    chains.refuse_too_deep(depth)
    root = chains.root_of(process.vault, target.workspace.id, head.values(chains.CHAIN.encode()))
    if not depth and not root:
        return target.workspace
    # With lists of its own, for the target is remembered.
    return replace(target.workspace, depth=depth, root=root, refused=[], crowded=[])


def _judged(
    process: Process,
    target: WebhookTarget,
    request: IncomingRequest,
    workspace: WorkspaceContext,
    found: Found,
) -> InboundEvent:
    key = key_of(target, request.head, found.deduped)
    looked_up: Lookup | Problem
    if isinstance(found.lookup, Lookup):
        looked_up = found.lookup
    else:
        looked_up = Problem("lookup_unresolved", found.lookup)
        if key is None:  # else it may be a repeat, which gets its ids whatever it says
            raise looked_up
    return InboundEvent(
        request=request,
        workspace=workspace,
        trigger=target.trigger,
        revision=target.revision,
        lookup=looked_up,
        receipt=key and process.vault.keyed_hash("receipt", key),
    )


def _note(
    process: Process,
    target: WebhookTarget,
    request: IncomingRequest,
    problem: Problem,
    *,
    detail: str | None = None,
    cause: Callable[[], str | None] | None = None,
) -> None:
    refusal = webhook_requests.refusal(request, problem, detail)
    look_up = partial(_looked_up_hash, process.vault, target, request.body)
    webhook_requests.note(process, Note(refusal, look_up, cause))


def _looked_up_hash(vault: Vault, target: WebhookTarget, body: bytes) -> str | None:
    """The hash of whom the body names; None where it names nobody, or is too much to be read for
    this."""
    if target.trigger["source"] != "inbound_webhook":
        return None
    try:
        found = lookup.judge_here(body, target.trigger, target.workspace.country)
    except Problem:
        return None
    if found is None or not isinstance(found.lookup, Lookup):
        return None
    return lookups.keyed_hash(vault, target.workspace.id, found.lookup)


# --- the target -----------------------------------------------------------------------------------


def _itself(token: str) -> str:
    """A token is of one workspace, whose node may be silent while others answer."""
    return token


@batched(whose=_itself)
async def load_targets(process: Process, tokens: Sequence[str]) -> Sequence[WebhookTarget | None]:
    wanted = sorted(set(tokens))
    known = {token: place for token in wanted if (place := process.places.get(token)) is not None}
    async with process.database.read(acceptance.TIMEOUTS) as db:
        rows = await definition_starts.by_tokens(db, tokens=wanted, known=known)
    targets = {row.token: target_of(process, row) for row in rows}
    return [targets.get(token) for token in tokens]


def target_of(process: Process, row: TargetRow) -> WebhookTarget:
    secret: Secret | None = None
    closed_reason: str | None = None
    if (sealed := row.signing_secret) is not None:
        secret = Secret(process.vault.decrypt("signing secret", sealed, row.workspace_id, row.id))
    if row.suspended:
        closed_reason = "The workspace is suspended."
    elif row.state != "ACTIVE":
        closed_reason = f"The flow is {STATES[row.state]}, not active."
    elif row.trigger_config["source"] != "inbound_webhook":
        closed_reason = "Its trigger takes no webhooks any more."
    return WebhookTarget(
        workspace=WorkspaceContext(
            row.workspace_id, row.country, process.vault, hints=process.hints
        ),
        definition_id=row.id,
        revision=row.revision,
        trigger=row.trigger_config,
        secret=secret,
        closed_reason=closed_reason,
    )


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
    """Find why the signature was refused: for the owner, never for the sender."""
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


# --- the key --------------------------------------------------------------------------------------


def key_of(target: WebhookTarget, head: Head, deduped: str | None) -> bytes | None:
    """The key that makes a repeat: the sender's own, else a Standard Webhooks id, else a value in
    the body.

    Raises Problem `malformed_request`.
    """
    found = {kind: find(head) for kind, find in _KEYS.items()}
    for kind, value in {**found, "path": deduped}.items():
        if value is not None:
            return orjson.dumps([target.definition_id, kind, value])
    return None


def _idempotency_key(head: Head) -> str | None:
    # Any characters, unlike in a member's key (web/idempotency.py): a sender of webhooks cannot
    # always choose what its system makes keys of.
    given = head.values(b"idempotency-key")
    if len(given) > 1 or not all(0 < len(key) <= LONGEST_KEY for key in given):
        raise Problem(
            "malformed_request",
            f"Send one Idempotency-Key of 1 to {LONGEST_KEY} characters, or none.",
        )
    return given[0] if given else None


def _webhook_id(head: Head) -> str | None:
    given = head.values(b"webhook-id")
    is_good = len(given) == 1 and 0 < len(given[0]) <= LONGEST_KEY
    return given[0] if is_good else None


_KEYS: Mapping[str, Callable[[Head], str | None]] = {
    "idempotency-key": _idempotency_key,
    "webhook-id": _webhook_id,
}
