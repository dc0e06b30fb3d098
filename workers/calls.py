"""call: HTTP requests are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.process import Process
from app.runs import calling
from workers.crew import Crew

HANDS = 64  # each waits for a server most of the time; half of them for one workspace


def crew(process: Process) -> Crew:
    return Crew(process, "calls", calling.claim, calling.make, hands=HANDS)


async def call(ctx: Mapping[str, Any], hinted: Sequence[Sequence[str]]) -> None:
    """The arq job; `hinted` are [workspace_id, call_id] pairs, a shortcut and not the work."""
    ctx["call"].hint((workspace_id, id) for workspace_id, id in hinted)
