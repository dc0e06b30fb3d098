"""The settings of the gate before marketing, as clients and files write them."""

from __future__ import annotations

from datetime import time, timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from app.consent.gate import SPREAD
from app.machine.content import ChannelName
from app.machine.fields import parse_duration
from app.web.body import Shape, TimeOfDay

LONGEST_WINDOW = timedelta(days=366)


def _window(text: str) -> str:
    length = parse_duration(text)
    if length is None or not timedelta(minutes=1) <= length <= LONGEST_WINDOW:
        raise ValueError("Must be a duration of a minute to 366 days, such as P7D or PT12H.")
    return text


Window = Annotated[str, AfterValidator(_window)]
ENDLESS = "Whole days of the whole week have no end: leave out a day, or choose two times."
PAUSE = "Leave a quarter of an hour before they begin again: in it, what has waited is sent."
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


class FrequencyCap(Shape):
    """A contact gets at most `limit` messages of marketing within the `window`, over all flows and
    broadcasts; with a `channel`, of those on it. Messages must be kept for as long as the `window`
    (`retentionDays`)."""

    limit: Annotated[int, Field(ge=1, le=1_000)]
    window: Window
    channel: ChannelName | None = None


class QuietHours(Shape):
    """Marketing waits from one local time to another, past midnight if that is earlier, or a whole
    day if both are the same, in the zone of the contact or, if that is unknown, of the workspace.
    `days` are those on which they begin. What would wait for longer than `maxWait` is not sent."""

    begin: Annotated[TimeOfDay, Field(alias="from")]
    end: Annotated[TimeOfDay, Field(alias="to")]
    timezone: Literal["contact", "workspace"] = "contact"
    channels: Annotated[list[ChannelName], Field(min_length=1)] = Field(
        default_factory=lambda: list(get_args(ChannelName))
    )
    days: Annotated[list[Day], Field(min_length=1)] = Field(
        default_factory=lambda: list(get_args(Day))
    )
    max_wait: Window | None = None

    @model_validator(mode="after")
    def _have_an_end(self) -> Self:
        week = get_args(Day)
        if self.begin == self.end:  # whole days, of which those that meet are one
            if {*week} <= {*self.days}:
                raise ValueError(ENDLESS)
        elif any({*pair} <= {*self.days} for pair in pairwise((*week, week[0]))):
            begin, end = (time.fromisoformat(one) for one in (self.begin, self.end))
            pause = timedelta(hours=begin.hour - end.hour, minutes=begin.minute - end.minute)
            if pause % timedelta(days=1) < SPREAD:  # from an end to the next beginning
                raise ValueError(PAUSE)
        return self


def stored(rule: FrequencyCap | QuietHours | None) -> dict[str, Any] | None:
    """The form that the workspace's row has."""
    return None if rule is None else rule.model_dump(by_alias=True)
