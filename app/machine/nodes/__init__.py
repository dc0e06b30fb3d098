"""One function per node kind, and the table NODES.

A function enters a node and answers with an Outcome: what to do, what to note, and which port to
leave by. A kind that waits also says how it goes on once the awaited event has come. A new kind is
its function, its row in NODES, and its tests; both compilers and all checks read the row. A kind
over forty lines has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from app.machine import condition
from app.machine.fields import Field, Place, duration, line, liquid
from app.machine.kind import Config, Kind, Outcome, Visit, fork, missing, onward
from app.machine.nodes.send_message import SEND_MESSAGE
from app.machine.nodes.update_contact import UPDATE_CONTACT
from app.machine.program import AddTag, Effect, Event, Json, RemoveTag, WaitUntil, Woken
from app.machine.reasons import Reason
from app.machine.template import Rendered


def wait(visit: Visit) -> Outcome:
    length: timedelta = visit.config["duration"]
    if not length:
        return onward()
    return Outcome("WAITING", effects=(WaitUntil(visit.facts["now"] + length),))


def woken(_visit: Visit, event: Event) -> Outcome | None:
    return onward() if isinstance(event, Woken) else None


def branch(visit: Visit) -> Outcome:
    tried: list[Json] = []
    for case in visit.config["cases"]:
        verdict = condition.evaluate(case["when"], visit.facts)
        operands = list(verdict.operands)
        tried.append({"port": case["port"], "holds": verdict.holds, "operands": operands})
        if verdict.holds:
            return onward(port=case["port"], output={"cases": tried})
    return onward(port="else", code=Reason.CONDITION_FALSE, output={"cases": tried})


MOST_COMPARISONS = 200  # each may look through a list as long as a body can hold


def _few_enough(config: Config, place: Place) -> Config:
    conditions = [case["when"] for case in config.get("cases", ()) if "when" in case]
    if sum(map(condition.comparisons, conditions)) > MOST_COMPARISONS:
        message = f"A branch makes at most {MOST_COMPARISONS} comparisons; split it in two."
        place.at("cases").refuse("too_many", message)
    return config


def leave(visit: Visit) -> Outcome:
    return Outcome("COMPLETED", detail=visit.config.get("reason"))


def add_tag(visit: Visit) -> Outcome:
    return _tag(visit, AddTag)


def remove_tag(visit: Visit) -> Outcome:
    return _tag(visit, RemoveTag)


def _tag(visit: Visit, change: Callable[[str], Effect]) -> Outcome:
    rendered: Rendered = visit.config["tag"].render(visit.facts)
    tag = rendered.text.strip()
    output = {"tag": tag, **missing(rendered.missing)}
    if not tag:
        return onward(code=Reason.TAG_EMPTY, output=output)
    return onward(effects=(change(tag),), output=output)


# --- the table ----------------------------------------------------------------------------------

_wait_length = partial(duration, longest=timedelta(days=366))


def _rests(config: Mapping[str, Json]) -> bool:
    return bool(config.get("duration"))


_TAG = {"tag": Field(liquid, "Say which tag.")}

NODES: Mapping[str, Kind] = {
    "send_message": SEND_MESSAGE,
    "wait": Kind(
        wait,
        woken,
        fields={"duration": Field(_wait_length, "Say how long to wait, such as PT1H or P3D.")},
        waits=_rests,
    ),
    "branch": Kind(
        branch,
        fields={
            "cases": Field(
                fork("case", {"when": Field(condition.read, "Say when this case holds.")}),
                "A branch needs at least one case.",
            )
        },
        settle=_few_enough,
        ports=("else",),
        fork="cases",
    ),
    "update_contact": UPDATE_CONTACT,
    "add_tag": Kind(add_tag, fields=_TAG),
    "remove_tag": Kind(remove_tag, fields=_TAG),
    "exit": Kind(leave, fields={"reason": Field(line)}, ports=()),
}
