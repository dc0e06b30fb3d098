"""The guarded HTTP client: nobody is sent inward, and a failure tells whether anything was sent."""

from __future__ import annotations

import asyncio
import gzip
import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, ip_address, ip_network
from itertools import count
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.config.settings import Settings
from app.machine.http_fields import FRAMING
from app.net.egress import (
    KEPT_BYTES,
    MOST_PIECES,
    Answer,
    Egress,
    Failure,
    InvalidTarget,
    Refused,
    Request,
    parse_url,
    shown,
)
from app.runtime import logs
from tests.listener import Asked, Listener, Respond, never, says
from tests.servers import free_port

LOOPBACK = (IPv4Network("127.0.0.0/8"),)


@pytest.fixture(scope="module")
async def egress() -> AsyncIterator[Egress]:
    """The egress of a deployment that opened nothing."""
    egress = Egress()
    yield egress
    await egress.close()


@pytest.fixture(scope="module")
async def opened() -> AsyncIterator[Egress]:
    """Loopback is opened, so that there is somebody to talk to."""
    egress = Egress(LOOPBACK)
    yield egress
    await egress.close()


def named(**names: Sequence[str]) -> Callable[[str], Awaitable[Sequence[str]]]:
    """A name server that knows these, dots written as underscores."""

    async def resolve(host: str) -> Sequence[str]:
        return names[host.replace(".", "_")]

    return resolve


# --- where nobody may be sent ---------------------------------------------------------------------

