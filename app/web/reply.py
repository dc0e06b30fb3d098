"""Answers: a resource, a page of them, nothing, or a problem (RFC 9457), all by one JSON writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from starlette.responses import Response

from app.errors import Problem
from app.machine import document
from app.web import conditions
from app.web.body import Shape

Item = TypeVar("Item", bound=Shape)
Row = TypeVar("Row")


class Revised(Shape):
    """A resource with a revision, with which its ETag begins."""


class Page(Shape, Generic[Item]):
    """Newest first. `nextCursor` is null on the last page."""

    data: list[Item]
    next_cursor: str | None


class JsonResponse(Response):
    media_type: str | None = "application/json"

    def render(self, content: Any) -> bytes:
        self._shown = content
        return document.dumps(content)

    @property
    def shown(self) -> Any:
        """The JSON that it tells, for whoever acts on what was decided."""
        return self._shown


class KeptResponse(JsonResponse):
    """Tells in the same bytes what was answered before."""

    media_type = None  # as it was

    def render(self, content: bytes) -> bytes:
        return content

    @property
    def shown(self) -> Any:
        return document.parse(bytes(self.body))


class SecretResponse(JsonResponse):
    """Shows a secret that is never shown again: no other bearer may have it replayed."""


class ProblemResponse(JsonResponse):
    media_type = "application/problem+json"


def ok(
    resource: Any, *, revision: int | None = None, beside: Any = None, secret: bool = False
) -> JsonResponse:
    kind = SecretResponse if secret else JsonResponse
    return kind(resource, 200, _tagged(revision, beside))


def created(
    location: str,
    resource: Any,
    *,
    revision: int | None = None,
    beside: Any = None,
    secret: bool = False,
) -> Response:
    kind = SecretResponse if secret else JsonResponse
    return kind(resource, 201, {"Location": location, **_tagged(revision, beside)})


def amended(answer: JsonResponse, **values: object) -> Response:
    """The same answer, which now says this."""
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return JsonResponse({**answer.shown, **values}, answer.status_code, headers)


def tag_of(resource: Any) -> str:
    """The entity tag of what has no revision, as a GET would answer it."""
    return conditions.digest(document.dumps(resource))


def accepted(resource: Any) -> Response:
    """The work is written down and will be done."""
    return JsonResponse(resource, 202)


def no_content() -> Response:
    return Response(status_code=204)


def page(items: Sequence[Any], next_cursor: str | None) -> Response:
    return JsonResponse({"data": items, "nextCursor": next_cursor})


def found(row: Row | None, noun: str) -> Row:
    """The row that the path names. Raises Problem `not_found` where there is none."""
    if row is None:
        raise unknown(noun)
    return row


def unknown(noun: str) -> Problem:
    return Problem("not_found", f"There is no such {noun}.")


def problem(problem: Problem, request_id: str) -> JsonResponse:
    body: dict[str, Any] = {
        "type": f"/problems/{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "requestId": request_id,
    }
    if problem.errors:
        body["errors"] = [
            {"pointer": error.pointer, "message": error.message} for error in problem.errors
        ]
    return ProblemResponse({**body, **problem.extra}, problem.status, problem.headers)


def _tagged(revision: int | None, beside: Any) -> Mapping[str, str]:
    """The entity tag (RFC 9110 §8.8.3): the row's revision, and what is told beside the row."""
    if revision is None:
        return {}
    return {"ETag": conditions.tag(revision, document.dumps(beside) if beside else b"")}
