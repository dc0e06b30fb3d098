"""A transport that holds every answer, and every body that was accepted, to the document."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
import jsonschema_rs
import orjson
from starlette.routing import Route, Router, compile_path

from app.routes import ROUTES, SANDBOX_ROUTES
from app.routes.outbound_events import EVENTS
from app.routes.reference import EXAMPLES
from app.web import naming, openapi
from app.web.edge import Edge

EVERY = [*ROUTES, *SANDBOX_ROUTES]
ANYWHERE = {"method_not_allowed", "not_implemented", "internal"}  # told once, for all operations
JSON = ("application/json", "application/problem+json")


@cache
def document() -> dict[str, Any]:
    return openapi.document(
        EVERY,
        base_url="http://127.0.0.1:8000",
        version="1",
        examples=EXAMPLES,
        events=EVENTS,
    )


@cache
def validator(schema: bytes) -> Any:
    """Make a validator with the components that it refers to alone, in a hundredth of the time."""
    whole, components = orjson.loads(schema), defaultdict[str, dict[str, Any]](dict)
    left = list(_references(whole))
    while left:
        kind, name = left.pop().split("/")[-2:]
        if name not in components[kind]:
            components[kind][name] = document()["components"][kind][name]
            left += _references(components[kind][name])
    return jsonschema_rs.Draft202012Validator(
        {**whole, "components": dict(components)}, validate_formats=True
    )


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = list(schema.values())
    if isinstance(schema, list):
        for one in schema:
            yield from _references(one)


def check(schema: Mapping[str, Any], value: Any, what: str) -> None:
    """Raises AssertionError with all that is wrong."""
    compiled = validator(orjson.dumps(schema))
    if not compiled.is_valid(value):
        found = [f"{error.instance_path}: {error.message}" for error in compiled.iter_errors(value)]
        raise AssertionError(f"{what} is not as the document says: {found}")


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:  # a sender's 1e999, which comes back as it was
        return json.loads(body, parse_float=_finite)


def _finite(text: str) -> float:
    """A number of its sign that the validator can hold: it takes an infinite one for null."""
    return min(max(float(text), -sys.float_info.max), sys.float_info.max)


def resolved(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in answer:
        return answer
    found: Mapping[str, Any] = document()["components"]["responses"][answer["$ref"].split("/")[-1]]
    return found


@dataclass(frozen=True, slots=True)
class Operation:
    """Operation of the document: one method at one path."""

    name: str
    path: str
    documented: Mapping[str, Any]

    def check_answer(self, response: httpx2.Response, body: bytes) -> None:
        what = f"{self.name} {response.status_code}"
        assert "X-Request-Id" in response.headers, what
        media_type = response.headers.get("Content-Type", "").partition(";")[0]
        value = _parsed(body) if media_type in JSON and body else None
        if media_type == "application/problem+json" and value and value["code"] in ANYWHERE:
            return
        answer = self.documented["responses"].get(str(response.status_code))
        assert answer is not None, f"the document does not know of {what}: {body[:300]!r}"
        answer = resolved(answer)
        self._check_headers(answer, response, what)
        content = answer.get("content", {})
        assert media_type in (content or {""}), f"{what} is {media_type or 'empty'}"
        if value is not None:
            check(content[media_type]["schema"], value, what)
        if "x-codes" in answer and value is not None:
            assert value["code"] in answer["x-codes"], f"{what} has the code {value['code']}"
            assert value["status"] == response.status_code, what
        location = response.headers.get("Location", "")
        if response.status_code == 201 and location.startswith("/"):
            assert operation("GET", location) is not None, f"{what}: nothing reads {location}"

    def _check_headers(
        self, answer: Mapping[str, Any], response: httpx2.Response, what: str
    ) -> None:
        for name in ("ETag", "Location", "Retry-After", "WWW-Authenticate", "RateLimit"):
            documented, there = name in answer["headers"], name in response.headers
            assert documented or not there, f"{what} has {name}, and the document does not say so"
            assert there or not documented or "x-codes" in answer, f"{what} has no {name}"

    def check_accepted(self, request: httpx2.Request) -> None:
        """Check that what was taken is what the document would let a client send."""
        parameters = {
            one["name"] for one in self.documented.get("parameters", ()) if one["in"] == "query"
        }
        names = {re.sub(r"\[.*", "", name) for name in request.url.params}
        assert names <= parameters or not self.documented["security"], f"{self.name} takes {names}"
        media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        content = self.documented.get("requestBody", {}).get("content", {})
        if media_type in JSON and media_type in content:
            body = _parsed(request.content)
            check(content[media_type]["schema"], body, f"the body of {self.name}")


@cache
def operations() -> Mapping[tuple[str, str], list[tuple[re.Pattern[str], Operation]]]:
    """Read the operations by method and first segment, a word always; each with its path's
    pattern."""
    found = defaultdict[tuple[str, str], list[tuple[re.Pattern[str], Operation]]](list)
    for endpoint in EVERY:
        method, path = endpoint.method, endpoint.path
        documented = document()["paths"][naming.path_of(endpoint)][method.lower()]
        one = Operation(str(endpoint), path, documented)
        found[method, first_of(path)].append((compile_path(path)[0], one))
    return found


def operation(method: str, path: str) -> Operation | None:
    wanted = "GET" if method == "HEAD" else method
    alike = operations().get((wanted, first_of(path)), ())
    return next((found for pattern, found in alike if pattern.match(path)), None)


def first_of(path: str) -> str:
    return path.partition("/")[2].partition("/")[0]


def refuses_part(response: httpx2.Response) -> bool:
    """Return whether a batch was answered, and not all of it was right."""
    if response.headers.get("Content-Type") != "application/json":
        return False
    answer = response.json()
    return isinstance(answer, dict) and "outcomes" in answer and answer["refused"] > 0


def router_of(edge: Edge) -> Router:
    """The table of routes behind an edge."""
    assert isinstance(edge.app, Router)
    return edge.app


class Conforming(httpx2.ASGITransport):
    """Straight into the application, without a socket."""

    def __init__(self, app: Edge, address: str = "127.0.0.1") -> None:
        super().__init__(app=app, client=(address, 40_000))
        routes = router_of(app).routes
        self._mounted = {route.path for route in routes if isinstance(route, Route)}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        found = operation(request.method, request.url.path)
        if found is not None and found.path in self._mounted:
            found.check_answer(response, await response.aread())
            if response.is_success and request.method != "HEAD" and not refuses_part(response):
                found.check_accepted(request)
        return response
