"""call: HTTP requests are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.process import Process
from app.runs import calling
from workers.pool import WorkerPool

CONCURRENCY = 64  # most of the time they wait for a server; half of them for one workspace


def pool(process: Process) -> WorkerPool:
    return WorkerPool(process, "calls", calling.claim, calling.make, concurrency=CONCURRENCY)


async def call(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, call_id] pairs, a shortcut and not the work."""
    ctx["call"].hint((workspace_id, id) for workspace_id, id in hinted)
