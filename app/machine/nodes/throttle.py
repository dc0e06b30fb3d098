"""throttle: lets a contact through only so often in any stretch of time."""

from __future__ import annotations

from app.machine.fields import YEAR, Field, count, lasting, liquid
from app.machine.kind import NodeKind, NodeOutcome, Visit, onward
from app.machine.program import Event, Limited, Take, Taken
from app.machine.reasons import Reason

MOST = 1_000


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


THROTTLE = NodeKind(
    throttle,
    "Lets a contact pass at most `limit` times in any `window`.",
    {"limit": 1, "window": "P1D"},
    counted,
    fields={
        "limit": Field(
            count(1, MOST), "Say how often a contact may pass.", "How often a contact may pass."
        ),
        "window": Field(
            lasting(YEAR, positive=True),
            "Say in what time, such as P1D.",
            f"In what time: longer than zero, at most {YEAR.days} days.",
        ),
        "key": Field(
            liquid, about="Counts apart for each value, such as a product; may contain Liquid."
        ),
    },
    ports=("next", "limited"),
    ends=("limited",),
    exits={"limited": "the contact has passed as often as it may; unwired, it ends the run"},
    output={"key": {"type": "string", "description": "The value that was counted for."}},
)
