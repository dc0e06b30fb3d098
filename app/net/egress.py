"""The guarded HTTP client: requests to addresses that a user chose, and never inward.

A name is resolved once, every address it has is judged, and the connection goes to a judged address
and nowhere else, so that a name server which changes its mind between two questions is never asked
a second time. Nothing is redirected, no proxy of the environment is asked, and a failure says
whether the other side may have got the request.
"""

from __future__ import annotations

import asyncio
import base64
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal, TypeAlias

import httpcore2
from httpx2 import URL, InvalidURL

from app.machine.http_fields import FIELD_NAME, FRAMING, LONGEST_URL, UNSENDABLE
from app.net.networks import Address, Network, is_inward, judged
from app.net.resolving import Resolver
from app.net.tls import causes, system_trust

Resolve: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
Code: TypeAlias = Literal[
    "invalid_request", "refused_target", "connect_failed", "tls_failed", "timeout", "broken_answer"
]

CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
KEPT_BYTES = 64 * 1024
MOST_CONNECTIONS = 100
MOST_ADDRESSES = 4  # of one name that are tried
READ_BYTES = 16 * 1024  # of an answer at once: all of it is parsed before anything else goes on
# Of one answer, however slowly or finely it comes.
MOST_READS = 1_000
MOST_HEAD_BYTES = 64 * 1024  # those of interim answers too
MOST_INTERIM = 20
_INTERIM = re.compile(rb"HTTP/[0-9]\.[0-9] 1")  # of whatever version it claims to be
MOST_WIRE_BYTES = 2 * KEPT_BYTES + MOST_HEAD_BYTES
MOST_PIECES = 4_096
WEB_PORTS = frozenset({80, 443, 8080, 8443})
MAIL_PORTS = frozenset({25, 465, 587, 2525})


# --- what goes out, and what comes back -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Userinfo in the URL becomes basic authentication. `repr` tells neither headers nor body."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    timeout_seconds: float = TOTAL_SECONDS
    owner: str = ""  # whose share of the resolver it takes: a workspace's id

    def __repr__(self) -> str:
        return f"Request({self.method!r}, {shown(self.url)!r})"


