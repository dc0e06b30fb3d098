"""The times at which the messages of a broadcast are due, by the clock of each contact. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta

from app.consent.gate import QuietHours
from app.machine import calendar
from app.store.broadcast_audiences import Turn
from app.store.broadcasts import Broadcast

# A worker begins a moment after `sendAt`, and later after an outage or a pause: a local time that
# came meanwhile is that day's still, if it came no longer ago than this.
GRACE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of messages that leave from `begins_at` on, or at the first local time that is not
    before `since`. `quiet` are the hours that hold them, where it matters when they end."""

    begins_at: datetime
    since: datetime
    local_time: time | None
    timezone: str  # of contacts without one that is known
    quiet: QuietHours | None

    @classmethod
    def of(
        cls,
        broadcast: Broadcast,
        begins_at: datetime,
        timezone: str,
        quiet: QuietHours | None = None,
    ) -> Clock:
        """The clock of a broadcast that begins then, and may have been resumed since."""
        at, goes_on_at = broadcast.local_time, max(begins_at, broadcast.resumed_at or begins_at)
        since = max(broadcast.send_at or begins_at, goes_on_at - GRACE)
        return cls(begins_at, since, time.fromisoformat(at) if at else None, timezone, quiet)

    @property
    def is_by_zone(self) -> bool:
        """True where the turn of a contact depends on its time zone."""
        return self.local_time is not None or (self.quiet is not None and self.quiet.by_contact)

    def turn(self, timezone: str | None) -> Turn:
        due_at = self.begins_at
        if self.local_time is not None:
            zone = calendar.zone(timezone, self.timezone)
            just_before = self.since - datetime.resolution
            due_at = calendar.next_time(just_before, self.local_time, calendar.DAYS, zone)
        ends = self.quiet.until(due_at, timezone, self.timezone) if self.quiet else None
        return Turn(due_at, ends or due_at)
