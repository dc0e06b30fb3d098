"""The compiled Programs that runs walk."""

from __future__ import annotations

from app.database.db import Handle
from app.definitions import credentials, findings
from app.machine import document
from app.machine.kept import Kept
from app.machine.program import Program
from app.process import Process
from app.store import definitions

MOST_BYTES = 20 * 1024 * 1024  # kept compiled
WEIGHT = 32  # bytes for each character of a body, measured

_programs: Kept[tuple[str, int], Program] = Kept(MOST_BYTES)


async def of(
    process: Process, db: Handle, *, workspace_id: str, definition_id: str, version: int
) -> Program:
    """Compiled once a version: a version never changes, so the cache cannot outlive anything.
    Raises Heavy."""
    key = (definition_id, version)
    program = _programs.get(key)
    if program is None:
        pinned = await definitions.pinned(
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
        _programs.keep(key, program, WEIGHT * length)
    return program
