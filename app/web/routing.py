"""get/post/patch/put/delete(path, handler, can=…) → the table of routes, and the one wrapper.

The wrapper, in order: authenticate, count and permit on the head → read the whole body under its
cap and deadline → a connection or a transaction → the answer that an Idempotency-Key has, or the
handler. `tx=None` handlers open their own short transactions, so that nothing slow holds SQLite's
one writer or a pooled connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Lifespan, Receive, Scope, Send

from app.errors import Duplicate, Problem
from app.identity import Member
from app.machine.program import Json
from app.process import Process
from app.store.db import Handle
from app.web import auth, body, conditions, idempotency
from app.web.accept import acceptable
from app.web.auth import ADMIN, MEMBER, PUBLIC
from app.web.throttle import API, Throttle

__all__ = [
    "ADMIN",
    "MEMBER",
    "PUBLIC",
    "Call",
    "Endpoint",
    "delete",
    "get",
    "mount",
    "patch",
    "post",
    "put",
    "router",
]

Model = TypeVar("Model", bound=BaseModel)
Transaction: TypeAlias = Literal["read", "write"] | None
SAFE = frozenset({"GET", "HEAD"})


# --- what a handler gets --------------------------------------------------------------------------


@dataclass(slots=True)
class Call:
    """One request on its way through a handler; what its route did not ask for is a LookupError."""

    process: Process
    throttle: Throttle
    request: Request
    _member: Member | None = None
    _db: Handle | None = None
    _body: bytes | None = None
    _query_was_read: bool = False
    _if_match_was_judged: bool = False

    @property
    def member(self) -> Member:
        if self._member is None:
            raise LookupError("a PUBLIC route knows no member")
        return self._member

    @property
    def db(self) -> Handle:
        if self._db is None:
            raise LookupError("a tx=None route opens its own transactions")
        return self._db

    @property
    def body(self) -> bytes:
        if self._body is None:
            raise LookupError("a tx=None route has to await receive_body() first")
        return self._body

    @property
    def request_id(self) -> str:
        return str(self.request.state.request_id)

    @property
    def client(self) -> str:
        """The caller's address."""
        return self.request.client.host if self.request.client else "unknown"

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def read(self, model: type[Model]) -> Model:
        """The JSON body, checked. Raises Problem: 400, 415 or 422."""
        return body.read(model, self.request.headers, self.body)

    def patch(self, model: type[Model], stored: Mapping[str, Json]) -> Model:
        """`stored`, the writable fields as clients see them, after the merge patch in the body."""
        return body.patch(model, stored, self.request.headers, self.body)

    def query(self, model: type[Model]) -> Model:
        """The query parameters, checked. Raises Problem `invalid`."""
        self._query_was_read = True
        return body.query(model, self.request.scope["query_string"])

    def match(self, revision: int) -> None:
        """Raises Problem `stale` when If-Match names only other revisions (RFC 9110 §13.1.1)."""
        self._if_match_was_judged = True
        if not conditions.matches(self.request.headers, revision):
            raise Problem("stale", "Read the resource again: it has changed since you did.")

    async def receive_body(self) -> bytes:
        """For tx=None routes, which judge the head first. Raises Problem: 408 or 413."""
        self._body = await self.request.body()
        return self._body

    def stream_body(self, max_bytes: int, piece_seconds: float) -> AsyncIterator[bytes]:
        """For tx=None routes whose body may be larger than memory. Raises Problem: 408 or 413."""
        self.request.state.allowance.widen(max_bytes, piece_seconds)
        return self.request.stream()

    def _refuse_the_ignored(self) -> None:
        """What the caller asked for and the handler took no notice of."""
        if not self._query_was_read:
            self.query(body.Query)
        unjudged = not self._if_match_was_judged and self.request.method not in SAFE
        if unjudged and conditions.names_a_revision(self.request.headers):
            raise Problem("stale", "This has no revision that could match; leave out If-Match.")

    def _refuse_unacceptable(self, answer: Response) -> None:
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if media_type and not acceptable(self.request.headers, media_type):
            raise Problem("not_acceptable", f"Accept {media_type}: there is nothing else here.")


