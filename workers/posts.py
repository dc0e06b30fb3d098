"""post: events are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app import posting
from app.process import Process
from workers.crew import Crew

HANDS = 32  # with those of calls fewer than connections of the guarded client


def crew(process: Process) -> Crew:
    return Crew(process, "event_attempts", posting.claim, posting.post, hands=HANDS)


async def post(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, attempt_id] pairs, a shortcut and not the work."""
    ctx["post"].hint((workspace_id, id) for workspace_id, id in hinted)
