"""deliver: messages are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import delivery
from app.process import Process
from workers.pool import WorkerPool

CONCURRENCY = 64  # most of the time they wait for a provider; half of them for one workspace


def pool(process: Process) -> WorkerPool:
    return WorkerPool(
        process, "messages", delivery.claim, delivery.deliver, concurrency=CONCURRENCY
    )


async def deliver(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, message_id] pairs, a shortcut and not the work."""
    ctx["deliver"].hint((workspace_id, id) for workspace_id, id in hinted)
