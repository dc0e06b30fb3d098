"""The table of routes, mounted, and the one wrapper around every handler.

The wrapper, in order: authenticate, count and permit on the head, by the role and then by the plan,
check the query → read the whole body under its cap and deadline → a connection or a transaction →
the answer that an Idempotency-Key has, or the handler. `tx=None` handlers open their own short
transactions, so that nothing slow holds SQLite's one writer or a pooled connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router, compile_path
from starlette.types import Lifespan, Receive, Scope, Send

from app import audit
from app.accounts.identity import Member
from app.audit import Origin, Where
from app.errors import Duplicate, Problem
from app.machine import document
from app.machine.program import Json
from app.process import Process
from app.store.db import Handle
from app.web import auth, body, conditions, idempotency
from app.web.accept import acceptable
from app.web.auth import ADMIN, MEMBER, PUBLIC
from app.web.endpoints import (
    Bare,
    Endpoint,
    Handler,
    Transaction,
    bare_post,
    delete,
    get,
    patch,
    post,
    put,
)
from app.web.throttle import API, Throttle

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

Model = TypeVar("Model", bound=BaseModel)
Written = TypeVar("Written", bound=body.Writable)
SAFE = frozenset({"GET", "HEAD"})


# --- what a handler gets --------------------------------------------------------------------------


@dataclass(slots=True)
class Call:
    """One request on its way through a handler; what its route did not ask for is a LookupError."""

    process: Process
    throttle: Throttle
    request: Request
    endpoint: Endpoint
    _member: Member | None = None
    _query: BaseModel | None = None
    _db: Handle | None = None
    _body: bytes | None = None
    _asked: idempotency.Asked | None = None
    _if_match_was_judged: bool = False
    _has_concluded: bool = False
    _awaited: list[Callable[[], Awaitable[object]]] = field(default_factory=list)

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
        """The JSON body, checked, which the route takes. Raises Problem: 400, 415 or 422."""
        return body.read(self._declared(model), self.request.headers, self.body)

    def patch(self, model: type[Written], stored: Mapping[str, Json]) -> Written:
        """`stored`, the writable fields as clients see them, after the merge patch in the body.
        When that is what they were, the wrapper answers what a GET would, and the handler is left:
        no new revision, no entry in the audit trail, nobody told."""
        return body.patch(self._declared(model), stored, self.request.headers, self.body)

    def query(self, model: type[Model]) -> Model:
        """The query parameters, which the wrapper has checked."""
        if not isinstance(self._query, model):
            raise LookupError(f"{self.endpoint} has to say query={model.__name__}")
        return self._query

    def match(self, revision: int | None) -> None:
        """Raises Problem `stale` when the request is for other revisions, or, with None, when it is
        for what is there already (RFC 9110 §13.1)."""
        self._match(None if revision is None else conditions.tag(revision))

    def match_shown(self, resource: Mapping[str, Json]) -> None:
        """Likewise, of what has no revision: `resource` as a GET would show it to the caller."""
        self._match(conditions.digest(document.dumps(resource)))

    def _match(self, current: str | None) -> None:
        self._if_match_was_judged = True
        if not conditions.matches(self.request.headers, current):
            raise Problem(
                "stale", "Read the resource again: it has changed, or If-None-Match bars it."
            )

    async def note(
        self,
        action: str,
        resource_id: str,
        before: Mapping[str, Json] | None = None,
        after: Mapping[str, Json] | None = None,
        *,
        db: Handle | None = None,
    ) -> None:
        """The act's entry in the audit trail, in its own transaction: `db`, or that of the route.
        `before` and `after` are the resource as clients see it."""
        await audit.note(
            db or self.db,
            self.process.vault,
            self.origin,
            workspace_id=self.member.workspace_id,
            action=action,
            resource_id=resource_id,
            before=before,
            after=after,
        )

    @property
    def where(self) -> Where:
        return Where(self.client, self.request_id)

    @property
    def origin(self) -> Origin:
        """Who acts, and from where."""
        member = self.member
        if member.via == "key":
            return Origin("api_key", member.via_id, member.name, self.client, self.request_id)
        return Origin("user", member.user_id, member.name, self.client, self.request_id)

    def before_answering(self, work: Callable[[], Awaitable[object]]) -> None:
        """Done once the route's transaction is committed; the answer waits for it. Not when the
        handler refuses, nor for a copy that gets the first answer again."""
        self._awaited.append(work)

    async def conclude(self, work: Callable[[Handle], Awaitable[Response]]) -> Response:
        """What `work` answers in a transaction of its own, or has answered to this request before:
        the end of a `concludes` route, which has asked somebody outside until here."""
        self._has_concluded = True
        async with self.process.database.write() as db:
            if self._asked is None:
                return await self._acceptable(work, db)
            return await self._asked.once(db, lambda: self._acceptable(work, db))

    async def _acceptable(
        self, work: Callable[[Handle], Awaitable[Response]], db: Handle
    ) -> Response:
        answer = await work(db)
        self._refuse_unacceptable(answer)  # within the transaction, which a refusal rolls back
        return answer

    async def receive_body(self) -> bytes:
        """For tx=None routes, which judge the head first. Raises Problem: 408 or 413."""
        if self._body is None:
            self._body = await body.received(self.request.receive)
        return self._body

    def stream_body(self, max_bytes: int, piece_seconds: float) -> AsyncIterator[bytes]:
        """For tx=None routes whose body may be larger than memory. Raises Problem: 408 or 413."""
        self.request.state.allowance.widen(max_bytes, piece_seconds)
        return self.request.stream()

    def _declared(self, model: type[Model]) -> type[Model]:
        if self.endpoint.takes is not model:
            raise LookupError(f"{self.endpoint} has to say takes={model.__name__}")
        return model

    def _refuse_the_ignored(self) -> None:
        """What the caller asked for and the handler took no notice of."""
        unjudged = not self._if_match_was_judged and self.request.method not in SAFE
        if unjudged and conditions.names_a_revision(self.request.headers):
            raise Problem("stale", "This has no revision that could match; leave out If-Match.")

    def _refuse_unacceptable(self, answer: Response) -> None:
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        if media_type and not acceptable(self.request.headers, media_type):
            raise Problem("not_acceptable", f"Accept {media_type}: there is nothing else here.")


# --- the table, mounted --------------------------------------------------------------------------


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
    return [Route(path, _Path(methods, process, throttle)) for path, methods in by_path.items()]


@lru_cache  # of each pair, and a process of the tests mounts the same table thousands of times
def _refuse_hidden(paths: tuple[str, ...]) -> None:
    known = [(path, compile_path(path)[0]) for path in paths]
    for place, path in enumerate(paths):
        for earlier, pattern in known[:place]:
            if pattern.match(path):
                raise ValueError(f"{earlier} hides {path}, which must stand before it")


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
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None and endpoint.is_bare:
            bare = cast(Bare, endpoint.handler)
            await bare(self._process, self._throttle, scope, receive, send)
            return
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
        response = await self._run(endpoint, Call(self._process, self._throttle, request, endpoint))
        if request.method in SAFE:
            if endpoint.is_tagged:
                conditions.tagged(response)
            return conditions.unchanged(request.headers, response)
        return response

    async def _run(self, endpoint: Endpoint, call: Call) -> Response:
        if endpoint.can != PUBLIC:
            call._member = await auth.authenticate(call.process, call.request.headers)
            verdict = await call.throttle.check(API, call.member.via_id)
            call.request.state.limits.update(verdict.limits)
            auth.permit(call.member, endpoint.can)
            auth.afford(call.member, endpoint.plan)
        if endpoint.parameters is not None:
            call._query = body.query(endpoint.parameters, call.request.scope["query_string"])
        key = idempotency.key_of(call.request.headers) if endpoint.takes_key else None
        if endpoint.tx is not None or endpoint.refuses_body or endpoint.concludes:
            call._body = b"" if endpoint.method == "GET" else await call.request.body()
        if endpoint.refuses_body:
            body.nothing(call.request.headers, call.body)
        if key is not None:
            call._asked = await idempotency.Asked.by(
                call.request, key, vault=call.process.vault, member=call.member
            )
        try:
            async with self._connection(endpoint.tx) as call._db:
                response = await self._answered(endpoint, call)
        except Duplicate:
            raise Problem(
                "conflict", "Something else has a value that only one may have; change it."
            ) from None
        for work in call._awaited:
            await work()
        return response

    async def _answered(self, endpoint: Endpoint, call: Call) -> Response:
        asked = call._asked
        if asked is not None and endpoint.tx == "write":
            return await asked.once(call.db, lambda: self._handle(endpoint, call))
        if asked is not None and endpoint.concludes:
            async with self._process.database.read() as db:
                answer = await asked.answer(db)
            if answer is not None:
                return answer
        response = await self._handle(endpoint, call)
        if endpoint.concludes and not call._has_concluded:
            raise LookupError(f"{endpoint} says that it concludes, and does not call conclude()")
        return response

    async def _handle(self, endpoint: Endpoint, call: Call) -> Response:
        judges = endpoint.judges_tag(self._endpoints.get("GET"))
        if endpoint.tx is None and endpoint.can != PUBLIC and not judges:
            call._refuse_the_ignored()  # before it begins: what it has done is not rolled back
        try:
            response = await cast(Handler, endpoint.handler)(call)
        except body.Unchanged:
            response = await self._as_it_is(call)
        if endpoint.tx is not None and endpoint.can != PUBLIC:
            # Within the transaction, which a refusal rolls back.
            call._refuse_the_ignored()
            call._refuse_unacceptable(response)
        return response

    async def _as_it_is(self, call: Call) -> Response:
        """What a GET of this path answers."""
        show = cast(Handler, self._endpoints["GET"].handler)
        if call._db is not None:
            return await show(call)
        async with self._process.database.read() as call._db:
            return await show(call)

    def _connection(self, tx: Transaction) -> AbstractAsyncContextManager[Handle | None]:
        if tx is None:
            return nullcontext()
        return self._process.database.write() if tx == "write" else self._process.database.read()
