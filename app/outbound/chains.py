"""Chains of runs that start one another: how long they may get, and the headers that carry them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.errors import Problem
from app.vault.vault import Vault

LONGEST_CHAIN = 10  # of runs that start one another
MOST_OF_ROOT = 1_000  # runs that a chain starts, whatever way it branches
DEPTH = "tidings-depth"  # the header by which a chain is known that leads through HTTP steps
CHAIN = "tidings-chain"  # the header that names the run which the chain began with; signed
_DEPTH = re.compile("[0-9]{1,3}", re.ASCII)


def depth_of(values: Sequence[str]) -> int:
    """Read how deep in a chain a request comes, from the values of its header. Anybody may claim
    depth; all they get is that less is started."""
    return int(values[0]) if len(values) == 1 and _DEPTH.fullmatch(values[0]) else 0


def chain_token(vault: Vault, workspace_id: str, root: str) -> str:
    """The value of the CHAIN header."""
    return vault.sign(CHAIN, f"{workspace_id} {root}".encode())


def root_of(vault: Vault, workspace_id: str, values: Sequence[str]) -> str | None:
    """The run that the chain began with which a request comes from, by the values of its header;
    None when they are not from us, or from another workspace."""
    payload = vault.unsign(CHAIN, values[0]) if len(values) == 1 else None
    owner, _, root = (payload or b"").decode().partition(" ")
    return root if root and owner == workspace_id else None


def too_wide() -> Problem:
    return Problem(
        "chain_too_long", f"The run that this began with has started {MOST_OF_ROOT:,} others."
    )


def refuse_too_deep(depth: int) -> None:
    """Raises Problem `chain_too_long`."""
    if depth > LONGEST_CHAIN:
        raise Problem(
            "chain_too_long",
            f"More than {LONGEST_CHAIN} runs have started one another to get here.",
        )
