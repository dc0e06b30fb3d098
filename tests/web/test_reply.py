"""Form of answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from starlette.responses import Response

from app.errors import CODES, FieldError, Problem, Unavailable
from app.machine import document
from app.web import reply


@pytest.mark.parametrize(
    ("response", "status", "headers", "body"),
    [
        (reply.ok({"a": 1}), 200, {}, b'{"a":1}'),
        (reply.ok({"a": 1}, revision=3), 200, {"etag": '"3"'}, b'{"a":1}'),
        (
            reply.created("/contacts/con_1", {"a": 1}, revision=1),
            201,
            {"location": "/contacts/con_1", "etag": '"1"'},
            b'{"a":1}',
        ),
        (reply.accepted({"runId": "run_1"}), 202, {}, b'{"runId":"run_1"}'),
        (reply.page([1, 2], "next"), 200, {}, b'{"data":[1,2],"nextCursor":"next"}'),
        (reply.page([], None), 200, {}, b'{"data":[],"nextCursor":null}'),
    ],
)
def test_an_answer_is_json(
    response: Response, status: int, headers: dict[str, Any], body: bytes
) -> None:
    assert (response.status_code, response.body) == (status, body)
    assert dict(response.headers) == {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **headers,
    }


def test_what_an_answer_tells_is_what_it_was_written_from() -> None:
    value = {"a": [1]}
    assert reply.ok(value).shown is value
    kept = reply.KeptResponse(b'{"a": 1}', 201, {"content-type": "application/json"})
    assert (kept.body, kept.shown, kept.status_code) == (b'{"a": 1}', {"a": 1}, 201)
    assert "content-type" not in reply.KeptResponse(b"", 204, {}).headers
    refused = reply.problem(Problem("conflict", "It is there.", existingId="sup_1"), "req-1")
    assert refused.shown["existingId"] == "sup_1"


def test_an_answer_that_is_amended_is_otherwise_the_same() -> None:
    first = reply.JsonResponse({"a": 1, "b": 2}, 201, {"location": "/as/1"})
    amended = reply.amended(first, b=3)
    assert (amended.status_code, amended.body) == (201, b'{"a":1,"b":3}')
    assert dict(amended.headers) == {**first.headers, "content-length": "13"}


def test_nothing_is_nothing() -> None:
    response = reply.no_content()
    assert (response.status_code, response.body) == (204, b"")


def test_times_are_utc_with_milliseconds() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=5)))
    assert reply.ok({"at": moment}).body == b'{"at":"2026-01-31T07:00:00.000Z"}'
    assert reply.ok({"at": moment.astimezone(UTC)}).body == b'{"at":"2026-01-31T07:00:00.000Z"}'


@pytest.mark.parametrize("literal", [b"1.10", b"-0", b"1E400", b"123456789012345678901"])
def test_numbers_go_out_as_they_came(literal: bytes) -> None:
    stored = document.parse(b'{"n":' + literal + b"}")
    assert reply.ok(stored).body == b'{"n":' + literal + b"}"


def test_a_problem_has_all_members_of_its_code() -> None:
    for code, (status, title) in CODES.items():
        response = reply.problem(Problem(code, "Do this."), "req-1")
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        assert orjson.loads(response.body) == {
            "type": f"/problems/{code}",
            "title": title,
            "status": status,
            "detail": "Do this.",
            "code": code,
            "requestId": "req-1",
        }


def test_a_problem_lists_its_errors_and_its_own_members() -> None:
    problem = Problem(
        "invalid", "Two.", errors=[FieldError("/a", "One."), FieldError("?b", "Two.")], hint="x"
    )
    body = orjson.loads(reply.problem(problem, "req-1").body)
    assert body["errors"] == [
        {"pointer": "/a", "message": "One."},
        {"pointer": "?b", "message": "Two."},
    ]
    assert body["hint"] == "x"


def test_unavailable_says_when_to_come_back() -> None:
    response = reply.problem(Unavailable("Wait.", retry_after_seconds=7), "req-1")
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")
