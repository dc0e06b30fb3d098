"""Sends over real sockets to a real SMTP server, whose ledger says what it has."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.machine.reasons import Reason
from app.providers.base import SendError
from app.providers.email import EmailChannel, Server
from tests import receivers
from tests.receivers import Receiver, letter
from tests.servers import free_port

LARGE = f"<p>{'x' * 8_000_000}</p>"  # more than the kernel's buffers hold


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
async def receiver(ledger: Path) -> AsyncIterator[Receiver]:
    async with Receiver(ledger) as receiver:
        yield receiver


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[EmailChannel]:
    channel = EmailChannel(url, "Acme <hello@acme.test>", **{"reply_seconds": 5.0, **options})
    try:
        yield channel
    finally:
        await channel.close()


@pytest.fixture
async def channel(receiver: Receiver) -> AsyncIterator[EmailChannel]:
    async with connected(receiver.url, end_of_data_seconds=5.0) as channel:
        yield channel


async def failure(channel: EmailChannel, **content: Any) -> SendError:
    with pytest.raises(SendError) as caught:
        await channel.send(letter(**content))
    assert caught.value.code in set(Reason)
    return caught.value


# --- accepted -------------------------------------------------------------------------------------


async def test_an_accepted_message_is_once_in_the_ledger_under_its_key(
    channel: EmailChannel, receiver: Receiver
) -> None:
    receipt = await channel.send(letter(key="f00d"))
    (received,) = receiver.received
    assert received.message_key == "f00d"
    assert received.mail_from == "hello@acme.test"
    assert received.recipients == ("ada@acme.test",)
    assert receipt.provider_message_id == "2.0.0 Ok: queued as 1"


async def test_what_arrives_is_what_was_written(channel: EmailChannel, receiver: Receiver) -> None:
    html = "<p>Grüße, Ada</p>\n.\n..dots\n" + "long " * 400
    await channel.send(letter(html=html, text=".\n.leading\nlast .", subject="Grüße"))
    (received,) = receiver.received
    assert received.mail["Subject"] == "Grüße"
    html_read, text_read = (
        receivers.text_of(received.mail, part).splitlines() for part in ("html", "plain")
    )
    assert html_read == html.splitlines()
    assert text_read == [".", ".leading", "last ."]


async def test_a_body_cannot_end_its_message_and_begin_another(
    channel: EmailChannel, receiver: Receiver
) -> None:
    """SMTP smuggling: every spelling of a dot on its own line, and a dialogue after it."""
    ends = ["\r\n.\r\n", "\n.\n", "\r.\r", "\n.\r\n", "\r\n.\r", "\r\n\x00.\r\n"]
    body = "".join(f"{end}MAIL FROM:<a@x.test>\r\nRCPT TO:<eve@evil.test>\r\nDATA" for end in ends)
    await channel.send(letter(text=body, html=f"<p>{body}{'y' * 2_000}</p>"))
    (received,) = receiver.received
    assert received.recipients == ("ada@acme.test",)
    lines = received.raw.split(b"\r\n")
    assert not re.search(rb"\r(?!\n)|(?<!\r)\n", received.raw)
    assert max(map(len, lines)) <= 998
    assert body.count("MAIL FROM") == receivers.text_of(received.mail, "plain").count("MAIL")


@pytest.mark.parametrize(
    "to", ["ada@acme.test>\r\nRCPT TO:<eve@evil.test", "ada@acme.test,eve@evil.test", "x"]
)
async def test_a_recipient_that_is_not_one_address_is_never_dialled(
    channel: EmailChannel, receiver: Receiver, to: str
) -> None:
    error = await failure(channel, to=to)
    assert (error.outcome, error.code) == ("rejected", "invalid_address")
    assert receiver.sessions == 0


async def test_a_header_that_would_forge_another_is_never_sent(
    channel: EmailChannel, receiver: Receiver
) -> None:
    error = await failure(channel, subject="=?utf-8?q?a=0ABcc:_eve@evil.test?=")
    assert (error.outcome, error.code) == ("rejected", "template_error")
    assert receiver.sessions == 0


async def test_a_local_part_outside_ascii_travels_when_the_server_can(
    channel: EmailChannel, receiver: Receiver
) -> None:
    await channel.send(letter(to="zoë@münchen.test"))
    (received,) = receiver.received
    assert received.recipients == ("zoë@xn--mnchen-3ya.test",)
    assert "To: zoë@xn--mnchen-3ya.test".encode() in received.raw


async def test_a_local_part_outside_ascii_is_rejected_when_the_server_cannot(ledger: Path) -> None:
    async with Receiver(ledger, smtputf8=False) as receiver, connected(receiver.url) as channel:
        error = await failure(channel, to="zoë@acme.test")
        await channel.send(letter(to="ada@münchen.test"))
    assert (error.outcome, error.code) == ("rejected", "invalid_address")
    assert "SMTPUTF8" in error.detail
    assert [received.recipients for received in receiver.received] == [("ada@xn--mnchen-3ya.test",)]


# --- not accepted, rejected, unknown --------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "outcome", "code", "in_ledger"),
    [
        (receivers.REFUSE_SENDER, "rejected", "provider_rejected", 0),
        (receivers.REFUSE_RECIPIENT, "rejected", "provider_rejected", 0),
        (receivers.REJECT_DATA, "rejected", "provider_rejected", 0),
        (receivers.THROTTLE, "not_accepted", "provider_throttled", 0),
        (receivers.THROTTLE_DATA, "not_accepted", "provider_throttled", 0),
        (receivers.GOODBYE, "not_accepted", "provider_throttled", 0),
        (receivers.HANG_UP, "not_accepted", "provider_unreachable", 0),
        (receivers.ACCEPT_THEN_CLOSE, "unknown", "outcome_unknown", 1),
        # A short message is on its way whole before its sender can see that nobody reads.
        (receivers.CLOSE_BEFORE_DOT, "unknown", "outcome_unknown", 0),
        (receivers.STALL, "unknown", "outcome_unknown", 0),
    ],
)
async def test_a_failure_says_whether_the_server_may_have_the_message(
    ledger: Path, behaviour: str, outcome: str, code: str, in_ledger: int
) -> None:
    async with (
        Receiver(ledger, script=[behaviour]) as receiver,
        connected(receiver.url, end_of_data_seconds=0.5) as channel,
    ):
        error = await failure(channel)
        assert (error.outcome, error.code) == (outcome, code)
        assert len(receiver.received) == in_ledger
        # Whatever happened, the next message is not harmed by it.
        await channel.send(letter(key="next"))
        assert receiver.received[-1].message_key == "next"


async def test_the_servers_own_words_are_in_the_detail(ledger: Path) -> None:
    async with (
        Receiver(ledger, script=[receivers.REFUSE_RECIPIENT]) as receiver,
        connected(receiver.url) as channel,
    ):
        error = await failure(channel)
    assert error.detail == "The mail server answered 550 5.7.1 Not to this one"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_lost_before_the_dot_leaves_no_doubt(
    ledger: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The message is larger than what the kernel buffers, so the dot was never handed over."""

    async def send() -> SendError:
        async with (
            Receiver(ledger, script=[receivers.CLOSE_BEFORE_DOT]) as receiver,
            connected(receiver.url) as channel,
        ):
            return await failure(channel, html=LARGE, text="short")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        error = runner.run(send())
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")


