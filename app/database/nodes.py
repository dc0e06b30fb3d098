"""Nodes of a sharded database that are silent, as one process sees it.

A coordinator waits for a node that has fallen silent as long as we let it, with a connection of
ours. So, after it was silent for MOST statements in a row, one at a time tries it: whoever else
names a workspace of it is refused at once, and the connections stay free for others.
"""

from __future__ import annotations

import time
from collections import Counter

MOST = 2
REMEMBERED = 100_000  # workspaces
REMEMBERED_SECONDS = 60.0  # shards move


class NodeSilent(OSError):
    """Nothing was asked of the node: another statement waits for it."""


class Nodes:
    def __init__(self) -> None:
        self._of: dict[str, int] = {}  # by workspace
        self._forget_at = 0.0
        self._silent: Counter[int] = Counter()  # statements since its last answer
        self._tried_by: dict[int, object] = {}

    def of(self, workspace_id: str) -> int | None:
        """The number of the node that has the workspace; None where it is not known."""
        if len(self._of) > REMEMBERED or time.monotonic() > self._forget_at:
            self._of.clear()
            self._forget_at = time.monotonic() + REMEMBERED_SECONDS
        return self._of.get(workspace_id)

    def learn(self, workspace_id: str, node: int) -> int:
        self._of[workspace_id] = node
        return node

    def enter(self, node: int, whose: object) -> None:
        """Begin a statement on this connection. Raises NodeSilent."""
        if self._silent[node] >= MOST and self._tried_by.setdefault(node, whose) is not whose:
            raise NodeSilent(f"the node {node} does not answer")

    def answered(self, node: int) -> None:
        self._silent.pop(node, None)
        self._tried_by.pop(node, None)

    def failed(self, node: int) -> None:
        self._silent[node] += 1

    def leave(self, node: int, whose: object) -> None:
        """Leave the node, so that another connection may try it."""
        if self._tried_by.get(node) is whose:
            del self._tried_by[node]
