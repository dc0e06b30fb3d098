"""The chain of a workspace's entries: sealed by the worker, pruned from its beginning, verified.

Each link hashes the one before it, and the workspace's head, which says where the chain ends, is
signed too. Whoever can write to the database and has kept an old head can put back the day it was
from; only what was written elsewhere tells. So every head is logged, and `verify` answers it. A
head that is missing is tampering: it is made with the workspace.
"""

from __future__ import annotations

import hmac
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import sha256

from app.audit.signing import Head, entry_mac, forgotten_mac, head_of, link
from app.audit.trail import FIRST
from app.database.db import Handle, RequestTimeouts
from app.database.visits import Visits
from app.process import Process
from app.store import audit_logs
from app.store.shards import Look
from app.vault.vault import Vault

log = logging.getLogger(__name__)

BATCH = 500
FEW = 20  # where so many took too long, on a disk that is busy
WORKSPACES = 100  # of one round
LOOKS = 3  # at a chain that changes while it is looked at


class Sealing:
    """The sealing of trails by one process."""

    def __init__(self) -> None:
        self._look: Look | None = None  # the last at all shards
        self._left: set[str] = set()  # workspaces that may have entries to seal, as it found them
        self._after = ""  # the workspace behind which the next are: of some nothing can be sealed
        self._slow: set[str] = set()  # those in which a batch has failed, until all is sealed

    async def run_batch(self, process: Process) -> bool:
        """Chain what was committed since. True when there may be more."""
        if process.database.is_sharded:
            look = await process.shards.look(process.database)
            if look is not self._look:  # it is kept for a second, and most are sealed by then
                self._look, self._left = look, {*look.unsealed}
        else:
            async with process.database.read() as db:
                found = await audit_logs.unchained_workspaces(
                    db, after=self._after, limit=WORKSPACES
                )
            self._left, self._after = {*found}, found[-1] if len(found) == WORKSPACES else ""
        visits = Visits(process.database, RequestTimeouts())
        for workspace_id in random.sample([*self._left], min(len(self._left), WORKSPACES)):
            limit = FEW if workspace_id in self._slow else BATCH
            sealing = partial(_seal, vault=process.vault, workspace_id=workspace_id, limit=limit)
            sealed = await visits.visit(workspace_id, sealing)
            if sealed is None:
                self._slow.add(workspace_id)
            elif sealed < limit:
                self._slow.discard(workspace_id)
            if sealed != limit:
                self._left.remove(workspace_id)
        return bool(self._left or self._after)


async def _seal(db: Handle, vault: Vault, workspace_id: str, limit: int) -> int:
    row = await audit_logs.head_locked(db, workspace_id=workspace_id)
    rows = await audit_logs.unchained(db, workspace_id=workspace_id, limit=limit)
    head = head_of(vault, workspace_id, row)
    if head is None:
        _log_lost(workspace_id, row)
        return 0
    links = []
    for entry in rows:
        head = head.then(entry.mac)
        links.append((entry.id, head.sequence, head.hash))
    if links:
        await audit_logs.chain(db, workspace_id=workspace_id, links=links)
        signed = head.signed(vault, workspace_id)
        await audit_logs.move_head(db, workspace_id=workspace_id, head=signed)
        sealed = {"workspace_id": workspace_id, "sequence": head.sequence, "hash": head.hash.hex()}
        db.after_commit(lambda: log.info("audit head", extra=sealed))
    return len(links)


def _log_lost(workspace_id: str, row: audit_logs.Head | None) -> None:
    """No more is done: signed again it would look right; as it is, `verify` finds it."""
    event = "an audit head is gone" if row is None else "an audit head was tampered with"
    log.error(event, extra={"workspace_id": workspace_id})


async def _beheaded(db: Handle, workspace_id: str) -> bool:
    """Return whether there must have been a head: it is made with the first entry."""
    chained = await audit_logs.links(db, workspace_id=workspace_id, after=0, limit=1)
    return bool(chained or await audit_logs.unchained(db, workspace_id=workspace_id, limit=1))