FORBIDDEN = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1
127.255.255.254 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255
192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255
198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:7f00:1
64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::1 100::1 100::ffff:ffff:ffff:ffff
2001::1 2001:0:7f00:1::1 2001:2::1 2001:10::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe::1
2002:808:808::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fdff::1 fe80::1 febf::1 fec0::1 ff02::1
ff0e::1 2600:1f00::5efe:7f00:1 2600:1f00::200:5efe:a00:1 4000::1
""".split()  # noqa: SIM905 - sixty in quotation marks would not be read


def test_there_are_sixty_forbidden_targets() -> None:
    assert len(set(FORBIDDEN)) >= 60


async def test_an_address_that_leads_inward_is_refused_before_a_packet_leaves(
    egress: Egress,
) -> None:
    for address in FORBIDDEN:
        host = f"[{address}]" if ":" in address else address
        failure = await egress.call(Request("GET", f"http://{host}/"))
        assert isinstance(failure, Failure), address
        assert (failure.code, failure.sent) == ("refused_target", False), address
        assert await egress.check(address) == failure  # and for other protocols than HTTP


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255",
     "172.32.0.0", "192.0.1.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
     "2606:4700:4700::1111", "2001:200::1", "2a00:1450:4001::5efe", "::ffff:1.1.1.1"],
)  # fmt: skip
def test_their_public_neighbours_are_not(egress: Egress, address: str) -> None:
    assert egress.may_reach(address, 443)


SPELLINGS = [
    "2130706433", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "0", "[::ffff:7f00:1]", "[::1]",
    "[::1%25lo]", "[::1%lo]", "localhost", "localhost.", "LOCALHOST", "１２７.0.0.1", "①27.0.0.1",
    "1.1.1.1@127.0.0.1", "127.0.0.1#@x.example", "127.0.0.1\\@x.example", "x.example\\@127.0.0.1",
    "127.0.0.1\t", "127.0.0.1\r\n", "127.0.0.1 ", "127。0。0。1",
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("port", ["", "{port}"])
async def test_no_spelling_of_loopback_reaches_it(egress: Egress, spelling: str, port: str) -> None:
    async with Listener() as listener:
        authority, hash_, rest = spelling.partition("#")
        with_port = f":{listener.port}" if port else ""
        failure = await egress.call(Request("GET", f"http://{authority}{with_port}{hash_}{rest}/"))
        assert isinstance(failure, Failure)
        assert not failure.sent
        assert listener.connections == 0


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["1.1.1.1", "127.0.0.1"],
        ["127.0.0.1", "1.1.1.1"],
        ["2606:4700:4700::1111", "::1"],
        ["fd00::1"],
        ["::ffff:10.0.0.1"],
    ],
)
async def test_a_name_with_one_address_that_leads_inward_is_refused(found: list[str]) -> None:
    egress = Egress(resolve=named(sly_example=found))
    failure = await egress.call(Request("GET", "http://sly.example/"))
    assert isinstance(failure, Failure)
    assert failure.code == "refused_target"
    await egress.close()


async def test_a_thousand_rebinding_names_reach_only_what_was_judged() -> None:
    """The first answer is harmless, every later one is not: it is asked for once a call."""
    asked = count()

    async def rebind(_host: str) -> Sequence[str]:
        return ["127.0.0.2" if next(asked) % 2 == 0 else "127.0.0.1"]

    port = free_port()
    async with Listener(host="127.0.0.2", port=port) as outer, Listener(port=port) as inner:
        egress = Egress([ip_network("127.0.0.2/32")], resolve=rebind)
        url = f"http://rebind.example:{port}/"
        outcomes = [await egress.call(Request("GET", url)) for _ in range(1_000)]
        await egress.close()
        assert (inner.connections, outer.connections) == (0, 500)
        assert sum(isinstance(outcome, Answer) for outcome in outcomes) == 500
        assert next(asked) == 1_000
        assert outer.asked[0].header("host") == f"rebind.example:{port}"


@pytest.mark.parametrize("port", [22, 25, 5432, 6379, 9200, 65535])
def test_on_the_internet_only_ports_of_the_web_are_open(egress: Egress, port: int) -> None:
    assert not egress.may_reach("1.1.1.1", port)
    assert egress.may_reach("1.1.1.1", 443)
    assert egress.may_reach("1.1.1.1")  # an SMTP client chooses its own


@pytest.mark.parametrize(
    ("allow", "address", "reached"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "10.2.2.3", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("10.1.0.0/16", "2002:a01:203::1", False),  # 6to4 itself was not opened
        ("64:ff9b::/96", "64:ff9b::808:808", True),
        ("64:ff9b::/96", "64:ff9b::a9fe:a9fe", False),  # but not the metadata behind it
        ("fd00:1::/64", "fd00:1::5", True),
    ],
)
async def test_a_network_is_opened_by_name_and_nothing_beside_it(
    allow: str, address: str, reached: bool
) -> None:
    egress = Egress([ip_network(allow)])
    assert egress.may_reach(address, 80) is reached
    await egress.close()


@pytest.mark.parametrize("scheme", ["file", "gopher", "ftp", "data", "unix", "javascript", "ws"])
def test_only_http_is_spoken(scheme: str) -> None:
    with pytest.raises(InvalidTarget, match="https://"):
        parse_url(f"{scheme}://example.com/")


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
async def test_a_redirect_is_an_answer_and_never_followed(opened: Egress, status: str) -> None:
    async with Listener() as inner:
        async with Listener(says(status=f"{status} Go", Location=inner.url)) as listener:
            answer = await opened.call(Request("POST", listener.url))
        assert isinstance(answer, Answer)
        assert answer.status == int(status)
        assert inner.connections == 0


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Listener() as proxy, Listener() as listener:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        egress = Egress(LOOPBACK)
        assert isinstance(await egress.call(Request("GET", listener.url)), Answer)
        await egress.close()
        assert (proxy.connections, listener.connections) == (0, 1)


# --- what goes out --------------------------------------------------------------------------------


async def test_a_request_goes_out_as_it_was_made(opened: Egress) -> None:
    async with Listener() as listener:
        url = f"{listener.url.replace('//', '//ada:s%40cret@')}/a%20b?q=1"
        request = Request("PUT", url, [("X-Word", "tea"), ("Content-Type", "text/plain")], b"hot")
        answer = await opened.call(request)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body, answer.truncated) == (200, b'{"ok":true}', False)
    assert answer.header("content-type") == "application/json"
    [asked] = listener.asked
    assert (asked.method, asked.target, asked.body) == ("PUT", "/a%20b?q=1", b"hot")
    assert asked.header("host") == f"127.0.0.1:{listener.port}"
    assert asked.header("x-word") == "tea"
    assert asked.header("authorization") == "Basic YWRhOnNAY3JldA=="
    assert asked.header("connection") == "close"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "1\r\nX-B: 2"),
        ("X-A", "1\nX-B: 2"),
        ("X-A", "1\0"),
        ("X-A", "\u010a"),  # its low byte is a line feed
        ("X-A\r\nX-B", "1"),
        ("X A", "1"),
        ("", "1"),
        *((name.title(), "1") for name in sorted(FRAMING)),
    ],
)
async def test_no_header_begins_another_or_frames_the_request(
    opened: Egress, name: str, value: str
) -> None:
    async with Listener() as listener:
        failure = await opened.call(Request("GET", listener.url, [(name, value)]))
        assert isinstance(failure, Failure)
        assert (failure.code, failure.sent) == ("invalid_request", False)
        assert listener.connections == 0


async def test_credentials_are_in_no_log_record_or_repr(opened: Egress) -> None:
    output = io.StringIO()
    environ = {"LOG_LEVEL": "debug", "SECRET_KEY": "a secret key that only the tests have"}
    logs.configure(Settings.from_environ(environ), stream=output)
    async with Listener() as listener:
        url = listener.url.replace("//", "//ada:canary1@") + "/?key=canary2#canary3"
        request = Request("GET", url, [("X-Api-Key", "canary4")], b"canary5")
        assert isinstance(await opened.call(request), Answer)
    assert "canary" not in output.getvalue() + repr(request)
    assert shown(url) == f"{listener.url}/"


# --- what comes back ------------------------------------------------------------------------------


async def _for_ever(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def _drip(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _interim(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.001)


async def _interim_in_bulk(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 E\r\n\r\n" * 5_000)
        await writer.drain()


async def _interim_of_another_version(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.0 103 E\r\n\r\n" * 30)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def _endless_head_in_drops(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"x")
        await asyncio.sleep(0)


async def _one_byte_chunks(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n" * 1_000)
        await writer.drain()


async def _headers(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100_000)))
    await writer.drain()


async def _garbage(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()


async def _hang_up(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(
    "respond",
    [
        _for_ever,
        says(b"x" * KEPT_BYTES + b"y"),
        says(gzip.compress(b"x" * 100_000_000), Content_Encoding="gzip"),
    ],
)
async def test_of_an_endless_answer_the_beginning_is_kept(opened: Egress, respond: Respond) -> None:
    async with Listener(respond) as listener:
        answer = await opened.call(Request("GET", listener.url))
    assert isinstance(answer, Answer)
    assert (answer.body, answer.truncated) == (b"x" * KEPT_BYTES, True)


async def test_of_an_answer_in_crumbs_the_beginning_is_kept(opened: Egress) -> None:
    async with Listener(_one_byte_chunks) as listener:
        answer = await opened.call(Request("GET", listener.url))
    assert isinstance(answer, Answer)
    assert (answer.body, answer.truncated) == (b"x" * MOST_PIECES, True)


async def test_a_few_interim_answers_are_passed_over(opened: Egress) -> None:
    async def respond(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea")
        await writer.drain()

    async with Listener(respond) as listener:
        answer = await opened.call(Request("GET", listener.url))
    assert isinstance(answer, Answer)
    assert answer.body == b"tea"


async def test_what_was_packed_unasked_is_unpacked(opened: Egress) -> None:
    async with Listener(says(gzip.compress(b"tea"), Content_Encoding="gzip")) as listener:
        answer = await opened.call(Request("GET", listener.url))
    assert isinstance(answer, Answer)
    assert (answer.body, answer.truncated) == (b"tea", False)
    assert listener.asked[0].header("accept-encoding") == "identity"


@pytest.mark.parametrize(
    ("respond", "code"),
    [
        (never, "timeout"),
        (_drip, "timeout"),
        (_interim, "broken_answer"),
        (_interim_in_bulk, "broken_answer"),
        (_interim_of_another_version, "broken_answer"),
        (_endless_head_in_drops, "broken_answer"),
        (_headers, "broken_answer"),
        (_garbage, "broken_answer"),
        (_hang_up, "broken_answer"),
    ],
)
async def test_a_server_that_misbehaves_costs_no_more_than_its_time(
    opened: Egress, respond: Respond, code: str
) -> None:
    seconds = 0.4 if code == "timeout" else 10.0  # on a busy machine, bad answers take their time
    async with Listener(respond) as listener:
        failure = await opened.call(Request("POST", listener.url, timeout_seconds=seconds))
    assert isinstance(failure, Failure)
    assert (failure.code, failure.sent) == (code, True)  # perhaps it did what it was asked
    assert "SSH" not in failure.detail


async def test_nobody_there_is_surely_not_sent(opened: Egress) -> None:
    failure = await opened.call(Request("POST", f"http://127.0.0.1:{free_port()}/"))
    assert isinstance(failure, Failure)
    assert (failure.code, failure.sent) == ("connect_failed", False)


async def test_a_name_server_that_is_silent_is_surely_not_sent() -> None:
    async def silent(_host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    egress = Egress(resolve=silent)
    failure = await egress.call(Request("POST", "http://slow.example/", timeout_seconds=0.2))
    assert isinstance(failure, Failure)
    assert (failure.code, failure.sent) == ("connect_failed", False)
    await egress.close()


async def test_the_next_address_of_a_name_is_tried_when_one_is_down() -> None:
    async with Listener(host="127.0.0.1") as listener:
        egress = Egress(LOOPBACK, resolve=named(two_example=["127.0.0.9", "127.0.0.1"]))
        answer = await egress.call(Request("GET", f"http://two.example:{listener.port}/"))
        assert isinstance(answer, Answer)
        await egress.close()


# --- TLS ------------------------------------------------------------------------------------------


def self_signed(path: Path, name: str, *, expired: bool = False) -> Path:
    """Signed by itself; with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=-1 if expired else 1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    ("name", "expired", "trusted", "secure"),
    [
        ("api.example", False, True, True),
        ("api.example", False, False, False),  # signed by itself, and by nobody we know
        ("api.example", True, True, False),
        ("other.example", False, True, False),
    ],
)
async def test_a_server_must_prove_its_name(
    tmp_path: Path, name: str, expired: bool, trusted: bool, secure: bool
) -> None:
    certificate = self_signed(tmp_path / "certificate.pem", name, expired=expired)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(certificate)
    tls = ssl.create_default_context(cafile=str(certificate)) if trusted else None
    egress = Egress(LOOPBACK, resolve=named(api_example=["127.0.0.1"]), tls=tls)
    async with Listener(tls=serving) as listener:
        outcome = await egress.call(Request("GET", f"https://api.example:{listener.port}/"))
        await egress.close()
        assert len(listener.asked) == secure
    if secure:
        assert isinstance(outcome, Answer)
    else:
        assert isinstance(outcome, Failure)
        assert (outcome.code, outcome.sent) == ("tls_failed", False)


