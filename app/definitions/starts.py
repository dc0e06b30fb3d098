"""The definitions that one starts: whether it is there, and whether that leads back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.database.db import Handle
from app.definitions import inspection
from app.machine import check
from app.machine.program import Finding, warning
from app.process import Process
from app.runtime.compute import Computation
from app.store import definition_starts

# A loop that is longer still would be ended by chains.LONGEST_CHAIN.
LOOKED_THROUGH = 50  # definitions
LARGE = 8 * 1024  # characters of definitions that are not read on the event loop
SECONDS = 2.0  # of CPU time


async def find(
    process: Process, db: Handle, workspace_id: str, id: str, compiled: check.Compiled
) -> list[Finding]:
    """Check that what the definition starts is there, and does not lead back to it. Raises
    Heavy."""
    if not compiled.starts:
        return []
    known: dict[str, _Target] = {}  # the targets, and what they start in turn
    wanted = {start.id for start in compiled.starts}
    while wanted and len(known) < LOOKED_THROUGH:
        rows = await definition_starts.started(db, workspace_id=workspace_id, ids=sorted(wanted))
        # A body that was too large to be read with the others is not looked through.
        bodies = [(row.shape, row.body or "[]") for row in rows]
        computation = Computation(workspace_id, inspection.starts_of, (bodies,), seconds=SECONDS)
        is_large = sum(len(body) for _, body in bodies) > LARGE
        each = process.compute.here(computation, large=is_large)
        for row, starts in zip(rows, each, strict=True):
            known[row.id] = _Target(row.shape, row.state, starts)
        wanted = {start for row in rows for start in known[row.id].starts} - known.keys()
    found = []
    for start in compiled.starts:
        target = known.get(start.id)
        if target is None or target.shape != start.shape or target.state == "ARCHIVED":
            noun = "workflow" if start.shape == "steps" else "automation"
            message = f"There is no such {noun} in this workspace."
            found.append(Finding("start_unknown", start.pointer, message))
        elif id == start.id or id in _reached(start.id, known):
            message = "This leads back here: runs would start one another without end."
            found.append(Finding("start_loop", start.pointer, message))
        elif target.state != "ACTIVE":
            message = f"It is {target.state}, so nothing will be started until it is ACTIVE."
            found.append(warning("start_inactive", start.pointer, message))
    return found


@dataclass(frozen=True, slots=True)
class _Target:
    """A definition that others start, and what it starts itself."""

    shape: str
    state: str
    starts: frozenset[str]


def _reached(id: str, known: Mapping[str, _Target]) -> set[str]:
    reached: set[str] = set()
    waiting = [id]
    while waiting:
        target = known.get(waiting.pop())
        if target is not None:
            waiting += target.starts - reached
            reached |= target.starts
    return reached
