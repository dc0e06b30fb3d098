"""Programs that nobody thought of: what is true of every one that the check lets pass."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from app.machine import check, document
from app.machine.nodes import NODES
from app.machine.program import Event, MessageEnd, Program, State, Step
from app.machine.reasons import Reason
from app.process import Process
from app.simulation import cases, scenes, simulation, traces
from app.simulation.simulation import MessageOutcome, Scenario, ScenarioEvent, SimulatedRun
from tests.driving import drive, opened_on
from tests.examples import examples
from tests.listener import Asked, Listener, says

START = datetime(2026, 3, 27, 9, tzinfo=UTC)  # two days before clocks change
CONTACT = {
    "email": "ada@example.com",
    "firstName": "Ada",
    "timezone": "Europe/Lisbon",
    "tags": ["red", "vip"],
}
WORDS = ("red", "blue", "vip")
QUICK = examples(200)  # many times as many: make -C lab fuzz-programs
SERVER = "http://server.example"  # answers with the status that its path names
ANSWER = {"word": "red", "total": 1.5}
STARTED = "wfl_" + "0" * 26


# --- programs, as step arrays ---------------------------------------------------------------------

word = st.sampled_from(WORDS)
text = st.sampled_from(
    [
        "{{trigger.word}}",
        "x-{{contact.firstName}}",
        "{{steps}}",
        "{{now | date: '%Y-%m-%d'}}",
        "{{ 1 | divided_by: trigger.zero }}",
        "vip",
    ]
)
length = st.sampled_from(["PT0S", "PT5M", "PT7H", "P2D"])
condition = st.one_of(
    st.builds(lambda one: {"path": "contact.tags", "op": "contains", "value": one}, word),
    st.builds(lambda one: {"path": "trigger.word", "op": "eq", "value": one}, word),
    st.just({"path": "contact.metadata.seen", "op": "exists"}),
    st.just({"path": "trigger.total", "op": "gt", "value": 1.10}),
)
to = st.sampled_from(["{{trigger.none}}", "nobody", "{{contact.email}}", "+4915112345678"])
policies = st.fixed_dictionaries(
    {},
    optional={
        "to": to,
        "onFailure": st.sampled_from(["continue", "stop"]),
        "onUnknown": st.sampled_from(["continue", "stop", "resend"]),
    },
)
contents = st.one_of(
    st.builds(
        lambda one: {"channel": "email", "content": {"subject": one, "html": "<p>{{steps}}</p>"}},
        text,
    ),
    st.builds(
        lambda one, channel: {"channel": channel, "content": {"text": one}},
        text,
        st.sampled_from(["sms", "whatsapp"]),
    ),
)
sends = st.builds(
    lambda content, policy: {"type": "send_message", **content, **policy}, contents, policies
)
calls = st.builds(
    lambda method, status, one: {
        "type": "http_request",
        "method": method,
        "url": f"{SERVER}/{status}",
        "headers": {"X-Word": one},
    },
    st.sampled_from(["GET", "POST"]),
    st.sampled_from([200, 404, 500]),
    text,
)
throttles = st.builds(
    lambda window, one: {"type": "throttle", "limit": 1, "window": window, "key": one},
    st.sampled_from(["PT1H", "P2D"]),
    text,
)
plain = st.one_of(
    sends,
    calls,
    throttles,
    st.builds(lambda one: {"type": "add_tag", "tag": one}, word),
    st.builds(lambda one: {"type": "remove_tag", "tag": one}, word),
    st.builds(lambda one: {"type": "update_contact", "set": {"metadata.seen": one}}, text),
    st.builds(lambda one: {"type": "update_contact", "set": {"email": one}}, text),
    st.builds(lambda one: {"type": "wait", "duration": one}, length),
    st.builds(
        lambda days, zone: {"type": "wait", "time": "02:30", "days": days, "timezone": zone},
        st.lists(st.sampled_from(["mon", "sat", "sun"]), min_size=1, unique=True),
        st.sampled_from(["contact", "workspace", "America/New_York"]),
    ),
    st.builds(lambda one: {"type": "wait", "until": one}, text),
    st.just({"type": "update_contact", "set": {"firstName": None, "metadata.n": 1.50}}),
    st.builds(
        lambda one: {"type": "start_workflow", "workflowId": STARTED, "data": {"word": one}}, text
    ),
    st.builds(lambda one: {"type": "exit", "reason": one}, text),
)


def forks(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arm = st.lists(inner, max_size=3)
    branch = st.builds(
        lambda cases, other: {"type": "branch", "cases": cases, "else": other},
        st.lists(st.builds(lambda when, steps: {"when": when, "steps": steps}, condition, arm),
                 min_size=1, max_size=2),
        arm,
    )  # fmt: skip
    split = st.builds(
        lambda one, other: {
            "type": "split",
            "variants": [{"weight": 1, "steps": one}, {"weight": 2, "steps": other}],
        },
        arm,
        arm,
    )
    wait_for = st.builds(
        lambda when, event, one, late, after: {
            "type": "wait_for",
            "conditions": [
                {"when": when},
                {"event": event, "match": MATCH, "steps": one},
                {"event": event},
            ],
            "after": after,
            "timeout": late,
        },
        condition,
        word,
        arm,
        arm,
        st.sampled_from(["PT3H", "P1D"]),
    )
    ways = [
        st.builds(lambda step, one, port=port: {**step, port: one}, steps, arm)
        for steps, port in ((sends, "failed"), (calls, "failed"), (throttles, "limited"))
    ]
    return st.one_of(plain, branch, split, wait_for, *ways)


MATCH = {"path": "event.properties.total", "op": "gt", "value": 1}
arrays = st.lists(st.recursive(plain, forks, max_leaves=12), min_size=1, max_size=5)
moments = st.integers(1, 5 * 24 * 4).map(lambda quarters: timedelta(minutes=15 * quarters))
scenario_events = st.lists(
    st.one_of(
        st.builds(
            lambda after, name, total: ScenarioEvent(START + after, name, {"total": total}),
            moments,
            word,
            st.sampled_from([1, 1.50]),
        ),
        st.builds(
            lambda after, tags: ScenarioEvent(
                START + after, changes={"firstName": "A", "tags": tags}
            ),
            moments,
            st.lists(word, unique=True),
        ),
    ),
    max_size=4,
    unique_by=lambda one: one.at,
)
endings = st.lists(
    st.builds(MessageOutcome, st.sampled_from(get_args(MessageEnd))),
    max_size=3,
)
triggers = st.builds(lambda one: {"word": one, "total": 1.5, "zero": 0}, word)

ARMS = ("else", "failed", "limited", "timeout")
FORKS = ("cases", "variants", "conditions")


def named(steps: list[Any]) -> list[Any]:
    """Every step with an id of its own."""
    numbers = itertools.count(1)

    def name(step: Mapping[str, Any]) -> dict[str, Any]:
        made = {"id": f"n{next(numbers)}", **step}
        for arm in ARMS:
            if isinstance(made.get(arm), list):
                made[arm] = [name(inner) for inner in made[arm]]
        for fork in FORKS:
            if fork in made:
                made[fork] = [
                    {**item, "steps": [name(inner) for inner in item.get("steps", ())]}
                    for item in made[fork]
                ]
        return made

    return [name(step) for step in steps]


def every(steps: list[Any]) -> Iterator[dict[str, Any]]:
    for step in steps:
        yield step
        for arm in ARMS:
            if isinstance(step.get(arm), list):
                yield from every(step[arm])
        for fork in FORKS:
            for item in step.get(fork, ()):
                yield from every(item["steps"])


def drawn(steps: list[Any], program: Program) -> dict[str, Any]:
    """The same as an editor saves it."""
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "trigger"}]
    for step in every(steps):
        data = {key: value for key, value in step.items() if key not in ("id", "type", *ARMS)}
        for fork in FORKS:
            if fork in data:
                data[fork] = [
                    {key: value for key, value in item.items() if key != "steps"}
                    for item in data[fork]
                ]
        if "after" in data:
            data["timeout"] = data.pop("after")
        nodes.append({"id": step["id"], "type": step["type"], "data": data})
    edges = [
        {"source": node.id, "sourceHandle": port, "target": target}
        for node in program.nodes.values()
        for port, target in node.exits.items()
    ]
    return {"nodes": nodes, "edges": [{"source": "start", "target": program.entry}, *edges]}


def compiled(shape: Any, raw: Any) -> Program:
    """Compile only what the check lets pass: an exit may leave steps behind that nothing
    reaches."""
    program = check.compile(shape, document.parse(document.dumps(raw))).program
    assume(program is not None)
    assert program is not None
    return program


def scenario(program: Program, trigger: Any, coming: list[ScenarioEvent], **more: Any) -> Scenario:
    contact, tags = scenes.given_contact(CONTACT, None, START)
    place = {"id": "ws_1", "name": "Acme", "timezone": "Europe/Berlin", "country": None}
    return Scenario(program, trigger, contact, tags, place, START, events=coming, **more)


# --- properties -----------------------------------------------------------------------------------


class Watched(SimulatedRun):
    """Takes every step twice, the second time from what a database would have kept."""

    def step(self, event: Event) -> Step:
        kept = State.from_json(document.parse(document.dumps(self.state.to_json())))
        assert kept == self.state
        first = super().step(event)
        self.state = kept
        assert super().step(event) == first
        return first


@QUICK
@given(arrays, triggers, scenario_events, endings)
def test_a_step_is_the_same_every_time_and_from_a_state_that_was_kept(
    steps: Any, trigger: Any, coming: list[ScenarioEvent], ended: list[MessageOutcome]
) -> None:
    program = compiled("steps", named(steps))
    once = scenario(
        program, trigger, coming, outcomes=dict.fromkeys(program.nodes, ended or [MessageOutcome()])
    )
    assert Watched(once).run() == simulation.simulate(once)


def test_every_kind_is_among_them() -> None:
    met: set[str] = set()

    @examples(100)
    @given(arrays)
    def look(steps: Any) -> None:
        met.update(step["type"] for step in every(named(steps)))

    look()
    assert met == set(NODES)


@QUICK
@given(arrays, triggers, scenario_events)
def test_a_drawing_goes_the_way_of_its_steps(
    steps: Any, trigger: Any, coming: list[ScenarioEvent]
) -> None:
    steps = named(steps)
    program = compiled("steps", steps)
    graph = check.compile("graph", drawn(steps, program))
    assert graph.program == program, graph.findings
    played = [
        simulation.simulate(scenario(one, trigger, coming)) for one in (program, graph.program)
    ]
    assert traces.normal(played[0]) == traces.normal(played[1])


@settings(examples(100), suppress_health_check=[HealthCheck.filter_too_much])
@given(arrays, triggers, st.data())
def test_what_goes_round_rests_on_its_way_or_is_refused(
    steps: Any, trigger: Any, data: Any
) -> None:
    """Open ends are led back to anywhere; whatever the check then lets pass never runs away."""
    steps = named(steps)
    graph = drawn(steps, compiled("steps", steps))
    wired = {(edge["source"], edge.get("sourceHandle")) for edge in graph["edges"]}
    ids = st.sampled_from([step["id"] for step in every(steps)])
    for step in every(steps):
        open_end = (step["id"], "next") not in wired and "next" in NODES[step["type"]].ports
        if open_end and data.draw(st.booleans()):
            graph["edges"].append({"source": step["id"], "target": data.draw(ids)})
    trace = simulation.simulate(scenario(compiled("graph", graph), trigger, []))
    assert Reason.VISIT_LIMIT not in {passage.code for passage in trace.passages}
    if trace.end.status == "STOPPED":
        assert trace.end.at - START > timedelta(days=1)  # it has come far, and not in circles


# --- against real runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def real(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Process]:
    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("random") / "tidings.db")
    async with opened_on(Path(file)) as process:
        yield process


async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await says(ANSWER, f"{asked.target.removeprefix('/')} Answered")(asked, writer)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[str]:
    async with Listener(answer) as listener:
        yield listener.url


def event_json(event: ScenarioEvent) -> dict[str, Any]:
    if event.name is None:
        return {"at": document.text(event.at), "contact": event.changes}
    return {
        "at": document.text(event.at),
        "name": event.name,
        "properties": event.properties,
    }


@examples(100)
@given(arrays, triggers, scenario_events)
async def test_a_real_run_does_what_the_paper_says(
    real: Process, server: str, steps: Any, trigger: Any, coming: list[ScenarioEvent]
) -> None:
    steps = named(steps)
    compiled("steps", steps)
    length = str(len(document.dumps(ANSWER)))
    headers = {"content-type": "application/json", "content-length": length}
    answers = {
        step["id"]: {"status": int(step["url"][-3:]), "headers": headers, "body": ANSWER}
        for step in every(steps)
        if step["type"] == "http_request"
    }
    payload = {
        "name": "Random",
        "definition": {"steps": steps},
        "workspace": {"startable": [STARTED]},
        "input": {
            "startAt": START,
            "trigger": trigger,
            "contact": CONTACT,
            "events": [event_json(one) for one in coming],
            "httpAnswers": answers,
        },
    }
    case = cases.read(document.dumps(payload).replace(SERVER.encode(), server.encode()))
    driven = await drive(real, case)
    splits = {one.node_id: one.port for one in driven.trace.passages if one.kind == "split"}
    given = case.input.model_copy(update={"variants": splits})
    came = cases.play(case.model_copy(update={"input": given}))
    came.pop("findings")
    difference = cases.difference(traces.normal(driven.trace), came)
    assert not difference, f"\n{difference}"
