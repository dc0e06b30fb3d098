"""http_request: what is asked, what a record may show of it, and where the run goes on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.machine import document
from app.machine.check import compile
from app.machine.http_fields import FRAMING
from app.machine.nodes.http_request import RESERVED
from app.machine.program import Answered, Finish, Go, HttpCall, Program, Step
from app.machine.reasons import Reason
from app.machine.secrets import MASK
from app.machine.step import start, step
from tests.present import present

FACTS: dict[str, Any] = {
    "trigger": {
        "id": "o 1",
        "total": document.parse(b"1.10"),
        "evil": 'x"}\r\nX-Evil: 1',
        "list": [1, 2],
        "long": "a&" * 5_000,
    },
    "contact": {"email": "ada@example.com"},
    "workspace": {},
    "run": {},
    "steps": {},
    "now": datetime(2026, 1, 31, tzinfo=UTC),
}
ASK = {"id": "ask", "type": "http_request", "method": "POST", "url": "https://api.example/o"}
AFTER = {"id": "after", "type": "exit"}


def program(node: dict[str, Any]) -> Program:
    compiled = compile("steps", [node, AFTER])
    assert compiled.program is not None, compiled.findings
    return compiled.program


def asked(node: dict[str, Any]) -> Step:
    of = program(node)
    return step(of, start(of), Go(), FACTS)


def call_of(**config: Any) -> HttpCall:
    [call] = asked({**ASK, **config}).effects
    assert isinstance(call, HttpCall)
    return call


def answered(node: dict[str, Any], event: Answered) -> Step:
    of = program(node)
    waiting = step(of, start(of), Go(), FACTS)
    return step(of, waiting.state, event, {**FACTS, "steps": waiting.state.outputs})


def found(**config: Any) -> list[tuple[str, str]]:
    compiled = compile("steps", [{**ASK, **config}])
    return [(finding.code, finding.pointer) for finding in compiled.findings]


def test_url_headers_and_body_are_rendered() -> None:
    call = call_of(
        url="https://api.example/o/{{trigger.id}}",
        headers={"X-Who": "{{contact.email}}"},
        body="total={{trigger.total}}",
        timeoutMs=500,
    )
    assert (call.node_id, call.visit, call.method) == ("ask", 1, "POST")
    assert call.url == "https://api.example/o/o%201"
    assert call.headers == (
        ("x-who", "ada@example.com"),
        ("content-type", "text/plain; charset=utf-8"),
    )
    assert (call.body, call.timeout_ms) == ("total=1.10", 500)


def test_no_value_breaks_out_of_a_body_that_is_written_as_json() -> None:
    call = call_of(body={"evil": "{{trigger.evil}}", "n": 1, "all": ["{{trigger.total}}", None]})
    assert document.parse(call.body.encode()) == {
        "evil": FACTS["trigger"]["evil"],
        "n": 1,
        "all": ["1.10", None],
    }
    assert dict(call.headers)["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "headers", "media_type"),
    [
        ('{"a": 1}', {}, "application/json"),
        ("a=1", {"Content-Type": "application/x-www-form-urlencoded"}, None),
        ({"a": 1}, {"content-type": "application/vnd.api+json"}, "application/vnd.api+json"),
    ],
)
def test_the_author_s_content_type_counts(
    body: Any, headers: dict[str, str], media_type: str
) -> None:
    expected = media_type or "application/x-www-form-urlencoded"
    assert dict(call_of(body=body, headers=headers).headers)["content-type"] == expected


@pytest.mark.parametrize("value", ["{{trigger.evil}}", "ä\u2028b", "\u010aX-Evil: 1"])
def test_a_header_with_a_line_break_is_never_asked_with(value: str) -> None:
    result = asked({**ASK, "headers": {"X-A": value}})
    assert result.record is not None
    assert (result.record.status, result.record.code) == ("FAILED", Reason.HTTP_INVALID)
    assert not any(isinstance(effect, HttpCall) for effect in result.effects)


def test_a_url_that_came_out_too_long_is_never_asked() -> None:
    """Nor read, for the record: a million parameters would take seconds."""
    result = asked({**ASK, "url": "https://api.example/?{{trigger.long}}"})
    assert result.record is not None
    assert (result.record.status, result.record.code) == ("FAILED", Reason.HTTP_INVALID)
    assert not any(isinstance(effect, HttpCall) for effect in result.effects)


def test_a_record_shows_what_was_asked_but_no_credential() -> None:
    result = asked(
        {
            **ASK,
            "url": "https://ada:canary@api.example/o?page=2&api_key=canary#canary",
            "headers": {
                "Authorization": "Bearer canary",
                "Cookie": "canary",
                "X-Api-Key": "canary",
                "X-Auth-Token": "canary",
                "X-Signature": "canary",
                "X-Page": "2",
            },
            "body": '{"password": "canary"}',
        }
    )
    assert result.record is not None
    assert "canary" not in document.dumps(result.record.output).decode()
    assert "canary" not in document.dumps(result.state.to_json()).decode()
    request = (result.record.output or {})["request"]
    assert request["url"] == f"https://api.example/o?page=2&api_key={MASK}"
    assert request["headers"]["x-page"] == "2"
    assert request["bodyBytes"] == len('{"password": "canary"}')


def test_an_answer_is_there_for_the_steps_that_follow() -> None:
    body = document.parse(b'{"total": 1.10, "big": 123456789012345678901}')
    headers = {"content-type": "application/json", "set-cookie": "canary"}
    result = answered(ASK, Answered(201, headers, body, tries=2))
    assert result.record is not None
    assert (result.record.status, result.record.port, result.state.at) == (
        "COMPLETED",
        "next",
        "after",
    )
    noted = result.state.outputs["ask"]
    assert (noted["status"], noted["tries"]) == (201, 2)
    assert noted["headers"] == {"content-type": "application/json", "set-cookie": MASK}
    assert b'{"total":1.10,"big":123456789012345678901}' in document.dumps(noted)
    assert result.record.output == noted
    assert noted["request"]["method"] == "POST"


FAILURES = [
    (Answered(404, {}, {"no": "such"}), Reason.HTTP_STATUS),
    (Answered(302, {"location": "https://inner"}), Reason.HTTP_STATUS),
    (Answered(None, code=Reason.HTTP_TIMEOUT, detail="Too slow."), Reason.HTTP_TIMEOUT),
]


@pytest.mark.parametrize(("event", "code"), FAILURES)
def test_anything_but_success_fails_the_run_unless_there_is_a_way_out(
    event: Answered, code: Reason
) -> None:
    result = answered(ASK, event)
    assert result.record is not None
    assert (result.record.status, result.record.code) == ("FAILED", code)
    [finish] = result.effects
    assert isinstance(finish, Finish)
    assert (finish.status, finish.code) == ("FAILED", code)
    assert result.state.at == "ask"  # so that a retry asks again

    result = answered({**ASK, "failed": [{"id": "sorry", "type": "exit"}]}, event)
    assert result.record is not None
    assert (result.record.status, result.record.port) == ("COMPLETED", "failed")
    assert result.state.at == "sorry"
    assert result.state.outputs["ask"].get("status") == event.status


def test_a_template_that_cannot_be_rendered_takes_the_way_out_too() -> None:
    broken = {**ASK, "body": "{{ 1 | divided_by: 0 }}"}
    assert present(asked(broken).record).code == Reason.TEMPLATE_ERROR
    assert asked({**broken, "failed": [{"id": "sorry", "type": "exit"}]}).state.at == "sorry"


@pytest.mark.parametrize(
    ("config", "code", "pointer"),
    [
        ({"method": "CONNECT"}, "wrong_type", "/method"),
        ({"method": None}, "missing", "/method"),
        ({"url": ""}, "missing", "/url"),
        ({"url": "file:///etc/passwd"}, "bad_url", "/url"),
        ({"url": "//api.example"}, "bad_url", "/url"),
        ({"url": "https://{{"}, "bad_template", "/url"),
        ({"headers": ["X-A"]}, "wrong_type", "/headers"),
        ({"headers": {"X-A\r\nX-B": "1"}}, "bad_header", "/headers/X-A\r\nX-B"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "bad_header", "/headers/X-A"),
        ({"headers": {"Host": "inner"}}, "bad_header", "/headers/Host"),
        ({"headers": {"X-A": 1}}, "wrong_type", "/headers/X-A"),
        ({"body": 1}, "wrong_type", "/body"),
        ({"body": {"a": ["{{"]}}, "bad_template", "/body/a/0"),
        ({"method": "GET", "body": "x"}, "needless", "/body"),
        ({"timeoutMs": 15_001}, "wrong_type", "/timeoutMs"),
        ({"timeoutMs": True}, "wrong_type", "/timeoutMs"),
        ({"follow": True}, "unknown_field", "/follow"),
    ],
)
def test_what_cannot_be_asked_is_found_at_its_place(
    config: dict[str, Any], code: str, pointer: str
) -> None:
    assert (code, f"/steps/0{pointer}") in found(**config)


def test_what_frames_a_request_cannot_be_said_by_a_definition() -> None:
    assert FRAMING < RESERVED
    for name in RESERVED:
        assert ("bad_header", f"/steps/0/headers/{name}") in found(headers={name: "1"})
