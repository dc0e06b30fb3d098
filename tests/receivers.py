"""A real SMTP server that writes down what it accepts, and misbehaves on request.

The ledger is the oracle of what a receiver has: one JSON line per accepted message, on disk before
the sender hears of it. `python -m tests.receivers LEDGER` runs it as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import ssl
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesHeaderParser, BytesParser
from email.policy import default
from pathlib import Path
from typing import Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from app.providers.base import Message

ACCEPT = "accept"
REFUSE_SENDER = "refuse_sender"  # 550 to MAIL
REFUSE_RECIPIENT = "refuse_recipient"  # 550 to RCPT
THROTTLE = "throttle"  # 451 to RCPT
REJECT_DATA = "reject_data"  # 554 to the final dot
THROTTLE_DATA = "throttle_data"  # 451 to the final dot
CLOSE_BEFORE_DOT = "close_before_dot"  # gone after the first octets of the message
ACCEPT_THEN_CLOSE = "accept_then_close"  # in the ledger, but the reply is never sent
HESITATE = "hesitate"  # accepts, once the test says so
STALL = "stall"  # has the message and never answers; not in the ledger
BUSY = "busy"  # 454 to MAIL
GOODBYE = "goodbye"  # 421 to MAIL, as a server says that is about to close
HANG_UP = "hang_up"  # gone at MAIL, without a word

HELD = "held"  # who is called so hears of what came only after `hold`

BEHAVIOURS = (
    ACCEPT, REFUSE_SENDER, REFUSE_RECIPIENT, THROTTLE, REJECT_DATA, THROTTLE_DATA,
    CLOSE_BEFORE_DOT, ACCEPT_THEN_CLOSE, HESITATE, STALL, BUSY, GOODBYE,
    HANG_UP,
)  # fmt: skip

AT_MAIL = {
    REFUSE_SENDER: "550 5.7.1 Not from you",
    BUSY: "454 4.7.0 Too much from you at the moment",
    GOODBYE: "421 4.3.2 Closing, come back",
}
AT_RCPT = {REFUSE_RECIPIENT: "550 5.7.1 Not to this one", THROTTLE: "451 4.3.2 Slow down"}
AT_END = {REJECT_DATA: "554 5.7.1 Not in my house", THROTTLE_DATA: "451 4.3.0 Try again later"}


@dataclass(frozen=True, slots=True)
class Received:
    """One accepted message, read back from the ledger."""

    at: float
    mail_from: str
    recipients: tuple[str, ...]
    encrypted: bool
    session: int
    raw: bytes

    @property
    def mail(self) -> EmailMessage:
        mail = BytesParser(policy=default).parsebytes(self.raw)
        assert isinstance(mail, EmailMessage)
        return mail

    @property
    def message_key(self) -> str:
        """The local part of the Message-ID."""
        return self._header("Message-ID").strip(" <>\r\n").rpartition("@")[0]

    @property
    def subject(self) -> str:
        """Subject, in ASCII."""
        return self._header("Subject")

    def _header(self, name: str) -> str:
        headers = BytesHeaderParser().parsebytes(self.raw)  # of tens of thousands, in seconds
        return str(headers[name])


def read_ledger(path: Path) -> list[Received]:
    """Read a ledger in the order of acceptance. A last line that was cut off was never
    acknowledged."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [_received(json.loads(line)) for line in lines]


def _received(line: dict[str, Any]) -> Received:
    return Received(
        at=line["at"],
        mail_from=line["from"],
        recipients=tuple(line["to"]),
        encrypted=line["encrypted"],
        session=line["session"],
        raw=line["raw"].encode("utf-8", "surrogateescape"),
    )


def letter(
    words: Mapping[str, str | None] | None = None,
    /,
    *,
    key: str = "0123abcd",
    to: str = "ada@acme.test",
    headers: Mapping[str, str] | None = None,
    **content: str | None,
) -> Message:
    """A message to send to one of these."""
    return Message(
        message_key=key,
        attempt_id="att_1",
        message_id="msg_1",
        workspace_id="ws_1",
        run_id="run_1",
        contact_id="con_1",
        channel="email",
        to=to,
        content={"subject": "Hello", "html": "<p>Welcome</p>", **(words or {}), **content},
        headers=headers or {},
    )


