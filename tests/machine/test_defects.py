"""Seeded defects: at least three for each finding, and each is found at its pointer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.machine import check, path
from app.machine.lint import lint
from tests.machine import codes

WHEN = {"path": "now", "op": "exists"}
SEND = {"type": "send_message", "channel": "email", "templateId": "tpl_1"}
WAIT = {"type": "wait", "duration": "PT1H"}
TAG = {"type": "add_tag", "tag": "x"}
START = {"type": "start_workflow", "workflowId": "wfl_1"}
CALL = {"type": "http_request", "method": "GET", "url": "https://crm.example"}
POST = {"method": "POST", "url": "https://crm.example"}
ASK = {"type": "http_request", **POST}
NINE = {"type": "wait", "time": "09:00"}
SID = "HX" + "0" * 32


def node(id: str, type: str = "add_tag", **data: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "data": data or {"tag": "x"}}


def trigger(id: str = "t") -> dict[str, Any]:
    return {"id": id, "type": "trigger", "data": {}}


def edge(source: str, target: str, port: str | None = None) -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": port}


def graph(nodes: list[Any], *edges: tuple[str, ...]) -> dict[str, Any]:
    return {"nodes": [trigger(), *nodes], "edges": [edge(*ends) for ends in edges]}


def fork(*cases: Any, otherwise: Any = (), **more: Any) -> dict[str, Any]:
    return {"type": "branch", "cases": list(cases), "else": list(otherwise), **more}


def case(*steps: Any, when: Any = WHEN, **more: Any) -> dict[str, Any]:
    return {"when": when, "steps": list(steps), **more}


def message(**content: Any) -> dict[str, Any]:
    return {"type": "send_message", "channel": "email", "content": content}


def says(text: str) -> dict[str, Any]:
    return message(subject="s", html=text)


def chat(**content: Any) -> dict[str, Any]:
    return {"type": "send_message", "channel": "whatsapp", "content": content}


def waiting(*conditions: Any) -> dict[str, Any]:
    return {"type": "wait_for", "conditions": list(conditions)}


def split(*weights: float) -> dict[str, Any]:
    return {"type": "split", "variants": [{"weight": weight} for weight in weights]}


def nested(depth: int) -> dict[str, Any]:
    return {"not": nested(depth - 1)} if depth else WHEN


def arms(depth: int) -> dict[str, Any]:
    return fork(case(), otherwise=[arms(depth - 1)]) if depth else TAG


def compare(where: str, op: str, value: Any = None) -> dict[str, Any]:
    return {"path": where, "op": op, "value": value}


# Each finding's code, a definition that has the defect, and where it is.
DEFECTS: list[tuple[str, Any, str]] = [
    # --- the graph ---
    ("no_trigger", {"nodes": [node("a")]}, "/graph/nodes"),
    ("no_trigger", {"nodes": [node("a"), node("b")], "edges": [edge("a", "b")]}, "/graph/nodes"),
    ("no_trigger", {"nodes": [node("a", "exit", reason="x")], "edges": []}, "/graph/nodes"),
    ("several_triggers", graph([trigger("u")]), "/graph/nodes/1"),
    ("several_triggers", graph([node("a"), trigger("u")], ("t", "a")), "/graph/nodes/2"),
    ("several_triggers", graph([trigger("u"), trigger("v")]), "/graph/nodes/2"),
    ("dangling_edge", graph([node("a")], ("t", "a"), ("a", "gone")), "/graph/edges/1/target"),
    ("dangling_edge", graph([node("a")], ("t", "a"), ("gone", "a")), "/graph/edges/1/source"),
    ("dangling_edge", graph([], ("t", "gone")), "/graph/edges/0/target"),
    ("doubled_edge", graph([node("a")], ("t", "a"), ("t", "a")), "/graph/edges/1"),
    (
        "doubled_edge",
        graph([node("a"), node("b")], ("t", "a"), ("a", "b"), ("a", "b", "next")),
        "/graph/edges/2",
    ),
    (
        "doubled_edge",
        graph(
            [node("a", "branch", cases=[{"when": WHEN}]), node("b")],
            *[("t", "a"), ("a", "b", "else"), ("a", "b", "case1"), ("a", "b", "else")],
        ),
        "/graph/edges/3",
    ),
    ("unknown_port", graph([node("a")], ("t", "a", "else")), "/graph/edges/0/sourceHandle"),
    (
        "unknown_port",
        graph([node("a"), node("b")], ("t", "a"), ("a", "b", "failed")),
        "/graph/edges/1/sourceHandle",
    ),
    (
        "unknown_port",
        graph([node("a", "branch", cases=[{"when": WHEN}]), node("b")], ("t", "a"), ("a", "b")),
        "/graph/edges/1/sourceHandle",
    ),
    ("into_trigger", graph([node("a")], ("t", "a"), ("a", "t")), "/graph/edges/1/target"),
    ("into_trigger", graph([], ("t", "t")), "/graph/edges/0/target"),
    (
        "into_trigger",
        graph([node("a"), trigger("u")], ("t", "a"), ("a", "u")),
        "/graph/edges/1/target",
    ),
    # --- where paths lead ---
    ("unreachable", graph([node("a")]), "/graph/nodes/1"),
    ("unreachable", graph([node("a"), node("b")], ("t", "a"), ("b", "a")), "/graph/nodes/2"),
    ("unreachable", [{"type": "exit"}, TAG], "/steps/1"),
    ("unreachable", [fork(case({"type": "exit"}), otherwise=[{"type": "exit"}]), TAG], "/steps/1"),
    ("endless", graph([node("a")], ("t", "a"), ("a", "a")), "/graph/nodes/1"),
    (
        "endless",
        graph([node("a", "wait", duration="PT0S")], ("t", "a"), ("a", "a")),
        "/graph/nodes/1",
    ),
    (
        "endless",
        graph(
            [node("w", "wait", duration="P1D"), node("a", "branch", cases=[{"when": WHEN}])],
            *[("t", "w"), ("w", "a"), ("a", "w", "case1"), ("a", "a", "else")],
        ),
        "/graph/nodes/2",
    ),
    ("doubled_id", graph([node("a"), node("a")], ("t", "a")), "/graph/nodes/2/id"),
    ("doubled_id", [TAG | {"id": "a"}, WAIT | {"id": "a"}], "/steps/1/id"),
    (
        "doubled_id",
        [fork(case(TAG | {"id": "a"}), otherwise=[TAG | {"id": "a"}])],
        "/steps/0/cases/0/steps/0/id",  # the else is read first
    ),
    ("doubled_id", [TAG | {"id": "steps[1]"}, TAG], "/steps/1/id"),
    ("doubled_port", [fork(case(port="a"), case(port="a"))], "/steps/0/cases/1/port"),
    ("doubled_port", [fork(case(port="else"))], "/steps/0/cases/0/port"),
    (
        "doubled_port",
        graph([node("a", "branch", cases=[{"when": WHEN, "port": "case2"}, {"when": WHEN}])]),
        "/graph/nodes/1/data/cases/1/port",
    ),
    # --- what a step says ---
    ("missing", [{"type": "wait"}], "/steps/0/duration"),
    ("missing", [fork()], "/steps/0/cases"),
    ("missing", [{"type": "send_message", "channel": "email"}], "/steps/0/templateId"),
    ("missing", [message(html="x")], "/steps/0/content/subject"),
    ("missing", graph([{"id": "a", "type": "add_tag"}], ("t", "a")), "/graph/nodes/1/data/tag"),
    ("both", [SEND | message(subject="s", html="h")], "/steps/0/content"),
    ("both", [TAG, SEND | message(subject="s", html="h")], "/steps/1/content"),
    (
        "both",
        [{**message(text="x", contentSid=SID), "channel": "whatsapp"}],
        "/steps/0/content/contentSid",
    ),
    ("bad_duration", [{"type": "wait", "duration": "1 hour"}], "/steps/0/duration"),
    ("bad_duration", [{"type": "wait", "duration": "P1M"}], "/steps/0/duration"),
    ("bad_duration", [{"type": "wait", "duration": "P400D"}], "/steps/0/duration"),
    (
        "bad_duration",
        [fork(case(when=compare("now", "within_last", "soon")))],
        "/steps/0/cases/0/when/value",
    ),
    ("bad_template", [{"type": "add_tag", "tag": "{{ x }}"}], "/steps/0/tag"),
    ("bad_template", [says("{% if %}")], "/steps/0/content/html"),
    (
        "bad_template",
        graph([node("a", "update_contact", set={"firstName": "{{ trigger.a[01] }}"})], ("t", "a")),
        "/graph/nodes/1/data/set/firstName",
    ),
    ("bad_path", [fork(case(when=compare("a..b", "eq", 1)))], "/steps/0/cases/0/when/path"),
    ("bad_path", [fork(case(when=compare("nothing.x", "eq", 1)))], "/steps/0/cases/0/when/path"),
    (
        "bad_path",
        [fork(case(when=compare("contact.subscriptions.fax", "exists", True)))],
        "/steps/0/cases/0/when/path",
    ),
    (
        "bad_path",
        [fork(case(when={"all": [{"not": compare("contact.a[-1]", "eq", 1)}]}))],
        "/steps/0/cases/0/when/all/0/not/path",
    ),
    ("bad_value", [fork(case(when=compare("now", "gt", "soon")))], "/steps/0/cases/0/when/value"),
    ("bad_value", [fork(case(when=compare("now", "lte", "")))], "/steps/0/cases/0/when/value"),
    ("bad_value", [fork(case(when=compare("now", "lt", "1,5")))], "/steps/0/cases/0/when/value"),
    ("bad_time", [fork(case(when=compare("now", "after", "soon")))], "/steps/0/cases/0/when/value"),
    ("bad_time", [fork(case(when=compare("now", "before", "1")))], "/steps/0/cases/0/when/value"),
    (
        "bad_time",
        [fork(case(when=compare("now", "after", "2026-13-01")))],
        "/steps/0/cases/0/when/value",
    ),
    ("bad_timezone", [{**NINE, "timezone": "Mars/Base"}], "/steps/0/timezone"),
    ("bad_timezone", [{**NINE, "timezone": "europe/nowhere"}], "/steps/0/timezone"),
    (
        "bad_timezone",
        graph([node("a", "wait", time="09:00", timezone="../etc/passwd")], ("t", "a")),
        "/graph/nodes/1/data/timezone",
    ),
    ("needs_time", [WAIT | {"days": ["mon"]}], "/steps/0/days"),
    ("needs_time", [WAIT | {"timezone": "UTC"}], "/steps/0/timezone"),
    ("needs_time", [TAG, {"type": "wait", "until": "{{ now }}", "days": ["fri"]}], "/steps/1/days"),
    ("needs_event", [waiting({"match": WHEN})], "/steps/0/conditions/0/match"),
    ("needs_event", [waiting({"when": WHEN, "match": WHEN})], "/steps/0/conditions/0/match"),
    (
        "needs_event",
        [waiting({"event": "a"}, {"match": WHEN})],
        "/steps/0/conditions/1/match",
    ),
    ("out_of_range", [split(-1)], "/steps/0/variants/0/weight"),
    ("out_of_range", [split(0, 0)], "/steps/0/variants"),
    ("out_of_range", [split(50, 0.00000001)], "/steps/0/variants/1/weight"),
    ("needs_marketing", [chat(text="x", topicId="top_1")], "/steps/0/content/topicId"),
    ("needs_marketing", [TAG, chat(text="x", topicId="top_1")], "/steps/1/content/topicId"),
    (
        "needs_marketing",
        [chat(text="x", topicId="top_1", category="transactional")],
        "/steps/0/content/topicId",
    ),
    ("needs_content_sid", [chat(text="x", variables={"1": "y"})], "/steps/0/content/variables"),
    (
        "needs_content_sid",
        [TAG, chat(text="x", variables={"1": "y"})],
        "/steps/1/content/variables",
    ),
    (
        "needs_content_sid",
        graph(
            [
                node(
                    "a",
                    "send_message",
                    channel="whatsapp",
                    content={"text": "x", "variables": {"1": "y"}},
                )
            ],
            ("t", "a"),
        ),
        "/graph/nodes/1/data/content/variables",
    ),
    ("bad_address", [message(subject="s", html="h", replyTo="me")], "/steps/0/content/replyTo"),
    ("bad_address", [message(subject="s", html="h", replyTo="a@b c")], "/steps/0/content/replyTo"),
    ("bad_address", [message(subject="s", html="h", replyTo="@")], "/steps/0/content/replyTo"),
    ("bad_url", [CALL | {"url": "crm.example/leads"}], "/steps/0/url"),
    ("bad_url", [CALL | {"url": "ftp://crm.example"}], "/steps/0/url"),
    ("bad_url", [TAG, CALL | {"url": "file:///etc/passwd"}], "/steps/1/url"),
    ("bad_header", [CALL | {"headers": {"a b": "c"}}], "/steps/0/headers/a b"),
    ("bad_header", [CALL | {"headers": {"Host": "c"}}], "/steps/0/headers/Host"),
    ("bad_header", [CALL | {"headers": {"x-a": "b", "X-A": "c"}}], "/steps/0/headers/X-A"),
    ("needless", [CALL | {"body": "x"}], "/steps/0/body"),
    ("needless", [fork(case(CALL | {"body": "x"}))], "/steps/0/cases/0/steps/0/body"),
    (
        "needless",
        graph([node("a", "http_request", method="GET", url="https://a.test", body="x")]),
        "/graph/nodes/1/data/body",
    ),
    # --- what not even a draft may hold ---
    ("unknown_kind", [{"type": "teleport"}], "/steps/0/type"),
    ("unknown_kind", [fork(case({"type": "trigger"}))], "/steps/0/cases/0/steps/0/type"),
    ("unknown_kind", graph([node("a", "Wait")]), "/graph/nodes/1/type"),
    ("unknown_field", [TAG | {"tags": "x"}], "/steps/0/tags"),
    ("unknown_field", [message(subject="s", html="h", cc="x")], "/steps/0/content/cc"),
    ("unknown_field", graph([node("a", tag="x", label="y")]), "/graph/nodes/1/data/label"),
    ("wrong_type", {"nodes": {}}, "/graph/nodes"),
    ("wrong_type", [7], "/steps/0"),
    ("wrong_type", [{"type": "add_tag", "tag": 7}], "/steps/0/tag"),
    ("too_long", [TAG | {"id": "x" * 201}], "/steps/0/id"),
    ("too_long", graph([node("x" * 201)]), "/graph/nodes/1/id"),
    ("too_long", [fork(case(port="x" * 201))], "/steps/0/cases/0/port"),
    ("too_many", [TAG] * 501, "/steps"),
    ("too_many", {"nodes": [node(str(index)) for index in range(501)]}, "/graph/nodes"),
    ("too_many", graph([], *[("t", "a")] * 1_001), "/graph/edges"),
    ("too_many", [fork(*[case()] * 201)], "/steps/0/cases"),
    ("too_deep", [fork(case(when=nested(16)))], "/steps/0/cases/0/when" + "/not" * 16),
    ("too_deep", [arms(17)], "/steps/0" + "/else/0" * 16 + "/else"),
    (
        "too_deep",
        graph([node("a", "branch", cases=[{"when": {"all": [nested(15)]}}])]),
        "/graph/nodes/1/data/cases/0/when/all/0" + "/not" * 15,
    ),
    # --- what may go wrong ---
    ("does_nothing", [], "/steps"),
    ("does_nothing", {}, "/graph"),
    ("does_nothing", graph([]), "/graph"),
    (
        "output_missing",
        [says("{{ steps.later.status }}"), SEND | {"id": "later"}],
        "/steps/0/content/html",
    ),
    ("output_missing", [{"type": "add_tag", "tag": "{{ steps.none.x }}"}], "/steps/0/tag"),
    (
        "output_missing",
        [fork(case(SEND | {"id": "a"})), fork(case(when=compare("steps.a.status", "eq", "SENT")))],
        "/steps/1/cases/0/when/path",
    ),
    (
        "output_missing",
        [fork(case(SEND | {"id": "a"})), SEND | {"templateId": "tpl_2"}],
        "/steps/1/templateId",
    ),
    (
        "output_missing",
        graph(
            [
                node("w", "wait", duration="P1D"),
                node("a", tag="{{ steps.b.status }}"),
                node("b", "send_message", channel="email", templateId="tpl_1"),
            ],
            *[("t", "w"), ("w", "a"), ("a", "b"), ("b", "w")],
        ),
        "/graph/nodes/2/data/tag",
    ),
    ("trigger_unseen", [{"type": "add_tag", "tag": "{{ trigger.plans }}"}], "/steps/0/tag"),
    ("trigger_unseen", [says("{{ trigger.items[1].sku }}")], "/steps/0/content/html"),
    (
        "trigger_unseen",
        [fork(case(when=compare("trigger.items.sku", "eq", 1)))],
        "/steps/0/cases/0/when/path",
    ),
    (
        "trigger_unseen",
        [{"type": "update_contact", "set": {"metadata.a/b": "{{ trigger.email.first }}"}}],
        "/steps/0/set/metadata.a~1b",
    ),
    ("address_uncertain", [{**message(text="x"), "channel": "sms"}], "/steps/0/channel"),
    (
        "address_uncertain",
        [{"type": "update_contact", "set": {"email": None}}, SEND],
        "/steps/1/channel",
    ),
    (
        "address_uncertain",
        [
            {"type": "update_contact", "set": {"phone": "{{ trigger.phone }}"}},
            {**message(text="x"), "channel": "whatsapp"},
        ],
        "/steps/1/channel",
    ),
    (
        "address_uncertain",
        [
            fork(case(when=compare("contact.phone", "exists")), otherwise=[TAG]),
            {**message(text="x"), "channel": "sms"},
        ],
        "/steps/1/channel",
    ),
    ("field_unknown", [{"type": "add_tag", "tag": "{{ contact.frstName }}"}], "/steps/0/tag"),
    ("field_unknown", [SEND | {"templateId": "tpl_3"}], "/steps/0/templateId"),
    ("field_unknown", [says("{{ workspace.timeZone }}")], "/steps/0/content/html"),
    ("field_unknown", [says("{{ run['version '] }}")], "/steps/0/content/html"),
    (
        "field_unknown",
        [fork(case(when={"not": compare("contact.plan", "eq", "pro")}))],
        "/steps/0/cases/0/when/not/path",
    ),
    (
        "field_unknown",
        [waiting({"event": "paid", "match": compare("event.total", "gt", 1)})],
        "/steps/0/conditions/0/match/path",
    ),
    (
        "value_not_rendered",
        [fork(case(when=compare("contact.email", "eq", "{{trigger.email}}")))],
        "/steps/0/cases/0/when/value",
    ),
    (
        "value_not_rendered",
        [waiting({"event": "a", "match": {"all": [compare("now", "in", ["x", "{{ now }}"])]}})],
        "/steps/0/conditions/0/match/all/0/value",
    ),
    (
        "value_not_rendered",
        graph([node("a", "branch", cases=[{"when": compare("now", "eq", "{% x %}")}])], ("t", "a")),
        "/graph/nodes/1/data/cases/0/when/value",
    ),
    ("no_timeout", [{"type": "wait_for", "conditions": [{"event": "paid"}]}], "/steps/0/timeout"),
    (
        "no_timeout",
        [TAG, {"type": "wait_for", "conditions": [{"when": WHEN, "steps": [TAG]}]}],
        "/steps/1/timeout",
    ),
    (
        "no_timeout",
        graph([node("a", "wait_for", conditions=[{"event": "paid"}])], ("t", "a")),
        "/graph/nodes/1/data/timeout",
    ),
    ("credential_exposed", [CALL | {"url": "https://a.test/?q=1&key=x"}], "/steps/0/url"),
    ("credential_exposed", [CALL | {"url": "https://sk_live_1:@a.test/"}], "/steps/0/url"),
    ("credential_exposed", [TAG, ASK | {"body": "a=b&client_secret=x"}], "/steps/1/body"),
    ("credential_exposed", [ASK | {"body": '{"apiKey": "x"}'}], "/steps/0/body"),
    (
        "credential_exposed",
        [fork(case(ASK | {"body": {"to": [{"bot_token": "x"}]}}))],
        "/steps/0/cases/0/steps/0/body/to/0/bot_token",
    ),
    (
        "credential_exposed",
        graph([node("a", "http_request", **{**POST, "body": {"password": "x"}})], ("t", "a")),
        "/graph/nodes/1/data/body/password",
    ),
    ("many_starts", [START] * 11, "/steps/10"),
    ("many_starts", [TAG, fork(case(*[START] * 6)), *[START] * 5], "/steps/6"),
    (
        "many_starts",
        graph(
            [node(f"n{n}", "start_workflow", workflowId="wfl_1") for n in range(11)],
            ("t", "n0"),
            *((f"n{n}", f"n{n + 1}") for n in range(10)),
        ),
        "/graph/nodes/11/data",
    ),
]
TEMPLATES = {
    "tpl_1": [path.parse("contact.firstName")],
    "tpl_2": [path.parse("steps.a.status")],
    "tpl_3": [path.parse("contact.first_name")],
}
BODIES = [
    {"email": "ada@example.com", "plan": "pro"},
    {"email": "bob@example.com", "items": [{"sku": "a"}], "phone": "1"},
]


def found(body: Any) -> list[tuple[str, str]]:
    compiled = check.compile("graph" if isinstance(body, dict) else "steps", body)
    findings = list(compiled.findings)
    if compiled.program is not None:
        findings += lint(
            compiled.program,
            compiled.parts,
            addresses=["email"],
            templates=TEMPLATES,
            bodies=BODIES,
        )
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.pointer) for finding in findings]


@pytest.mark.parametrize(("code", "body", "pointer"), DEFECTS)
def test_every_defect_is_found_where_it_is(code: str, body: Any, pointer: str) -> None:
    assert (code, pointer) in found(body)


def test_there_are_three_defects_for_each_finding() -> None:
    seeded = Counter(code for code, _, _ in DEFECTS)
    written = codes.written(codes.MACHINE)
    assert {code: seeded[code] for code in written if seeded[code] < 3} == {}
    assert seeded.keys() == written


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ([says("{{ steps.gone.status }}")], "There is no step “gone”."),
        (
            [TAG | {"id": "mark"}, says("{{ steps.mark.tag }}")],
            "“mark” leaves no output: no add_tag does.",
        ),
        (
            [fork(case(SEND | {"id": "a"})), says("{{ steps.a.status }}")],
            "Some path comes here without an output of “a”.",
        ),
    ],
)
def test_why_an_output_may_be_missing_is_told(body: Any, text: str) -> None:
    compiled = check.compile("steps", body)
    doubted = lint(compiled.program, compiled.parts, addresses=["email"])
    assert [finding.message for finding in doubted] == [text]


# --- what is right is not doubted ---------------------------------------------------------------

SURE = [
    [SEND | {"id": "a"}, says("{{ steps.a.status }}")],
    [
        fork(case(SEND | {"id": "a"}, says("{{ steps.a.status }}"))),
        fork(case(when=compare("contact.phone", "exists"))),
    ],
    [says("{{ trigger.items[0].sku }}{{ trigger.items.size }}{{ trigger.items.first.sku }}")],
    [says("{% for item in trigger.items %}{{ item.none }}{% endfor %}{{ trigger }}")],
    [
        {"type": "update_contact", "set": {"phone": "+4930123456"}},
        {**message(text="x"), "channel": "sms"},
    ],
    [{**message(text="x"), "channel": "sms", "to": "{{ trigger.phone }}"}],
]
SMS = {**message(text="x"), "channel": "sms"}
PHONE = "contact.phone"
GUARDS = [
    fork(case(SMS, when=compare(PHONE, "exists"))),
    fork(case(SMS, when=compare(PHONE, "starts_with", "+49"))),
    fork(case(SMS, when={"all": [WHEN, compare(PHONE, "ne", None)]})),
    fork(case(SMS, when={"any": [compare(PHONE, "exists"), compare(PHONE, "eq", "1")]})),
    fork(case(SMS, when={"not": {"any": [WHEN, compare(PHONE, "exists", False)]}})),
    fork(case(when=compare(PHONE, "exists", False)), otherwise=[SMS]),
    fork(case(when={"not": compare(PHONE, "exists")}), case(SMS)),
    fork(case(when=compare(PHONE, "eq", None)), otherwise=[SMS]),
]
LEAKS = [
    fork(case(SMS, when=compare(PHONE, "exists", False))),
    fork(case(SMS, when=compare(PHONE, "ne", "1"))),
    fork(case(SMS, when=compare(PHONE, "in", ["1", None]))),
    fork(case(SMS, when={"any": [WHEN, compare(PHONE, "exists")]})),
    fork(case(SMS, when={"not": compare(PHONE, "eq", "1")})),
    fork(case(when=compare(PHONE, "exists")), otherwise=[SMS]),
    fork(case(SMS, when=compare("contact.metadata.phone", "exists"))),
]


def test_ten_starts_on_a_path_are_none_too_many() -> None:
    apart = [fork(case(*[START] * 10), case(*[START] * 10), otherwise=[START] * 10)]
    round_about = graph(
        [
            *(node(f"n{n}", "start_workflow", workflowId="wfl_1") for n in range(10)),
            node("w", "wait", duration="PT1H"),
        ],
        ("t", "n0"),
        *((f"n{n}", f"n{n + 1}") for n in range(9)),
        ("n9", "w"),
        ("w", "n0"),
    )
    for body in ([START] * 10, apart, round_about):
        assert "many_starts" not in {code for code, _ in found(body)}


@pytest.mark.parametrize("body", [*SURE, *([guard] for guard in GUARDS)])
def test_what_every_path_is_sure_of_is_not_doubted(body: Any) -> None:
    assert found(body) == []


@pytest.mark.parametrize("guard", LEAKS)
def test_what_some_path_is_not_sure_of_is_doubted(guard: Any) -> None:
    assert [code for code, _ in found([guard])] == ["address_uncertain"]


def test_without_a_body_nothing_is_known_of_bodies() -> None:
    compiled = check.compile("steps", [{"type": "add_tag", "tag": "{{ trigger.plan }}"}])
    assert compiled.program is not None
    assert lint(compiled.program, compiled.parts) == []


def test_steps_that_share_a_name_are_found_and_stay_two() -> None:
    body = [TAG | {"id": "a"}, TAG | {"id": "b"}, TAG | {"id": "a"}, SEND | {"id": "a"}]
    assert found(body) == [("doubled_id", "/steps/2/id"), ("doubled_id", "/steps/3/id")]
