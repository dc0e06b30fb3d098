"""The versions that runs walk, compiled."""

from __future__ import annotations

from dataclasses import dataclass

from app.database.db import Handle
from app.definitions import credentials, findings
from app.machine import document
from app.machine.kept import Kept
from app.machine.program import Json, Program
from app.process import Process
from app.store import definition_versions

MOST_BYTES = 20 * 1024 * 1024  # kept compiled
WEIGHT = 32  # bytes for each character of a body, measured


@dataclass(frozen=True, slots=True)
class Version:
    """The Program of a version, the source of its trigger, and its policy of re-entry."""

    program: Program
    source: Json
    reentry: Json


_versions: Kept[tuple[str, int], Version] = Kept(MOST_BYTES)


async def of(
    process: Process, db: Handle, *, workspace_id: str, definition_id: str, version: int
) -> Version:
    """Compiled once a version: a version never changes, so the cache cannot outlive anything.
    Raises Heavy."""
    key = (definition_id, version)
    found = _versions.get(key)
    if found is None:
        pinned = await definition_versions.pinned(
            db, workspace_id=workspace_id, definition_id=key[0], version=key[1]
        )
        body = credentials.opened(
            process.vault, workspace_id, key[0], document.parse(pinned.body.encode())
        )
        length = len(pinned.body)
        compiled = findings.compiled(process, workspace_id, pinned.shape, body, length=length)
        # Checked when it was pinned, and a limit set since is none here; a step that newer code
        # cannot read any more ends the run by STEP_MISSING.
        program = compiled.program or Program("gone", {})
        trigger = pinned.trigger_config
        found = Version(program, trigger.get("source"), trigger.get("reentry"))
        _versions.keep(key, found, WEIGHT * length)
    return found
