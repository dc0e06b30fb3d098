"""The table of routes, mounted, and the one wrapper around every handler.

The wrapper, in order: authenticate, count and permit on the head, by the role and then by the plan,
check the query → read the whole body under its cap and deadline → a connection or a transaction →
the answer that an Idempotency-Key has, or the handler → what the route awaits before any answer.
`tx=None` handlers open their own short transactions, so that nothing slow holds SQLite's one writer
or a pooled connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router, compile_path
from starlette.types import Lifespan, Receive, Scope, Send

from app.database.db import Handle
from app.errors import Duplicate, Problem, Unavailable
from app.machine import spelling
from app.process import Process
from app.web import auth, body, conditions, idempotency, reply
from app.web.auth import ADMIN, MEMBER, PUBLIC
from app.web.bearers import Bearers
from app.web.bodies import SMALL_BYTES
from app.web.call import SAFE, Call
from app.web.endpoints import (
    Bare,
    Endpoint,
    Handler,
    bare_post,
    delete,
    get,
    patch,
    post,
    put,
)
from app.web.reply import JsonResponse
from app.web.throttle import API, Throttle

STRANGERS_BYTES = 256 * 1024  # of a body that nobody vouches for; the intake has its own limit

__all__ = [
    "ADMIN",
    "MEMBER",
    "PUBLIC",
    "Call",
    "Endpoint",
    "Handler",
    "bare_post",
    "delete",
    "get",
    "mount",
    "patch",
    "post",
    "put",
    "router",
]


def mount(endpoints: Sequence[Endpoint], process: Process, throttle: Throttle) -> list[Route]:
    """One Starlette Route per path, in the table's order. Raises ValueError for a table that hides
    an endpoint behind another."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        methods = by_path.setdefault(endpoint.path, {})
        if endpoint.method in methods:
            raise ValueError(f"{endpoint.method} {endpoint.path} stands in the table twice")
        methods[endpoint.method] = endpoint
    _refuse_hidden(tuple(by_path))
    bearers = Bearers(throttle)
    return [
        Route(path, _Path(methods, process, throttle, bearers)) for path, methods in by_path.items()
    ]


@lru_cache  # of each pair, and a process of the tests mounts the same table thousands of times
def _refuse_hidden(paths: tuple[str, ...]) -> None:
    known = [(path, compile_path(path)[0]) for path in paths]
    for place, path in enumerate(paths):
        for earlier, pattern in known[:place]:
            if pattern.match(path):
                raise ValueError(f"{earlier} hides {path}, which must stand before it")


