"""Section A of the defects: what cost more than it is worth, from A8 on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from lab.attacks.lines import Seen, line
from lab.attacks.staging import (
    METRICS_TOKEN,
    OUTSIDE,
    Stage,
    code_of,
    computed,
    cores_used,
    event,
    load,
    message,
    pids,
    run_of,
    unique,
    workflow,
)
from lab.attacks.surroundings import (
    chunks_for_ever,
    early_hints_for_ever,
    flood,
    listening,
)
from lab.bench import neighbours
from lab.bench.intake import cpu_seconds


@line("A8", "endless 103 or one-byte chunks take 65 % of a core")
def a_called_server_takes_little(at: Stage) -> Seen:
    client, seen, holds = at.someone(), [], True
    for name, respond in (("103", early_hints_for_ever), ("chunks", chunks_for_ever)):
        with listening(at, respond) as port:
            step = {"type": "http_request", "method": "GET", "failed": []}
            called = workflow(client, [{**step, "url": f"http://{OUTSIDE}:{port}/"}])
            before, began = computed(at.service), time.monotonic()
            run = run_of(client, called, every=1.0)
            used, took = computed(at.service) - before, time.monotonic() - began
        seen.append(f"{name}: {used:.2f} s of a core, ended after {took:.1f} s"
                    f" ({code_of(run['steps'][0])})")  # fmt: skip
        holds = holds and used < 2 and took < 30
    return "; ".join(seen), holds


@line("A9", "intake p50 0.027 → 0.54 s beside 40 clients of /metrics, or with wrong keys")
def scrapers_and_wrong_keys_hold_up_nobody(at: Stage) -> Seen:
    client, seen, holds = at.someone(), [], True
    definition = workflow(client, [])
    floods = {
        "/metrics without a token": {},
        "/metrics": {"Authorization": f"Bearer {METRICS_TOKEN}"},
        "/contacts": {"Authorization": "Bearer td_live_" + "a" * 40},
    }
    for path, headers in floods.items():
        with flood(at.service, path.partition(" ")[0], headers) as statuses:
            times = []
            for _ in range(40):
                began = time.perf_counter()
                assert event(client, definition).status_code == 202
                times.append(time.perf_counter() - began)
                time.sleep(0.05)
        shown, kept_asking = dict(statuses.most_common(2)), statuses.total() > 100
        holds = holds and kept_asking and median(times) < neighbours.MOST_SECONDS
        seen.append(f"{path} {shown}: intake p50 {median(times):.3f} s")
    return "; ".join([*seen, load()]), holds


@line("A10", "a full mailbox counts as the provider's throttle: healthy ones wait 5–24 s")
def a_full_mailbox_holds_up_itself_alone(at: Stage) -> Seen:
    client, seen, holds = at.someone(), [], True
    for reply in ("452 4.2.2 Mailbox full", "450 4.2.0 Not now"):
        deferred = []
        for _ in range(3):
            full = f"{unique()}@full.test"
            at.mail.at_rcpt[full] = reply
            deferred.append(code_of(message(client, full)))
        healthy, began = f"{unique()}@people.test", time.monotonic()
        sent = message(client, healthy)["status"]
        took = time.monotonic() - began
        seen.append(f"{reply[:9]}: {set(deferred)}, a healthy one {sent} after {took:.1f} s")
        holds = holds and set(deferred) == {"recipient_deferred"} and sent == "SENT" and took < 4
    return "; ".join(seen), holds


@line("A11", "200 long polls take a core; an open quotation in an import keeps one for hours")
def polls_and_open_quotations_take_little(at: Stage) -> Seen:
    with at.booted(ENVIRONMENT="sandbox") as it:
        people = [at.someone(it) for _ in range(10)]
        with ThreadPoolExecutor(200) as pool:
            polls = [
                pool.submit(one.get, "/sandbox/messages?wait=30&to=nobody@people.test")
                for one in people
                for _ in range(20)
            ]
            time.sleep(5)
            used = cores_used(it, lambda: time.sleep(10))
            waiting = sum(not poll.done() for poll in polls)
            statuses = Counter(poll.result().status_code for poll in polls)
        began, before = time.monotonic(), computed(it)
        answer = people[0].post(
            "/contacts/import", content=_quotation(), headers={"Content-Type": "text/csv"}
        )
        took, took_cpu = time.monotonic() - began, computed(it) - before
    seen = (
        f"{waiting} polls wait and take {used:.0%} of a core ({dict(statuses)}); the import ends"
        f" after {took:.1f} s, {took_cpu:.1f} of them of a core: {answer.text.strip()[-160:]}"
    )
    return seen, used < 0.5 and waiting >= 150 and took < 30


def _quotation() -> Iterator[bytes]:
    """A megabyte after megabyte that may all be one cell, and then rows that all fail."""
    yield b'email,firstName\n"ada@people.test,Ada\n'
    for number in range(20):
        yield b"".join(b'x%d,"y"\n' % row for row in range(number * 90_000, (number + 1) * 90_000))


@line("A12", "an idle run takes 6.7 % of a core, an idle worker 10 %")
def idle_processes_take_little(at: Stage) -> Seen:
    with at.booted(ENVIRONMENT="sandbox") as it:
        time.sleep(10)  # what a start leaves to do
        before = [cpu_seconds(pid) for pid in pids(it)]
        time.sleep(20)
        shares = [
            (cpu_seconds(pid) - then) / 20 for pid, then in zip(pids(it), before, strict=True)
        ]
        names = [part.output.name.partition("-")[0] for part in it.parts]
    seen = ", ".join(f"{name} {share:.2%}" for name, share in zip(names, shares, strict=True))
    return f"{seen} of a core, idle for 20 s; {load()}", max(shares) <= 0.01
