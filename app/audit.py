"""Who changed what: entries that cannot be changed, left out or cut off without a trace.

An entry is written in the transaction of the act it tells, with a MAC of its own. The worker chains
what was committed: each link hashes the one before it, and the workspace's head, which says where
the chain ends, is signed too. What an entry tells of the change enters only as a salted hash, so
that it can be forgotten with an erased contact and the chain still holds.

Whoever can write to the database and has kept an old head can put back the day it was from; only
what was written elsewhere tells. So every head is logged, and `verify` answers it. A head that is
missing is tampering: it is made with the workspace.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

from app.machine import document
from app.machine.program import Json
from app.machine.secrets import MASK, is_secret_name
from app.process import Process
from app.store import audit_logs
from app.store.db import Handle, Row, new_id
from app.vault import Vault

log = logging.getLogger(__name__)

FIRST = "workspace.created"  # what every chain begins with, unless it was pruned
NOTHING = bytes(32)  # what stands before the first link
BATCH = 500
WORKSPACES = 100  # of one round
LOOKS = 3  # at a chain that changes while it is looked at
SALT_BYTES = 16
LONGEST_VALUE = 8_192  # bytes of JSON; of a longer one only its hash is kept

IN_URL = re.compile(r"(?<=//)[^/@]*(?=@)|(?<=\?).+", re.DOTALL)  # userinfo, and the whole query
TOLD = re.compile(r"(Set|Last4)$")  # signingSecretSet and signingSecretLast4 are no secrets
UNTOLD = frozenset({"id", "createdAt", "updatedAt"})  # the entry says as much itself


@dataclass(frozen=True, slots=True)
class Origin:
    """Who acts, and from where. An operator acts from the command line; a provider of payments says
    what was paid for."""

    type: Literal["user", "api_key", "operator", "provider"]
    id: str | None
    name: str
    ip: str | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Where:
    """From where, while it is still to be found out who."""

    ip: str | None
    request_id: str

    def user(self, row: Row) -> Origin:
        return Origin("user", row["id"], row["name"], self.ip, self.request_id)


async def begin(
    db: Handle, vault: Vault, origin: Origin, *, workspace_id: str, after: Mapping[str, Json]
) -> None:
    """The first entry of a new workspace, and the head, which is never made again."""
    head = Head().signed(vault, workspace_id)
    await audit_logs.insert_head(db, workspace_id=workspace_id, head=head)
    await note(
        db,
        vault,
        origin,
        workspace_id=workspace_id,
        action=FIRST,
        resource_id=workspace_id,
        after=after,
    )


async def note(
    db: Handle,
    vault: Vault,
    origin: Origin,
    *,
    workspace_id: str,
    action: str,
    resource_id: str,
    before: Mapping[str, Json] | None = None,
    after: Mapping[str, Json] | None = None,
) -> None:
    """One entry, in the transaction of the act. `before` and `after` are the resource as clients
    see it; an action is called by its resource: `contact.created`."""
    salt = secrets.token_bytes(SALT_BYTES)
    changes = document.dumps(differences(before or {}, after or {}))
    entry = {
        "workspace_id": workspace_id,
        "id": new_id("aud"),
        "action": action,
        "actor_type": origin.type,
        "actor_id": origin.id,
        "actor_name": origin.name,
        "resource_type": action.partition(".")[0],
        "resource_id": resource_id,
        "changes": changes.decode(),
        "salt": salt,
        "changes_hash": sha256(salt + changes).digest(),
        "ip": origin.ip,
        "request_id": origin.request_id,
        "created_at": await db.now(),
    }
    await audit_logs.insert(db, {**entry, "mac": _mac(vault, entry)})


def differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, list[Json]]:
    """Field → [before, after] of what differs, secrets masked."""
    return {
        name: [_told(name, before.get(name)), _told(name, after.get(name))]
        for name in {**before, **after}
        if name not in UNTOLD and before.get(name) != after.get(name)
    }


def _told(name: str, value: Json) -> Json:
    """Without secrets, and no longer than is read."""
    masked = _masked(name, value)
    text = document.dumps(masked)
    if len(text) <= LONGEST_VALUE:
        return masked
    return {"bytes": len(text), "sha256": sha256(text).hexdigest()}


def _masked(name: str, value: Json) -> Json:
    if value is not None and is_secret_name(name) and not TOLD.search(name):
        return MASK
    match value:
        case str() if name == "url":
            return IN_URL.sub(MASK, value)
        case dict():
            return {inner: _masked(inner, one) for inner, one in value.items()}
        case list():
            return [_masked("", one) for one in value]
        case _:
            return value


async def forget(db: Handle, vault: Vault, *, workspace_id: str, resource_id: str) -> None:
    """What was changed is no longer told; that something was, by whom and when, still is."""
    more = True
    while more:
        rows = await audit_logs.about(
            db, workspace_id=workspace_id, resource_id=resource_id, limit=BATCH
        )
        allowed = {row["id"]: _forgotten(vault, row) for row in rows}
        await audit_logs.forget(db, workspace_id=workspace_id, allowed=allowed)
        more = len(rows) == BATCH


# --- the chain ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain begins and ends. Signed, it cannot be moved by others."""

    first_sequence: int = 1
    first_hash: bytes = NOTHING
    sequence: int = 0
    hash: bytes = NOTHING

    def then(self, mac: bytes) -> Head:
        return replace(self, sequence=self.sequence + 1, hash=_link(self.hash, mac))

    def signed(self, vault: Vault, workspace_id: str) -> dict[str, Any]:
        return {**asdict(self), "mac": _head_mac(vault, workspace_id, self)}


