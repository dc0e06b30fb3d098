"""Requests that no sender would send, to a real server: `make -C lab fuzz-intake`.

None may be answered 5xx, none that is refused may start a run, and the ids of every 202 must be
readable at once. What hypothesis finds it makes small; the seed that is printed finds it again.
"""

from __future__ import annotations

import argparse
import hmac
import http.client
import ipaddress
import json
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from app.net.tls import system_trust
from tests.deployment import Part, answers, made, owner_of, until
from tests.servers import free_port

IN = "/v1/webhooks/in/"
SECRET = "what the fuzzer and the server share"
GOOD = b'{"email": "ada@example.com", "id": "evt_1", "price": 1.10, "list": [{"a": null}]}'
BATCH = 200  # requests between two looks at the clock
READ_A_MINUTE = 500  # of the API, which takes 600
REFUSALS = {400, 401, 404, 405, 408, 413, 415, 422, 431}
REACHED = {202, 400, 401, 404, 415, 422}  # by whatever seed, in seconds


# --- what is sent -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    hook: str  # its name
    path: bytes  # after the token
    content_type: bytes
    signature: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    is_chunked: bool
    cuts: list[tuple[int, int, bytes]]  # of the raw bytes: where, how many, what instead

    def raw(self, token: str) -> bytes:
        path = IN.encode() + token.encode() + self.path
        source = str(ipaddress.IPv4Address(secrets.randbelow(2**32))).encode()
        lines = [b"POST " + path + b" HTTP/1.1", b"Host: fuzz", b"X-Forwarded-For: " + source]
        lines += [b"Content-Type: " + self.content_type] if self.content_type else []
        lines += [b"X-Service-Signature: " + value for value in self._signatures()]
        lines += [name + b": " + value for name, value in self.headers]
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(self.body), self.body)
        if self.is_chunked and self.body:
            lines.append(b"Transfer-Encoding: chunked")
        else:
            body = self.body
            lines.append(b"Content-Length: %d" % len(body))
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + body
        for where, count, instead in self.cuts:
            place = where % len(whole)
            whole = whole[:place] + instead + whole[place + count :]
        return whole

    def _signatures(self) -> list[bytes]:
        right = b"sha256=" + hmac.digest(SECRET.encode(), self.body, "sha256").hex().encode()
        return {
            "right": [right],
            "upper": [right[:7] + right[7:].upper()],
            "twice": [right, right],
            "short": [right[:-1]],
            "wrong": [b"sha256=" + b"0" * 64],
            "none": [],
        }[self.signature]