async def prune(process: Process, workspace_id: str, moment: datetime) -> bool:
    """Remove links older than `moment` from the chain's beginning, and sign where it now begins.
    True when there may be more. What was tampered with stays, and all that follows it: pruned, it
    would have never been."""
    async with process.database.write() as db:
        row = await audit_logs.head_locked(db, workspace_id=workspace_id)
        head = head_of(process.vault, workspace_id, row)
        if head is None:
            if row is not None or await _beheaded(db, workspace_id):
                _log_lost(workspace_id, row)
            return False
        before = at = Head(sequence=head.first_sequence - 1, hash=head.first_hash)
        oldest = await audit_logs.oldest_links(
            db, workspace_id=workspace_id, after=at.sequence, moment=moment, limit=BATCH
        )
        for entry in oldest:
            if entry.sequence != at.sequence + 1:
                break  # a younger one stands between them, or `verify` finds that it is gone
            if _fault(process.vault, entry, at) is not None:
                context = {"workspace_id": workspace_id, "sequence": entry.sequence}
                log.error("an audit entry was tampered with, and is not removed", extra=context)
                break
            at = at.then(entry.mac)
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


async def _verdict(process: Process, workspace_id: str, row: audit_logs.Head | None) -> Verdict:
    head = Head() if row is None else head_of(process.vault, workspace_id, row)
    if head is None:
        return Verdict(Fault(None, None, "The signed head of the chain was changed."), 0, 0, Head())
    if row is None:
        async with process.database.read() as db:
            beheaded = await _beheaded(db, workspace_id)
        if beheaded:
            gone = Fault(None, None, "The signed head of the chain is missing.")
            return Verdict(gone, 0, 0, head)
    at = Head(sequence=head.first_sequence - 1, hash=head.first_hash)
    async for entry in _links(process, workspace_id, at.sequence, head.sequence):
        fault = _fault(process.vault, entry, at)
        if fault is not None:
            return Verdict(fault, at.sequence - head.first_sequence + 2, 0, head)
        at = at.then(entry.mac)
    chained = at.sequence - head.first_sequence + 1
    if at.sequence != head.sequence or not hmac.compare_digest(at.hash, head.hash):
        return Verdict(Fault(at.sequence + 1, None, "The end was cut off."), chained, 0, head)
    # Then those that are not chained yet.
    fault, begun, seen, after, more = None, head.sequence > 0, 0, "", True
    while more and fault is None:
        async with process.database.read() as db:
            younger = await audit_logs.unchained(
                db, workspace_id=workspace_id, after=after, limit=BATCH
            )
        fault = next(filter(None, (_own_fault(process.vault, entry) for entry in younger)), None)
        begun = begun or any(entry.action == FIRST for entry in younger)
        seen += len(younger)
        more = len(younger) == BATCH
        after = younger[-1].id if younger else after
    if fault is None and not begun:
        fault = Fault(1, None, f"The trail does not begin with {FIRST}.")
    return Verdict(fault, chained + seen, seen, head)


async def _head_row(process: Process, workspace_id: str) -> audit_logs.Head | None:
    async with process.database.read() as db:
        return await audit_logs.head(db, workspace_id=workspace_id)


async def _links(
    process: Process, workspace_id: str, after: int, through: int
) -> AsyncIterator[audit_logs.Entry]:
    """No connection is held between two batches."""
    while after < through:
        async with process.database.read() as db:
            rows = await audit_logs.links(
                db, workspace_id=workspace_id, after=after, limit=min(BATCH, through - after)
            )
        for row in rows:
            after = row.sequence or 0  # never: they are chained
            if after <= through:
                yield row
        if not rows:
            return


def _fault(vault: Vault, entry: audit_logs.Entry, at: Head) -> Fault | None:
    """The fault of the entry that should follow `at`, if any."""
    sequence, id = entry.sequence, entry.id
    if sequence != at.sequence + 1:
        return Fault(at.sequence + 1, None, "An entry is missing.")
    if sequence == 1 and entry.action != FIRST:
        return Fault(1, id, f"The trail does not begin with {FIRST}.")
    if not hmac.compare_digest(entry.hash or b"", link(at.hash, entry.mac)):
        return Fault(sequence, id, "The entry is not the one that was chained here.")
    return _own_fault(vault, entry)


def _own_fault(vault: Vault, entry: audit_logs.Entry) -> Fault | None:
    sequence, id = entry.sequence, entry.id
    if not hmac.compare_digest(entry.mac, entry_mac(vault, entry)):
        return Fault(sequence, id, "The entry was changed.")
    if entry.changes is None:
        allowed = hmac.compare_digest(
            entry.forgotten or b"", forgotten_mac(vault, id, entry.changes_hash)
        )
        return None if allowed else Fault(sequence, id, "The changes were removed.")
    computed = sha256((entry.salt or b"") + entry.changes.encode()).digest()
    same = hmac.compare_digest(computed, entry.changes_hash)
    return None if same else Fault(sequence, id, "The changes differ.")
