"""Every way that we know of to have us call where nobody may be called, tried by the steps of a
workflow and by outbound events, at listeners that count their connections.

A line is named by the number it has in the catalogue of attacks. The name server is a table: what
it does not know, the system is asked for. 127.0.0.2 is opened, as EGRESS_ALLOW would, so that there
is somebody to talk to; 127.0.0.1 is not.
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from app.config.settings import Settings
from app.machine.nodes.http_request import RESERVED
from app.main import build_process
from app.net.egress import KEPT_BYTES, Answer, Egress, Request
from app.process import Process
from app.routes import event_endpoints
from tests import cast as company
from tests import test_loops
from tests.cast import Cast, settle
from tests.conftest import Records
from tests.listener import Asked, Listener, says
from tests.net import test_egress
from tests.net.test_egress import FORBIDDEN, SPELLINGS
from tests.outbound import test_deliver
from tests.servers import free_port

OPEN = "127.0.0.2"
INSIDE = "127.0.0.1"
INWARD = {"refused", "http_refused", "http_invalid", "refused_target", "invalid_request"}
# A spelling may also be one that nothing on this machine makes an address of.
NOWHERE = INWARD | {"http_unreachable", "connect_failed"}


@dataclass(slots=True)
class Names:
    """A name server; what it says the next time may be something else."""

    table: dict[str, Callable[[], Sequence[str]]] = field(default_factory=dict)
    system: Egress = field(default_factory=Egress)

    async def resolve(self, host: str) -> Sequence[str]:
        known = self.table.get(host)
        return known() if known else await self.system._resolver.resolve(host, host)


@dataclass(frozen=True, slots=True)
class Ways:
    """Ed's workflows and Adam's endpoints; what became of what they were told to call."""

    cast: Cast
    process: Process
    names: Names
    folder: Path
    records: Records
    numbers: Iterator[int] = field(default_factory=count)

    async def steps(self, urls: Sequence[str], **config: Any) -> list[dict[str, Any]]:
        """Each step as the run's record has it. The URL comes in the trigger's body, so that no
        check of a definition stands before the call."""
        asking = [
            {
                "type": "http_request",
                "method": "POST",
                "url": f"{{{{trigger.urls[{number}]}}}}",
                "failed": [{"type": "add_tag", "tag": "no"}],  # and on to the next
                **config,
            }
            for number in range(len(urls))
        ]
        made = await self.cast.ed.made(
            "/workflows", {"name": "W", "state": "ACTIVE", "steps": asking}
        )
        contact = await self.contact()
        started = await self.cast.ed.made(
            f"/workflows/{made['id']}/runs", {"contactId": contact, "data": {"urls": list(urls)}}
        )
        for _ in range(len(urls) + 1):
            await settle(self.process, rounds=20 + 4 * len(urls))
            async with self.process.database.write() as db:
                # What surely did not arrive is tried again later; its last try is now.
                await db.execute("UPDATE calls SET tries = 2")
                await db.execute("UPDATE jobs SET wake_at = :now")
        run = await self.cast.vic.read(f"/runs/{started['runId']}")
        assert run["status"] == "COMPLETED", run
        return [step for step in run["steps"] if step["kind"] == "http_request"]

    async def endpoints(self, urls: Sequence[str]) -> list[dict[str, Any] | None]:
        """The one attempt of each; None for a URL that was refused at once."""
        found: list[dict[str, Any] | None] = []
        for first in range(0, len(urls), event_endpoints.MOST):
            some = urls[first : first + event_endpoints.MOST]
            made = [await self.cast.adam.post("/event-endpoints", {"url": url}) for url in some]
            await self.contact()
            await settle(self.process)
            for response in made:
                if response.status_code == 422:
                    found.append(None)
                    continue
                path = f"/event-endpoints/{response.json()['id']}"
                [attempt] = (await self.cast.vic.read(f"{path}/attempts"))["data"]
                found.append(attempt)
                assert (await self.cast.adam.delete(path)).status_code == 204
        return found

    async def contact(self) -> str:
        address = f"n{next(self.numbers)}@example.com"
        return str((await self.cast.ed.made("/contacts", {"email": address}))["id"])

    async def outcomes(self, urls: Sequence[str]) -> dict[str, set[str | None]]:
        """Find the code that each URL came to, by both ways."""
        steps, attempts = await self.steps(urls), await self.endpoints(urls)
        return {
            url: {step["reason"] and step["reason"]["code"], _code(attempt)}
            for url, step, attempt in zip(urls, steps, attempts, strict=True)
        }


def _code(attempt: Mapping[str, Any] | None) -> str | None:
    if attempt is None:
        return "refused"
    return None if attempt["reason"] is None else str(attempt["reason"]["code"])


def url_of(address: str, port: int | None = None) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/" if port else f"http://{host}/"


# --- the lines ------------------------------------------------------------------------------------


async def no_address_inward(ways: Ways) -> None:
    """I1. And a listener that is open shows that there would have been a connection."""
    async with Listener() as inside, Listener(host=OPEN) as open:
        urls = [*map(url_of, FORBIDDEN), url_of(INSIDE, inside.port)]
        for url, codes in (await ways.outcomes(urls)).items():
            assert codes <= INWARD, (url, codes)
        assert inside.connections == 0
        assert await ways.outcomes([open.url]) == {open.url: {None}}
        assert open.connections == 2


async def no_metadata(ways: Ways) -> None:
    ways.names.table["metadata.google.internal"] = lambda: ["169.254.169.254"]
    urls = [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/latest/meta-data/",
        "http://100.100.100.200/latest/",
        "http://192.0.0.192/opc/v2/",
        "http://metadata.google.internal/computeMetadata/v1/",
    ]
    for url, codes in (await ways.outcomes(urls)).items():
        assert codes <= INWARD, (url, codes)


async def no_spelling_of_loopback(ways: Ways) -> None:
    async with Listener() as inside:
        urls = []
        for spelling in SPELLINGS:
            authority, hash, rest = spelling.partition("#")
            urls.append(f"http://{authority}:{inside.port}{hash}{rest}/")
        for url, codes in (await ways.outcomes(urls)).items():
            assert codes <= NOWHERE, (url, codes)
        assert inside.connections == 0


async def no_name_that_leads_inward(ways: Ways) -> None:
    """I4: one address that leads inward is enough, however the name server hides it."""
    answers: Mapping[str, Sequence[str]] = {
        "private.example": [INSIDE],
        "both.example": [OPEN, INSIDE],
        "six.example": ["::1"],
        "mapped.example": ["::ffff:127.0.0.1"],
        "chain.example": ["10.0.0.1"],
    }
    async with Listener() as inside:
        for name, found in answers.items():
            ways.names.table[name] = partial(list, found)
        urls = [f"http://{name}:{inside.port}/" for name in answers]
        for url, codes in (await ways.outcomes(urls)).items():
            assert codes <= INWARD, (url, codes)
        assert inside.connections == 0


async def no_name_that_changes_its_mind(ways: Ways) -> None:
    """I4: open when it is judged, inside ever after."""
    asked = count()
    ways.names.table["rebind.example"] = lambda: [OPEN if next(asked) % 2 == 0 else INSIDE]
    port = free_port()
    async with Listener(host=OPEN, port=port) as open, Listener(port=port) as inside:
        await ways.steps([f"http://rebind.example:{port}/"] * 10)
        await ways.endpoints([f"http://rebind.example:{port}/"] * 10)
        assert inside.connections == 0
        assert open.connections == 10


async def no_redirect_is_followed(ways: Ways) -> None:
    async with Listener() as inside:
        others = ("file:///etc/passwd", "gopher://127.0.0.1/", "ftp://x.test/")
        ways_to = [(status, inside.url) for status in ("301", "302", "303", "307", "308")]
        for status, target in (*ways_to, *(("302", other) for other in others)):
            async with Listener(says(status=f"{status} Go", Location=target), host=OPEN) as open:
                codes = await ways.outcomes([open.url])
                assert codes == {open.url: {"http_status"}}, (status, target)
                assert open.connections == 2
        assert inside.connections == 0


SCHEMES = ("file", "gopher", "ftp", "data", "unix", "javascript", "ws", "dict", "ldap")


async def no_other_scheme_and_no_other_port(ways: Ways) -> None:
    async with Listener() as inside:
        urls = [f"{scheme}://{INSIDE}:{inside.port}/etc/passwd" for scheme in SCHEMES]
        urls += [f"http://1.1.1.1:{port}/" for port in (22, 25, 5432, 6379)]
        for url, codes in (await ways.outcomes(urls)).items():
            assert codes <= INWARD, (url, codes)
        assert inside.connections == 0
    for scheme in SCHEMES:
        step = {"type": "http_request", "method": "GET", "url": f"{scheme}://x.test/"}
        new = {"name": "W", "state": "ACTIVE", "steps": [step]}
        assert (await ways.cast.ed.post("/workflows", new)).status_code == 422, scheme


async def nothing_of_the_environment(ways: Ways) -> None:
    """I7."""
    with pytest.MonkeyPatch.context() as patch:
        async with Listener() as proxy, Listener(host=OPEN) as open:
            for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
                patch.setenv(name, proxy.url)
            patch.setenv("NO_PROXY", "")
            netrc = ways.folder / "netrc"
            netrc.write_text(f"machine {OPEN} login ada password canary\n")
            patch.setenv("NETRC", str(netrc))
            assert await ways.outcomes([open.url]) == {open.url: {None}}
            assert (proxy.connections, open.connections) == (0, 2)
            assert {asked.header("authorization") for asked in open.asked} == {None}


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


async def _headers(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(100_000)))
    await writer.drain()


async def no_answer_is_too_much(ways: Ways) -> None:
    """I8: a gigabyte, a bomb and headers without end; and a drip costs its time and no more."""
    bomb = says(gzip.compress(b"x" * 10_000_000), Content_Encoding="gzip")
    for respond in (_for_ever, bomb):
        async with Listener(respond, host=OPEN) as open:
            [step] = await ways.steps([open.url])
            assert len(step["output"]["body"]) == KEPT_BYTES
            assert step["output"]["truncated"] is True
            [attempt] = await ways.endpoints([open.url])
            assert attempt is not None
            assert len(attempt["response"]["body"]) == 1_024
    async with Listener(_headers, host=OPEN) as open:
        assert await ways.outcomes([open.url]) == {open.url: {"http_broken", "broken_answer"}}
    async with Listener(_drip, host=OPEN) as open:
        [step] = await ways.steps([open.url], timeoutMs=200)
        assert step["reason"]["code"] == "http_timeout"


async def no_header_of_ours(ways: Ways) -> None:
    """I10: refused when it is saved; what Liquid makes of a value, before it is sent."""
    call = {"type": "http_request", "method": "GET", "url": url_of(OPEN)}
    forged = ["X-A\r\nX-B", "X A", "X-A:", "", "X-\u00e4", *map(str.title, sorted(RESERVED))]
    for name in forged:
        for state in ("DRAFT", "ACTIVE"):
            new = {"name": "W", "state": state, "steps": [{**call, "headers": {name: "1"}}]}
            response = await ways.cast.ed.post("/workflows", new)
            assert response.status_code == 422, (name, state)
    async with Listener(host=OPEN) as open:
        for value in ("1\r\nX-B: 2", "1\nX-B: 2", "1\x0bX", "\u010a"):
            steps = await ways.steps([open.url], headers={"X-A": f"{value}{{{{trigger.none}}}}"})
            assert [step["reason"]["code"] for step in steps] == ["http_invalid"], value
        assert open.connections == 0


async def no_server_without_its_proof(ways: Ways) -> None:
    """I11: nobody whom we trust has signed the certificate."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(test_egress.self_signed(ways.folder / "tls.pem", OPEN))
    async with Listener(host=OPEN, tls=serving) as open:
        assert await ways.outcomes([open.url]) == {open.url: {"http_unreachable", "tls_failed"}}
        assert open.asked == []