@dataclass(frozen=True, slots=True)
class Answer:
    """The first 64 KB of the body, unpacked. A redirect is an answer, and is not followed."""

    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case
    body: bytes
    truncated: bool

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known == name), None)


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `sent` is False when the other side surely has nothing of the request.

    `detail` is for whoever chose the address: it names no address that they do not know.
    """

    code: Code
    detail: str
    sent: bool = False


REFUSED = Failure(
    "refused_target",
    "The address is not on the public internet (see EGRESS_ALLOW), or the port not one of the web.",
)
UNREACHABLE = Failure("connect_failed", "The server could not be reached.")
UNTRUSTED = Failure("tls_failed", "No secure connection: the certificate or protocol is not valid.")
SLOW = "The server took longer than the step allows."
TOO_MUCH = Failure(
    "broken_answer",
    f"The answer's head was longer than {MOST_HEAD_BYTES // 1_024} KB, or came after more than"
    f" {MOST_INTERIM} interim answers, or in more than {MOST_READS:,} parts.",
    True,
)


class InvalidTarget(ValueError):
    """The URL is not one to call; says why."""


def parse_url(text: str) -> URL:
    """An http or https URL. Raises InvalidTarget.

    Stricter than browsers: what two parsers read differently is nobody's honest address.
    """
    if len(text) > LONGEST_URL:
        raise InvalidTarget(f"The URL is longer than {LONGEST_URL:,} characters.")
    if re.search(r"[\x00-\x20\x7f\\]", text):
        raise InvalidTarget("The URL holds a space, a control character or a backslash.")
    try:
        url = URL(text)
        host = url.raw_host
    except (InvalidURL, ValueError):
        raise InvalidTarget("The URL is not well formed.") from None
    if url.scheme not in ("http", "https"):
        raise InvalidTarget("The URL must begin with https:// or http://.")
    if not host or b"%" in host:
        raise InvalidTarget("The URL names no host.")
    if url.port is not None and not 0 < url.port < 65_536:
        raise InvalidTarget("The URL names a port that does not exist.")
    return url


def shown(url: str) -> str:
    """Shorten a URL for records. Userinfo, query and fragment go, any of which may be a
    credential."""
    try:
        return str(parse_url(url).copy_with(userinfo=b"", query=None, fragment=None))
    except InvalidTarget:
        return "(not a URL)"


# --- the client -----------------------------------------------------------------------------------


class _Refused(Exception):
    """The judgement, on its way through the connection pool."""


class _TooMuch(Exception):
    """The server sends more, or in smaller parts, than anybody honest would."""


class Refused(OSError):
    """A server that nobody is connected to; says why."""


@dataclass(slots=True)
class Progress:
    """Progress of a call: whether a byte of the request may have left, and what has arrived."""

    owner: str = ""
    sent: bool = False
    has_head: bool = False
    reads: int = 0
    wire_bytes: int = 0
    interim: int = 0

    async def trace(self, name: str, _info: Any) -> None:
        self.sent = self.sent or name.endswith("send_request_headers.started")
        self.has_head = self.has_head or name.endswith("receive_response_headers.complete")

    def arrived(self, data: bytes) -> None:
        """Judged before it is parsed. Raises _TooMuch."""
        self.reads += 1
        self.wire_bytes += len(data)
        if not self.has_head:
            self.interim += len(_INTERIM.findall(data))  # one that two reads share is not seen
        most = MOST_WIRE_BYTES if self.has_head else MOST_HEAD_BYTES + READ_BYTES
        if self.reads > MOST_READS or self.wire_bytes > most or self.interim > MOST_INTERIM:
            raise _TooMuch


# The call that the task is in: the library tells its backend nothing of the request.
_call: ContextVar[Progress] = ContextVar("_call")


class Egress:
    """One per process; safe for many calls in one event loop.

    `allow` are networks that may be reached although they are private, at any port.
    """

    def __init__(
        self,
        allow: Iterable[Network] = (),
        *,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._allow = tuple(allow)
        self._resolver = Resolver()
        self._given = resolve
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or system_trust(),
            max_connections=MOST_CONNECTIONS,
            max_keepalive_connections=0,  # each request is judged anew, and no stale one guessed at
            network_backend=_Guard(self),
        )

    async def close(self) -> None:
        await self._pool.aclose()
        self._resolver.close()

    # --- judging ---

    def may_reach(
        self, address: str, port: int | None = None, ports: frozenset[int] = WEB_PORTS
    ) -> bool:
        """`port` None: only the address is judged. Others than `ports` are closed in public."""
        every = list(judged(ip_address(address)))
        if all(self._allowed(one) for one in every):
            return True
        inward = any(is_inward(one) and not self._allowed(one) for one in every)
        return not inward and (port is None or port in ports)

    def _allowed(self, address: Address) -> bool:
        return any(address in network for network in self._allow)

    async def check(
        self,
        host: str,
        port: int | None = None,
        ports: frozenset[int] = WEB_PORTS,
        owner: str | None = None,
    ) -> list[str] | Failure:
        """The addresses of `host`, to be connected to as they stand here; refused when one of them
        leads inward, for then the name server plays with us."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                found = await self._addresses(host, host if owner is None else owner)
        except (OSError, TimeoutError, UnicodeError, ValueError):
            return UNREACHABLE
        if not found:
            return UNREACHABLE
        if not all(self.may_reach(address, port, ports) for address in found):
            return REFUSED
        return list(found[:MOST_ADDRESSES])

    async def dial_mail(self, host: str, port: int, *, owner: str) -> socket.socket:
        """A connection to a mail server that a user chose, at a judged address and nowhere else.
        Raises OSError, of which Refused is one, and TimeoutError."""
        found = await self.check(host, port, MAIL_PORTS, owner=owner)
        if found is REFUSED:
            raise Refused(
                "The mail server is not one on the public internet, or its port none of"
                f" {', '.join(map(str, sorted(MAIL_PORTS)))}."
            )
        if isinstance(found, Failure):
            raise OSError(f"The name {host} leads nowhere")
        last: Exception = OSError("The server could not be reached")
        for address in found:
            try:
                return await _dialled(address, port)
            except (OSError, TimeoutError) as error:
                last = error
        raise last

    async def _addresses(self, host: str, owner: str) -> Sequence[str]:
        with suppress(ValueError):
            return [str(ip_address(host))]
        if self._given is not None:
            return await self._given(host)
        return await self._resolver.resolve(host, owner)

    # --- calling ---

    async def call(self, request: Request) -> Answer | Failure:
        progress = Progress(request.owner)
        context = _call.set(progress)
        try:
            url, headers = parse_url(request.url), _headers(request)
            async with asyncio.timeout(request.timeout_seconds):
                return await self._exchange(request, url, headers, progress)
        except InvalidTarget as error:
            return Failure("invalid_request", str(error))
        except _Refused:
            return REFUSED
        except httpcore2.LocalProtocolError:
            return Failure("invalid_request", "The request is not one that HTTP can carry.")
        except (TimeoutError, httpcore2.TimeoutException):
            return Failure("timeout", SLOW, True) if progress.sent else UNREACHABLE
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            if progress.sent:
                return Failure("broken_answer", "The connection broke before the answer.", True)
            is_tls = any(isinstance(cause, ssl.SSLError) for cause in causes(error))
            return UNTRUSTED if is_tls else UNREACHABLE
        except _TooMuch:
            return TOO_MUCH
        finally:
            _call.reset(context)

    async def _exchange(
        self,
        request: Request,
        url: URL,
        headers: list[tuple[bytes, bytes]],
        progress: Progress,
    ) -> Answer:
        seconds = request.timeout_seconds
        async with self._pool.stream(
            request.method,
            httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=headers,
            content=request.body,
            extensions={
                "timeout": {
                    "pool": seconds,
                    "connect": min(seconds, CONNECT_SECONDS),
                    "write": seconds,
                    "read": seconds,
                },
                "trace": progress.trace,
            },
        ) as response:
            text_headers = tuple(
                (name.decode("ascii").lower(), value.decode("latin-1"))
                for name, value in response.headers
            )
            raw, is_cut = await _first(response.aiter_stream(), KEPT_BYTES + 1)
        body = raw
        coding = next((value for name, value in text_headers if name == "content-encoding"), "")
        if coding.strip().lower() in ("gzip", "x-gzip", "deflate"):
            # We ask for none, and some servers pack all the same. At most a byte more than is kept.
            with suppress(zlib.error):
                body = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, KEPT_BYTES + 1)
        return Answer(
            response.status, text_headers, body[:KEPT_BYTES], is_cut or len(body) > KEPT_BYTES
        )