async def seal(process: Process) -> bool:
    """Chain what was committed since. True when there may be more."""
    async with process.database.read() as db:
        pending = await audit_logs.unchained_workspaces(db, limit=WORKSPACES)
    full = False
    for workspace_id in pending:
        async with process.database.write() as db:
            full |= await _seal(db, process.vault, workspace_id) == BATCH
    return full


async def _seal(db: Handle, vault: Vault, workspace_id: str) -> int:
    row = await audit_logs.head_locked(db, workspace_id=workspace_id)
    rows = await audit_logs.unchained(db, workspace_id=workspace_id, limit=BATCH)
    head = _head(vault, workspace_id, row)
    if head is None:
        _log_lost(workspace_id, row)
        return 0
    links = []
    for entry in rows:
        head = head.then(entry["mac"])
        links.append((entry["id"], head.sequence, head.hash))
    if links:
        await audit_logs.chain(db, workspace_id=workspace_id, links=links)
        signed = head.signed(vault, workspace_id)
        await audit_logs.move_head(db, workspace_id=workspace_id, head=signed)
        said = {"workspace_id": workspace_id, "sequence": head.sequence, "hash": head.hash.hex()}
        db.after_commit(lambda: log.info("audit head", extra=said))
    return len(links)


def _log_lost(workspace_id: str, row: Row | None) -> None:
    """No more is done: signed again it would look right; as it is, `verify` finds it."""
    told = "an audit head is gone" if row is None else "an audit head was tampered with"
    log.error(told, extra={"workspace_id": workspace_id})


async def _beheaded(db: Handle, workspace_id: str) -> bool:
    """Whether there must have been a head: it is made with the first entry."""
    chained = await audit_logs.links(db, workspace_id=workspace_id, after=0, limit=1)
    return bool(chained or await audit_logs.unchained(db, workspace_id=workspace_id, limit=1))


async def prune(process: Process, workspace_id: str, moment: datetime) -> bool:
    """Remove links older than `moment` from the chain's beginning, and sign where it now begins.
    True when there may be more. What was tampered with stays, and all that follows it: pruned, it
    would have never been."""
    async with process.database.write() as db:
        row = await audit_logs.head_locked(db, workspace_id=workspace_id)
        head = _head(process.vault, workspace_id, row)
        if head is None:
            if row is not None or await _beheaded(db, workspace_id):
                _log_lost(workspace_id, row)
            return False
        before = at = Head(sequence=head.first_sequence - 1, hash=head.first_hash)
        oldest = await audit_logs.oldest_links(
            db, workspace_id=workspace_id, after=at.sequence, moment=moment, limit=BATCH
        )
        for entry in oldest:
            if entry["sequence"] != at.sequence + 1:
                break  # a younger one stands between them, or `verify` finds that it is gone
            if _fault(process.vault, entry, at) is not None:
                told = {"workspace_id": workspace_id, "sequence": entry["sequence"]}
                log.error("an audit entry was tampered with, and is not removed", extra=told)
                break
            at = at.then(entry["mac"])
        if at == before:
            return False
        begins = replace(head, first_sequence=at.sequence + 1, first_hash=at.hash)
        signed = begins.signed(process.vault, workspace_id)
        await audit_logs.move_head(db, workspace_id=workspace_id, head=signed)
        await audit_logs.prune(db, workspace_id=workspace_id, through=at.sequence)
        return at.sequence - before.sequence == BATCH


# --- is it whole? -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is not as it was written. `id` is None when the entry is gone."""

    sequence: int | None
    id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`entries` were looked at, of which `unchained` are younger than the chain's head."""

    fault: Fault | None
    entries: int
    unchained: int
    head: Head


async def verify(process: Process, workspace_id: str) -> Verdict:
    """Walk the whole trail, some entries at a time. What is added meanwhile is looked at too."""
    for _ in range(LOOKS):
        row = await _head_row(process, workspace_id)
        verdict = await _verdict(process, workspace_id, row)
        if verdict.fault is None or row == await _head_row(process, workspace_id):
            break  # else it may have been pruned while we walked
    return verdict