TEXT = st.text(st.characters(codec=None, categories=None), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    TEXT,
    st.sampled_from(
        ["ada@example.com", "Ada@EXAMPLE.com ", "+14155550132", "con_x", "\ud800@x.org"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(TEXT, one, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(
    st.one_of(st.sampled_from(["email", "id", "phone", "list", "$id", ""]), TEXT),
    VALUES,
    max_size=6,
)
LITERALS = st.sampled_from(
    [
        *(b"-0", b"1e400", b"-1E-400", b"1.10", b"7" * 5_000, b"NaN", b"01", b"[" * 5_000),
        *(b"[" * 127 + b"]" * 127, b'"\\u0000"', b'"\\ud800"'),
        *(b'"\xff"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1"),
    ]
)


def written(value: Any, *, ascii_only: bool) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


def spliced(place: int, count: int, instead: bytes) -> bytes:
    place %= len(GOOD)
    return GOOD[:place] + instead + GOOD[place + count :]


BODIES = st.one_of(
    st.just(GOOD),
    st.builds(written, OBJECTS, ascii_only=st.booleans()),
    st.builds(written, VALUES, ascii_only=st.booleans()),
    st.builds(lambda x: b'{"email": "ada@example.com", "x": ' + x + b"}", LITERALS),
    st.builds(lambda x: b'{"email": ' + x + b"}", LITERALS),
    st.builds(spliced, st.integers(0, 200), st.integers(0, 9), st.binary(max_size=9)),
    st.binary(max_size=200),
)
VISIBLE = st.binary(max_size=40).map(lambda text: bytes(byte for byte in text if byte > 0x20))
NAMES = [b"Idempotency-Key", b"webhook-id", b"X-Request-Id", b"Accept", b"Forwarded"]
NAMES += [b"Content-Encoding", b"Expect", b"X-Forwarded-For", b"Origin", b"Connection", b"Upgrade"]
NAMES += [b"Transfer-Encoding", b"Content-Length", b"Host", b"Cookie", b"X-HTTP-Method-Override"]
NOT_OFTEN = st.integers(0, 9).map(lambda number: number == 0)


PATHS = st.one_of(VISIBLE, st.sampled_from([b"/", b"%00", b"?a=b"]))
MEDIA_TYPES = [b"application/json"] * 20
MEDIA_TYPES += [b"application/json; charset=utf-8", b"text/plain", b""]
SIGNATURES = ["right"] * 4 + ["upper", "twice", "short", "wrong", "none"]
HOOKS = ["open", "open", "signed", "deduped"]


@st.composite
def requests(draw: st.DrawFn, *, broken: bool) -> Request:
    """`broken`: in its framing too."""
    header = st.tuples(st.sampled_from(NAMES[: len(NAMES) if broken else 5]), VISIBLE)
    cut = st.tuples(st.integers(0, 2_000), st.integers(0, 5), st.binary(max_size=5))
    return Request(
        hook="broken" if broken else draw(st.sampled_from(HOOKS)),
        path=draw(PATHS) if draw(NOT_OFTEN) else b"",
        content_type=draw(VISIBLE if draw(NOT_OFTEN) else st.sampled_from(MEDIA_TYPES)),
        signature=draw(st.sampled_from(SIGNATURES)),
        headers=draw(st.lists(header, max_size=2)),
        body=draw(BODIES),
        is_chunked=draw(st.booleans()),
        cuts=draw(st.lists(cut, min_size=1, max_size=3)) if broken else [],
    )


# --- where it is sent ---------------------------------------------------------------------------


@dataclass(slots=True)
class Fuzzed:
    """A server under it, and the account: what was answered, and what must be there therefore."""

    api: httpx2.Client
    port: int
    tokens: dict[str, str] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    runs: dict[str, set[str]] = field(default_factory=dict)
    statuses: Counter[int | str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    reads: int = 0
    environ: dict[str, str] = field(default_factory=lambda: {"ENVIRONMENT": "sandbox"})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def hook(self, name: str, **trigger: Any) -> None:
        webhook = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
        body = {"name": name, "state": "ACTIVE", "trigger": {**webhook, **trigger}, "steps": []}
        workflow = made(self.api, "/workflows", body)
        self.ids[name] = workflow["id"]
        self.tokens[name] = workflow["trigger"]["webhookUrl"].rpartition("/")[2]
        self.runs[name] = set()

    def send(self, request: Request) -> None:
        """Raises AssertionError when the answer is one that there must not be."""
        raw = request.raw(self.tokens[request.hook])
        status, body = self._exchange(raw, ends=bool(request.cuts))
        self.statuses[status or "closed"] += 1
        assert status is not None or request.cuts, "no answer"
        if status == 202:
            receipt = json.loads(body)
            self.runs[request.hook].add(receipt["runId"])
            self._read(receipt)
        elif status is not None:
            assert status in REFUSALS or (request.cuts and (status < 500 or status == 501)), (
                status,
                body,
            )

    def _exchange(self, raw: bytes, *, ends: bool) -> tuple[int | None, bytes]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            try:
                connection.sendall(raw)
                if ends:  # a broken one may be half a request
                    connection.shutdown(socket.SHUT_WR)
                answer = http.client.HTTPResponse(connection, method="POST")
                answer.begin()
                return answer.status, answer.read()
            except (http.client.BadStatusLine, ConnectionError):
                return None, b""

    def _read(self, receipt: dict[str, str]) -> None:
        """Read the run and the contact at once, as often as the API lets us."""
        if self.reads + 2 > READ_A_MINUTE * ((time.monotonic() - self.began) / 60 + 0.2):
            return
        self.reads += 2
        for url in (f"/runs/{receipt['runId']}", f"/contacts/{receipt['contactId']}"):
            answer = self.api.get(url)
            assert answer.status_code == 200, (url, answer.text)

    def balance(self) -> None:
        """No run but those that were answered for; of a broken request the answer may be lost."""
        for name, accepted in self.runs.items():
            there = set(self._all_runs(self.ids[name]))
            assert accepted <= there, (name, accepted - there)
            assert name == "broken" or there <= accepted, (name, there - accepted)

    def _all_runs(self, workflow_id: str) -> Iterator[str]:
        cursor = ""
        while cursor is not None:
            url = f"/runs?workflowId={workflow_id}&limit=200" + (cursor and f"&cursor={cursor}")
            answer = self.api.get(url)
            if answer.status_code == 429:
                time.sleep(int(answer.headers["Retry-After"]))
                continue
            page = answer.json()
            yield from (run["id"] for run in page["data"])
            cursor = page["nextCursor"]


@contextmanager
def target(directory: Path) -> Iterator[Fuzzed]:
    """The whole service in one process, on SQLite; every request from an address of its own."""
    port = free_port()
    environ = {"PORT": str(port), "HOST": "127.0.0.1", "TRUSTED_HOPS": "1", "LOG_LEVEL": "error"}
    part = Part("run", environ, directory)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), "it is ready", part)
        with httpx2.Client(verify=system_trust()) as nobody:
            fuzzed = Fuzzed(nobody, port)
            with owner_of(fuzzed, "Acme") as fuzzed.api:  # type: ignore[arg-type]  # the url and environ do
                yield fuzzed
        assert "Traceback" not in part.text, part.text[-3_000:]
    finally:
        part.kill()


def fuzz(directory: Path, *, seconds: float, first_seed: int) -> Fuzzed:
    """Raises whatever hypothesis made of the first failure."""
    with target(directory) as fuzzed:
        fuzzed.hook("open")
        fuzzed.hook("signed", signingSecret=SECRET)
        fuzzed.hook("deduped", dedupePath="id", contactPath="email")
        fuzzed.hook("broken")
        number = first_seed
        while time.monotonic() - fuzzed.began < seconds:
            _batch(fuzzed, number)
            number += 1
        fuzzed.balance()
        return fuzzed


def _batch(fuzzed: Fuzzed, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(st.one_of(requests(broken=False), requests(broken=False), requests(broken=True)))
    def one(request: Request) -> None:
        fuzzed.send(request)

    one()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given_ = parser.parse_args()
    print(f"seed {given_.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        fuzzed = fuzz(Path(directory), seconds=given_.seconds, first_seed=given_.seed)
    for status, count in sorted(fuzzed.statuses.items(), key=str):
        print(f"{status!s:>8} {count:>8}")
    print(f"{fuzzed.statuses.total()} requests, {fuzzed.reads} ids read at once, 0 answers 5xx,")
    print(f"{sum(map(len, fuzzed.runs.values()))} runs, every one of them answered for")
    assert fuzzed.statuses.keys() >= REACHED, "not every kind of request was sent"


if __name__ == "__main__":
    main()