class _Guard(httpcore2.AsyncNetworkBackend):
    """Connects to what was judged: the name goes no further than this."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's own signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        progress = _call.get()
        addresses = await self._egress.check(host, port, owner=progress.owner or host)
        if isinstance(addresses, Failure):
            raise _Refused if addresses is REFUSED else httpcore2.ConnectError
        options = (port, timeout, local_address, socket_options)
        for address in addresses[:-1]:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return _Metered(await self._plain.connect_tcp(address, *options), progress)
        return _Metered(await self._plain.connect_tcp(addresses[-1], *options), progress)

    async def sleep(self, seconds: float) -> None:
        await self._plain.sleep(seconds)


class _Metered(httpcore2.AsyncNetworkStream):
    """A connection whose arriving bytes are counted before they are parsed."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, progress: Progress) -> None:
        self._stream = stream
        self._progress = progress

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._progress.arrived(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> httpcore2.AsyncNetworkStream:
        return _Metered(
            await self._stream.start_tls(ssl_context, server_hostname, timeout), self._progress
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


async def _dialled(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """The headers as they go out. Raises InvalidTarget: nothing that a value holds may begin
    another header."""
    url = parse_url(request.url)
    headers = {"host": url.netloc, "connection": b"close", "accept-encoding": b"identity"}
    given = {"accept": "*/*", "user-agent": "Tidings"}
    if url.userinfo:
        userinfo = f"{url.username}:{url.password}".encode()
        given["authorization"] = "Basic " + base64.b64encode(userinfo).decode()
    given |= {name.lower(): value for name, value in request.headers}
    for name, value in given.items():
        if not FIELD_NAME.fullmatch(name) or name in FRAMING or UNSENDABLE.search(value):
            raise InvalidTarget(f"The header {name[:100]!r} cannot be sent.")
        headers[name] = value.strip().encode("latin-1")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        headers["content-length"] = str(len(request.body)).encode()
    return [(name.encode(), value) for name, value in headers.items()]


async def _first(chunks: AsyncIterator[bytes], most: int) -> tuple[bytes, bool]:
    """Read the first bytes; returns also whether they were cut for coming in too many pieces."""
    kept, pieces = bytearray(), 0
    try:
        async for chunk in chunks:
            kept += chunk
            pieces += 1
            if len(kept) >= most:
                break
            if pieces >= MOST_PIECES:
                return bytes(kept), True
    except _TooMuch:
        return bytes(kept), True
    return bytes(kept[:most]), False
