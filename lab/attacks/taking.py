"""Section A of the defects: what one takes from others, up to A7."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx2

from lab.attacks import connections
from lab.attacks.connections import KINDS, UNREAD
from lab.attacks.lines import Seen, Skipped, line
from lab.attacks.staging import (
    Stage,
    code_of,
    event,
    load,
    pids,
    read,
    run_of,
    unique,
    words_of,
    workflow,
)
from lab.attacks.surroundings import (
    NAMES,
    answer,
    listening,
)
from lab.bench import neighbours
from lab.bench.neighbours import percentile
from tests.deployment import made, until

SHORT = 10.0  # seconds of what lab.bench.neighbours does for a minute
SOON_SECONDS = 5.0  # for what waits behind one job of others at most
ROOT_LIMIT = 1_000


@line("A1", "400 is sent and the connection never closes")
def connections_of_every_kind_end(at: Stage) -> Seen:
    kinds = [kind for kind in KINDS if kind != UNREAD]
    held = connections.hold_all(at.service.port, 300, kinds)
    longest = max(kind.longest for kind in held.values())
    never = sum(kind.closed["NEVER"] for kind in held.values())
    opened = sum(kind.opened for kind in held.values())
    return f"{opened} of {len(kinds)} kinds, {never} kept, the last ended after {longest:.1f} s", (
        opened == 300 and never == 0
    )


def _beside(at: Stage, attack: str) -> tuple[str, bool]:
    noticed = neighbours.stage(at.service, pids(at.service), attack, SHORT)
    p99, slowest = percentile(noticed.events, 0.99), max(noticed.events)
    seen = (
        f"{len(noticed.events)} events p99 {p99:.2f} s, slowest {slowest:.2f} s,"
        f" {sum(noticed.refused.values())} refused; /healthz {max(noticed.probes):.2f} s,"
        f" light preview {max(noticed.previews):.2f} s; +{noticed.growth:.0f} MB; {load()}"
    )
    soon = p99 <= neighbours.MOST_SECONDS and max(noticed.previews) <= SOON_SECONDS
    return seen, soon and noticed.growth <= neighbours.MOST_MB


@line("A2", "another's event 202 after 22.3 s, /healthz 22.2 s; 2,000 defaults can be saved")
def heavy_defaults_hold_up_nobody(at: Stage) -> Seen:
    defaults = {"metadata": {f"m{n}": "{{trigger.a}}" for n in range(2_000)}}
    body = {"name": "N", "trigger": {"contactDefaults": defaults}, "steps": []}
    answer = at.someone().post("/workflows", json=body)
    seen, holds = _beside(at, "A2")
    return f"{seen}; 2,000 defaults: {words_of(answer)}", holds and answer.status_code == 422


@line("A3", "RSS 383 → 1,069 MB, /healthz p50 0.5 s")
def long_templates_are_bounded(at: Stage) -> Seen:
    return _beside(at, "A3")


@line("A4", "RSS 184 → 616 MB: the body is read before token and provider are judged")
def an_unknown_callback_is_refused_on_its_head(at: Stage) -> Seen:
    head = "Content-Length: 1048576\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
    request = f"POST /v1/callbacks/twilio/abc HTTP/1.1\r\nHost: a.test\r\n{head}".encode()
    before, statuses = neighbours.memory(pids(at.service)), Counter[str]()
    with ExitStack() as open_ones:
        for _ in range(400):
            connection = open_ones.enter_context(
                socket.create_connection(("127.0.0.1", at.service.port), timeout=5)
            )
            with suppress(OSError):
                connection.sendall(request)
                statuses[connection.recv(4_096)[9:12].decode()] += 1
                connection.settimeout(0.05)
                connection.sendall(b"x" * 1_048_575)  # all but the last
        grown = neighbours.memory(pids(at.service)) - before
    return f"{dict(statuses)} on the head; +{grown:.0f} MB", (
        statuses["404"] == 400 and grown < neighbours.MOST_MB
    )


@line("A5", "8,421 runs of one event in 15 s")
def a_chain_starts_so_many_runs(at: Stage) -> Seen:
    client = at.someone()
    ids: list[str] = []
    for _ in ("leaf", "fan0", "fan1"):
        steps = [{"type": "start_workflow", "workflowId": ids[-1]}] * 20 if ids else []
        body = {"name": unique(), "state": "ACTIVE", "steps": steps}
        ids.append(made(client, "/workflows", body)["id"])
    root = workflow(client, [{"type": "start_workflow", "workflowId": ids[-1]}] * 20)
    event(client, root)
    until(lambda: not any(_unfinished(client)), "all runs have ended", seconds=240, every=2)
    count = sum(_runs_of(client, id) for id in (*ids, root["id"]))
    reasons = Counter(code for id in ids for code in _chain_codes(client, id))
    found = "many_starts" in [finding["code"] for finding in root["findings"]]
    seen = f"{count} runs; steps say {dict(reasons)}; finding many_starts: {found}"
    return seen, count <= ROOT_LIMIT + 1 and reasons["chain_too_wide"] > 0 and found


def _unfinished(client: httpx2.Client) -> Iterator[list[dict[str, str]]]:
    for status in ("QUEUED", "RUNNING", "WAITING"):
        yield read(client, f"/runs?status={status}&limit=1")["data"]


def _pages(client: httpx2.Client, url: str) -> Iterator[list[dict[str, str]]]:
    after = ""
    while True:
        page = read(client, f"{url}{after}")
        yield page["data"]
        if not page.get("nextCursor"):
            return
        after = f"&cursor={page['nextCursor']}"


def _runs_of(client: httpx2.Client, id: str) -> int:
    return sum(len(rows) for rows in _pages(client, f"/runs?workflowId={id}&limit=100"))


def _chain_codes(client: httpx2.Client, id: str) -> Iterator[str]:
    """The reasons of the steps of its newest runs."""
    for run in read(client, f"/runs?workflowId={id}&limit=5")["data"]:
        for step in read(client, f"/runs/{run['id']}")["steps"]:
            if step["reason"]:
                yield step["reason"]["code"]


@line("A6", "20 calls to slow names fill the threads: every other tenant's name fails")
def slow_names_hold_up_their_owner_alone(at: Stage) -> Seen:
    if not NAMES.bound:
        raise Skipped("needs root, and port 53, for a name server of its own")
    with listening(at, answer) as port:
        step = {"type": "http_request", "method": "GET", "failed": []}
        slow = workflow(at.someone(), [{**step, "url": "http://{{trigger.host}}:8080/"}])
        evil = at.stranger()
        for number in range(20):
            body = {"email": f"{unique()}@people.test", "host": f"slow{number}.test"}
            event(evil, slow, body)
        time.sleep(1)
        asked_slowly, began = NAMES.slow, time.monotonic()
        good = at.someone()
        run = run_of(good, workflow(good, [{**step, "url": f"http://quick.test:{port}/"}]))
        took = time.monotonic() - began
    code = code_of(run["steps"][0])
    seen = f"{asked_slowly} slow names asked for; the other's call after {took:.1f} s: {code}"
    return seen, asked_slowly > 0 and code == "None" and took < SOON_SECONDS


@line("A7", "a light preview of another after 22.5 s; the same for simulations")
def previews_are_fair(at: Stage) -> Seen:
    return _beside(at, "A7")
