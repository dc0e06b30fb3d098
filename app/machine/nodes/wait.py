"""wait: for a length of time, until a moment, or for the next time of day in somebody's zone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from app.machine import calendar, document
from app.machine.fields import YEAR, Field, Place, described_by, lasting, line, liquid, quote
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, missing, onward
from app.machine.program import Event, Json, WaitUntil, Woken
from app.machine.reasons import Reason
from app.machine.schema import ACTIVE, MISSING, given, needs, one_of
from app.machine.template import Rendered


def wait(visit: Visit) -> NodeOutcome:
    if "until" in visit.config:
        rendered: Rendered = visit.config["until"].render(visit.facts)
        text = rendered.text.strip()
        until = calendar.read(text, _zone(visit))
        if until is None:
            return NodeOutcome(
                "FAILED",
                code=Reason.TIME_UNREADABLE,
                detail=f"{quote(text)} is not a time; write it like 2026-11-02T09:00:00Z.",
                output=missing(rendered.missing) or None,
            )
        noted = {"until": document.text(until), **missing(rendered.missing)}
        if until <= visit.facts["now"]:
            return onward(code=Reason.TIME_PASSED, output=noted, noted=noted)
        return _rest(until, noted)
    if "time" in visit.config:
        zone, at = _zone(visit), time.fromisoformat(visit.config["time"])
        days = visit.config.get("days", calendar.DAYS)
        # Never the present moment, so that a walk that comes round to it again really rests.
        moment = calendar.next_time(visit.facts["now"], at, days, zone)
        return _rest(moment, {"until": document.text(moment), "timezone": zone.key})
    length: timedelta = visit.config["duration"]
    return _rest(visit.facts["now"] + length) if length else onward()


def woken(visit: Visit, event: Event) -> NodeOutcome | None:
    return onward(output=visit.noted or None) if isinstance(event, Woken) else None


def _rest(until: datetime, noted: Mapping[str, Json] | None = None) -> NodeOutcome:
    """`noted` also stands for `{{steps.<id>…}}`, and in the record once the wait is over."""
    return NodeOutcome("WAITING", effects=(WaitUntil(until),), output=noted, noted=noted)


def _zone(visit: Visit) -> ZoneInfo:
    """A contact without a time zone lives in the workspace's."""
    named = visit.config.get("timezone", "workspace" if "time" in visit.config else "UTC")
    home = (visit.facts["workspace"] or {}).get("timezone")
    match named:
        case "contact":
            return calendar.zone((visit.facts["contact"] or {}).get("timezone"), home)
        case "workspace":
            return calendar.zone(home)
        case _:
            return calendar.zone(named, home)


# --- its configuration --------------------------------------------------------------------------


@described_by(
    {**line.schema, "examples": ["09:00"], ACTIVE: {"pattern": calendar.TIME_OF_DAY["pattern"]}}
)
def _time_of_day(value: Json, place: Place) -> str | None:
    text = line(value, place)
    try:
        return None if text is None else calendar.check_time(text)
    except ValueError as error:
        place.hold("bad_time", str(error))
        return None


@described_by({"type": "array", "items": {"enum": list(calendar.DAYS)}, ACTIVE: {"minItems": 1}})
def _days(value: Json, place: Place) -> list[str] | None:
    if not isinstance(value, list):
        place.refuse("wrong_type", f"This must be a list of days: {', '.join(calendar.DAYS)}.")
        return None
    for index, day in enumerate(value):
        if day not in calendar.DAYS:
            known = ", ".join(calendar.DAYS)
            place.at(index).refuse("wrong_type", f"A day must be one of {known}.")
    if not value:
        place.hold("missing", "Give at least one day, or leave days out for every day.")
        return None
    return [day for day in calendar.DAYS if day in value]


@described_by(line.schema)
def _timezone(value: Json, place: Place) -> str | None:
    text = line(value, place)
    if text is None or text in ("contact", "workspace") or text in calendar.names():
        return text
    place.hold(
        "bad_timezone",
        f"{quote(text)} is not a time zone; write contact, workspace or a name like Europe/Berlin.",
    )
    return None


_KINDS = ("duration", "until", "time")


def _settle(config: Config, place: Place) -> Config:
    """One way to say how long; days only with a time of day, a zone with what is read in one."""
    given = [name for name in _KINDS if name in config]
    if not given and not place.has_findings(*_KINDS):
        example = "a duration such as PT1H or P3D, until, or a time of day"
        place.at("duration").hold("missing", f"Say how long to wait: {example}.")
    for name in given[1:]:
        place.at(name).hold("both", f"Give {given[0]} or {name}, not both.")
    if "days" in config and "time" not in config:
        place.at("days").hold("needs_time", "Days need a time of day; give a time.")
    if "timezone" in config and given == ["duration"]:
        place.at("timezone").hold(
            "needs_time", "A duration does not depend on the time zone; leave timezone out."
        )
    return config


def _rests(config: Mapping[str, Json]) -> bool:
    """Return whether a run always waits here. Not with `until`: a moment that is past lets all
    through."""
    return bool(config.get("duration")) or "time" in config


WAIT = NodeKind(
    wait,
    "Waits: for a `duration`, `until` a moment, or for the next `time` of day.",
    {"time": "09:00", "days": ["mon", "tue", "wed", "thu", "fri"], "timezone": "contact"},
    woken,
    fields={
        "duration": Field(lasting(YEAR), about=f"How long, at most {YEAR.days} days."),
        "until": Field(
            liquid,
            about="A time or a date, such as `{{trigger.data.startsAt}}`. One that is past does not"
            " wait.",
        ),
        "time": Field(_time_of_day, about="A time of day; the next one, never the present moment."),
        "days": Field(_days, about="With `time`: on these days only."),
        "timezone": Field(
            _timezone,
            about="Where the clock stands: `contact`, `workspace`, or a name like Europe/Berlin."
            " Default: `workspace` with `time`; UTC with an `until` that names no offset.",
        ),
    },
    settle=_settle,
    waits=_rests,
    rules=(
        one_of(*_KINDS),
        needs("days", given("time")),
        needs("timezone", {"anyOf": [given("until"), given("time")]}),
    ),
    output={
        "until": {"type": "string", "description": "When the wait ends, or ended."},
        "timezone": {"type": "string", "description": "The zone whose clock was read."},
        **MISSING,
    },
)
