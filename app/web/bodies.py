"""The memory that request bodies take: one budget for the process, shared fairly.

What has arrived counts, and not what was announced: a body that is held back costs nothing, and who
announces much takes nothing from others. A body may begin while half of a share is free, so that
those that have begun can end. A small one always may.
"""

from __future__ import annotations

from collections import Counter

from app.errors import Unavailable
from app.runtime.metrics import Metrics

MOST_BYTES = 64 * 1024 * 1024
OF_ONE_ADDRESS = 4  # one part in so many
OF_ONE_WORKSPACE = 2
OF_STRANGERS = 4  # all whose workspace is not known, together
OF_ONE_STRANGER = OF_STRANGERS * OF_ONE_ADDRESS  # or one address would keep all others of them out
STRANGERS = "strangers"
SMALL_BYTES = 16 * 1024  # as much as arrives with a head: shorter bodies are not counted


class Bodies:
    def __init__(self, max_body_bytes: int, metrics: Metrics) -> None:
        """Room for eight of the largest at least: four of one address, of which two begin."""
        self._most = max(MOST_BYTES, 2 * 2 * OF_ONE_ADDRESS * max_body_bytes)
        self._metrics = metrics
        self._bytes = 0
        self._of: Counter[str] = Counter()

    def take(self, hold: Hold, count: int) -> None:
        """Raises Unavailable."""
        part = 1 if hold.bytes else 2
        allowed = self._bytes + count <= self._most // part and all(
            self._of[owner] + count <= self._most // share // part
            for owner, share in hold.shares.items()
        )
        if not allowed:
            self._metrics.count("tidings_bodies_refused")
            self.release(hold)  # what had arrived of it is dropped, and others go on
            raise Unavailable(
                "This process holds as many request bodies as it may, in all or of yours; send"
                " fewer at once."
            )
        self._add(hold, count)

    def release(self, hold: Hold) -> None:
        if hold.bytes:
            self._add(hold, -hold.bytes)

    def _add(self, hold: Hold, count: int) -> None:
        hold.bytes += count
        self._bytes += count
        self._metrics.set("tidings_body_bytes", self._bytes)
        for owner in hold.shares:
            self._of[owner] += count
            if not self._of[owner]:
                del self._of[owner]


class Hold:
    """One request's hold on the budget, and whose share that is. Its sender is known from
    the head, and so is the workspace, where a bearer names it."""

    __slots__ = ("bytes", "shares", "source")

    def __init__(self, source: str) -> None:
        self.bytes = 0
        self.source = source
        self.shares = {
            source: OF_ONE_ADDRESS,
            STRANGERS: OF_STRANGERS,
            STRANGERS + source: OF_ONE_STRANGER,
        }

    def belongs_to(self, owner: str) -> None:
        """Share the hold with a workspace, or with whom the operator gave a URL. Called before the
        first byte is taken."""
        self.shares = {self.source: OF_ONE_ADDRESS, owner: OF_ONE_WORKSPACE}
