"""Everything breaks, again and again, while strangers send; then the oracle looks at what is left.

python -m lab.chaos.campaign [--promise N] [--events N] [--rate N] [--faults N] [--lease S]
    [--workers N] [--hints sent|lost|misdirected|'no Redis'] [--queueing S] [--seed N]

Prints a line for each fault, a table of what became of everything, and what should not be; ends
with 1 when there is any. Beside each zero stands what it says at 95 %, which is less than 3 in n.
`--promise` strikes with what that one of docs/promises.md is about, as often as it says.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from app.jobs.hints import NAME
from lab.chaos import evidence, oracle, probes, subscriber
from lab.chaos.evidence import RUN_HEADER, Struck
from lab.chaos.faults import FAULTS, ROUND
from lab.chaos.forgetful import FORGOTTEN, Forgetful
from lab.chaos.probes import Probed
from lab.chaos.senders import Senders
from lab.chaos.stage import (
    QUEUEING_SECONDS,
    THREE_WORKERS,
    WORKERS,
    Stage,
    owned,
    set_up,
)
from tests.deployment import Deployment, Started

Hints: TypeAlias = Literal["sent", "lost", "misdirected", "no Redis"]

MOST_WAITING = 400  # senders at once
MOST_SHOWN = 10  # findings of a kind
HINT = f"ZADD\r\n${len(NAME)}\r\n{NAME}\r\n".encode()  # where workers look, as it is written
QUIET_SECONDS = 2.0  # without anything due: a sender that left may have been accepted since
SETTLING_ENDS = 4.0  # times the seconds without progress after which it ends too
MORE_SECONDS = 600.0  # that a campaign may take, beside twice as long as its events do

SEND = {
    "id": "say",
    "type": "send_message",
    "channel": "email",
    "content": {"subject": "{{trigger.name}}", "html": "<p>{{trigger.price}}</p>"},
}
STEPS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "three steps": [
        {"id": "tag", "type": "add_tag", "tag": "seen"},
        SEND,
        {"id": "note", "type": "update_contact", "set": {"lastName": "{{trigger.name}}"}},
    ],
    "waiting": [{"id": "wait", "type": "wait", "duration": "PT2S"}, SEND],
    "resending": [{**SEND, "onUnknown": "resend"}],
    "calling": [
        {
            "id": "call",
            "type": "http_request",
            "method": "POST",
            "url": "{url}",
            "headers": {RUN_HEADER: "{{run.id}}"},
            "body": {"run": "{{run.id}}"},
        },
        SEND,
    ],
}


# What is asked for unless the command says otherwise.
WHOLE: Mapping[str, Any] = {
    "events": 66_000,
    "rate": 40,
    "faults": 10 * len(ROUND),
    "lease": 15,
    "gap": 0.5,
    "settle": 180,
    "fault": ROUND,
    "workers": 2,
    "hints": "sent",
    "queueing": QUEUEING_SECONDS,
}
# What a promise asks for instead.
PROMISES: Mapping[int, Mapping[str, Any]] = {
    4: {
        "fault": ["kill -9 a worker"],
        "faults": 45,
        "gap": 10,
        "rate": 30,
        "events": 13_500,
        "workers": 3,
        "hints": "lost",
        "queueing": 1.0,  # so that the killed have 300 runs in hand: fewer say nothing of 99 %
    },
    5: {
        "fault": ["a worker frozen for three leases", "a worker frozen with a claim in hand"],
        "faults": 200,
        "lease": 3,
        "gap": 0.2,
        "rate": 15,
        "events": 15_000,
    },
    6: {
        "fault": [*["FLUSHALL"] * 10, "Redis gone for a minute"],
        "faults": 33,
        "gap": 10,
        "rate": 30,
        "events": 17_000,
    },
    8: {
        "fault": ["a rolling restart"],
        "faults": 50,
        "gap": 1,
        "rate": 15,
        "events": 15_000,
    },
}


@dataclass(frozen=True, slots=True)
class Plan:
    events: int
    rate: float  # a second
    faults: int
    lease_seconds: int
    seed: int
    gap_seconds: float = 1.0  # between faults
    kinds: tuple[str, ...] = ROUND
    settle_seconds: float = 180.0
    after_seconds: float = 60.0  # that it may go on until all faults have struck
    deployed: type[Deployment] = Deployment
    workers: tuple[str, ...] = WORKERS
    hints: Hints = "sent"
    queueing_seconds: float = QUEUEING_SECONDS
    promise: int | None = None


async def campaign(plan: Plan, directory: Path) -> tuple[list[str], dict[str, object]]:
    """Run it; returns what should not be, and figures."""
    async with (
        set_up(
            directory,
            plan.seed,
            plan.lease_seconds,
            plan.deployed,
            plan.workers,
            plan.queueing_seconds,
        ) as stage,
        owned(stage),
    ):
        await hinder(stage, plan.hints)
        flows = {}
        for name, steps in STEPS.items():
            whole = [
                {**step, "url": f"http://127.0.0.1:{stage.proxies['HTTP'].port}/"}
                if "url" in step
                else step
                for step in steps
            ]
            flows[name] = await probes.hook(stage, name, *whole)
        probed = Probed()
        for probe in probes.FIRST:
            await probes.ask(stage, probed, probe)
        await subscribe(stage)
        senders = Senders(
            list(stage.ports.values()),
            {name: made["path"] for name, made in flows.items()},
            plan.seed,
        )
        struck: list[Struck] = []
        enough = asyncio.Event()
        asking = asyncio.create_task(probes.until_enough(stage, probed, 0.5, enough))
        striking = asyncio.create_task(strike(stage, plan, struck))
        await load(senders, plan, striking)
        striking.cancel()
        await probes.all_made(probed, asking)
        enough.set()
        for ended in await asyncio.gather(striking, asking, return_exceptions=True):
            if isinstance(ended, Exception):  # which being cancelled is not
                probed.findings.append(f"{type(ended).__name__}: {ended}")
        settled = await settle(stage, plan.settle_seconds)
        known = await evidence.gathered(
            stage,
            senders.ledger,
            {
                name: (made["id"], [step["id"] for step in STEPS[name]])
                for name, made in flows.items()
            },
            struck,
            plan.faults,
            probed,
        )
        known.promise = plan.promise
        cut = {name: stage.proxies[f"{name} → Redis"].hits for name in ("web", "worker")}
        forgotten = len(evidence.logged(stage, (FORGOTTEN,)))
        found = [*oracle.findings(known), *unhindered(plan.hints, cut, forgotten)]
        evidence.keep(known, directory / "evidence")
        known.figures["hints"] = f"{plan.hints}; cut off: {cut}, forgotten by workers: {forgotten}"
        known.figures["settled after"] = f"{settled:.1f} s"
        return found, known.figures


async def hinder(stage: Stage, hints: Hints) -> None:
    """Hinder hints until the campaign settles. Each is cut off with its connection, or goes where
    no worker looks while Redis answers, and workers forget those that they give themselves; or no
    Redis can be reached at all."""
    if hints in ("lost", "misdirected"):
        assert isinstance(stage.deployment, Forgetful)
        for command in ("web", "worker"):
            proxy = stage.proxies[f"{command} → Redis"]
            if hints == "lost":
                proxy.cut_before(b"EXEC")
            else:
                proxy.replace(HINT, HINT.swapcase())
    elif hints == "no Redis":
        await stage.proxies["Redis"].stop()


def unhindered(hints: Hints, cut: Mapping[str, int], forgotten: int) -> Iterator[str]:
    """`cut`: what the proxies met; `forgotten`: hints that workers would have given themselves.
    Of none that was hindered, nothing was shown."""
    if hints in ("lost", "misdirected"):
        if not cut["web"]:
            yield f"no hint of the web processes was {hints}"
        if not forgotten:
            yield "no worker has forgotten a hint that it gives itself"


async def subscribe(stage: Stage) -> None:
    """The subscriber receives what happens from now on."""
    url = f"http://127.0.0.1:{stage.proxies['events'].port}/"
    endpoint = {"url": url, "types": list(subscriber.ABOUT)}
    made = await probes.insist(stage, "POST", "/event-endpoints", endpoint)
    assert made.status_code == 201, made.text
    stage.subscriber.secret = made.json()["secret"]


async def load(senders: Senders, plan: Plan, striking: asyncio.Task[None]) -> None:
    """An open loop: each event comes when it is due, whatever became of the last; until all is
    struck, within bounds."""
    began = time.monotonic()
    most = plan.events + int(plan.rate * plan.after_seconds)
    under_way: set[asyncio.Task[None]] = set()
    for number in range(most):
        if number >= plan.events and striking.done():
            break
        await asyncio.sleep(max(0, began + number / plan.rate - time.monotonic()))
        while len(under_way) >= MOST_WAITING:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(senders.send(number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        if number % 1_000 == 999:
            print(f"  {number + 1:,} events sent", flush=True)
    await asyncio.gather(*under_way)


async def strike(stage: Stage, plan: Plan, struck: list[Struck]) -> None:
    """A round of faults in an order that the seed decides, then all again."""
    names: list[str] = []
    order = random.Random(plan.seed)
    for number in range(plan.faults):
        await asyncio.sleep(plan.gap_seconds)
        if not names:
            names = list(plan.kinds)
            order.shuffle(names)
        fault = Struck(names.pop(), time.time(), 0, "was cut short", hits=0)
        struck.append(fault)
        try:
            fault.hits, fault.broke = await FAULTS[fault.name](stage), None
        except Exception as error:  # noqa: BLE001  a finding, and the others go on
            fault.broke = f"{type(error).__name__}: {error}"
        finally:
            fault.ended = time.time()
            took = f"{fault.ended - fault.began:.1f} s"
            remark = fault.broke or ("" if fault.hits else "nothing to cut")
            print(f"  {number + 1}. {fault.name}: {took} {remark}", flush=True)


async def unfinished(stage: Stage) -> int:
    """An event that was cut off twice is not waited for: its next try, five minutes later, is due
    at once."""
    async with stage.database() as db:
        await db.execute(
            """
            UPDATE jobs SET wake_at = now()
            WHERE kind = 'event_attempt' AND wake_at > now() AND lease_token = 0
            """
        )
        left: int = await db.fetchval(
            "SELECT (SELECT count(*) FROM runs WHERE finished_at IS NULL)"
            " + (SELECT count(*) FROM jobs WHERE kind IN ('message', 'event_attempt'))"
        )
    return left


async def settle(
    stage: Stage, idle_seconds: float, left: Callable[[Stage], Awaitable[int]] = unfinished
) -> float:
    """Heal everything and wait until nothing has been due for QUIET_SECONDS, or nothing has ended
    for `idle_seconds`, or SETTLING_ENDS times as long has passed in all; the seconds it took. What
    is left then is a finding of the oracle."""
    for proxy in stage.proxies.values():
        proxy.heal()
    began = time.monotonic()
    for server in (stage.postgres, stage.redis):
        if not server.runs:
            await asyncio.to_thread(server.start)
    await stage.all_up()
    least, moved = await left(stage), time.monotonic()
    until = began + SETTLING_ENDS * idle_seconds
    while time.monotonic() < min(moved + (idle_seconds if least else QUIET_SECONDS), until):
        await asyncio.sleep(0.2)
        now = await left(stage)
        if now < least or (now and not least):
            least, moved = now, time.monotonic()
    return time.monotonic() - began


def shown(found: Sequence[str]) -> Iterator[str]:
    """Some of each kind: what is only late, or was only refused, must not hide the rest."""
    kinds: Counter[str] = Counter()
    for finding in found:
        kind = re.sub(r"\S*[0-9]\S*", "", finding)
        kinds[kind] += 1
        if kinds[kind] <= MOST_SHOWN:
            yield finding


def asked(words: Sequence[str]) -> Plan:
    """Read the plan from the command line. What it leaves out is the promise's, or the
    campaign's."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.chaos.campaign",
        description=__doc__.split("\n")[0],
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--promise", type=int, choices=PROMISES, help="what this one asks for")
    parser.add_argument("--events", type=int)
    parser.add_argument("--rate", type=float, help="events a second")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--lease", type=int, help="seconds")
    parser.add_argument("--gap", type=float, help="seconds between faults")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--workers", type=int, choices=(2, 3))
    parser.add_argument("--hints", choices=get_args(Hints), help="what becomes of them")
    parser.add_argument("--queueing", type=float, help="seconds of the mail server for a message")
    parser.add_argument("--settle", type=float, help="seconds without progress")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one, or these")
    given = vars(parser.parse_args(words))
    wanted = {**WHOLE, **PROMISES.get(given.get("promise", 0), {}), **given}
    return Plan(
        events=wanted["events"],
        rate=wanted["rate"],
        faults=wanted["faults"],
        lease_seconds=wanted["lease"],
        seed=wanted.get("seed", random.randrange(1_000_000)),
        gap_seconds=wanted["gap"],
        kinds=tuple(wanted["fault"]),
        settle_seconds=wanted["settle"],
        after_seconds=wanted["events"] / wanted["rate"] + MORE_SECONDS,
        deployed=Forgetful if wanted["hints"] in ("lost", "misdirected") else Started,
        workers=THREE_WORKERS[: wanted["workers"]],
        hints=wanted["hints"],
        queueing_seconds=wanted["queueing"],
        promise=given.get("promise"),
    )


def main() -> int:
    plan = asked(sys.argv[1:])
    logging.disable(logging.CRITICAL)  # what befalls the proxies is what they are for
    print(f"seed {plan.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="chaos-"))
    found, figures = asyncio.run(campaign(plan, directory))
    width = max(map(len, figures))
    for name, figure in figures.items():
        print(f"{name:{width}} {figure}")
    print(f"{'should not be':{width}} {len(found)}")
    for finding in shown(found):
        print(f"  {finding}")
    if found:
        print(f"the logs of all processes are in {directory}, and the evidence beside them")
    else:
        shutil.rmtree(directory)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
