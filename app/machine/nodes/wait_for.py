"""wait_for: what the contact does, or what becomes true of it; the first of several wins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from app.machine import condition, document, segment_changes, template
from app.machine.condition_schema import OPERAND
from app.machine.fields import YEAR, Field, Place, lasting, line
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, fork, onward
from app.machine.program import Changed, Event, Happened, Json, Moved, WaitFor, Woken
from app.machine.reasons import Reason
from app.machine.schema import BLANK, Schema, given, needs, one_of

MOST_CONDITIONS = 8
SEGMENTS: Mapping[str, bool] = {"segmentEntered": True, "segmentLeft": False}
AWAITED = ("event", "when", *SEGMENTS)  # of a condition, one of them
_WITH_EVENT = template.ROOTS | {"event"}


def wait_for(visit: Visit) -> NodeOutcome:
    held = _holding(visit)
    if held is not None:
        return onward(port=held["port"], code=Reason.ALREADY_TRUE, output=held)
    conditions, timeout = visit.config["conditions"], visit.config.get("timeout")
    effect = WaitFor(
        events=tuple(dict.fromkeys(one["event"] for one in conditions if "event" in one)),
        contact=any("when" in one for one in conditions),
        segments=tuple(what for one in conditions if (what := _move(one)) is not None),
        until=None if timeout is None else visit.facts["now"] + timeout,
    )
    return NodeOutcome("WAITING", effects=(effect,))


def on_event(visit: Visit, event: Event) -> NodeOutcome | None:
    match event:
        case Happened():
            return _after(visit, event)
        case Moved():
            for one in visit.config["conditions"]:
                if _move(one) == event.what:
                    return onward(port=one["port"], output={"port": one["port"], "operands": []})
            return None
        case Changed():
            held = _holding(visit)
            return None if held is None else onward(port=held["port"], output=held)
        case Woken():
            return onward(port="timeout", code=Reason.TIMED_OUT)
        case _:
            return None


def _holding(visit: Visit) -> dict[str, Json] | None:
    """The first condition that is true as things are, and what decided it."""
    for one in visit.config["conditions"]:
        if "when" in one:
            verdict = condition.evaluate(one["when"], visit.facts)
            if verdict.holds:
                return {"port": one["port"], "operands": list(verdict.operands)}
    return None


def _move(one: Mapping[str, Json]) -> str | None:
    """The move that the condition waits for, as Moved has it."""
    for name, entered in SEGMENTS.items():
        if name in one:
            return segment_changes.moved(one[name], entered=entered)
    return None


def _after(visit: Visit, event: Happened) -> NodeOutcome | None:
    happened = {"name": event.name, "properties": event.properties, "at": document.text(event.at)}
    facts = {**visit.facts, "event": happened}
    for one in visit.config["conditions"]:
        if one.get("event") != event.name:
            continue
        operands: tuple[Mapping[str, Json], ...] = ()
        if "match" in one:
            verdict = condition.evaluate(one["match"], facts)
            if not verdict.holds:
                continue
            operands = verdict.operands
        output = {"port": one["port"], "event": happened, "operands": list(operands)}
        return onward(port=one["port"], output=output, noted={"event": happened})
    return None


# --- its configuration --------------------------------------------------------------------------


def _one(config: Config, place: Place) -> Config:
    """Something that happens, perhaps with a match, or something that is true."""
    given = [name for name in AWAITED if name in config]
    if len(given) > 1:
        place.at(given[1]).hold("both", "Each condition waits for one thing; give another its own.")
    elif "match" in config and "event" not in config:
        place.at("match").hold("needs_event", "A match needs an event; say which.")
    elif not given and not place.has_findings(*AWAITED):
        place.at("event").hold("missing", "Say what to wait for: an event, a segment, or when.")
    return config


_conditions = fork(
    "condition",
    {
        "event": Field(line, about="The name of an event of the contact, or else `when`."),
        "match": Field(
            condition.over(_WITH_EVENT),
            about="What must be true when the event comes; reads `event.properties` too.",
        ),
        "when": Field(condition.read_condition, about="What must become true, or else `event`."),
        "segmentEntered": Field(line, about="The ID of a segment that the contact enters."),
        "segmentLeft": Field(line, about="The ID of a segment that the contact leaves."),
    },
    _one,
    rules=(one_of(*AWAITED), needs("match", given("event"))),
    most=MOST_CONDITIONS,
)
# The timeout of a step may be an arm.
_LENGTHS = {"after": {"not": BLANK}, "timeout": {"type": "string", "minLength": 1}}
_ONE_LENGTH: Schema = {"not": {"required": [*_LENGTHS], "properties": _LENGTHS}}


def _settle(config: Config, place: Place) -> Config:
    conditions = config.get("conditions", [])
    at = place.at("conditions")
    if len(conditions) > MOST_CONDITIONS:
        at.refuse("too_many", f"A step waits for at most {MOST_CONDITIONS} things at once.")
    asked = [one[name] for one in conditions for name in ("when", "match") if name in one]
    condition.limit(asked, at)
    after = config.pop("after", None)
    if after is not None and "timeout" in config:
        place.at("after").hold("both", "Give a timeout or after, not both; they say the same.")
    return config if after is None else {"timeout": after, **config}


def _rests(config: Mapping[str, Json]) -> bool:
    """Return whether a run always waits here. Not when something may be true already, nor without
    time."""
    conditions = config.get("conditions", ())
    return config.get("timeout") != timedelta(0) and not any("when" in one for one in conditions)


WAIT_FOR = NodeKind(
    wait_for,
    "Waits for something that the contact does, or that becomes true of it; the first one wins.",
    {"conditions": [{"port": "ordered", "event": "order_placed"}], "timeout": "P3D"},
    on_event,
    fields={
        "conditions": Field(
            _conditions,
            "Say what to wait for.",
            f"What to wait for. All make at most {condition.MOST_COMPARISONS} comparisons.",
        ),
        "timeout": Field(
            lasting(YEAR),
            about=f"How long to wait, at most {YEAR.days} days; without it, forever. In steps, a"
            " list is the arm that is taken then.",
        ),
        "after": Field(
            lasting(YEAR), about="The same as a duration in `timeout`, for a step with that arm."
        ),
    },
    settle=_settle,
    ports=("timeout",),
    given=("timeout",),
    fork="conditions",
    waits=_rests,
    exits={"timeout": "the time is over"},
    rules=(_ONE_LENGTH,),
    output={
        "port": {"type": "string", "description": "The condition that won."},
        "event": {
            "type": "object",
            "description": "The event, with its `name`, `properties`, `at`.",
        },
        "operands": {"type": "array", "items": OPERAND, "description": "What decided."},
    },
)