def router(routes: Sequence[Route], lifespan: Lifespan[Any] | None = None) -> Router:
    """The application below the edge. It answers nothing by itself: no redirect, no error page."""
    unknown = _Unknown(sorted({route.path for route in routes}))
    return Router(routes, redirect_slashes=False, default=unknown, lifespan=lifespan)


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Answers a path that is none of ours with the pattern that it reads most like; never with what
    was asked for, which may hold a secret."""

    paths: Sequence[str]

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        asked = scope["path"].rstrip("/").split("/")
        alike = {
            "/".join(asked[i] if part.startswith("{") else part for i, part in enumerate(parts)): (
                path
            )
            for path in self.paths
            if len(parts := path.split("/")) == len(asked)
        }
        near = spelling.nearest("/".join(asked), alike)
        hint = f" Did you mean {alike[near]}?" if near else ""
        raise Problem("not_found", f"Nothing exists at this path.{hint}")


class _Path:
    """Every method of one path."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        process: Process,
        throttle: Throttle,
        bearers: Bearers,
    ) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]
        self._allow = {"Allow": ", ".join(self._endpoints)}
        self._process = process
        self._throttle = throttle
        self._bearers = bearers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None and endpoint.is_bare:
            bare = cast(Bare, endpoint.handler)
            await bare(self._process, self._throttle, scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            await Response(status_code=204, headers=self._allow)(scope, receive, send)
            return
        if endpoint is None:
            raise Problem(
                "method_not_allowed", f"Use {self._allow['Allow']} here.", headers=self._allow
            )
        request = Request(scope, receive)
        call = Call(
            self._process,
            self._throttle,
            self._bearers,
            request,
            endpoint.takes,
            endpoint.can,
            endpoint.plan,
        )
        response = await self._run(endpoint, call)
        if request.method in SAFE:
            if endpoint.is_tagged:
                conditions.tagged(response)
            response = conditions.unchanged(request.headers, response)
        await response(scope, receive, send)

    async def _permit(self, endpoint: Endpoint, call: Call) -> None:
        """Judge the head by who sends it, and what its body may take."""
        if endpoint.can != PUBLIC:
            headers = call.request.headers
            call.caller = await self._bearers.judged(
                call.client,
                auth.bearer_of(headers),
                lambda: auth.authenticate(call.process, headers),
            )
            verdict = await call.throttle.check(API, call.member.counted_as)
            call.request.state.limits.update(verdict.limits)
            auth.permit(call.member, endpoint.can)
            auth.afford(call.member, endpoint.plan)
            call.request.state.allowance.hold.belongs_to(call.member.workspace_id)
        else:
            call.request.state.allowance.narrow(STRANGERS_BYTES)
        if endpoint.takes is None:  # a form of a browser perhaps
            call.request.state.allowance.narrow(SMALL_BYTES)

    async def _run(self, endpoint: Endpoint, call: Call) -> Response:
        await self._permit(endpoint, call)
        if endpoint.parameters is not None:
            call.parameters = body.query(endpoint.parameters, call.request.scope["query_string"])
        key = idempotency.key_of(call.request.headers) if endpoint.takes_key else None
        if endpoint.method == "GET":
            call.received = b""  # which means nothing there (RFC 9110 §9.3.1)
        elif endpoint.tx is not None or endpoint.refuses_body or endpoint.concludes:
            await call.receive_body()
        if endpoint.refuses_body:
            body.nothing(call.request.headers, call.body)
        if key is not None:
            call.asked = idempotency.Asked.by(
                call.request.scope, call.body, key, vault=call.process.vault, member=call.member
            )
        try:
            response = await call.process.compute.within(lambda: self._answer(endpoint, call))
        except Duplicate:
            raise Problem(
                "conflict",
                "Another resource already has this value, which must be unique; use another one.",
            ) from None
        except Problem as refusal:
            if endpoint.awaits is not None:
                await endpoint.awaits(call, reply.problem(refusal, call.request_id))
            raise
        if endpoint.awaits is None:
            return response
        return await endpoint.awaits(call, cast(JsonResponse, response))

    async def _answer(self, endpoint: Endpoint, call: Call) -> Response:
        """The answer of the same request with the same Idempotency-Key, or the handler's."""
        asked, database = call.asked, self._process.database
        connection: AbstractAsyncContextManager[Handle | None] = nullcontext()
        if endpoint.tx is not None:
            connection = database.write() if endpoint.tx == "write" else database.read()
        async with connection as call.connection:
            if asked is not None and endpoint.tx == "write":
                return await asked.once(call.db, lambda: self._handle(endpoint, call))
            if asked is not None and endpoint.concludes:
                answer = await asked.earlier(database)
                if answer is not None:
                    return answer
            try:
                response = await self._handle(endpoint, call)
            except Problem as refusal:
                may_be_copy = endpoint.concludes and not call.has_concluded
                if asked is None or not may_be_copy or isinstance(refusal, Unavailable):
                    raise
                answer = await asked.earlier(database)  # the effect of a copy may be why
                if answer is None:
                    raise
                return answer
            if endpoint.concludes and not call.has_concluded:
                raise LookupError(
                    f"{endpoint} says that it concludes, and does not call conclude()"
                )
            return response

    async def _handle(self, endpoint: Endpoint, call: Call) -> Response:
        judges = endpoint.judges_tag(self._endpoints.get("GET"))
        if endpoint.tx is None and endpoint.can != PUBLIC and not judges:
            call.refuse_the_ignored()  # before it begins: what it has done is not rolled back
        if endpoint.concludes:
            call.refuse_unacceptable("application/json")  # likewise
        try:
            response = await cast(Handler, endpoint.handler)(call)
        except body.Unchanged:  # the answer to a GET of this path
            show = cast(Handler, self._endpoints["GET"].handler)
            if call.connection is not None:
                response = await show(call)
            else:
                async with self._process.database.read() as call.connection:
                    response = await show(call)
        if endpoint.tx is not None and endpoint.can != PUBLIC:
            # Within the transaction, which a refusal rolls back.
            call.refuse_the_ignored()
            call.refuse_unacceptable(response.headers.get("content-type", ""))
        return response
