"""step(program, state, event, facts) → Step: the whole interpreter, pure and total.

It enters the node that the run stands at, or goes on in the one that it waits in, and answers with
the next state, the effects and the record. An event that nothing waits for changes nothing. Nothing
here raises on anybody's data: a node that cannot go on ends its run as FAILED, with a Reason.
"""

from __future__ import annotations

from dataclasses import replace

from app.machine import document
from app.machine.kind import NodeOutcome, Visit
from app.machine.nodes import NODES
from app.machine.program import (
    Event,
    Facts,
    Finish,
    Go,
    Limited,
    Program,
    Record,
    State,
    Step,
    Taken,
)
from app.machine.reasons import SENTENCES, Reason
from app.machine.template import RenderError

MOST_VISITS = 10_000
MOST_BETWEEN_WAITS = 1_000
MOST_NOTED = 512 * 1024  # bytes of JSON in all: eight answers, each as long as a call keeps one


def start(program: Program) -> State:
    """Create the state of a run before the program's first node."""
    return State(at=program.entry)


def only(program: Program, state: State) -> Program:
    """The program without the nodes that this step does not concern."""
    at = state.at or ""
    return Program(program.entry, {at: program.nodes[at]} if at in program.nodes else {})


def step(program: Program, state: State, event: Event, facts: Facts) -> Step:
    """Enter the node where the state stands, on Go, or resume it with what it waits for.

    An event that the node does not wait for changes nothing: a Step without a record. A node
    that is not known, or is visited too often, fails the run."""
    if state.at is None:
        return Step(state, (Finish("COMPLETED"),), None)
    node = program.nodes.get(state.at)
    if node is None or node.kind not in NODES:
        lost = Finish("FAILED", Reason.STEP_MISSING, SENTENCES[Reason.STEP_MISSING])
        return Step(replace(state, waiting=False), (lost,), None)
    if not isinstance(event, Taken | Limited):  # which concern nothing in it
        facts = document.read_trigger(facts)
    facts = {**facts, "steps": state.outputs}
    kind = NODES[node.kind]
    if state.waiting:
        visit = Visit(node, state.visits.get(node.id, 1), facts)
        resumed = kind.resume(visit, event) if kind.resume else None
        if resumed is None:
            return Step(state, (), None)
        since_wait = 0 if kind.waits(node.config) else state.since_wait
        return _settle(replace(state, since_wait=since_wait), visit, resumed)
    if not isinstance(event, Go):
        return Step(state, (), None)
    visit = Visit(node, state.visits.get(node.id, 0) + 1, facts)
    visits = {**state.visits, node.id: visit.number}
    state = replace(state, visits=visits, since_wait=state.since_wait + 1)
    if state.since_wait > MOST_BETWEEN_WAITS or sum(visits.values()) > MOST_VISITS:
        return _settle(state, visit, NodeOutcome("FAILED", code=Reason.VISIT_LIMIT))
    try:
        outcome = kind.enter(visit)
    except RenderError as error:
        outcome = NodeOutcome("FAILED", code=Reason.TEMPLATE_ERROR, detail=error.message)
    return _settle(state, visit, outcome)


def unfinished(program: Program, state: State, detail: str) -> Step:
    """The end of a step that takes too long: its templates are at fault."""
    node = program.nodes[state.at or ""]
    visit = Visit(node, state.visits.get(node.id, 0) + (not state.waiting), {"steps": {}})
    state = replace(state, visits={**state.visits, node.id: visit.number})
    outcome = NodeOutcome("FAILED", code=Reason.TEMPLATE_ERROR, detail=detail)
    return _settle(state, visit, outcome)


def _settle(state: State, visit: Visit, outcome: NodeOutcome) -> Step:
    """The step that an outcome amounts to."""
    node = visit.node
    if outcome.noted is not None:
        outputs = {**state.outputs, node.id: outcome.noted}
        # The run's every step reads and writes them all, on the event loop.
        if len(document.dumps(outputs)) > MOST_NOTED:
            outcome = NodeOutcome("FAILED", code=Reason.OUTPUTS_TOO_LARGE, output=outcome.output)
        else:
            state = replace(state, outputs=outputs)
    detail = outcome.detail or SENTENCES.get(outcome.code or "")
    record = Record(
        node.id,
        node.kind,
        visit.number,
        outcome.status,
        outcome.code,
        detail,
        outcome.port,
        outcome.output,
    )
    if outcome.status == "WAITING":
        return Step(replace(state, waiting=True), outcome.effects, record)
    if outcome.status == "FAILED":
        failed = Finish("FAILED", outcome.code, detail)
        return Step(replace(state, waiting=False), (*outcome.effects, failed), record)
    at = node.exits.get(outcome.port) if outcome.port else None
    ended = () if at else (Finish("COMPLETED", detail=None if outcome.port else detail),)
    return Step(replace(state, at=at, waiting=False), (*outcome.effects, *ended), record)
