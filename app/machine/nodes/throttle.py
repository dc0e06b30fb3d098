"""throttle: lets a contact through only so often in any stretch of time."""

from __future__ import annotations

from datetime import timedelta

from app.machine.fields import Field, Place, count, duration, liquid
from app.machine.kind import NodeKind, NodeOutcome, Visit, onward
from app.machine.program import Event, Json, Limited, Take, Taken
from app.machine.reasons import Reason

MOST = 1_000
LONGEST = timedelta(days=366)


def throttle(visit: Visit) -> NodeOutcome:
    config = visit.config
    key = config["key"].render(visit.facts).text.strip() if "key" in config else ""
    take = Take(visit.node.id, config["limit"], config["window"], key)
    return NodeOutcome("WAITING", effects=(take,), noted={"key": key} if key else None)


def counted(visit: Visit, event: Event) -> NodeOutcome | None:
    match event:
        case Taken():
            return onward(output=visit.noted or None)
        case Limited():
            return onward(port="limited", code=Reason.THROTTLED, output=visit.noted or None)
        case _:
            return None


def _window(value: Json, place: Place) -> timedelta | None:
    length = duration(value, place, longest=LONGEST)
    if length == timedelta(0):
        place.hold("bad_duration", "A window must be longer than zero, such as P1D.")
        return None
    return length


THROTTLE = NodeKind(
    throttle,
    counted,
    fields={
        "limit": Field(count(1, MOST), "Say how often a contact may pass."),
        "window": Field(_window, "Say in what time, such as P1D."),
        "key": Field(liquid),
    },
    ports=("next", "limited"),
    ends=("limited",),
)
