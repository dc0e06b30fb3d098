"""step(program, state, event, facts) → Step: the whole interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import check, document
from app.machine.program import (
    AddTag,
    Answered,
    Delivered,
    Event,
    Finish,
    Go,
    MessageEnd,
    Node,
    Program,
    Record,
    Send,
    SendAgain,
    State,
    Step,
    WaitUntil,
    Woken,
)
from app.machine.reasons import SENTENCES, Reason
from app.machine.step import MOST_BETWEEN_WAITS, MOST_NOTED, MOST_VISITS, start, step
from tests.examples import examples
from tests.present import present

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
FACTS = {
    "trigger": {"email": "a@example.org", "total": "83.40"},
    "contact": {"email": "b@example.org", "tags": [], "metadata": {"plan": "pro"}},
    "workspace": {},
    "run": {},
    "steps": {},
    "now": NOON,
}


def program(*steps: Any) -> Program:
    compiled = check.compile("steps", list(steps))
    assert compiled.program is not None, compiled.findings
    return compiled.program


def tag(id: str, tag: str = "x") -> dict[str, Any]:
    return {"type": "add_tag", "id": id, "tag": tag}


def send(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "send_message", "id": id, "channel": "email", "templateId": "tpl_1", **more}


def wait(id: str, duration: Any = "PT1H") -> dict[str, Any]:
    return {"type": "wait", "id": id, "duration": duration}


def go(program: Program, state: State, facts: Mapping[str, Any] = FACTS) -> Step:
    return step(program, state, Go(), facts)


def test_a_run_begins_at_the_entry() -> None:
    assert start(program(tag("a"), tag("b"))) == State(at="a")


def test_a_program_that_does_nothing_completes_at_once() -> None:
    nothing = program()
    assert go(nothing, start(nothing)) == Step(State(at=None), (Finish("COMPLETED"),), None)


def test_a_pure_node_is_recorded_and_the_run_stands_before_the_next() -> None:
    two = program(tag("a"), tag("b"))
    result = go(two, start(two))
    assert result.state == State(at="b", visits={"a": 1}, since_wait=1)
    assert result.effects == (AddTag("x"),)
    assert result.record == Record("a", "add_tag", 1, "COMPLETED", port="next", output={"tag": "x"})


def test_a_port_that_leads_nowhere_ends_the_run_after_its_effects() -> None:
    one = program(tag("a"))
    result = go(one, start(one))
    assert result.effects == (AddTag("x"), Finish("COMPLETED"))
    assert result.state.at is None


def test_an_exit_ends_the_run_with_its_reason() -> None:
    left = program({"type": "exit", "id": "x", "reason": "Not for us."})
    result = go(left, start(left))
    assert result.effects == (Finish("COMPLETED", detail="Not for us."),)
    assert result.record == Record("x", "exit", 1, "COMPLETED", detail="Not for us.")


def test_a_wait_holds_the_run_until_it_is_woken() -> None:
    waiting = program(wait("w"), tag("a"))
    held = go(waiting, start(waiting))
    assert held.effects == (WaitUntil(NOON + timedelta(hours=1)),)
    assert held.record == Record("w", "wait", 1, "WAITING")
    assert held.state == State(at="w", waiting=True, visits={"w": 1}, since_wait=1)

    woken = step(waiting, held.state, Woken(), FACTS)
    assert woken.state == State(at="a", visits={"w": 1}, since_wait=0)
    assert woken.record == Record("w", "wait", 1, "COMPLETED", port="next")
    assert woken.effects == ()


def test_a_message_holds_the_run_until_its_outcome_is_known() -> None:
    sending = program(send("s"), tag("a", "{{steps.s.status}}"))
    held = go(sending, start(sending))
    assert held.effects == (Send("s", 1, "email", "tpl_1", None, None),)
    assert present(held.record).status == "WAITING"

    sent = step(sending, held.state, Delivered("SENT", "msg_1"), FACTS)
    assert present(sent.record).status == "COMPLETED"
    assert (sent.state.at, sent.state.waiting, sent.state.since_wait) == ("a", False, 1)
    assert go(sending, sent.state).effects[0] == AddTag("SENT")


def test_a_resend_stays_in_the_node() -> None:
    sending = program(send("s", onUnknown="resend"))
    held = go(sending, start(sending))
    again = step(sending, held.state, Delivered("UNKNOWN", "msg_1"), FACTS)
    assert again.effects == (SendAgain("msg_1"),)
    assert (again.state.at, again.state.waiting) == ("s", True)
    record = present(again.record)
    assert (record.status, record.code) == ("WAITING", Reason.OUTCOME_UNKNOWN)
    assert record.visit == 1


def test_a_failed_node_ends_the_run_and_can_be_entered_again() -> None:
    sending = program(send("s", onFailure="stop"), tag("a"))
    held = go(sending, start(sending))
    event = Delivered("FAILED", "msg_1", code="provider_rejected")
    failed = step(sending, held.state, event, FACTS)
    sentence = SENTENCES[Reason.PROVIDER_REJECTED]
    assert failed.effects == (Finish("FAILED", "provider_rejected", sentence),)
    assert present(failed.record).status == "FAILED"
    assert (failed.state.at, failed.state.waiting) == ("s", False)

    retried = go(sending, failed.state)
    assert retried.effects == (Send("s", 2, "email", "tpl_1", None, None),)


def test_a_template_that_fails_ends_a_run_whose_node_has_no_policy() -> None:
    broken = program(tag("a", "{{ trigger.email | divided_by: 0 }}"), tag("b"))
    result = go(broken, start(broken))
    (finish,) = result.effects
    assert isinstance(finish, Finish)
    assert (finish.status, finish.code) == ("FAILED", Reason.TEMPLATE_ERROR)
    record = present(result.record)
    assert (record.code, record.detail) == (Reason.TEMPLATE_ERROR, finish.detail)
    assert result.state.at == "a"


def test_a_known_reason_comes_with_its_sentence() -> None:
    when = {"path": "trigger.nope", "op": "exists"}
    asking = program({"type": "branch", "id": "b", "cases": [{"when": when, "steps": [tag("a")]}]})
    record = present(go(asking, start(asking)).record)
    assert record.port == "else"
    assert (record.code, record.detail) == (
        Reason.CONDITION_FALSE,
        SENTENCES[Reason.CONDITION_FALSE],
    )


MIXED = program(send("s"), wait("w"), tag("a"))
DELIVERED = Delivered("SENT", "msg_1")


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (State(at="w", waiting=True), Go()),
        (State(at="w", waiting=True), DELIVERED),
        (State(at="s", waiting=True), Woken()),
        (State(at="s", waiting=True), Go()),
        (State(at="a", waiting=True), Woken()),
        (State(at="w"), Woken()),
        (State(at="s"), DELIVERED),
    ],
)
def test_an_event_that_nothing_waits_for_changes_nothing(state: State, event: Event) -> None:
    assert step(MIXED, state, event, FACTS) == Step(state, (), None)


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("node", ["gone", "odd"])
def test_a_place_that_is_not_in_the_program_ends_the_run(node: str, waiting: bool) -> None:
    odd = Program("odd", {"odd": Node("odd", "teleport", {}, {})})
    result = step(odd, State(at=node, waiting=waiting), Go(), FACTS)
    assert result.effects == (
        Finish("FAILED", Reason.STEP_MISSING, SENTENCES[Reason.STEP_MISSING]),
    )
    assert result.record is None


# Such a cycle is refused at activation; the limit is for what slips through.
ROUND = Program(
    "b",
    {
        "w": Node("w", "wait", {"duration": timedelta(hours=1)}, {"next": "w"}),
        "b": replace(program(tag("b")).nodes["b"], exits={"next": "b"}),
    },
)


def test_a_run_may_not_visit_a_thousand_and_one_nodes_between_two_waits() -> None:
    state = State(at="b")
    for _ in range(MOST_BETWEEN_WAITS):
        result = go(ROUND, state)
        assert present(result.record).status == "COMPLETED"
        state = result.state
    result = go(ROUND, state)
    assert result.effects == (Finish("FAILED", Reason.VISIT_LIMIT, SENTENCES[Reason.VISIT_LIMIT]),)
    record = present(result.record)
    assert (record.node_id, record.visit) == ("b", MOST_BETWEEN_WAITS + 1)


def test_a_wait_begins_the_count_anew_but_not_the_count_in_all() -> None:
    state = State(at="w", visits={"b": MOST_VISITS - 1}, since_wait=MOST_BETWEEN_WAITS - 1)
    held = go(ROUND, state)
    assert present(held.record).status == "WAITING"
    woken = step(ROUND, held.state, Woken(), FACTS)
    assert woken.state.since_wait == 0
    assert present(go(ROUND, woken.state).record).code == Reason.VISIT_LIMIT


def test_a_delivery_does_not_begin_the_count_anew() -> None:
    sending = program(send("s"), tag("a"))
    held = go(sending, State(at="s", since_wait=7))
    assert step(sending, held.state, DELIVERED, FACTS).state.since_wait == 8


def test_a_step_that_would_leave_too_much_fails_and_leaves_nothing() -> None:
    asking = program({"type": "http_request", "id": "ask", "method": "GET", "url": "https://x.y"})
    entry = replace(start(asking), outputs={"before": {"body": "x" * (MOST_NOTED - 1_000)}})
    held = go(asking, entry)
    fits = step(asking, held.state, Answered(200, body="y" * 500), FACTS)
    assert fits.state.outputs["ask"]["body"] == "y" * 500
    result = step(asking, held.state, Answered(200, body="y" * 1_000), FACTS)
    sentence = SENTENCES[Reason.OUTPUTS_TOO_LARGE]
    assert result.effects == (Finish("FAILED", Reason.OUTPUTS_TOO_LARGE, sentence),)
    record = present(result.record)
    assert (record.status, record.code) == ("FAILED", Reason.OUTPUTS_TOO_LARGE)
    assert present(record.output)["body"] == "y" * 1_000  # for whoever looks for the cause
    assert result.state == replace(held.state, waiting=False)  # a retry asks again


def test_what_newer_code_wrote_into_a_state_is_passed_over() -> None:
    body = {**State(at="a", since_wait=3).to_json(), "mood": "good"}
    assert State.from_json(body) == State(at="a", since_wait=3)


# --- properties of every program ----------------------------------------------------------------

paths = st.sampled_from(["trigger.total", "trigger.nope", "contact.metadata.plan", "steps", "now"])
comparisons = st.one_of(
    st.builds(
        lambda path, op, value: {"path": path, "op": op, "value": value},
        paths,
        st.sampled_from(["eq", "ne", "contains"]),
        st.sampled_from(["pro", 83.4, "83.40"]),
    ),
    st.builds(lambda path: {"path": path, "op": "exists"}, paths),
)
texts = st.sampled_from(["x", "{{trigger.email}}", "{{trigger.nope}}", "{{now | divided_by: 0}}"])
policies = st.fixed_dictionaries(
    {},
    optional={
        "to": texts,
        "onFailure": st.sampled_from(["continue", "stop"]),
        "onUnknown": st.sampled_from(["continue", "stop", "resend"]),
    },
)
leaves = st.one_of(
    st.builds(lambda value: {"type": "add_tag", "tag": value}, texts),
    st.builds(lambda value: {"type": "remove_tag", "tag": value}, texts),
    st.builds(lambda value: {"type": "update_contact", "set": {"firstName": value}}, texts),
    st.builds(
        lambda length: {"type": "wait", "duration": length},
        st.sampled_from(["PT0S", "PT1H", "P3D"]),
    ),
    st.builds(
        lambda policy: {"type": "send_message", "channel": "email", "templateId": "t", **policy},
        policies,
    ),
)


def arms(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(
            lambda cases, other: {
                "type": "branch",
                "cases": [{"when": when, "steps": steps} for when, steps in cases],
                "else": other,
            },
            st.lists(st.tuples(comparisons, lists), min_size=1, max_size=3),
            lists,
        ),
        st.builds(
            lambda policy, failed: {
                "type": "send_message",
                "channel": "email",
                "templateId": "t",
                "failed": failed,
                **policy,
            },
            policies,
            lists,
        ),
    )


arrays = st.lists(st.recursive(leaves, arms, max_leaves=8), max_size=3)
outcomes = st.lists(st.sampled_from(get_args(MessageEnd)), min_size=1, max_size=4)


def wakes(result: Step, statuses: list[MessageEnd], number: int) -> Event:
    """The event that answers what a step asked for; Go when it asked for nothing."""
    for effect in result.effects:
        match effect:
            case Send() | SendAgain():
                return Delivered(statuses[number % len(statuses)], "msg_1", number + 1)
            case WaitUntil():
                return Woken()
    return Go()


def stored(state: State) -> State:
    return State.from_json(document.parse(document.dumps(state.to_json())))


@examples(100)
@given(body=arrays, statuses=outcomes)
def test_every_checked_program_ends_the_same_way_every_time_and_through_storage(
    body: list[Any], statuses: list[MessageEnd]
) -> None:
    compiled = check.compile("steps", body)
    assert compiled.program is not None, compiled.findings
    assert compiled.program == check.compile("steps", body).program
    event: Event = Go()
    state, sends = start(compiled.program), 0
    for _ in range(4 * len(compiled.program.nodes) + 1):
        result = step(compiled.program, state, event, FACTS)
        assert result == step(compiled.program, stored(state), event, FACTS)
        if any(isinstance(effect, Finish) for effect in result.effects):
            break
        event = wakes(result, statuses, sends)
        sends = sends + 1 if isinstance(event, Delivered) else 0
        assert result.state.waiting == (event != Go())
        state = result.state
    assert isinstance(result.effects[-1], Finish)
    assert result.state.at is None or result.effects[-1].status == "FAILED"


@examples(100)
@given(
    kinds=st.lists(st.sampled_from(["add_tag", "wait", "branch", "exit"]), min_size=1, max_size=6),
    wires=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 5)), max_size=12),
)
def test_every_checked_graph_ends_or_waits_within_as_many_steps_as_it_has_nodes(
    kinds: list[str], wires: list[tuple[int, int, int]]
) -> None:
    data: dict[str, Any] = {
        "add_tag": {"tag": "x"},
        "wait": {"duration": "PT1H"},
        "branch": {"cases": [{"when": {"path": "trigger.nope", "op": "exists"}}]},
        "exit": {},
    }
    ports: dict[str, list[str | None]] = {"branch": ["case1", "else"], "exit": [None, None]}
    nodes = [{"id": str(n), "type": kind, "data": data[kind]} for n, kind in enumerate(kinds)]
    edges = {
        (source, ports.get(kinds[source], ["next"] * 2)[port]): str(target)
        for source, port, target in wires
        if source < len(kinds) and target < len(kinds)
    }
    compiled = check.compile(
        "graph",
        {
            "nodes": [{"id": "t", "type": "trigger"}, *nodes],
            "edges": [
                {"source": "t", "target": "0"},
                *(
                    {"source": str(source), "sourceHandle": port, "target": target}
                    for (source, port), target in edges.items()
                    if port
                ),
            ],
        },
    )
    if compiled.program is None:
        assert {finding.code for finding in compiled.findings} <= {"unreachable", "endless"}
        return
    for entry in compiled.program.nodes:
        state = State(at=entry)
        for _ in kinds:
            result = go(compiled.program, state)
            state = result.state
            if state.waiting or state.at is None:
                break
        assert state.waiting or state.at is None


def test_the_facts_of_a_run_are_not_changed_by_stepping() -> None:
    facts = {**FACTS, "steps": {"s": {"status": "OLD"}}}
    before = document.dumps(facts)
    go(MIXED, start(MIXED), facts)
    assert document.dumps(facts) == before
