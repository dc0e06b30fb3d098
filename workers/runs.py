"""advance: runs are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import runner
from app.config import Settings
from app.process import Process
from workers.crew import Crew

HANDS = 12  # each holds a database connection most of the time; half of them for one workspace


def crew(process: Process) -> Crew:
    return Crew(process, "runs", runner.claim, runner.move, hands=hands_of(process.settings))


def hands_of(settings: Settings) -> int:
    """One connection is left to claims, deliveries and the heartbeat."""
    return HANDS if settings.sqlite else max(1, min(HANDS, settings.database_pool_size - 1))


async def advance(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, run_id] pairs, a shortcut and not the work."""
    ctx["advance"].hint((workspace_id, id) for workspace_id, id in hinted)
