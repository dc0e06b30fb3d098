"""E-mail through SMTP (RFC 5321), which has no idempotency key: a repeat may be a second mail.

A server takes responsibility for a message when it answers the final dot, and not before. So until
that dot is handed to the socket a failure means "surely not accepted"; from then on only the
server's answer tells, and without one the outcome is unknown. To know which side of the dot a
failure is on, the body is flushed first and the dot is written by itself.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from aiosmtplib import (
    SMTP,
    SMTPDataError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
    SMTPServerDisconnected,
)

from app.config import casts
from app.config.settings import Settings
from app.machine.content import ChannelName
from app.net.egress import Refused
from app.net.tls import causes, system_trust
from app.providers import smtp_replies
from app.providers.api import REJECTED, UNKNOWN, UNREACHABLE
from app.providers.base import (
    Capabilities,
    Dial,
    Fault,
    Message,
    Receipt,
    Replies,
    SendError,
    line,
)
from app.providers.kinds import Credentials, Field, Surroundings, mailbox
from app.providers.mime import Mail, Sender, compose

REPLY_SECONDS = 30.0
BODY_SECONDS = 180.0  # RFC 5321 §4.5.3.2.5
CHUNK_OCTETS = 65_536
# RFC 5321 §4.5.3.2.6. Giving up earlier makes duplicates: the server may be busy delivering.
END_OF_DATA_SECONDS = 600.0

KEPT_SESSIONS = 32  # as many as one workspace may have in hand
IDLE_SECONDS = 30.0

FAILURES = (SMTPException, OSError, ValueError)  # of a session; OSError is TimeoutError's too
Tls: TypeAlias = Literal["auto", "required", "off", "implicit"]


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    tls: Tls
    username: str | None
    password: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Server:
        """smtp://user:password@host:587[?starttls=auto|required|off] or smtps://…:465. A password
        goes to another machine encrypted, whatever is offered: who stands between could take the
        offer out."""
        parts = urlsplit(url)
        implicit, host = parts.scheme == "smtps", parts.hostname or "localhost"
        tls = "implicit" if implicit else parts.query.removeprefix("starttls=") or "auto"
        if tls == "auto" and parts.username and not is_loopback(host):
            tls = "required"
        return cls(
            host=host,
            port=parts.port or (465 if implicit else 587),
            tls=cast(Tls, tls),
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
        )


def is_loopback(host: str) -> bool:
    """Return whether what is sent to the host stays on this machine, by the name alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(slots=True)
class Progress:
    """Progress of the dialogue about one message: on which side of the final dot it stands."""

    handed_over: bool = False


