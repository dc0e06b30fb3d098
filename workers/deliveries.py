"""deliver: messages are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import delivery
from app.process import Process
from workers.crew import Crew

HANDS = 64  # each waits for a provider most of the time; half of them for one workspace


def crew(process: Process) -> Crew:
    return Crew(process, "messages", delivery.claim, delivery.deliver, hands=HANDS)


async def deliver(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, message_id] pairs, a shortcut and not the work."""
    ctx["deliver"].hint((workspace_id, id) for workspace_id, id in hinted)
