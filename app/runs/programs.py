"""The compiled Programs that runs walk."""

from __future__ import annotations

from app.definitions import credentials
from app.machine import check, document
from app.machine.program import Program
from app.store import definitions
from app.store.db import Handle, Row
from app.vault import Vault

MOST = 100  # kept compiled; a large one takes some megabytes

_programs: dict[tuple[str, int], Program] = {}


async def of(vault: Vault, db: Handle, row: Row) -> Program:
    """Compiled once a version: a version never changes, so the cache cannot outlive anything."""
    key = (row["definition_id"], row["version"])
    if key not in _programs:
        pinned = await definitions.pinned(
            db, workspace_id=row["workspace_id"], definition_id=key[0], version=key[1]
        )
        body = credentials.opened(
            vault, row["workspace_id"], key[0], document.parse(pinned["body"].encode())
        )
        compiled = check.compile(pinned["shape"], body)
        while len(_programs) >= MOST:
            del _programs[next(iter(_programs))]
        # Checked when it was pinned, and a limit set since is none here; a step that newer code
        # cannot read any more ends the run by STEP_MISSING.
        _programs[key] = compiled.program or Program("gone", {})
    return _programs[key]