async def _verdict(process: Process, workspace_id: str, row: Row | None) -> Verdict:
    head = Head() if row is None else _head(process.vault, workspace_id, row)
    if head is None:
        return Verdict(Fault(None, None, "The signed head of the chain was changed."), 0, 0, Head())
    if row is None:
        async with process.database.read() as db:
            beheaded = await _beheaded(db, workspace_id)
        if beheaded:
            gone = Fault(None, None, "The signed head of the chain is gone.")
            return Verdict(gone, 0, 0, head)
    at = Head(sequence=head.first_sequence - 1, hash=head.first_hash)
    async for entry in _links(process, workspace_id, at.sequence, head.sequence):
        fault = _fault(process.vault, entry, at)
        if fault is not None:
            return Verdict(fault, at.sequence - head.first_sequence + 2, 0, head)
        at = at.then(entry["mac"])
    chained = at.sequence - head.first_sequence + 1
    if (at.sequence, at.hash) != (head.sequence, head.hash):
        return Verdict(Fault(at.sequence + 1, None, "The end was cut off."), chained, 0, head)
    return await _verify_unchained(process, workspace_id, head, chained)


async def _head_row(process: Process, workspace_id: str) -> Row | None:
    async with process.database.read() as db:
        return await audit_logs.head(db, workspace_id=workspace_id)


async def _verify_unchained(
    process: Process, workspace_id: str, head: Head, chained: int
) -> Verdict:
    fault, begun, seen, after, more = None, head.sequence > 0, 0, "", True
    while more and fault is None:
        async with process.database.read() as db:
            younger = await audit_logs.unchained(
                db, workspace_id=workspace_id, after=after, limit=BATCH
            )
        fault = next(filter(None, (_own_fault(process.vault, entry) for entry in younger)), None)
        begun = begun or any(entry["action"] == FIRST for entry in younger)
        seen += len(younger)
        more = len(younger) == BATCH
        after = younger[-1]["id"] if younger else after
    if fault is None and not begun:
        fault = Fault(1, None, f"The trail does not begin with {FIRST}.")
    return Verdict(fault, chained + seen, seen, head)


async def _links(
    process: Process, workspace_id: str, after: int, through: int
) -> AsyncIterator[Row]:
    """No connection is held between two batches."""
    while after < through:
        async with process.database.read() as db:
            rows = await audit_logs.links(
                db, workspace_id=workspace_id, after=after, limit=min(BATCH, through - after)
            )
        for row in rows:
            if row["sequence"] <= through:
                yield row
        if not rows:
            return
        after = rows[-1]["sequence"]


def _fault(vault: Vault, entry: Row, at: Head) -> Fault | None:
    """What is wrong with the entry that should follow `at`."""
    sequence, id = entry["sequence"], entry["id"]
    if sequence != at.sequence + 1:
        return Fault(at.sequence + 1, None, "An entry is gone.")
    if sequence == 1 and entry["action"] != FIRST:
        return Fault(1, id, f"The trail does not begin with {FIRST}.")
    if entry["hash"] != _link(at.hash, entry["mac"]):
        return Fault(sequence, id, "The entry is not the one that was chained here.")
    return _own_fault(vault, entry)


def _own_fault(vault: Vault, entry: Row) -> Fault | None:
    sequence, id = entry["sequence"], entry["id"]
    if not hmac.compare_digest(entry["mac"], _mac(vault, entry)):
        return Fault(sequence, id, "The entry was changed.")
    if entry["changes"] is None:
        allowed = hmac.compare_digest(entry["forgotten"] or b"", _forgotten(vault, entry))
        return None if allowed else Fault(sequence, id, "The changes were taken out.")
    told = sha256((entry["salt"] or b"") + entry["changes"].encode()).digest()
    return None if told == entry["changes_hash"] else Fault(sequence, id, "The changes differ.")


# --- what only this installation can compute ----------------------------------------------------

MACED = (
    "workspace_id",
    "id",
    "action",
    "actor_type",
    "actor_id",
    "actor_name",
    "resource_type",
    "resource_id",
    "ip",
    "request_id",
)


def _mac(vault: Vault, entry: Mapping[str, Any]) -> bytes:
    parts = [entry[name] for name in MACED]
    parts += [entry["created_at"].astimezone(UTC).isoformat("T", "microseconds")]
    parts += [entry["changes_hash"].hex()]
    return vault.keyed_hash("audit entry", document.dumps(parts))


def _forgotten(vault: Vault, entry: Mapping[str, Any]) -> bytes:
    return vault.keyed_hash("audit forgotten", entry["id"].encode() + entry["changes_hash"])


def _link(before: bytes, mac: bytes) -> bytes:
    return sha256(before + mac).digest()


def _head_mac(vault: Vault, workspace_id: str, head: Head) -> bytes:
    parts = [head.first_sequence, head.first_hash.hex(), head.sequence, head.hash.hex()]
    return vault.keyed_hash("audit head", document.dumps([workspace_id, *parts]))


def _head(vault: Vault, workspace_id: str, row: Row | None) -> Head | None:
    """None when it is not as it was signed."""
    if row is None:
        return None
    head = Head(row["first_sequence"], row["first_hash"], row["sequence"], row["hash"])
    right = hmac.compare_digest(row["mac"], _head_mac(vault, workspace_id, head))
    return head if right else None
