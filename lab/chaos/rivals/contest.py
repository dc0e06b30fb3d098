"""Tidings and the pipeline that most teams would write, struck by the same faults.

python -m lab.chaos.rivals.contest [--events N] [--rate N] [--faults N] [--settle S] [--seed N]

Both get the same senders, do the same work (one message for each event) and stand in the same
harness; both are judged by what senders were told and what the mail server has, not by what they
say of themselves. Ends with 1 when Tidings loses or doubles anything: the rival may.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import redis.asyncio

from lab.chaos import probes
from lab.chaos.campaign import SEND, Plan, load, settle, strike, unfinished
from lab.chaos.evidence import Struck
from lab.chaos.rivals import pipeline
from lab.chaos.senders import AWAY, CUT, LATE, Senders, Sent
from lab.chaos.stage import Stage, owned, set_up
from tests.deployment import Deployment, Started
from tests.receivers import Received

# None that has no meaning for one of the two, and each once.
FAULTS = (
    "kill -9 a web process",
    "kill -9 a worker",
    "kill -9 everything",
    "PostgreSQL stopped at once",
    "every backend terminated",
    "PostgreSQL read-only",
    "a web COMMIT cut after",
    "FLUSHALL",
    "Redis stopped",
    "Redis full",
    "the final dot cut before",
    "the final dot cut after",
)
LEASE_SECONDS = 15  # what Tidings is shipped with
GAP_SECONDS = 4.0  # between faults: each must find a pipeline that works
FLOW = "orders"


class Pipeline(Started):
    module = "lab.chaos.rivals.pipeline"


# --- the two --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entrant:
    """`hook`: sets up, and gives the webhook's path. `left`: how much may still come.
    `admitted`: bodies of events of which the system itself says that their message is uncertain."""

    name: str
    deployment: type[Deployment]
    hook: Callable[[Stage, AsyncExitStack], Awaitable[str]]
    left: Callable[[Stage], Awaitable[int]]
    admitted: Callable[[Stage], Awaitable[set[bytes]]]


async def our_hook(stage: Stage, stack: AsyncExitStack) -> str:
    await stack.enter_async_context(owned(stage))
    made = await probes.hook(stage, FLOW, SEND)
    return str(made["path"])


async def our_admitted(stage: Stage) -> set[bytes]:
    async with stage.database() as db:
        rows = await db.fetch(
            "SELECT r.body FROM runs r"
            " JOIN messages m ON m.workspace_id = r.workspace_id AND m.run_id = r.id"
            " WHERE m.status IN ('UNKNOWN', 'FAILED')"
        )
    return {bytes(row["body"]) for row in rows}


async def their_hook(_stage: Stage, _stack: AsyncExitStack) -> str:
    return pipeline.PATH


async def their_left(stage: Stage) -> int:
    """Jobs that arq still has, waiting or in progress: without one, nothing more is sent."""
    async with redis.asyncio.Redis(port=stage.redis.port) as client:
        return int(await client.zcard("arq:queue"))


async def their_admitted(_stage: Stage) -> set[bytes]:
    return set()  # a row without sent_at is one that waits, for all that it says


ENTRANTS = {
    "Tidings": Entrant("Tidings", Started, our_hook, unfinished, our_admitted),
    "plain arq": Entrant("plain arq", Pipeline, their_hook, their_left, their_admitted),
}


async def struck_by_all(
    entrant: Entrant, plan: Plan, directory: Path
) -> tuple[Mapping[str, object], bool]:
    """The outcome of it, and whether nothing was lost in silence and nothing doubled."""
    async with (
        AsyncExitStack() as stack,
        set_up(directory, plan.seed, plan.lease_seconds, entrant.deployment) as stage,
    ):
        path = await entrant.hook(stage, stack)
        senders = Senders(list(stage.ports.values()), {FLOW: path}, plan.seed)
        struck: list[Struck] = []
        striking = asyncio.create_task(strike(stage, plan, struck))
        await load(senders, plan, striking)
        await striking
        settled = await settle(stage, plan.settle_seconds, entrant.left)
        left, admitted = await entrant.left(stage), await entrant.admitted(stage)
        judged = judge(senders.ledger, stage.mail.received, struck, admitted)
        table = {**judged, "still under way": left, "settled after": f"{settled:.0f} s"}
        return table, not (judged["lost in silence"] or judged["doubled"] or left)


# --- by the ledgers alone -------------------------------------------------------------------------


def judge(
    ledger: Sequence[Sent],
    mails: Sequence[Received],
    struck: Sequence[Struck],
    admitted: set[bytes],
) -> dict[str, object]:
    arrived: dict[str, list[float]] = {}
    for mail in mails:
        arrived.setdefault(str(mail.mail["Subject"]), []).append(mail.at)
    accepted = [sent for sent in ledger if sent.accepted]
    missing = [sent for sent in accepted if sent.name not in arrived]
    silent = [sent for sent in missing if sent.body not in admitted]
    doubled = 0
    for sent in ledger:
        most = 1 if sent.kind == "keyed" else len(sent.tries)  # a try without an answer may count
        doubled += max(0, len(arrived.get(sent.name, ())) - most)
    tries = [one for sent in ledger for one in sent.tries if sent.kind != "hasty"]
    answers = Counter(one.status for one in tries)
    silences = Counter(one.silence for one in tries if one.status is None)
    return {
        "faults": len(struck),
        "events accepted": len(accepted),
        "lost in silence": len(silent),
        "missing, and said so": len(missing) - len(silent),
        "doubled": doubled,
        "answers 500": answers[500],
        "answers 503": answers[503],
        **{f"no answer: {why}": silences[why] for why in (AWAY, CUT, LATE)},
        "after a kill": _recovery(accepted, arrived, struck),
    }


def _recovery(
    accepted: Sequence[Sent], arrived: Mapping[str, Sequence[float]], struck: Sequence[Struck]
) -> str:
    """Describe the times from a kill to the messages of events accepted before and not sent."""
    took = sorted(
        min(arrived[sent.name]) - fault.ended
        for fault in struck
        if fault.name.startswith("kill")
        for sent in accepted
        if sent.name in arrived
        if sent.accepted[0].ended < fault.ended < min(arrived[sent.name])
    )
    if not took:
        return "none was under way"
    p50, p99 = took[len(took) // 2], took[len(took) * 99 // 100]
    return f"{len(took)} events, p50 {p50:.1f} s, p99 {p99:.1f} s"


def show(tables: Mapping[str, Mapping[str, object]]) -> None:
    print("\n" + " " * 40 + "".join(f"{name:<40}" for name in tables))
    for row in next(iter(tables.values())):
        print(f"{row:<40}" + "".join(f"{table[row]!s:<40}" for table in tables.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=600)
    parser.add_argument("--rate", type=float, default=8, help="events a second")
    parser.add_argument("--faults", type=int, help="how many; each kind once unless given")
    parser.add_argument("--settle", type=float, default=330, help="seconds; arq retries after 310")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one, or these")
    parser.add_argument("--only", choices=ENTRANTS)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # what befalls the proxies is what they are for
    print(f"seed {asked.seed}", flush=True)
    kinds = tuple(asked.fault or FAULTS)
    plan = Plan(
        events=asked.events,
        rate=asked.rate,
        faults=asked.faults or len(kinds),
        lease_seconds=LEASE_SECONDS,
        seed=asked.seed,
        gap_seconds=GAP_SECONDS,
        kinds=kinds,
        settle_seconds=asked.settle,
    )
    tables: dict[str, Mapping[str, object]] = {}
    flawless = True
    for name in [asked.only] if asked.only else list(ENTRANTS):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rival-") as directory:
            table, clean = asyncio.run(struck_by_all(ENTRANTS[name], plan, Path(directory)))
        tables[name] = table
        flawless &= clean or name != "Tidings"
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    show(tables)
    return not flawless


if __name__ == "__main__":
    sys.exit(main())