async def test_nobody_listening_is_surely_not_accepted() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with connected(f"smtp://127.0.0.1:{taken.getsockname()[1]}") as channel:
            error = await failure(channel)
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")


async def test_a_name_that_does_not_resolve_is_surely_not_accepted() -> None:
    async with connected("smtp://mail.invalid:25") as channel:
        error = await failure(channel)
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")


@contextlib.asynccontextmanager
async def speaking(*lines: bytes) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server that says these lines, one for each command, and then nothing; and when."""
    silent = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in lines:
            writer.write(line + b"\r\n")
            await reader.readline()
        silent.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}", silent


@pytest.mark.parametrize(
    ("lines", "outcome", "code"),
    [
        ((), "not_accepted", "provider_unreachable"),
        ((b"220 hi", b"250 hi"), "not_accepted", "provider_unreachable"),
        ((b"554 not today",), "not_accepted", "provider_unreachable"),
        ((b"421 busy",), "not_accepted", "provider_throttled"),
        ((b"what?",), "not_accepted", "provider_unreachable"),
        ((b"220 hi", *[b"250 ok"] * 4), "not_accepted", "provider_unreachable"),  # no 354
        ((b"220 hi", b"250 hi", b"530 sign in first"), "not_accepted", "provider_misconfigured"),
    ],
)  # fmt: skip
async def test_a_server_that_fails_before_the_message_does_not_have_it(
    lines: tuple[bytes, ...], outcome: str, code: str
) -> None:
    async with speaking(*lines) as (url, _), connected(url, reply_seconds=0.2) as channel:
        error = await failure(channel)
    assert (error.outcome, error.code) == (outcome, code)


async def test_who_hangs_up_on_a_connection_that_was_judged_is_told_of_in_words() -> None:
    async def dial(host: str, port: int) -> socket.socket:
        connection = socket.create_connection((host, port))
        connection.setblocking(False)
        return connection

    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    url = f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, connected(url, dial=dial) as channel:
        [found] = await channel.verify()
        shown = (await failure(channel)).detail
    assert found.code == "unreachable"
    assert all(one.startswith("Error connecting to 127.0.0.1: ") for one in (found.message, shown))


async def test_a_send_that_is_cancelled_before_the_dot_was_not_accepted() -> None:
    async with speaking(b"220 hi", b"250 hi") as (url, silent), connected(url) as channel:
        sending = asyncio.create_task(channel.send(letter()))
        await silent.wait()
        sending.cancel()
        with pytest.raises(SendError) as caught:
            await sending
    assert (caught.value.outcome, caught.value.code) == ("not_accepted", "provider_unreachable")


async def test_a_send_that_is_cancelled_after_the_dot_is_unknown(ledger: Path) -> None:
    async with (
        Receiver(ledger, script=[receivers.STALL]) as receiver,
        connected(receiver.url) as channel,
    ):
        sending = asyncio.create_task(channel.send(letter()))
        await receiver.stalled.wait()
        sending.cancel()
        with pytest.raises(SendError) as caught:
            await sending
        await receiver.left_alone()
    assert (caught.value.outcome, caught.value.code) == ("unknown", "outcome_unknown")
    assert receiver.received == []


async def test_a_deadline_around_a_send_still_learns_the_outcome(ledger: Path) -> None:
    async with (
        Receiver(ledger, script=[receivers.STALL]) as receiver,
        connected(receiver.url) as channel,
    ):
        with pytest.raises(SendError) as caught:
            async with asyncio.timeout(0.3):
                await channel.send(letter())
    assert caught.value.outcome == "unknown"


# --- sessions -------------------------------------------------------------------------------------


async def test_a_session_is_used_again(channel: EmailChannel, receiver: Receiver) -> None:
    for number in range(3):
        await channel.send(letter(key=f"k{number}"))
    assert [received.message_key for received in receiver.received] == ["k0", "k1", "k2"]
    assert receiver.sessions == 1


async def test_sends_at_once_do_not_wait_for_each_other(
    channel: EmailChannel, receiver: Receiver
) -> None:
    await asyncio.gather(*(channel.send(letter(key=f"k{number}")) for number in range(12)))
    assert {received.message_key for received in receiver.received} == {
        f"k{number}" for number in range(12)
    }
    assert receiver.sessions == 12


async def test_a_session_that_the_server_ended_meanwhile_is_replaced(
    channel: EmailChannel, receiver: Receiver
) -> None:
    await channel.send(letter(key="first"))
    await receiver.disconnect()
    await channel.send(letter(key="second"))
    assert [received.message_key for received in receiver.received] == ["first", "second"]
    assert receiver.sessions == 2


@pytest.mark.parametrize("end", [receivers.GOODBYE, receivers.HANG_UP])
async def test_a_session_that_shows_its_end_only_at_mail_is_replaced(
    channel: EmailChannel, receiver: Receiver, end: str
) -> None:
    receiver.script.extend([receivers.ACCEPT, end])
    await channel.send(letter(key="first"))
    await channel.send(letter(key="second"))
    assert [received.message_key for received in receiver.received] == ["first", "second"]
    assert receiver.sessions == 2


async def test_a_fresh_session_that_fails_is_not_tried_again(
    channel: EmailChannel, receiver: Receiver
) -> None:
    receiver.script.extend([receivers.ACCEPT, receivers.HANG_UP, receivers.HANG_UP])
    await channel.send(letter())
    error = await failure(channel)
    assert error.outcome == "not_accepted"
    assert receiver.sessions == 2


async def test_an_idle_session_is_ended(receiver: Receiver) -> None:
    async with connected(receiver.url, idle_seconds=0.05) as channel:
        await channel.send(letter())
        await receiver.left_alone()
        await channel.send(letter())
    assert receiver.sessions == 2


async def test_closing_ends_every_session(channel: EmailChannel, receiver: Receiver) -> None:
    await asyncio.gather(*(channel.send(letter(key=f"k{number}")) for number in range(6)))
    await channel.close()
    await receiver.left_alone()


# --- encryption and credentials -------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself; with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver.test")])
    address = x509.IPAddress(ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
def serving(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate)


@pytest.mark.parametrize(
    ("option", "encrypted"),
    [("", True), ("?starttls=auto", True), ("?starttls=required", True), ("?starttls=off", False)],
)
async def test_starttls_is_taken_when_it_is_offered(
    ledger: Path, serving: ssl.SSLContext, trusting: ssl.SSLContext, option: str, encrypted: bool
) -> None:
    async with (
        Receiver(ledger, tls_context=serving) as receiver,
        connected(receiver.url + option, tls_context=trusting) as channel,
    ):
        # The address asks for an extension that has to be learned again after STARTTLS.
        await channel.send(letter(to="zoë@acme.test"))
        assert [received.encrypted for received in receiver.received] == [encrypted]


async def test_starttls_that_is_required_and_not_offered_stops_the_send(
    receiver: Receiver, trusting: ssl.SSLContext
) -> None:
    url = receiver.url + "?starttls=required"
    async with connected(url, tls_context=trusting) as channel:
        error = await failure(channel)
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")
    assert "STARTTLS" in error.detail


@contextlib.asynccontextmanager
async def elsewhere(port: int, *, user: str = "", query: str = "") -> AsyncIterator[EmailChannel]:
    """Open a channel to a server on this machine that goes by the name of another one."""

    async def dial(host: str, _: int) -> socket.socket:
        assert host == "mail.acme.test"
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        return sock

    async with connected(f"smtp://{user}mail.acme.test:{port}{query}", dial=dial) as channel:
        yield channel


@pytest.mark.parametrize("query", ["", "?starttls=auto", "?starttls=required"])
async def test_no_password_travels_when_the_offer_of_tls_was_taken_out(
    ledger: Path, query: str
) -> None:
    async with (
        Receiver(ledger, login=("ada", "right")) as receiver,
        elsewhere(receiver.port, user="ada:right@", query=query) as channel,
    ):
        error = await failure(channel)
        [fault] = await channel.verify()
        assert (receiver.received, receiver.logins) == ([], [])
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")
    assert fault.code == "tls"


@pytest.mark.parametrize(
    ("user", "query", "warned"),
    [("ada:right@", "?starttls=off", True), ("", "", True), ("", "?starttls=off", False)],
)
async def test_whoever_says_so_sends_without_tls(
    ledger: Path, user: str, query: str, warned: bool
) -> None:
    login = ("ada", "right") if user else None
    async with (
        Receiver(ledger, login=login) as receiver,
        elsewhere(receiver.port, user=user, query=query) as channel,
    ):
        await channel.send(letter())
        assert len(receiver.received) == 1
        faults = await channel.verify()
    assert [(one.severity, one.code) for one in faults] == [("warning", "tls")] * warned


async def test_a_password_goes_to_this_machine_as_before(ledger: Path) -> None:
    async with Receiver(ledger, login=("ada", "right")) as receiver:
        for host in ("127.0.0.1", "localhost"):
            url = f"smtp://ada:right@{host}:{receiver.port}"
            async with connected(url) as channel:
                await channel.send(letter())
        assert len(receiver.received) == 2


async def test_smtps_is_encrypted_from_the_first_octet(
    ledger: Path, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with (
        Receiver(ledger, tls_context=serving, implicit_tls=True) as receiver,
        connected(f"smtps://127.0.0.1:{receiver.port}", tls_context=trusting) as channel,
    ):
        await channel.send(letter())
        await channel.send(letter())
        assert [received.encrypted for received in receiver.received] == [True, True]
        assert receiver.sessions == 1


@pytest.mark.parametrize("implicit", [False, True])
async def test_a_certificate_that_nobody_vouches_for_stops_the_send(
    ledger: Path, serving: ssl.SSLContext, implicit: bool
) -> None:
    async with Receiver(ledger, tls_context=serving, implicit_tls=implicit) as receiver:
        scheme = "smtps" if implicit else "smtp"
        async with connected(f"{scheme}://127.0.0.1:{receiver.port}") as channel:
            error = await failure(channel)
    assert (error.outcome, error.code) == ("not_accepted", "provider_unreachable")
    assert "certificate" in error.detail.lower()


async def test_a_connection_lost_before_the_dot_leaves_no_doubt_inside_tls(
    ledger: Path, serving: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with (
        Receiver(ledger, tls_context=serving, script=[receivers.CLOSE_BEFORE_DOT]) as receiver,
        connected(receiver.url, tls_context=trusting) as channel,
    ):
        error = await failure(channel, html=LARGE, text="short")
    assert error.outcome == "not_accepted"


async def test_credentials_are_percent_decoded(ledger: Path) -> None:
    async with Receiver(ledger, login=("ada@acme.test", "p:/?#[]@ %")) as receiver:
        url = f"smtp://ada%40acme.test:p%3A%2F%3F%23%5B%5D%40%20%25@127.0.0.1:{receiver.port}"
        async with connected(url) as channel:
            await channel.send(letter())
        assert len(receiver.received) == 1


async def test_a_wrong_password_waits_for_the_operator_and_is_not_told(ledger: Path) -> None:
    """Messages must not fail for good because a setting is wrong for an hour."""
    async with (
        Receiver(ledger, login=("ada", "right")) as receiver,
        connected(f"smtp://ada:hunter2@127.0.0.1:{receiver.port}") as channel,
    ):
        error = await failure(channel)
    assert (error.outcome, error.code) == ("not_accepted", "provider_misconfigured")
    assert "hunter2" not in error.detail
    assert "hunter2" not in repr(Server.parse("smtp://ada:hunter2@127.0.0.1"))


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("smtp://mail.test", "mail.test", 587, "auto"),
        ("smtp://mail.test:25?starttls=off", "mail.test", 25, "off"),
        ("smtp://u:p@mail.test", "mail.test", 587, "required"),
        ("smtp://u:p@mail.test?starttls=auto", "mail.test", 587, "required"),
        ("smtp://u:p@mail.test?starttls=off", "mail.test", 587, "off"),
        ("smtp://u:p@127.8.0.1", "127.8.0.1", 587, "auto"),
        ("smtp://u:p@[::1]", "::1", 587, "auto"),
        ("smtp://u:p@localhost.evil.test", "localhost.evil.test", 587, "required"),
        ("smtps://u:p@mail.test", "mail.test", 465, "implicit"),
        ("smtps://mail.test", "mail.test", 465, "implicit"),
        ("smtp://u:p@[::1]:2525?starttls=required", "::1", 2525, "required"),
    ],
)
def test_a_url_names_the_server(url: str, host: str, port: int, tls: str) -> None:
    server = Server.parse(url)
    assert (server.host, server.port, server.tls) == (host, port, tls)


async def test_of_a_connection_alone_nothing_is_said_about_a_message() -> None:
    channel = EmailChannel(f"smtp://127.0.0.1:{free_port()}?starttls=off", "hello@acme.test")
    [fault] = await channel.verify()
    await channel.close()
    assert fault.code == "unreachable"
    assert "message" not in fault.message
