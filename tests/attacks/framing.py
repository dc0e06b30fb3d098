"""A: the intake's HTTP layer."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from contextlib import suppress
from pathlib import Path

from tests.attacks.target import (
    EVENT,
    IN,
    JSON,
    UNKNOWN,
    Line,
    Target,
    anonymous,
    chunked,
    payload_of,
    read,
    request,
    signed,
)

CAP = 1_048_576
CHUNKED = "Transfer-Encoding: chunked"
MEMORY = 300 * 1_048_576  # of each process, on a machine that gives it 512 MB


async def other_methods(target: Target) -> None:
    hook = await target.hook()
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"):
        answer = await hook.post(method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "POST"), method
    options = await hook.post(method="OPTIONS")
    assert (options.status, options.headers["allow"]) == (204, "POST")


async def trailing_slash(target: Target) -> None:
    hook = await target.hook()
    for path in (hook.path + "/", hook.path + "//", hook.path + "/?a=b"):
        answer = await hook.sent(request(path, EVENT, JSON))
        assert (answer.status, payload_of(answer)["code"]) == (404, "not_found"), path


async def tokens_that_are_none(target: Target) -> None:
    hook = await target.hook()
    token = hook.token
    unknown = anonymous(await target.exchange(request(IN + UNKNOWN, EVENT, JSON)))
    for path in (
        *(token[:-1], token + "A", "A" * 10_000, token.swapcase(), "", "/" + token),
        *(token + ";x", token + "%2e%2e", "..%2f" + token, "%2e%2e/" + token, token + "%20"),
        *("'%20OR%20'1'='1", "%FF" * 30, token[:-3] + "%C3%A9", token[:-1] + "%D9%A3"),
        *(token + "%00", "%00" * 30, token[:-1] + "%00", token + "%0A", token + "%0d%0a"),
    ):
        assert anonymous(await hook.sent(request(IN + path, EVENT, JSON))) == unknown, path
    for odd in (IN.encode() + b"\xe9" * 30, IN.encode() + "ü".encode() * 15):
        raw = request("PATH", EVENT, JSON).replace(b"PATH", odd)
        assert (await hook.sent(raw)).status in (400, 404)


async def json_in_other_words(target: Target) -> None:
    hook = await target.hook()
    for media_type in (
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        'application/json;charset="UTF-8"',
        "application/json ",
        "application/json;profile=x",
    ):
        await hook.takes(EVENT, f"Content-Type: {media_type}", json=False)


async def not_json(hook_of: Target, *media_types: str) -> None:
    hook = await hook_of.hook()
    for media_type in media_types:
        named = f"Content-Type: {media_type}"
        await hook.refuses(415, "unsupported_media_type", EVENT, named, json=False)


async def json_of_other_names(target: Target) -> None:
    await not_json(
        target,
        "application/problem+json",
        "application/vnd.api+json",
        "application/cloudevents+json",
    )


async def other_media_types(target: Target) -> None:
    await not_json(
        target,
        *("text/json", "text/plain", "application/x-www-form-urlencoded", ""),
        *("multipart/form-data; boundary=x", "application/jsonx", "xapplication/json"),
    )
    hook = await target.hook()
    await hook.refuses(415, "unsupported_media_type", EVENT, json=False)


async def other_charsets(target: Target) -> None:
    await not_json(
        target,
        "application/json; charset=utf-16",
        "application/json;charset=iso-8859-1",
        "application/json; charset=utf-8; charset=utf-16",
    )


async def two_media_types(target: Target) -> None:
    hook = await target.hook()
    for other in ("text/plain", "application/json"):
        await hook.refuses(415, "unsupported_media_type", EVENT, f"Content-Type: {other}")


async def two_lengths(target: Target) -> None:
    hook = await target.hook()
    length = len(EVENT)
    for lines in (
        [f"Content-Length: {length - 1}", f"Content-Length: {length}"],
        [f"Content-Length: {length}", f"Content-Length: {length + 1}"],
        [f"Content-Length: {length}, {length - 1}"],
        [f"Content-Length: +{length}"],
        [f"Content-Length: -{length}"],
        ["Content-Length: 0x2b"],
        ["Content-Length: many"],
    ):
        answer = await hook.post(EVENT, *lines, length=False)
        assert (answer.status, answer.headers["connection"]) == (400, "close"), lines


async def two_framings(target: Target) -> None:
    """Hide a second request in what one reader ends by its length and the next by its chunks."""
    hook = await target.hook()
    hidden = request(hook.path, EVENT, JSON)
    for body in (chunked(EVENT), chunked(EVENT) + hidden):
        answer = await hook.post(body, CHUNKED)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
    # Never as if it were not there: the next in line may know it.
    for coding in ("gzip, chunked", "chunked, identity", "xchunked", "chunked, chunked"):
        answer = await hook.post(chunked(EVENT), f"Transfer-Encoding: {coding}", length=False)
        assert answer.status in (400, 501), coding


async def chunks_of_all_sizes(target: Target) -> None:
    hook = await target.hook(signingSecret="a shared secret of good length")
    bytewise = [EVENT[n : n + 1] for n in range(len(EVENT))]
    for body in (
        chunked(EVENT),
        chunked(*bytewise),
        chunked(EVENT[:1], EVENT[1:], extension=b";name=value"),
        chunked(EVENT, trailer=b"X-Checksum: 5\r\nX-Service-Signature: sha256=0\r\n"),
        chunked(EVENT).replace(b"2b", b"0002B"),
    ):
        await hook.takes(body, CHUNKED, signed(EVENT), length=False)


async def broken_chunks(target: Target) -> None:
    hook = await target.hook()
    for body in (
        b"XY\r\n" + EVENT + b"\r\n0\r\n\r\n",
        b"-5\r\n" + EVENT,
        b"0x2b\r\n" + EVENT + b"\r\n0\r\n\r\n",
        b"2b" + b"0" * 100 + b"\r\n" + EVENT,
        b"2a\r\n" + EVENT + b"\r\n0\r\n\r\n",  # one less than there is
    ):
        assert (await hook.post(body, CHUNKED, length=False)).status == 400, body
    with suppress(asyncio.IncompleteReadError):  # an end without the last chunk: 400, or nothing
        cut = chunked(EVENT).removesuffix(b"0\r\n\r\n")
        assert (await hook.post(cut, CHUNKED, length=False, ends=True)).status == 400


async def ends_of_lines(target: Target) -> None:
    """Read as everybody reads them, or not at all: the signature shows which header was meant."""
    hook = await target.hook(signingSecret="a shared secret of good length")
    good = request(hook.path, EVENT, JSON, signed(EVENT))
    bare = good.replace(b"\r\n", b"\n")
    assert (await hook.sent(bare)).status in (202, 400)
    folded = good.replace(b": sha256=", b":\r\n sha256=")
    assert (await hook.sent(folded)).status in (202, 400)
    for raw in (
        good.replace(b"Signature: ", b"Signature : "),
        good.replace(b"sha256=", b"sha256=\r"),
        good.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\n X: y\r\n"),
    ):
        assert (await hook.sent(raw)).status in (400, 401), raw


async def nul_in_a_header(target: Target) -> None:
    hook = await target.hook()
    for line in (b"X-A: a\0b", b"X\0A: b", b"X-A: a\x0bb\x7f"):
        assert (await hook.post(EVENT, line)).status == 400, line


async def long_heads(target: Target) -> None:
    hook = await target.hook()
    assert (await hook.post(EVENT, "X-A: " + "a" * 70_000)).status in (400, 431)
    many = [f"X-{n}: {'a' * 150}" for n in range(500)]
    assert (await hook.post(EVENT, *many)).status in (400, 431)


async def empty_bodies(target: Target) -> None:
    hook = await target.hook()
    await hook.refuses(400, "malformed_json", b"")
    await hook.refuses(400, "malformed_json", b"", length=False)
    await hook.refuses(400, "malformed_json", chunked(), CHUNKED, length=False)


async def sizes(target: Target) -> None:
    hook = await target.hook()
    await hook.takes(padded(CAP))
    for size in (CAP + 1, 10_000_000):
        await hook.refuses(413, "body_too_large", padded(size))
    await hook.takes(chunked(padded(CAP)), CHUNKED, length=False)
    await hook.refuses(413, "body_too_large", chunked(padded(CAP + 1)), CHUNKED, length=False)
    absurd = "Content-Length: 99999999999"
    await hook.refuses(413, "body_too_large", EVENT, absurd, length=False)


async def memory(target: Target) -> None:
    hook = await target.hook()
    await hook.refuses(413, "body_too_large", padded(30_000_000))
    pieces = [b"x" * 100_000] * 12  # more than may be, from each of them
    answers = await asyncio.gather(
        *(hook.post(chunked(*pieces), CHUNKED, length=False) for _ in range(50))
    )
    # 503 where they come so fast that the process holds as many bodies as it may.
    assert {413} <= {answer.status for answer in answers} <= {413, 503}
    for part in target.parts:
        assert peak_memory(part.process.pid) < MEMORY


def padded(length: int) -> bytes:
    return b'{"email": "ada@example.com", "pad": "'.ljust(length - 2, b"x") + b'"}'


def peak_memory(process_id: int) -> int:
    """Find the largest memory of a process and its children, in bytes; 0 where the system has
    none."""
    largest = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            named = dict(
                line.split(":", 1) for line in status.read_text().splitlines() if ":" in line
            )
            if str(process_id) in (named["Pid"].strip(), named["PPid"].strip()):
                largest = max(largest, int(named["VmHWM"].split()[0]) * 1024)
    return largest


async def held_back(target: Target) -> None:
    """Hold a body back: an unknown token is refused by the head, and nothing is read or kept."""
    length = "Content-Length: 200000"
    for path in (IN + UNKNOWN, f"/v1/callbacks/twilio/{UNKNOWN}", "/v1/callbacks/resend/abc"):
        raw = request(path, b"", JSON, length, length=False) + b"{"
        answer = await target.exchange(raw)
        assert (answer.status, payload_of(answer)["code"]) == (404, "not_found"), path


async def methods_in_lower_case(target: Target) -> None:
    """Send methods in lower case, which are others (RFC 9110 §9.1), as a next reader may not
    know."""
    hook = await target.hook()
    for method in ("post", "Post"):
        reader, writer = await target.connect()
        writer.write(request(hook.path, EVENT, JSON, method=method))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 501 "), method
        writer.close()


async def chunks_on_1_0(target: Target) -> None:
    hook = await target.hook()
    for headers in ((JSON, CHUNKED), (JSON, CHUNKED, "Connection: keep-alive")):
        raw = request(hook.path, chunked(EVENT), *headers, length=False, version="1.0")
        answer = await hook.sent(raw)
        assert (answer.status, answer.headers["connection"]) == (400, "close")


async def upgrades(target: Target) -> None:
    """Ask for upgrades: to nothing, whatever they are called; and every such connection ends."""
    versions = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 99", "Content-Length: 9")
    for version in versions:
        for number in ("1.0", "1.1"):
            upgrade = ("Connection: upgrade", "Upgrade: websocket", version)
            raw = request("/healthz", b"", *upgrade, method="GET", length=False, version=number)
            reader, writer = await target.connect()
            writer.write(raw)
            async with asyncio.timeout(PATIENCE):
                assert (await reader.read()).startswith(b"HTTP/1.1 200 "), (version, number)
            writer.close()


async def encoded_bodies(target: Target) -> None:
    hook = await target.hook()
    bomb = gzip.compress(padded(10_000_000))
    for coding, body in (
        ("gzip", gzip.compress(EVENT)),
        ("gzip", bomb),
        ("deflate", zlib.compress(EVENT)),
        ("br", EVENT),
        ("identity", EVENT),
    ):
        await hook.refuses(415, "unsupported_media_type", body, f"Content-Encoding: {coding}")
    await hook.refuses(400, "malformed_json", gzip.compress(EVENT))


async def expectations(target: Target) -> None:
    hook = await target.hook()
    expect = "Expect: 100-continue"
    reader, writer = await target.connect()
    writer.write(request(hook.path, EVENT, JSON, expect).removesuffix(EVENT))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(EVENT)
    hook.accepted.append(payload_of(await read(reader)))
    writer.close()
    reader, writer = await target.connect()
    large = f"Content-Length: {CAP + 1}"
    writer.write(request(hook.path, b"", JSON, expect, large, length=False))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413 ")
    writer.close()


async def hosts(target: Target) -> None:
    hook = await target.hook()
    await hook.takes(EVENT, host=None, version="1.0")
    for host in ("evil.example", "evil.example:99", "127.0.0.1"):
        await hook.takes(EVENT, "X-Forwarded-Host: evil.example", host=host)
        refused = await target.exchange(request(IN + UNKNOWN, EVENT, JSON, host=host))
        assert b"evil" not in refused.body + repr(refused.headers).encode()
    whole = request(f"http://evil.example{hook.path}", EVENT, JSON)
    assert (await hook.sent(whole)).status == 202  # a server must take it (RFC 9112 §3.2.2)
    answer = await hook.post(EVENT, "Host: evil.example")
    assert answer.status == 400
    shown = (await target.api.get(f"/workflows/{hook.id}")).json()
    assert shown["trigger"]["webhookUrl"].startswith(f"http://127.0.0.1:{target.port}/")


async def slow_clients(target: Target) -> None:
    """Last of its kind: they have been there from the beginning, and slowed nobody."""
    async with asyncio.timeout(PATIENCE):
        for reader, writer in target.slow:
            with suppress(ConnectionError):
                answer = await reader.read()  # until it is closed
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
            writer.close()
    hook = await target.hook()
    await hook.takes()


PATIENCE = 12.0
MANY = 300


async def one_connection(target: Target) -> None:
    """Hundreds of requests without waiting for an answer, among them events."""
    hook = await target.hook()
    reader, writer = await target.connect()
    for number in range(MANY):
        path = hook.path if number % 10 == 0 else IN + UNKNOWN
        writer.write(request(path, EVENT, JSON, f"X-Request-Id: {number:020}"))
    statuses = []
    for number in range(MANY):
        answer = await read(reader)
        assert answer.headers["x-request-id"] == f"{number:020}"
        statuses.append(answer.status)
        if answer.status == 202:
            hook.accepted.append(payload_of(answer))
    writer.close()
    # Events of a webhook that is known are counted apart from tries at unknown ones.
    assert statuses[::10] == [202] * (MANY // 10)
    tries = [status for n, status in enumerate(statuses) if n % 10]
    assert tries == [404] * 120 + [429] * (len(tries) - 120)


async def http_2(target: Target) -> None:
    """Speak HTTP/2, which there is not: nothing of it is read beyond the preface."""
    settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    reader, writer = await target.connect()
    with suppress(ConnectionError):
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings * 10_000)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 400 "), answer[:100]
    writer.close()
    hook = await target.hook()
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    await hook.takes(EVENT, *upgrade)


async def headers_of_answers(target: Target) -> None:
    hook = await target.hook()
    answers = [await hook.post(EVENT, "X-Request-Id: " + "a" * 20) for _ in range(1)]
    answers += [await hook.post(b"{", "X-Request-Id: " + "a" * 20)]
    for answer in answers:
        assert "server" not in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-request-id"] == "a" * 20
        assert hook.token not in f"{answer.headers}{answer.body!r}"


async def gone_halfway(target: Target) -> None:
    hook = await target.hook()
    for raw in (
        request(hook.path, EVENT, JSON)[:-10],
        request(hook.path, chunked(EVENT), JSON, CHUNKED, length=False)[:-20],
        request(hook.path, EVENT, JSON)[:60],
    ):
        _, writer = await target.connect()
        writer.write(raw)
        await writer.drain()
        writer.transport.abort()
    await hook.takes()
    for part in target.parts:
        assert '"level": "error"' not in part.text
        assert '"level":"error"' not in part.text
        assert "Traceback" not in part.text


LINES: dict[str, Line] = {
    "A1": other_methods,
    "A1 in lower case": methods_in_lower_case,
    "A2": trailing_slash,
    "A3": tokens_that_are_none,
    "A4": json_in_other_words,
    "A5": json_of_other_names,
    "A6": other_media_types,
    "A7": other_charsets,
    "A8": two_media_types,
    "A9": two_lengths,
    "A10": two_framings,
    "A10 on 1.0": chunks_on_1_0,
    "A11": chunks_of_all_sizes,
    "A12": broken_chunks,
    "A13": ends_of_lines,
    "A14": nul_in_a_header,
    "A15": long_heads,
    "A16": empty_bodies,
    "A17": sizes,
    "A17 in parallel": memory,
    "A17 held back": held_back,
    "A18": encoded_bodies,
    "A19": expectations,
    "A20": hosts,
    "A21 upgrades": upgrades,
    "A22": one_connection,
    "A23": http_2,
    "A24": headers_of_answers,
    "A25": gone_halfway,
}
