"""advance: runs are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import runner
from app.process import Process
from workers.crew import Crew

HANDS = 64  # what they have in hand shares transactions; half of them for one workspace


def crew(process: Process) -> Crew:
    return Crew(process, "runs", runner.claim, runner.move, hands=HANDS)


async def advance(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, run_id] pairs, a shortcut and not the work."""
    ctx["advance"].hint((workspace_id, id) for workspace_id, id in hinted)
