"""The argument of a handler: one request, and what its route asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.audit import trail
from app.audit.trail import Origin, Where
from app.database.db import Handle, new_id
from app.errors import Problem
from app.identity import identity
from app.identity.identity import Member
from app.machine import document
from app.machine.program import Json
from app.process import Process
from app.web import auth, body, conditions, idempotency
from app.web.accept import acceptable
from app.web.auth import PUBLIC
from app.web.bearers import Bearers
from app.web.throttle import Throttle

Model = TypeVar("Model", bound=BaseModel)
Written = TypeVar("Written", bound=body.Writable)
SAFE = frozenset({"GET", "HEAD"})
SLOW_BODY_SECONDS = 0.1  # what the caller was allowed when the head came is asked again after this
RECHECK_SECONDS = 1.0  # and, while a handler goes on, as often as this

# A JSON object, media types for anything else, or nothing.
Content: TypeAlias = type[BaseModel] | tuple[str, ...] | None


@dataclass(slots=True)
class Call:
    """One request on its way through a handler; what its route did not ask for is a LookupError."""

    process: Process
    throttle: Throttle
    bearers: Bearers
    request: Request
    takes: Content = None
    can: str = PUBLIC
    plan: str | None = None
    # What the wrapper has found so far; handlers read the properties.
    caller: Member | None = None
    parameters: BaseModel | None = None
    connection: Handle | None = None
    received: bytes | None = None
    asked: idempotency.Asked | None = None
    _if_match_was_judged: bool = False
    has_concluded: bool = False
    _ids: dict[tuple[str, str], str] = field(default_factory=dict)
    _checked_at: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        return f"{self.request.method} {self.request.url.path}"

    @property
    def member(self) -> Member:
        if self.caller is None:
            raise LookupError("a PUBLIC route knows no member")
        return self.caller

    @property
    def db(self) -> Handle:
        if self.connection is None:
            raise LookupError("a tx=None route opens its own transactions")
        return self.connection

    @property
    def body(self) -> bytes:
        if self.received is None:
            raise LookupError("a tx=None route has to await receive_body() first")
        return self.received

    @property
    def request_id(self) -> str:
        return str(self.request.state.request_id)

    @property
    def client(self) -> str:
        """The caller's address."""
        return self.request.client.host if self.request.client else "unknown"

    def new_id(self, prefix: str, name: str) -> str:
        """The ID of what the request makes under that name; the same one when its transaction is
        begun anew, or no result that is held for it would be about the same (Compute.within)."""
        return self._ids.setdefault((prefix, name), new_id(prefix))

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
        if not isinstance(self.parameters, model):
            raise LookupError(f"{self} has to say query={model.__name__}")
        return self.parameters

    def match(self, revision: int | None) -> None:
        """Raises Problem `stale` when the request is for other revisions, or, with None, when it is
        for what is there already (RFC 9110 §13.1)."""
        self._match(None if revision is None else conditions.tag(revision))

    def match_shown(self, resource: Mapping[str, Json]) -> None:
        """Match If-Match for what has no revision: `resource` as a GET would show it to the
        caller."""
        self._match(conditions.digest(document.dumps(resource)))

    def _match(self, current: str | None) -> None:
        self._if_match_was_judged = True
        if not conditions.matches(self.request.headers, current):
            raise Problem(
                "stale",
                "The resource has changed, or If-None-Match does not allow this; read it again.",
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
        await trail.note(
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
        """The actor, and where the call comes from."""
        member = self.member
        if member.via == "key":
            return Origin("api_key", member.via_id, member.name, self.client, self.request_id)
        return Origin("user", member.user_id, member.name, self.client, self.request_id)

    async def conclude(self, work: Callable[[Handle], Awaitable[Response]]) -> Response:
        """The answer of `work` in a transaction of its own, or its earlier answer to this request:
        the end of a `concludes` route, which until here has asked somebody else."""
        self.has_concluded = True
        async with self.process.database.write() as db:
            if self.asked is None:
                return await work(db)
            return await self.asked.once(db, lambda: work(db))

    async def receive_body(self) -> bytes:
        """Receive the body, in tx=None routes, which judge the head first. The wrapper does it for
        the others. Raises Problem: 408 or 413, and those of `authorize` when the body came
        slowly."""
        if self.received is None:
            started_at = time.monotonic()
            self.received = await body.received(self.request.receive)
            if time.monotonic() - started_at > SLOW_BODY_SECONDS and self.can != PUBLIC:
                await self.authorize()
        return self.received

    async def lock_role(self) -> None:
        """Permit again by the role that the caller has now and keeps until the transaction ends:
        before anything else of what gives or takes a role. Raises Problem: 401 or 403."""
        self.caller = await identity.lock_role(self.db, self.member)
        auth.permit(self.caller, self.can)

    async def authorize(self) -> None:
        """Authenticate and permit again: between the head and the end of a body its sender may be
        removed, its key revoked, its workspace suspended. Raises Problem: 401 or 403."""
        headers = self.request.headers
        self.caller = await auth.authenticate(self.process, headers, ongoing=True)
        auth.permit(self.caller, self.can)
        auth.afford(self.caller, self.plan)

    async def recheck(self) -> None:
        """Authorize again, at most once in RECHECK_SECONDS. Handlers that go on for long call it
        before each part of their work. Raises Problem: 401 or 403."""
        if time.monotonic() >= self._checked_at + RECHECK_SECONDS:
            await self.authorize()
            self._checked_at = time.monotonic()

    async def pause(self, seconds: float) -> None:
        """Sleep, once the body is read. Raises ClientDisconnect when the client leaves."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (await self.request.receive())["type"] != "http.disconnect":
                    pass
                raise ClientDisconnect

    def expect_body(self, owner: str, max_bytes: int) -> None:
        """Set owner and greatest length of the body, in PUBLIC routes that read both in the
        head."""
        allowance = self.request.state.allowance
        allowance.max_bytes = max_bytes
        allowance.hold.belongs_to(owner)

    def stream_body(
        self, max_bytes: int, piece_seconds: float, all_seconds: float
    ) -> AsyncIterator[bytes]:
        """Stream a body that may be larger than memory, in tx=None routes. The client may keep us
        waiting so long for each piece, and for all of them. Raises Problem: 408 or 413."""
        self.request.state.allowance.widen(max_bytes, piece_seconds, all_seconds)
        return self.request.stream()

    def _declared(self, model: type[Model]) -> type[Model]:
        if self.takes is not model:
            raise LookupError(f"{self} has to say takes={model.__name__}")
        return model

    def refuse_the_ignored(self) -> None:
        """Refuse parameters and headers that the handler took no notice of."""
        unjudged = not self._if_match_was_judged and self.request.method not in SAFE
        if unjudged and conditions.names_a_revision(self.request.headers):
            raise Problem("stale", "This resource has no revision to match; leave out If-Match.")

    def refuse_unacceptable(self, content_type: str) -> None:
        """Refuse a request whose answer the client cannot read; "" is the type of none."""
        media_type = content_type.partition(";")[0]
        if media_type and not acceptable(self.request.headers, media_type):
            raise Problem("not_acceptable", f"Accept {media_type}: no other format is available.")
