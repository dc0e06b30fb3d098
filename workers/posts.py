"""post: events are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import posting
from app.process import Process
from workers.pool import WorkerPool

CONCURRENCY = 32  # with that of calls less than the guarded client's connections


def pool(process: Process) -> WorkerPool:
    return WorkerPool(
        process, "event_attempts", posting.claim, posting.post, concurrency=CONCURRENCY
    )


async def post(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, attempt_id] pairs, a shortcut and not the work."""
    ctx["post"].hint((workspace_id, id) for workspace_id, id in hinted)
