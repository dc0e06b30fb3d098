"""The gate before a workspace's marketing: a cap on how often, and quiet hours.

A message that waits for either is no intent: it is judged again, whole, when it is due. What a
workspace has set stands on its row, which every intent reads anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from hashlib import sha256
from typing import Any
from zoneinfo import ZoneInfo

from app.machine import calendar, fields
from app.machine.calendar import DAYS
from app.machine.categories import MARKETING

SPREAD = timedelta(minutes=15)  # over which what was held leaves: not all at the first minute


@dataclass(frozen=True, slots=True)
class FrequencyCap:
    """Limit of marketing: at most `limit` messages to a contact within the `window`. It is over all
    flows and broadcasts; with `channel`, over those on it alone."""

    limit: int
    window: timedelta
    channel: str | None = None

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> FrequencyCap | None:
        """Read the cap of a workspace's row."""
        if stored is None:
            return None
        window = fields.parse_duration(stored["window"])
        if window is None:
            raise ValueError(f"a window was saved that is no duration: {stored['window']}")
        return cls(stored["limit"], window, stored.get("channel"))

    def applies(self, category: str, channel: str) -> bool:
        return category == MARKETING and self.channel in (None, channel)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of no marketing, from one local time to another. They go past midnight if the second is
    earlier, and are a whole day if it is the same; `days` are those on which they begin."""

    begin: time
    end: time
    by_contact: bool
    channels: Collection[str]
    days: Collection[str]
    max_wait: timedelta | None

    @classmethod
    def of(cls, stored: Mapping[str, Any] | None) -> QuietHours | None:
        """Read the quiet hours of a workspace's row."""
        if stored is None:
            return None
        longest = stored.get("maxWait")
        return cls(
            time.fromisoformat(stored["from"]),
            time.fromisoformat(stored["to"]),
            stored["timezone"] == "contact",
            stored["channels"],
            stored["days"],
            fields.parse_duration(longest) if longest else None,
        )

    def applies(self, category: str, channel: str) -> bool:
        return category == MARKETING and channel in self.channels

    def until(
        self, now: datetime, contact_timezone: str | None, workspace_timezone: str
    ) -> datetime | None:
        """Find when they end, if it is quiet now; else None. A contact without a zone that is known
        has the workspace's."""
        zone = calendar.zone(contact_timezone if self.by_contact else None, workspace_timezone)
        ends = None
        for _ in DAYS:  # those that follow one another without a pause, as whole days do
            later = self._end(ends or now, zone)
            if later is None:
                break
            ends = later
        return ends

    def are_too_long(self, since: datetime, ends: datetime) -> bool:
        """Return whether a message may not wait from `since` until they end. Where it leaves within
        the spread behind them does not matter: each who judges it would have another answer."""
        return self.max_wait is not None and ends - since > self.max_wait

    def _end(self, now: datetime, zone: ZoneInfo) -> datetime | None:
        today = now.astimezone(zone).date()
        ends = []
        for day in (today - timedelta(days=1), today):
            if DAYS[day.weekday()] in self.days:
                last_day = day + timedelta(days=self.end <= self.begin)
                begin = calendar.instant(datetime.combine(day, self.begin), zone)
                end = calendar.last_instant(datetime.combine(last_day, self.end), zone)
                if begin <= now < end:
                    ends.append(end)
        return max(ends, default=None)


def released(ends: datetime, message_id: str) -> datetime:
    """Compute when a message that was held leaves. That is somewhere within the quarter of an hour
    behind the end, at the same moment whenever it is asked."""
    share = int.from_bytes(sha256(message_id.encode()).digest()[:4], "big") / 2**32
    return ends + SPREAD * share
