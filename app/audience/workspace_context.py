"""The workspace in which something happens to a contact."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.database.db import Handle
from app.jobs.hints import Hints
from app.process import Process
from app.store import workspaces
from app.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class WorkspaceContext:
    """The workspace of a contact; `country` reads its national phone numbers, `vault` knows
    suppressed addresses by their hashes.

    A run that writes there says how deep in a chain the runs are that it starts by this, and finds
    in `refused` the definitions that were not started because the chain is too long, and in
    `crowded` those that were not because it has started too many; `root` is the run it began with.
    """

    id: str
    country: str | None
    vault: Vault
    depth: int = 0
    root: str | None = None
    refused: list[str] = field(default_factory=list, compare=False)
    crowded: list[str] = field(default_factory=list, compare=False)
    hints: Hints | None = field(default=None, compare=False)  # else the workers' loop finds them


def without_country(process: Process, id: str) -> WorkspaceContext:
    """A context where no phone number is read."""
    return WorkspaceContext(id, None, process.vault, hints=process.hints)


async def context_of(process: Process, db: Handle, id: str) -> WorkspaceContext:
    return WorkspaceContext(id, await country_of(db, id), process.vault, hints=process.hints)


async def country_of(db: Handle, id: str) -> str | None:
    row = await workspaces.by_id(db, id=id)
    return row.country if row else None