async def _banner(_asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    await writer.drain()


async def no_word_of_who_is_there(ways: Ways) -> None:
    """I12: a closed port inside, an open one, and one that no rule forbids are told alike."""
    ways.names.table["inside.example"] = lambda: ["10.1.2.3"]
    async with Listener() as inside, Listener(_banner, host=OPEN) as ssh:
        closed = free_port()
        inward = [url_of(INSIDE, inside.port), url_of(INSIDE, closed), "http://inside.example/"]
        listed = []
        for url in (*inward, ssh.url):
            [step], [attempt] = await ways.steps([url]), await ways.endpoints([url])
            listed.append((step["reason"], attempt and attempt["reason"]))
            for reason in listed[-1]:
                words = str(reason and reason["detail"])
                assert not any(word in words for word in (INSIDE, OPEN, "10.1.2.3", "SSH")), url
        assert len({str(step) for step, _ in listed[:3]}) == 1
        assert inside.connections == 0


async def no_credential_of_a_url_is_told(ways: Ways) -> None:
    """I13: it becomes a header. An endpoint may have none at all."""
    async with Listener(host=OPEN) as open:
        url = open.url.replace("//", "//ada:canary@")
        [step] = await ways.steps([url])
        assert open.asked[0].header("authorization") == "Basic YWRhOmNhbmFyeQ=="
        assert "canary" not in str(step)
        assert await ways.endpoints([url]) == [None]


async def nobody_but_the_operator_opens_a_network(ways: Ways) -> None:
    """I14: by the environment, which is told at the start."""
    for body in ({"egressAllow": ["127.0.0.0/8"]}, {"EGRESS_ALLOW": "127.0.0.1"}):
        assert (await ways.cast.olivia.patch("/settings/workspace", body)).status_code == 422
    environ = {"SECRET_KEY": "a secret key that only the tests have"}
    for allowed, networks in (({}, []), ({"EGRESS_ALLOW": INSIDE}, [[f"{INSIDE}/32"]])):
        before = len(ways.records())
        settings = Settings.from_environ({**environ, **allowed})
        async with build_process(ways.process.database, settings) as process, Listener() as inside:
            answer = await process.egress.call(Request("GET", inside.url))
            assert isinstance(answer, Answer) is bool(allowed)
            assert inside.connections == len(allowed)
        listed = [line["networks"] for line in ways.records()[before:] if "networks" in line]
        assert listed == networks


Line: TypeAlias = Callable[[Ways], Awaitable[None]]
LINES: dict[str, Line] = {
    "I1": no_address_inward,
    "I2": no_metadata,
    "I3": no_spelling_of_loopback,
    "I4": no_name_that_leads_inward,
    "I4 rebinding": no_name_that_changes_its_mind,
    "I5": no_redirect_is_followed,
    "I6": no_other_scheme_and_no_other_port,
    "I7": nothing_of_the_environment,
    "I8": no_answer_is_too_much,
    "I10": no_header_of_ours,
    "I11": no_server_without_its_proof,
    "I12": no_word_of_who_is_there,
    "I13": no_credential_of_a_url_is_told,
    "I14": nobody_but_the_operator_opens_a_network,
}
# More of it, or what needs more than one process or one answer.
ELSEWHERE: Mapping[str, Sequence[Callable[..., object]]] = {
    "I4": [test_egress.test_a_thousand_rebinding_names_reach_only_what_was_judged],
    "I9": [
        test_loops.test_a_workflow_that_calls_its_own_webhook_ends,
        test_deliver.test_a_chain_of_events_ends_like_any_other,
    ],
    "I11": [
        test_egress.test_a_server_must_prove_its_name,
        test_egress.test_an_old_protocol_is_not_spoken,
    ],
    "I13": [test_egress.test_credentials_are_in_no_log_record_or_repr],
}


@pytest.fixture
async def names() -> AsyncIterator[Names]:
    names = Names()
    yield names
    await names.system.close()


@pytest.fixture
async def open_process(process: Process, names: Names) -> AsyncIterator[Process]:
    egress = Egress([ip_network(OPEN)], resolve=names.resolve)
    yield replace(process, egress=egress)
    await egress.close()


@pytest.fixture
async def client(open_process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    async with company.client(open_process) as client:
        yield client


def test_no_line_of_the_catalogue_is_left_out() -> None:
    numbered = {f"I{number}" for number in range(1, 15)}
    assert {line.split()[0] for line in LINES} | ELSEWHERE.keys() == numbered


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_nobody_is_called_who_may_not_be(
    line: str,
    cast: Cast,
    open_process: Process,
    names: Names,
    records: Records,
    tmp_path: Path,
    database_url: str,
) -> None:
    await LINES[line](Ways(cast, open_process, names, tmp_path, records))