class EmailChannel:
    """Sends through one server. Sessions are kept for reuse while they are warm."""

    name = "email"
    provider = "smtp"
    account = None
    replies: Replies = "none"
    capabilities = Capabilities(
        idempotency_key_ttl_seconds=None, callbacks=False, refuses_recipients=True
    )

    def __init__(
        self,
        smtp_url: str,
        mail_from: str,
        *,
        reply_seconds: float = REPLY_SECONDS,
        end_of_data_seconds: float = END_OF_DATA_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        tls_context: ssl.SSLContext | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`dial` connects to a server that is not the operator's choice, or refuses to.

        Raises ValueError with a sentence when `mail_from` is not one address.
        """
        self._server = Server.parse(smtp_url)
        self._sender = Sender.parse(mail_from)
        self._reply_seconds = reply_seconds
        self._end_of_data_seconds = end_of_data_seconds
        self._idle_seconds = idle_seconds
        self._tls_context = tls_context or system_trust()
        self._dial = dial
        self._kept: dict[SMTP, asyncio.TimerHandle] = {}
        self._closed = False

    async def send(self, message: Message) -> Receipt:
        mail = compose(message, self._sender)
        progress = Progress()
        try:
            reply = await self._deliver(mail, progress)
        except SendError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            raise _verdict(error, progress.handed_over) from error
        return Receipt(reply or None)

    async def verify(self) -> list[Fault]:
        """Connect, with TLS and credentials as for a message, name the sender, and take leave."""
        try:
            client = await self._connect()
        except FAILURES as error:
            return [_fault(error)]
        try:
            encoding = "utf-8" if client.supports_extension("smtputf8") else "ascii"
            await client.mail(str(self._sender.address), encoding=encoding)
            is_open = client.get_transport_info("sslcontext") is None
        except FAILURES as error:
            return [Fault("error", "sender", _sentence(error))]
        finally:
            _take_leave(client)
        if is_open and self._server.tls == "auto":
            detail = "The connection is not encrypted: the server offers no TLS."
            return [Fault("warning", "tls", detail)]
        if is_open and self._server.username and not is_loopback(self._server.host):
            sentence = "The password is sent in clear, for the URL says starttls=off."
            return [Fault("warning", "tls", sentence)]
        return []

    async def close(self) -> None:
        """End the kept sessions; a send under way ends by itself."""
        self._closed = True
        while (client := self._take()) is not None:
            _take_leave(client)
        await asyncio.sleep(0)  # the transports close in the loop's next round

    async def _deliver(self, mail: Mail, progress: Progress) -> str:
        octets = mail.encode()
        client = await self._begin(mail, len(octets))
        try:
            await client.rcpt(str(mail.recipient), encoding=_encoding(mail))
            reply = await self._transmit(client, octets, progress)
        except SMTPResponseException:
            _take_leave(client)  # the server has spoken, so both sides know where they stand
            raise
        except BaseException:
            _abandon(client)
            raise
        if self._closed or len(self._kept) >= KEPT_SESSIONS:
            _take_leave(client)
        else:
            loop = asyncio.get_running_loop()
            self._kept[client] = loop.call_later(self._idle_seconds, self._expire, client)
        return reply

    async def _begin(self, mail: Mail, size: int) -> SMTP:
        """A session in which the server has accepted MAIL.

        A kept one may have gone stale, which shows at its first command. Nothing of this message
        was said then, so a fresh one takes its place.
        """
        kept = self._take()
        if kept is not None:
            try:
                return await _announce(kept, mail, size)
            except SMTPResponseException as error:
                # The server closes a session of its own accord (RFC 5321 §3.8).
                if error.code != 421:
                    raise
            except SMTPException as error:
                if not isinstance(error, ConnectionError | TimeoutError):
                    raise
        return await _announce(await self._connect(), mail, size)

    async def _connect(self) -> SMTP:
        host, port = self._server.host, self._server.port
        sock = await self._dial(host, port) if self._dial is not None else None
        # RFC 5321 §4.1.3: a host without a full name gives an address. Never a DNS query.
        name = socket.gethostname()
        is_full = re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", name) is not None
        client = SMTP(
            hostname=host,
            port=port if sock is None else None,
            sock=sock,
            username=self._server.username,
            password=self._server.password if self._server.username else None,
            local_hostname=name if is_full else "[127.0.0.1]",
            timeout=self._reply_seconds,
            use_tls=self._server.tls == "implicit",
            start_tls={"auto": None, "required": True}.get(self._server.tls, False),
            tls_context=self._tls_context,
        )
        await client.connect()
        return client

    async def _transmit(self, client: SMTP, octets: bytes, progress: Progress) -> str:
        """DATA; the server's words on accepting the message."""
        ready = await client.execute_command(b"DATA")
        protocol = client.protocol
        if ready.code != 354:
            raise SMTPDataError(ready.code, ready.message)
        if protocol is None:
            raise SMTPServerDisconnected("Connection lost")
        body = re.sub(rb"(?m)^\.", b"..", octets)  # RFC 5321 §4.5.2
        async with asyncio.timeout(BODY_SECONDS):
            for start in range(0, len(body), CHUNK_OCTETS):
                protocol.write(body[start : start + CHUNK_OCTETS])
                await _flushed(client)
        protocol.write(b".\r\n")
        progress.handed_over = True
        reply = await protocol.read_response(timeout=self._end_of_data_seconds)
        if not 200 <= reply.code < 300:
            raise SMTPDataError(reply.code, reply.message)
        return line(reply.message)

    # --- kept sessions ---------------------------------------------------------------------------

    def _take(self) -> SMTP | None:
        """The warmest; whether the server has closed it meanwhile shows at its first command."""
        if not self._kept:
            return None
        client, expiry = self._kept.popitem()
        expiry.cancel()
        return client

    def _expire(self, client: SMTP) -> None:
        del self._kept[client]
        _take_leave(client)


# --- one session ---------------------------------------------------------------------------------


async def _announce(client: SMTP, mail: Mail, size: int) -> SMTP:
    """MAIL, with what the server wants to know in advance."""
    try:
        if client.is_ehlo_or_helo_needed:
            await client.ehlo()
        options = [f"SIZE={size}"] if client.supports_extension("size") else []
        if mail.needs_smtputf8:
            if not client.supports_extension("smtputf8"):
                raise SendError(
                    "rejected",
                    "invalid_address",
                    "An address has letters outside ASCII before its @, and the mail server does"
                    " not support such addresses (SMTPUTF8).",
                )
            options += ["BODY=8BITMIME", "SMTPUTF8"]
        await client.mail(str(mail.sender), options=options, encoding=_encoding(mail))
    except (SMTPResponseException, SendError):
        _take_leave(client)
        raise
    except BaseException:
        _abandon(client)
        raise
    return client


def _encoding(mail: Mail) -> str:
    return "utf-8" if mail.needs_smtputf8 else "ascii"


async def _flushed(client: SMTP) -> None:
    """Wait until the transport holds nothing back; SMTPServerDisconnected when the peer is gone.

    Below TLS up to 64 KiB stay out of sight, which errs on the side of "unknown".
    """
    await asyncio.sleep(0)
    while client.is_connected:
        if not cast(asyncio.WriteTransport, client.transport).get_write_buffer_size():
            return
        await asyncio.sleep(0.005)
    raise SMTPServerDisconnected("Connection lost")


def _take_leave(client: SMTP) -> None:
    """QUIT, without waiting for the answer."""
    if client.is_connected and client.protocol is not None:
        client.protocol.write(b"QUIT\r\n")
    client.close()


def _abandon(client: SMTP) -> None:
    """Close the connection at once: what is still in the buffer must not reach the server."""
    if client.transport is not None:
        cast(asyncio.WriteTransport, client.transport).abort()
    client.close()


# --- verdicts ------------------------------------------------------------------------------------

_STAGES: Mapping[type[SMTPException], smtp_replies.Stage] = {
    SMTPSenderRefused: "sender",
    SMTPRecipientRefused: "recipient",
    SMTPDataError: "data",
}
_LOGIN = smtp_replies.NOT_SIGNED_IN | {454, 500, 502, 503, 504}  # what servers answer to AUTH


def _verdict(error: BaseException, handed_over: bool) -> SendError:
    """The meaning of a failure for the message."""
    detail, known = _sentence(error), None
    stage = _STAGES.get(type(error)) if isinstance(error, SMTPException) else None
    if isinstance(error, SMTPResponseException):
        known = smtp_replies.verdict(error.code, error.message, stage or "sender")
    else:
        when = "after" if handed_over else "before"
        detail = f"{detail[:-1]}, {when} the end of the message was sent."
    if stage is None and known is REJECTED:  # of a connection, nothing is said of a message
        known = UNREACHABLE
    if known is None:
        known = UNKNOWN if handed_over else UNREACHABLE
    return SendError(known.outcome, known.code, detail, by_policy=known.by_policy)


def _fault(error: Exception) -> Fault:
    """Explain why there is no session. TLS shows in what an error was made from."""
    detail = _sentence(error)
    if isinstance(error, Refused):
        return Fault("error", "refused_target", str(error))
    if isinstance(error, SMTPResponseException) and error.code in _LOGIN:
        return Fault("error", "credentials", detail)
    if any(isinstance(cause, ssl.SSLError) or "TLS" in str(cause) for cause in causes(error)):
        return Fault("error", "tls", detail)
    return Fault("error", "unreachable", detail)


_SILENT = {asyncio.CancelledError: "The send was interrupted", TimeoutError: "Time ran out"}


def _sentence(error: BaseException) -> str:
    """A sentence, of a connection as of a message."""
    if isinstance(error, SMTPResponseException):
        return f"The mail server answered {error.code} {line(error.message)}"
    # Of a socket that it was handed the library knows no port, and says so.
    text = str(error).replace(" on port None", "")
    what = line(text).rstrip(".") or _SILENT.get(type(error)) or type(error).__name__
    return f"{what}."


# --- as one of the providers ----------------------------------------------------------------------


def without_password(url: str) -> str:
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    return parts._replace(netloc=f"{name}@{host}" if name else host).geturl()


FIELDS = {
    "url": Field(casts.smtp_url, "URL, smtps://user:password@host", shown=without_password),
    "from": Field(mailbox, "Sender"),
}


def opened(around: Surroundings, _channel: ChannelName, given: Credentials) -> EmailChannel:
    return EmailChannel(given["url"], given["from"], dial=around.dial)


def operators(settings: Settings) -> dict[ChannelName, Credentials]:
    if settings.smtp_url is None:
        return {}
    return {"email": {"url": settings.smtp_url, "from": settings.mail_from}}
