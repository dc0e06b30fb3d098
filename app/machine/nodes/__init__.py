"""One function per node kind, and the table NODES.

A function enters a node and returns a NodeOutcome: what to do, what to note, and which port to
leave by. A kind that waits also says how it goes on once the awaited event has come. A new kind is
its function, its row in NODES, and its tests; both compilers and all checks read the row. A kind
over forty lines has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.machine import condition
from app.machine.condition_schema import TRIED
from app.machine.fields import Field, Place, liquid
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, fork, missing, onward
from app.machine.nodes.http_request import HTTP_REQUEST
from app.machine.nodes.send_message import SEND_MESSAGE
from app.machine.nodes.split import SPLIT
from app.machine.nodes.start_workflow import START_WORKFLOW
from app.machine.nodes.throttle import THROTTLE
from app.machine.nodes.update_contact import UPDATE_CONTACT
from app.machine.nodes.wait import WAIT
from app.machine.nodes.wait_for import WAIT_FOR
from app.machine.program import AddTag, Effect, Json, RemoveTag
from app.machine.reasons import Reason
from app.machine.schema import MISSING
from app.machine.template import Rendered, RenderError


def branch(visit: Visit) -> NodeOutcome:
    tried: list[Json] = []
    for case in visit.config["cases"]:
        verdict = condition.evaluate(case["when"], visit.facts)
        operands = list(verdict.operands)
        tried.append({"port": case["port"], "holds": verdict.holds, "operands": operands})
        if verdict.holds:
            return onward(port=case["port"], output={"cases": tried})
    return onward(port="else", code=Reason.CONDITION_FALSE, output={"cases": tried})


def _few_enough(config: Config, place: Place) -> Config:
    asked = [case["when"] for case in config.get("cases", ()) if "when" in case]
    condition.limit(asked, place.at("cases"))
    return config


LONGEST_REASON = 500


def leave(visit: Visit) -> NodeOutcome:
    if "reason" not in visit.config:
        return NodeOutcome("COMPLETED")
    try:
        rendered: Rendered = visit.config["reason"].render(visit.facts)
    except RenderError as error:  # the run ends here anyway, and not because of this
        return NodeOutcome("COMPLETED", code=Reason.TEMPLATE_ERROR, detail=error.message)
    reason = " ".join(rendered.text.split())[:LONGEST_REASON]
    return NodeOutcome("COMPLETED", detail=reason, output=missing(rendered.missing) or None)


def add_tag(visit: Visit) -> NodeOutcome:
    return _tag(visit, AddTag)


def remove_tag(visit: Visit) -> NodeOutcome:
    return _tag(visit, RemoveTag)


def _tag(visit: Visit, change: Callable[[str], Effect]) -> NodeOutcome:
    rendered: Rendered = visit.config["tag"].render(visit.facts)
    tag = rendered.text.strip()
    output = {"tag": tag, **missing(rendered.missing)}
    if not tag:
        return onward(code=Reason.TAG_EMPTY, output=output)
    return onward(effects=(change(tag),), output=output)


# --- the table ----------------------------------------------------------------------------------

_TAG = {"tag": Field(liquid, "Say which tag.", "The tag; may contain Liquid.")}
_TAGGED = {"tag": {"type": "string", "description": "The tag, rendered."}, **MISSING}
_CASES = fork(
    "case",
    {"when": Field(condition.read_condition, "Say when this case holds.", "The condition.")},
)

NODES: Mapping[str, NodeKind] = {
    "send_message": SEND_MESSAGE,
    "wait": WAIT,
    "wait_for": WAIT_FOR,
    "branch": NodeKind(
        branch,
        "Takes the first case whose condition holds, otherwise `else`. The record keeps what was"
        " compared.",
        {"cases": [{"when": {"path": "trigger.data.plan", "op": "eq", "value": "pro"}}]},
        fields={
            "cases": Field(
                _CASES,
                "A branch needs at least one case.",
                "The cases, in the order in which they are tried. All conditions of a branch make"
                f" at most {condition.MOST_COMPARISONS} comparisons.",
            )
        },
        settle=_few_enough,
        ports=("else",),
        fork="cases",
        exits={"else": "no case holds"},
        output={"cases": {"type": "array", "items": TRIED, "description": "What was tried."}},
    ),
    "split": SPLIT,
    "update_contact": UPDATE_CONTACT,
    "add_tag": NodeKind(
        add_tag, "Adds a tag to the contact.", {"tag": "customer"}, fields=_TAG, output=_TAGGED
    ),
    "remove_tag": NodeKind(
        remove_tag, "Removes a tag of the contact.", {"tag": "lead"}, fields=_TAG, output=_TAGGED
    ),
    "http_request": HTTP_REQUEST,
    "start_workflow": START_WORKFLOW,
    "throttle": THROTTLE,
    "exit": NodeKind(
        leave,
        "Ends the run.",
        {"reason": "{{contact.firstName}} has bought."},
        fields={
            "reason": Field(
                liquid,
                about="Why, for the record; may contain Liquid. The first"
                f" {LONGEST_REASON} characters are kept.",
            )
        },
        ports=(),
        output=MISSING,
    ),
}
