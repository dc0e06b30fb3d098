"""The audit trail: entries that cannot be changed, left out or cut off without a trace.

An entry is written in the transaction of the act it tells, with a MAC of its own; the worker chains
it later (chain.py). What an entry tells of the change enters only as a salted hash, so that it can
be forgotten with an erased contact and the chain still holds.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from app.audit.signing import Head, entry_mac, forgotten_mac
from app.database.db import Handle, new_id
from app.machine import document
from app.machine.program import Json
from app.machine.secrets import MASK, is_secret_name
from app.store import audit_logs, users
from app.store.audit_logs import Entry
from app.vault.vault import Vault

FIRST = "workspace.created"  # what every chain begins with, unless it was pruned
BATCH = 500
SALT_BYTES = 16
LONGEST_VALUE = 8_192  # bytes of JSON; of a longer one only its hash is kept

IN_URL = re.compile(r"(?<=//)[^/@]*(?=@)|(?<=\?).+", re.DOTALL)  # userinfo, and the whole query
NO_SECRET = re.compile(r"(Set|Last4)$")  # signingSecretSet and signingSecretLast4
LEFT_OUT = frozenset({"id", "createdAt", "updatedAt"})  # the entry says as much itself


@dataclass(frozen=True, slots=True)
class Origin:
    """The actor, and where the act comes from. An operator acts from the command line; a provider
    of payments says what was paid for; the service itself pauses what does harm."""

    type: Literal["user", "api_key", "operator", "provider", "service"]
    id: str | None
    name: str
    ip: str | None
    request_id: str


OPERATOR = Origin("operator", None, "command line", None, "command line")
SERVICE = Origin("service", None, "Tidings", None, "worker")


@dataclass(frozen=True, slots=True)
class Where:
    """Address and id of a request whose caller is still to be found out."""

    ip: str | None
    request_id: str

    def user(self, row: users.User) -> Origin:
        return Origin("user", row.id, row.name, self.ip, self.request_id)


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
    entry = Entry(
        workspace_id=workspace_id,
        id=new_id("aud"),
        action=action,
        actor_type=origin.type,
        actor_id=origin.id,
        actor_name=origin.name,
        resource_type=action.partition(".")[0],
        resource_id=resource_id,
        changes=changes.decode(),
        salt=salt,
        changes_hash=sha256(salt + changes).digest(),
        forgotten=None,
        ip=origin.ip,
        request_id=origin.request_id,
        created_at=await db.now(),
        mac=b"",
        sequence=None,
        hash=None,
    )
    await audit_logs.insert(db, replace(entry, mac=entry_mac(vault, entry)))


def differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> dict[str, list[Json]]:
    """Field → [before, after] of what differs, secrets masked."""
    return {
        name: [_recorded(name, before.get(name)), _recorded(name, after.get(name))]
        for name in {**before, **after}
        if name not in LEFT_OUT and before.get(name) != after.get(name)
    }


def _recorded(name: str, value: Json) -> Json:
    """Mask secrets in a value, and replace one that is too long by its length and hash."""
    masked = _masked(name, value)
    text = document.dumps(masked)
    if len(text) <= LONGEST_VALUE:
        return masked
    return {"bytes": len(text), "sha256": sha256(text).hexdigest()}


def _masked(name: str, value: Json) -> Json:
    if value is not None and is_secret_name(name) and not NO_SECRET.search(name):
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
    """Remove what was changed from the entries; that something was, by whom and when, stays."""
    more = True
    while more:
        hashes = await audit_logs.about(
            db, workspace_id=workspace_id, resource_id=resource_id, limit=BATCH
        )
        allowed = {
            id: forgotten_mac(vault, id, changes_hash) for id, changes_hash in hashes.items()
        }
        await audit_logs.forget(db, workspace_id=workspace_id, allowed=allowed)
        more = len(hashes) == BATCH
