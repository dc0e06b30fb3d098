"""start_workflow: start another workflow or automation for the same contact."""

from __future__ import annotations

from collections.abc import Mapping

from app.machine import document
from app.machine.fields import Field, Liquid, Place, described_by, line, liquid
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, missing, onward
from app.machine.program import Json, StartRun
from app.machine.reasons import Reason
from app.machine.schema import MISSING, one_of

MOST_VALUES = 50
DEEPEST = 8
MOST_BYTES = 256 * 1024
TARGETS = ("workflowId", "automationId")


def start_workflow(visit: Visit) -> NodeOutcome:
    absent: list[str] = []
    data = _rendered(visit.config.get("data", {}), visit, absent)
    target = next(visit.config[name] for name in TARGETS if name in visit.config)
    if len(document.dumps(data)) > MOST_BYTES:
        return NodeOutcome("FAILED", code=Reason.DATA_TOO_LARGE)
    return onward(effects=(StartRun(target, data),), output=missing(absent) or None)


def _rendered(value: Json, visit: Visit, absent: list[str]) -> Json:
    match value:
        case Liquid():
            rendered = value.render(visit.facts)
            absent += rendered.missing
            return rendered.text
        case dict():
            return {name: _rendered(inner, visit, absent) for name, inner in value.items()}
        case list():
            return [_rendered(inner, visit, absent) for inner in value]
        case _:
            return value


# --- its configuration --------------------------------------------------------------------------


@described_by({"type": "object"})
def _data(raw: Json, place: Place) -> Mapping[str, Json] | None:
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "This must be an object; strings in it may be Liquid.")
        return None
    # All within, objects and lists too. Without recursion: a body may be nested 128 deep.
    values = [*raw.values()]
    for one in values:
        if isinstance(one, dict | list):
            values += one.values() if isinstance(one, dict) else one
    if len(values) > MOST_VALUES:
        place.refuse("too_many", f"Pass on at most {MOST_VALUES} values.")
        return None
    read: Mapping[str, Json] = _read(raw, place, 1)
    return read


def _read(value: Json, place: Place, depth: int) -> Json:
    if depth > DEEPEST:
        place.refuse("too_deep", f"Values may be nested at most {DEEPEST} deep.")
        return None
    match value:
        case str():
            return liquid(value, place)
        case dict():
            return {name: _read(inner, place.at(name), depth + 1) for name, inner in value.items()}
        case list():
            return [_read(inner, place.at(index), depth + 1) for index, inner in enumerate(value)]
        case _:
            return value


def _settle(config: Config, place: Place) -> Config:
    named = [name for name in TARGETS if name in config]
    if not named and not place.has_findings(*TARGETS):
        place.at("workflowId").hold("missing", "Say what to start: a workflowId or automationId.")
    elif len(named) > 1:
        place.at("automationId").hold("both", "Give a workflowId or an automationId, not both.")
    return config


START_WORKFLOW = NodeKind(
    start_workflow,
    "Starts another workflow or automation for the contact, and goes on.",
    {"workflowId": "wfl_01kk8f3m9xe2vb4z7c1q5t6w8y", "data": {"plan": "{{trigger.data.plan}}"}},
    fields={
        "workflowId": Field(line, about="The workflow to start, or else `automationId`."),
        "automationId": Field(line, about="The automation to start, or else `workflowId`."),
        "data": Field(
            _data,
            about="What the started run reads as `trigger`; every text in it may contain Liquid. At"
            f" most {MOST_VALUES} values, nested at most {DEEPEST} deep.",
        ),
    },
    settle=_settle,
    rules=(one_of(*TARGETS),),
    output={"runId": {"type": "string", "description": "The run that was started."}, **MISSING},
)
