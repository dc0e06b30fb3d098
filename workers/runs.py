"""advance: runs are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import runner
from app.process import Process
from workers.pool import WorkerPool

CONCURRENCY = 64  # they share transactions; half of them for one workspace


def pool(process: Process) -> WorkerPool:
    return WorkerPool(process, "runs", runner.claim, runner.move, concurrency=CONCURRENCY)


async def advance(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, run_id] pairs, a shortcut and not the work."""
    ctx["advance"].hint((workspace_id, id) for workspace_id, id in hinted)
