"""Bounds of looks into the queue: where they begin and how often, not past all that has ended."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WHOLE_SECONDS = 5.0  # between looks from the beginning
SCAN_SHARE = 0.05  # of the time, at most, may go into scans of workspaces
LONGEST_PAUSE_SECONDS = 30.0
RECENT = timedelta(minutes=10)  # what became due since is found first, by this machine's clock
MARGIN = timedelta(seconds=2)  # a transaction that lasts so long makes jobs due before its end
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Pace:
    """Pace of one pool's scans for workspaces, which read past whatever has ended. While any
    transaction stays open, whoever's, no job that has ended leaves the indexes: their beginning
    grows, and takes longer to read by the second. So it is done more seldom then."""

    _began: float = -math.inf  # by the process's clock
    _took: float = 0.0  # seconds

    def begin(self) -> bool:
        """Begin a scan if it may be done now: in at most SCAN_SHARE of the time, as long as the
        pause for that is not LONGEST_PAUSE_SECONDS. Returns whether it may."""
        pause = min(self._took / SCAN_SHARE, LONGEST_PAUSE_SECONDS)
        is_due = time.monotonic() - self._began > pause
        if is_due:
            self._began = time.monotonic()
        return is_due

    def end(self) -> None:
        self._took = time.monotonic() - self._began


@dataclass(slots=True)
class Horizon:
    """Horizon behind which due jobs are not looked for. Each look begins where the one before it
    found the oldest, and now and then at the beginning, for jobs that were made due further
    back."""

    since: datetime = BEGINNING
    _whole_at: float = -math.inf  # when the last look from the beginning was, likewise
    _is_whole: bool = False  # the look that is under way

    def look(self) -> datetime:
        """Find from where to look now. A look from the beginning that has failed, because it took
        too long, is followed by one from where the others were; from a while ago where there was
        none."""
        has_failed, self._is_whole = self._is_whole, False
        if has_failed:
            self._whole_at = time.monotonic()
            if self.since == BEGINNING:
                self.since = datetime.now(UTC) - RECENT
        elif time.monotonic() - self._whole_at > WHOLE_SECONDS:
            self._whole_at, self._is_whole = time.monotonic(), True
            return BEGINNING
        return self.since

    def found(self, oldest: datetime | None, now: datetime, *, is_part: bool = False) -> None:
        """Note the oldest job of a look, if there was any; of a part of the shards, others may have
        been due for longer."""
        self._is_whole = False
        if not is_part:
            self.since = min(oldest or now, now - MARGIN)
        elif oldest is not None:
            self.since = min(self.since, oldest)
