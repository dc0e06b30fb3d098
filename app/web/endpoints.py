"""get/post/patch/put/delete(path, handler, can=…): the rows of the table of routes.

What a route takes, answers and refuses stands in its row: the wrapper in app/web/routing.py goes by
it, and app/web/openapi.py writes it down for clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypedDict, Unpack

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.process import Process
from app.web import body
from app.web.auth import PUBLIC
from app.web.call import Call, Content
from app.web.reply import JsonResponse, Page, Revised
from app.web.throttle import Throttle

Transaction: TypeAlias = Literal["read", "write"] | None
Handler: TypeAlias = Callable[[Call], Awaitable[Response]]
Awaits: TypeAlias = Callable[[Call, JsonResponse], Awaitable[Response]]
# One that speaks ASGI itself, where every microsecond counts.
Bare: TypeAlias = Callable[[Process, Throttle, Scope, Receive, Send], Awaitable[None]]


class Declared(TypedDict, total=False):
    """The declarations of a route beside its path.

    takes   the body, or, of a PATCH that takes a Writable, what the patch has to make of it
    query   the parameters; without, there are none, and whoever sends one is told so, but for a
            PUBLIC route, which says body.Query to tell strangers so too
    gives   status → what is answered with it
    raises  codes of the problems that are its own: what follows from the rest is known
    plan    the least plan of a workspace that may use it
    concludes  that a tx=None POST answers, in JSON, what Call.conclude does, and that a copy does
               not do again what was done before that
    matches that an act, a POST, judges If-Match against what it acts on
    awaits  what the answer, which is JSON, waits for once the transaction has ended, and may then
            say: the first one, a copy of it, and a refusal, which stays as it is
    """

    takes: Content
    query: type[body.Query]
    gives: Mapping[int, Content]
    raises: Sequence[str]
    plan: str
    concludes: bool
    matches: bool
    awaits: Awaits


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`can` is a permission, or PUBLIC, MEMBER or ADMIN; it stands beside every path, always."""

    method: str
    path: str
    handler: Handler | Bare
    can: str
    tx: Transaction
    takes: Content = None
    query: type[body.Query] | None = None
    gives: Mapping[int, Content] = field(default_factory=dict)
    raises: Sequence[str] = ()
    plan: str | None = None
    concludes: bool = False
    matches: bool = False
    awaits: Awaits | None = None
    is_bare: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> type[body.Query] | None:
        """None where strangers append what they like: it is not looked at. Those are probes, the
        intake, callbacks, and links that somebody follows."""
        return self.query or (None if self.can == PUBLIC else body.Query)

    @property
    def refuses_body(self) -> bool:
        """True where the route takes no body and refuses one. A GET's has no meaning at all (RFC
        9110 §9.3.1), and strangers send what they like."""
        return self.takes is None and self.method != "GET" and self.can != PUBLIC

    def judges_tag(self, shown: Endpoint | None) -> bool:
        """Return whether it changes or acts on what has a tag. That is what `shown`, the GET of its
        path, answers with one, or what has one elsewhere. The tag of a list is that of a page of
        it, and not of what is changed there."""
        changes = self.method in ("PUT", "PATCH", "DELETE")
        has_tag = shown is not None and shown.has_tag(200) and not shown.is_list
        return self.matches or (changes and has_tag)

    def has_tag(self, status: int) -> bool:
        """Return whether the answer of this status has an entity tag. What is drawn of a resource
        changes with its revision."""
        content = self.gives.get(status)
        if isinstance(content, tuple):
            return all(media_type.startswith("image/") for media_type in content)
        return content is not None and (self.is_tagged or issubclass(content, Revised))

    @property
    def is_tagged(self) -> bool:
        """True where the answer has an entity tag, even without a revision to make it of."""
        content = self.gives.get(200)
        shows = self.method == "GET" and isinstance(content, type)
        return shows and ("{id}" in self.path or self.is_list)

    @property
    def is_list(self) -> bool:
        content = self.gives.get(200)
        return isinstance(content, type) and issubclass(content, Page)

    @property
    def takes_key(self) -> bool:
        """True where an Idempotency-Key counts. It does not without a transaction to keep the
        answer in, nor on /auth/: a copy must not be shown tokens, or be signed out twice."""
        member = self.can != PUBLIC and not self.path.startswith("/auth/")
        return self.method == "POST" and member and (self.tx is not None or self.concludes)


def get(
    path: str, handler: Handler, *, can: str, tx: Transaction = "read", **more: Unpack[Declared]
) -> Endpoint:
    return Endpoint("GET", path, handler, can, tx, **more)


def post(
    path: str, handler: Handler, *, can: str, tx: Transaction = "write", **more: Unpack[Declared]
) -> Endpoint:
    return Endpoint("POST", path, handler, can, tx, **more)


def bare_post(path: str, handler: Bare, **more: Unpack[Declared]) -> Endpoint:
    """Declare a POST for anybody: nothing of a request is looked at before its handler does."""
    return Endpoint("POST", path, handler, PUBLIC, None, is_bare=True, **more)


def put(
    path: str, handler: Handler, *, can: str, tx: Transaction = "write", **more: Unpack[Declared]
) -> Endpoint:
    return Endpoint("PUT", path, handler, can, tx, **more)


def patch(
    path: str, handler: Handler, *, can: str, tx: Transaction = "write", **more: Unpack[Declared]
) -> Endpoint:
    return Endpoint("PATCH", path, handler, can, tx, **more)


def delete(
    path: str, handler: Handler, *, can: str, tx: Transaction = "write", **more: Unpack[Declared]
) -> Endpoint:
    return Endpoint("DELETE", path, handler, can, tx, **more)