def text_of(mail: EmailMessage, kind: str) -> str:
    """One of its parts, `plain` or `html`, which it must have."""
    part = mail.get_body((kind,))
    assert part is not None, f"it has no part that is {kind}"
    return str(part.get_content())


class Receiver:
    """`script` says how the next transactions go, one entry each; after that all are accepted."""

    def __init__(
        self,
        ledger: Path,
        *,
        port: int = 0,
        script: Iterable[str] = (),
        smtputf8: bool = True,
        tls_context: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        login: tuple[str, str] | None = None,
        pause: float = 0.0,
        hold: float = 0.0,
    ) -> None:
        self.ledger = ledger
        self.hold = hold  # seconds from the final dot to writing a message down, for some
        self.pause = pause  # seconds from writing a message down to saying so
        self.port = port  # kept when it is stopped and started again
        self.script = deque(script)
        self.smtputf8 = smtputf8
        self.login = login
        self.sessions = 0  # so far
        self.accepted = 0
        self.logins: list[bytes] = []  # names that somebody has tried
        self.transactions = 0  # begun
        self.mood: str | None = None  # how all go, until it changes
        self.at_rcpt: dict[str, str] = {}  # recipient → the reply; "*" for everybody
        self.at_end: dict[str, str] = {}  # likewise, to the final dot
        self.stalled = asyncio.Event()
        self.released = asyncio.Event()
        self._starttls = None if implicit_tls else tls_context
        self._implicit_tls = tls_context if implicit_tls else None
        self._arrived = asyncio.Event()
        self._open: set[Server] = set()
        self._nobody = asyncio.Event()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._listener = await asyncio.get_running_loop().create_server(
            lambda: Server(self, tls_context=self._starttls),
            "127.0.0.1",
            self.port,
            ssl=self._implicit_tls,
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Every session is cut: what is under way is lost."""
        if self._listener is not None:
            self._listener.close()
            await self.disconnect()
            await self._listener.wait_closed()

    async def disconnect(self) -> None:
        """Cuts the sessions, as a server does that is tired of idle ones."""
        for session in self._open:
            session.cut()
        await self.left_alone()

    async def left_alone(self, seconds: float = 10) -> None:
        """Wait until no session is open."""
        async with asyncio.timeout(seconds):
            while self._open:
                self._nobody.clear()
                await self._nobody.wait()

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    @property
    def received(self) -> list[Received]:
        return read_ledger(self.ledger)

    async def wait_for(self, count: int, seconds: float = 10) -> list[Received]:
        """The ledger, once it has `count` messages."""
        async with asyncio.timeout(seconds):
            while len(self.received) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.received

    def write_down(self, envelope: Envelope, *, encrypted: bool, session: int) -> None:
        raw = envelope.original_content or b""
        line = {
            "at": time.time(),
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "encrypted": encrypted,
            "session": session,
            "raw": raw.decode("utf-8", "surrogateescape"),
        }
        with self.ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.accepted += 1
        self._arrived.set()

    def opened(self, session: Server) -> None:
        self.sessions += 1
        self._open.add(session)

    def ended(self, session: Server) -> None:
        self._open.discard(session)
        if not self._open:
            self._nobody.set()


class Handler:
    """aiosmtpd's hooks: one transaction at a time, each with its behaviour."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.behaviour = ACCEPT

    async def handle_MAIL(  # noqa: N802 - the hook's name is aiosmtpd's
        self, server: Server, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        script = self.receiver.script
        self.behaviour = self.receiver.mood or (script.popleft() if script else ACCEPT)
        self.receiver.transactions += 1
        if self.receiver.login and not session.authenticated:
            return "530 5.7.0 Authentication required"
        if self.behaviour == HANG_UP:
            await server.vanish()
        if self.behaviour in AT_MAIL:
            return AT_MAIL[self.behaviour]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 2.1.0 Ok"

    async def handle_RCPT(  # noqa: N802 - likewise
        self, _: SMTP, __: Session, envelope: Envelope, address: str, ___: list[str]
    ) -> str:
        replies = self.receiver.at_rcpt
        if reply := replies.get(address) or replies.get("*"):
            return reply
        if self.behaviour in AT_RCPT:
            return AT_RCPT[self.behaviour]
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 Ok"

    async def handle_DATA(  # noqa: N802 - likewise
        self, server: Server, _: Session, envelope: Envelope
    ) -> str:
        to, replies = envelope.rcpt_tos[0], self.receiver.at_end
        if reply := replies.get(to) or replies.get("*"):
            return reply
        if self.behaviour in AT_END:
            return AT_END[self.behaviour]
        if self.behaviour == STALL:
            self.receiver.stalled.set()
            await asyncio.Event().wait()  # until the sender, or the test, cuts the session
        if self.behaviour == HESITATE:
            self.receiver.stalled.set()
            await self.receiver.released.wait()
        if any(recipient.startswith(HELD) for recipient in envelope.rcpt_tos):
            await asyncio.sleep(self.receiver.hold)
        self.receiver.write_down(envelope, encrypted=server.is_encrypted(), session=server.number)
        if self.behaviour == ACCEPT_THEN_CLOSE:
            await server.vanish()
        await asyncio.sleep(self.receiver.pause)
        return f"250 2.0.0 Ok: queued as {self.receiver.accepted}"


class Server(SMTP):
    """One session."""

    def __init__(self, receiver: Receiver, *, tls_context: ssl.SSLContext | None) -> None:
        self.receiver = receiver
        self.handler = Handler(receiver)
        super().__init__(
            self.handler,
            hostname="receiver.test",  # else a DNS query for each session
            enable_SMTPUTF8=receiver.smtputf8,
            tls_context=tls_context,
            auth_require_tls=False,
            authenticator=self.check_login if receiver.login else None,
            loop=asyncio.get_running_loop(),
        )

    def is_encrypted(self) -> bool:
        assert self.transport is not None
        return self.transport.get_extra_info("sslcontext") is not None

    def cut(self) -> None:
        self.wire.abort()
        if self.task is not None:
            self.task.cancel()  # a TLS handshake that failed would leave it waiting

    async def vanish(self) -> None:
        """Vanish without returning: losing its connection ends the session."""
        self.cut()
        await asyncio.Event().wait()

    def check_login(
        self, _: SMTP, __: Session, ___: Envelope, ____: str, login: LoginPassword
    ) -> AuthResult:
        self.receiver.logins.append(login.login)
        given = (login.login.decode(), login.password.decode())
        return AuthResult(success=given == self.receiver.login, handled=False)

    async def _handle_client(self) -> None:
        self.wire, self.task = self._writer.transport, asyncio.current_task()
        self.receiver.opened(self)
        self.number = self.receiver.sessions
        # A client that goes away in the middle is what these tests are about.
        with contextlib.suppress(ConnectionError):
            try:
                await super()._handle_client()
            finally:
                self.receiver.ended(self)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - the command's name
        if self.handler.behaviour == CLOSE_BEFORE_DOT:
            await self.push("354 End data with <CR><LF>.<CR><LF>")
            await self._reader.read(1)
            await asyncio.sleep(0.2)  # by then the sender has sent all that it can
            await self.vanish()
        await super().smtp_DATA(arg)


# --- as a process --------------------------------------------------------------------------------


def expand(script: str) -> list[str]:
    """`throttle*3,accept` → three throttled transactions, then an accepted one."""
    names: list[str] = []
    for entry in filter(None, script.split(",")):
        name, _, times = entry.partition("*")
        if name not in BEHAVIOURS or not re.fullmatch(r"[0-9]*", times):
            raise argparse.ArgumentTypeError(f"{entry}: one of {', '.join(BEHAVIOURS)}")
        names += [name] * int(times or 1)
    return names


async def serve(receiver: Receiver) -> None:
    """Serve until SIGTERM. The first line of output is the URL, for whoever started this."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with receiver:
        sys.stdout.write(receiver.url + "\n")
        sys.stdout.flush()
        await stopping.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="An SMTP server with a ledger.")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", type=expand, default=[], help="such as throttle*3,accept")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before it says so")
    parser.add_argument("--hold", type=float, default=0.0, help=f"for {HELD}…: before it has it")
    asked = parser.parse_args()
    receiver = Receiver(
        asked.ledger, port=asked.port, script=asked.script, pause=asked.pause, hold=asked.hold
    )
    asyncio.run(serve(receiver))


if __name__ == "__main__":
    main()