# --- the table ------------------------------------------------------------------------------------

Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`can` is a permission, or PUBLIC, MEMBER or ADMIN; it stands beside every path, always."""

    method: str
    path: str
    handler: Handler
    can: str
    tx: Transaction

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key counts. Not without a transaction to keep the answer in, and
        not on /auth/: a copy must not be shown tokens, or be signed out twice."""
        member = self.can != PUBLIC and not self.path.startswith("/auth/")
        return self.method == "POST" and member and self.tx is not None


def get(path: str, handler: Handler, *, can: str, tx: Transaction = "read") -> Endpoint:
    return Endpoint("GET", path, handler, can, tx)


def post(path: str, handler: Handler, *, can: str, tx: Transaction = "write") -> Endpoint:
    return Endpoint("POST", path, handler, can, tx)


def put(path: str, handler: Handler, *, can: str, tx: Transaction = "write") -> Endpoint:
    return Endpoint("PUT", path, handler, can, tx)


def patch(path: str, handler: Handler, *, can: str, tx: Transaction = "write") -> Endpoint:
    return Endpoint("PATCH", path, handler, can, tx)


def delete(path: str, handler: Handler, *, can: str, tx: Transaction = "write") -> Endpoint:
    return Endpoint("DELETE", path, handler, can, tx)


def mount(endpoints: Sequence[Endpoint], process: Process, throttle: Throttle) -> list[Route]:
    """One Starlette Route per path, in the table's order. Raises ValueError for a table that hides
    an endpoint behind another."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in endpoints:
        methods = by_path.setdefault(endpoint.path, {})
        if endpoint.method in methods:
            raise ValueError(f"{endpoint.method} {endpoint.path} stands in the table twice")
        methods[endpoint.method] = endpoint
    routes = [Route(path, _Path(methods, process, throttle)) for path, methods in by_path.items()]
    for place, route in enumerate(routes):
        for earlier in routes[:place]:
            if earlier.path_regex.match(route.path):
                raise ValueError(f"{earlier.path} hides {route.path}, which must stand before it")
    return routes


def router(routes: Sequence[Route], lifespan: Lifespan[Any] | None = None) -> Router:
    """The application below the edge. It answers nothing by itself: no redirect, no error page."""
    return Router(routes, redirect_slashes=False, default=_not_found, lifespan=lifespan)


async def _not_found(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise Problem("not_found", "There is nothing at this path.")


# --- the wrapper ----------------------------------------------------------------------------------


class _Path:
    """Every method of one path."""

    def __init__(
        self, endpoints: Mapping[str, Endpoint], process: Process, throttle: Throttle
    ) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]
        self._allow = {"Allow": ", ".join(self._endpoints)}
        self._process = process
        self._throttle = throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        endpoint = self._endpoints.get(request.method)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=self._allow)
        if endpoint is None:
            raise Problem(
                "method_not_allowed", f"Use {self._allow['Allow']} here.", headers=self._allow
            )
        response = await self._run(endpoint, Call(self._process, self._throttle, request))
        if request.method in SAFE:
            return conditions.unchanged(request.headers, response)
        return response

    async def _run(self, endpoint: Endpoint, call: Call) -> Response:
        if endpoint.can != PUBLIC:
            call._member = await auth.authenticate(call.process, call.request.headers)
            await call.throttle.check(API, call.member.via_id)
            auth.permit(call.member, endpoint.can)
        key = idempotency.key_of(call.request.headers) if endpoint.takes_key else None
        if endpoint.tx is not None:
            call._body = b"" if endpoint.method == "GET" else await call.request.body()
        try:
            async with self._connection(endpoint.tx) as call._db:
                if key is None or endpoint.tx != "write":
                    return await self._handle(endpoint, call)
                return await idempotency.once(
                    call.db,
                    lambda: self._handle(endpoint, call),
                    key=key,
                    vault=call.process.vault,
                    member=call.member,
                    request=call.request,
                )
        except Duplicate:
            raise Problem(
                "conflict", "Something else has a value that only one may have; change it."
            ) from None

    async def _handle(self, endpoint: Endpoint, call: Call) -> Response:
        response = await endpoint.handler(call)
        if endpoint.tx is not None and endpoint.can != PUBLIC:
            # Within the transaction, which a refusal rolls back.
            call._refuse_the_ignored()
            call._refuse_unacceptable(response)
        return response

    def _connection(self, tx: Transaction) -> AbstractAsyncContextManager[Handle | None]:
        if tx is None:
            return nullcontext()
        return self._process.database.write() if tx == "write" else self._process.database.read()