async def test_an_old_protocol_is_not_spoken(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path / "certificate.pem", "api.example")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old.load_cert_chain(certificate)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    trusting = ssl.create_default_context(cafile=str(certificate))
    egress = Egress(LOOPBACK, resolve=named(api_example=["127.0.0.1"]), tls=trusting)
    async with Listener(tls=old) as listener:
        outcome = await egress.call(Request("GET", f"https://api.example:{listener.port}/"))
        await egress.close()
        assert listener.asked == []
    assert isinstance(outcome, Failure)
    assert outcome.code == "tls_failed"


def test_loopback_is_loopback() -> None:
    """The tests above talk to loopback, which is what the guard would refuse."""
    assert ip_address("127.0.0.1") in LOOPBACK[0]
    assert not Egress().may_reach("127.0.0.1", 80)


# --- mail servers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "port"),
    [
        (["127.0.0.1"], 25),
        (["10.0.0.1"], 587),
        (["::ffff:169.254.169.254"], 465),
        (["93.184.215.14", "127.0.0.1"], 25),
        (["93.184.215.14"], 6379),
        (["93.184.215.14"], 443),
    ],
)
async def test_a_mail_server_inward_or_at_a_strange_port_is_not_dialled(
    found: list[str], port: int
) -> None:
    async def resolve(_host: str) -> list[str]:
        return found

    egress = Egress(resolve=resolve)
    with pytest.raises(Refused) as refused:
        await egress.dial_mail("mail.acme.test", port, owner="ws_a")
    await egress.close()
    assert not any(address in str(refused.value) for address in found)


async def test_a_mail_server_is_dialled_at_the_address_that_was_judged() -> None:
    asked: list[str] = []

    async def resolve(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with Listener() as listener:
        egress = Egress([ip_network("127.0.0.0/8")], resolve=resolve)
        sock = await egress.dial_mail("mail.acme.test", listener.port, owner="ws_a")
        assert sock.getpeername() == ("127.0.0.1", listener.port)
        sock.close()
        await egress.close()
    assert asked == ["mail.acme.test"]
