"""The outermost layer: who calls, under which id, how much body, how long; what they are answered.

Everything below may raise a Problem and be sure that it is answered, once, and logged in one line.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config.settings import Settings
from app.database.ids import uuid7
from app.errors import Problem, Unavailable
from app.machine.text import is_line
from app.net.networks import subscriber
from app.runtime import logs, tasks
from app.runtime.metrics import Metrics
from app.vault import tokens
from app.web import bodies, cors, reply
from app.web.bodies import Bodies, Hold

log = structlog.get_logger(__name__)

BODY_SECONDS = 10.0  # from the first look at a body to its last byte
DRAIN_SECONDS = 5.0
DRAIN_BYTES = 64 * 1024 * 1024
CLIENT_CLOSED = 499  # logged for a client that went away; nginx made the number known

LONGEST_ADDRESS = 100  # IPv6 in full, with brackets, zone and port
KEPT_REQUEST_ID = re.compile(rb"[A-Za-z0-9-]{20,200}")
INTAKE = "/v1/webhooks/in/"
ROUTINE = {"/healthz", "/readyz", "/sandbox/messages"}  # asked every few seconds by machines
# What follows in such a path is a credential, or what a tenant has called somebody; and so is
# whatever looks like a credential elsewhere.
MASKED = rf"\1{logs.MASK}"
CREDENTIAL = re.compile(
    r"(/webhooks/in/|^/u/|^/confirm/|^/sandbox/checkouts/|^/preview/|^/contacts/[^/]+/tags/).*"
    rf"|(?<=/)(?:{tokens.OWNER}-)?{tokens.PATTERN}(?![A-Za-z0-9])",
    re.DOTALL,
)


@dataclass(slots=True)
class Allowance:
    """Allowance of a body: its size, and how long its client may take. That is for the whole of it;
    or, of a stream, for each piece, and for all pieces together without what we take to handle
    them. A handler that reads a stream widens its own before it reads."""

    max_bytes: int
    seconds: float
    hold: Hold
    all_seconds: float | None = None  # of a stream

    def narrow(self, max_bytes: int) -> None:
        self.max_bytes = min(self.max_bytes, max_bytes)

    def widen(self, max_bytes: int, piece_seconds: float, all_seconds: float) -> None:
        self.max_bytes, self.seconds, self.all_seconds = max_bytes, piece_seconds, all_seconds


class Edge:
    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics | None = None,
        *,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self.app = app
        self.metrics = metrics or Metrics()
        self.trusted_hops = settings.trusted_hops
        self.max_body_bytes = settings.max_body_bytes
        self.always = [(b"x-content-type-options", b"nosniff")]
        if settings.is_https:
            self.always.append((b"strict-transport-security", b"max-age=31536000"))
        self._looks_for_http = settings.is_https and settings.trusted_hops > 0
        self.cors_origins = frozenset(origin.encode() for origin in settings.cors_origins)
        self.body_seconds = body_seconds
        self.bodies = Bodies(self.max_body_bytes, self.metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await _Exchange(self, scope, receive, send).run()
        else:
            await self.app(scope, receive, send)

    def look_for_http(self, forwarded: Sequence[bytes]) -> None:
        """Log, once, that our proxy takes requests over plain http. They are served all the same: a
        proxy that writes its own scheme there would have every webhook refused, and every browser
        redirected for ever."""
        if self._looks_for_http and client_scheme(forwarded, self.trusted_hops) == "http":
            self._looks_for_http = False
            log.warning(
                "a request came over plain http",
                header="X-Forwarded-Proto: http",
                advice="BASE_URL is https: let the proxy redirect http there, for what is sent by"
                " http, keys too, can be read on the way; or, if no client uses it, let the proxy"
                " write the client's scheme in this header, not its own",
            )


class _Exchange:
    """One request and its answer."""

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        self._edge = edge
        self._receive = receive
        self._send = send
        self._started_at = time.perf_counter()
        headers = dict(NONE)  # those that we look at
        for name, value in scope["headers"]:
            if name in NONE:
                headers[name] = (*headers[name], value)
        self._headers = headers
        self._request_id = request_id(self._headers[b"x-request-id"])
        self._client = client_address(
            scope.get("client"), self._headers[b"x-forwarded-for"], edge.trusted_hops
        )
        self._hold = Hold(subscriber(self._client))
        self._allowed = Allowance(edge.max_body_bytes, edge.body_seconds, self._hold)
        self._limits: dict[str, str] = {}  # of a bearer: told with whatever is answered
        self._scope = scope  # which the server made for this request
        scope["client"] = (self._client, 0)
        scope["state"] = {
            **scope.get("state", {}),
            "request_id": self._request_id,
            "allowance": self._allowed,
            "limits": self._limits,
        }
        self._declared = int((self._headers[b"content-length"] or (b"0",))[0])  # checked by h11
        self._is_small = 0 < self._declared <= bodies.SMALL_BYTES
        self._received = 0
        self._body_deadline: float | None = None
        self._waited = 0.0  # seconds, for pieces of the body
        self._body_is_over = not (self._declared or self._headers[b"transfer-encoding"])
        self._status: int | None = None
        self._answered_at: float | None = None

    async def run(self) -> None:
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=self._request_id)
        self._edge.look_for_http(self._headers[b"x-forwarded-proto"])
        try:
            refuse_ambiguous(self._scope, self._headers)
            await self._edge.app(self._scope, self.receive, self.send)
        except Problem as problem:
            await self._answer(problem)
        except asyncio.CancelledError:
            await self._answer(Unavailable("The process is being replaced; try again."))
            raise
        except ClientDisconnect:
            self._status = self._status or CLIENT_CLOSED
        except Exception:
            log.exception("request failed")
            await self._answer(
                Problem(
                    "internal",
                    "This is an error on our side and has been logged; quote the requestId.",
                )
            )
        finally:
            self._edge.bodies.release(self._hold)
            self._log()

    # --- the request's body ---------------------------------------------------------------------

    async def receive(self) -> Message:
        """The server's receive under a cap and a deadline, judged only when somebody reads."""
        if self._body_is_over:
            return await self._receive()
        if self._declared > self._allowed.max_bytes:
            raise self._too_large()  # and a client that waits for 100 Continue has sent nothing
        clock = asyncio.get_running_loop().time
        began, allowed = clock(), self._allowed
        if allowed.all_seconds is not None:  # a stream: each piece has its own
            deadline = began + min(allowed.seconds, allowed.all_seconds - self._waited)
        elif self._body_deadline is None:
            deadline = self._body_deadline = began + allowed.seconds
        else:
            deadline = self._body_deadline
        try:
            message = await tasks.before(deadline, self._next())
        except TimeoutError:
            self._body_is_over = True  # for us: nothing more is waited for
            limit = f"the whole body within {allowed.seconds:g} seconds"
            if allowed.all_seconds is not None:
                limit = (
                    f"more of the body within {allowed.seconds:g} seconds,"
                    f" and the whole within {allowed.all_seconds:g}"
                )
            closing = {"Connection": "close"}
            raise Problem("request_timeout", f"Send {limit}.", headers=closing) from None
        finally:
            self._waited += clock() - began
        if self._received > self._allowed.max_bytes:
            raise self._too_large()
        is_counted = allowed.all_seconds is None and not self._is_small  # a stream is not held
        if is_counted and (count := len(message.get("body", b""))):
            self._edge.bodies.take(self._hold, count)
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self._body_is_over = not message.get("more_body", False)  # or the client is gone
        return message

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"Send at most {self._allowed.max_bytes} bytes.")

    async def _drain(self) -> None:
        """Read what nobody wanted. To close with bytes unread resets the connection, and a client
        that is still sending would see that instead of its answer."""
        if self._headers[b"expect"] and not self._received:
            return  # it was never told to continue
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._body_is_over and self._received < DRAIN_BYTES:
                    await self._next()

    # --- the answer -----------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message = {**message, "headers": self._complete(message.get("headers", ()))}
        elif not message.get("more_body", False):
            self._answered_at = time.perf_counter()
            if not self._body_is_over:
                await self._send({**message, "more_body": True})
                await self._drain()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
        try:
            await self._send(message)
        except OSError as error:  # it stopped reading, or its network is gone
            raise ClientDisconnect from error

    def _complete(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        edge = self._edge
        complete = [*headers, (b"x-request-id", self._request_id.encode()), *edge.always]
        if b"cache-control" not in dict(headers):
            complete.append((b"cache-control", b"no-store"))
        if b"ratelimit" not in dict(headers):  # a refusal by another limit tells of that one
            limits = self._limits.items()
            complete += [(name.lower().encode(), value.encode()) for name, value in limits]
        method, origin = self._scope["method"], self._headers[b"origin"]
        complete += cors.headers(edge.cors_origins, method, origin, headers)
        return complete

    async def _answer(self, problem: Problem) -> None:
        if self._status is not None:  # too late: the server cuts the connection, as it should
            log.error("answer cut short", code=problem.code)
            return
        self._edge.metrics.count("tidings_refusals", code=problem.code)
        response = reply.problem(problem, self._request_id)
        await response(self._scope, self.receive, self.send)

    def _log(self) -> None:
        status = self._status or 0
        self._edge.metrics.count("tidings_requests", status=f"{status // 100}xx")
        if status == 202 and self._scope["path"].startswith(INTAKE):
            self._edge.metrics.count("tidings_webhooks_accepted")
        routine = status < 400 and self._scope["path"] in ROUTINE
        level = logging.WARNING if status >= 500 else logging.DEBUG if routine else logging.INFO
        if not logs.takes(level):
            return
        seconds = (self._answered_at or time.perf_counter()) - self._started_at
        logs.write(
            level,
            __name__,
            "request",
            method=self._scope["method"],
            path=masked(self._scope["path"]),
            status=self._status,
            duration_ms=round(seconds * 1000, 2),
            client=self._client,
        )


def masked(path: str) -> str:
    if path.startswith(INTAKE):
        return INTAKE + logs.MASK
    return CREDENTIAL.sub(MASKED, path)


# --- the head -----------------------------------------------------------------------------------

Headers = Mapping[bytes, Sequence[bytes]]

NONE: Headers = dict.fromkeys(
    (
        b"content-length",
        b"expect",
        b"host",
        b"origin",
        b"transfer-encoding",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"x-request-id",
    ),
    (),
)


def refuse_ambiguous(scope: Scope, headers: Headers) -> None:
    """Refuse a head that two readers could understand in two ways: so requests are smuggled."""
    # The intake counts every try and answers them alike, these too.
    if not is_line(scope["path"]) and not scope["path"].startswith(INTAKE):
        raise Problem("not_found", "Nothing exists at this path.")
    cause = None
    if headers[b"content-length"] and headers[b"transfer-encoding"]:
        cause = "Send Content-Length or Transfer-Encoding, not both."  # RFC 9112 §6.3
    elif len(headers[b"host"]) > 1:
        cause = "Send one Host header."  # RFC 9112 §3.2
    elif not scope["http_version"].startswith("1."):
        cause = "Speak HTTP/1.1."
    elif headers[b"transfer-encoding"] and scope["http_version"] == "1.0":
        cause = "HTTP/1.0 has no Transfer-Encoding; send Content-Length."  # RFC 9112 §6.1
    if not scope["method"].isupper():
        raise Problem(
            "not_implemented",
            f"Methods are case-sensitive: send {scope['method'].upper()[:20]}.",
            headers={"Connection": "close"},
        )
    if cause:
        raise Problem("malformed_request", cause, headers={"Connection": "close"})


def client_address(
    client: tuple[str, int] | None, forwarded: Sequence[bytes], trusted_hops: int
) -> str:
    """Find the client's address. Behind proxies it is that many from the right of the first
    X-Forwarded-For line: each of them appended one, and what stands further left, or in other
    lines, anybody may have sent."""
    entries = forwarded[0].decode("latin-1").split(",") if forwarded else []
    if 0 < trusted_hops <= len(entries):
        entry = entries[-trusted_hops]
        address = _address(entry) if len(entry) < LONGEST_ADDRESS else None
        if address:
            return address
    return (_address(client[0]) or client[0]) if client else "unknown"


def client_scheme(forwarded: Sequence[bytes], trusted_hops: int) -> str:
    """Read the scheme that the client spoke, behind proxies. Most of them replace the header, and
    some append to it as to X-Forwarded-For."""
    entries = forwarded[0].decode("latin-1").split(",") if forwarded else [""]
    return entries[-trusted_hops:][0].strip().lower()


_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}", re.ASCII)
_WITH_PORT = re.compile(r"\[(?P<v6>[^\]]*)\](?::\d{1,5})?|(?P<v4>[\d.]+):\d{1,5}", re.ASCII)


@lru_cache(1_024)  # most requests come from few peers
def _address(text: str) -> str | None:
    """One spelling for one peer: no port, no zone, no IPv4 in IPv6's clothes."""
    text = text.strip()
    if _IPV4.fullmatch(text):
        return text
    if match := _WITH_PORT.fullmatch(text):
        text = match["v6"] or match["v4"]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def request_id(given: Sequence[bytes]) -> str:
    """The caller's own, when it is fit for logs; else a new UUIDv7."""
    if len(given) == 1 and KEPT_REQUEST_ID.fullmatch(given[0]):
        return given[0].decode()
    return str(uuid7())
