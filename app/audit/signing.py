"""Signatures of the audit trail: the MACs of entries and heads, and the links between them."""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass, replace
from datetime import UTC
from hashlib import sha256
from typing import Any

from app.machine import document
from app.store import audit_logs
from app.vault.vault import Vault

NOTHING = bytes(32)  # what stands before the first link
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


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning and end of a chain, signed, so that nobody else can move it."""

    first_sequence: int = 1
    first_hash: bytes = NOTHING
    sequence: int = 0
    hash: bytes = NOTHING

    def then(self, mac: bytes) -> Head:
        return replace(self, sequence=self.sequence + 1, hash=link(self.hash, mac))

    def signed(self, vault: Vault, workspace_id: str) -> dict[str, Any]:
        return {**asdict(self), "mac": head_mac(vault, workspace_id, self)}


def entry_mac(vault: Vault, entry: audit_logs.Entry) -> bytes:
    """Compute the MAC of an entry, over a JSON array. It has the columns of MACED in their order,
    the time in UTC to the microsecond, and the hash of the changes in hexadecimal."""
    parts = [getattr(entry, name) for name in MACED]
    parts += [entry.created_at.astimezone(UTC).isoformat("T", "microseconds")]
    parts += [entry.changes_hash.hex()]
    return vault.keyed_hash("audit entry", document.dumps(parts))


def forgotten_mac(vault: Vault, id: str, changes_hash: bytes) -> bytes:
    """Compute the MAC over the id and the hash of changes, so that the changes may be missing."""
    return vault.keyed_hash("audit forgotten", id.encode() + changes_hash)


def link(before: bytes, mac: bytes) -> bytes:
    """SHA-256 of the link before, NOTHING for the first, and the entry's MAC."""
    return sha256(before + mac).digest()


def head_mac(vault: Vault, workspace_id: str, head: Head) -> bytes:
    """Compute the MAC of a chain's head, over a JSON array. It has the workspace's id, then place
    and hash of where the chain begins and ends."""
    parts = [head.first_sequence, head.first_hash.hex(), head.sequence, head.hash.hex()]
    return vault.keyed_hash("audit head", document.dumps([workspace_id, *parts]))


def head_of(vault: Vault, workspace_id: str, row: audit_logs.Head | None) -> Head | None:
    """None when it is not as it was signed."""
    if row is None:
        return None
    head = Head(row.first_sequence, row.first_hash, row.sequence, row.hash)
    right = hmac.compare_digest(row.mac, head_mac(vault, workspace_id, head))
    return head if right else None
