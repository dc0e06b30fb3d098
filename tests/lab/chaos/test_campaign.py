"""The campaign, short: one of each kind of fault, and so a minute and a little."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from app.config.settings import Settings
from app.jobs.hints import NAME, PAUSE_SECONDS, Hints, connector
from lab.chaos import campaign as campaigns
from lab.chaos.campaign import SETTLING_ENDS, Plan, asked, campaign, hinder, settle, unhindered
from lab.chaos.faults import FAULTS, ROUND
from lab.chaos.forgetful import Forgetful
from lab.chaos.stage import Stage
from tests.present import present
from tests.proxy import proxy_before

# What takes as long again, or is much like another, is for `make -C lab chaos` alone.
LEFT_OUT = {
    "kill -9 everything",
    "the table of runs locked",
    "PostgreSQL silent to the web",
    "PostgreSQL silent to workers",
    "PostgreSQL slow to the web",
    "PostgreSQL slow to workers",
    "Redis full",
    "Redis silent",
    "Redis slow",
    "the mail server slow",
    "Redis gone for a minute",
    "RCPT cut before",
    "a web clock jumps",
    "a worker killed an hour ahead",
}
QUICK = tuple(name for name in FAULTS if name not in LEFT_OUT)


@pytest.mark.drill
@pytest.mark.timeout(400)
async def test_nothing_is_lost_or_doubled_whatever_breaks(tmp_path: Path) -> None:
    plan = Plan(
        events=300,
        rate=10,
        faults=len(QUICK),
        lease_seconds=3,  # of less, a test beside it may take the whole
        seed=20261122,
        gap_seconds=0.1,
        kinds=QUICK,
        after_seconds=150,
    )
    found, figures = await campaign(plan, tmp_path)
    print(*(f"{name:22} {figure}" for name, figure in figures.items()), sep="\n")
    assert found == []
    accepted = figures["accepted"]
    assert isinstance(accepted, int)
    assert accepted > 100, figures


def test_a_promise_asks_for_its_own_faults_and_a_given_one_is_the_only_one() -> None:
    every, sixth = asked([]), asked(["--promise", "6"])
    assert (every.kinds, every.faults) == (ROUND, 10 * len(ROUND))
    assert (every.promise, sixth.promise) == (None, 6)
    assert (sixth.faults, sixth.kinds.count("FLUSHALL"), sixth.lease_seconds) == (33, 10, 15)
    only = asked(["--promise", "6", "--fault", "FLUSHALL", "--events", "5", "--seed", "7"])
    assert (only.kinds, only.events, only.seed, only.rate) == (("FLUSHALL",), 5, 7, 30)
    assert asked(["--fault", "FLUSHALL", "--fault", "EXEC cut after"]).kinds == (
        "FLUSHALL",
        "EXEC cut after",
    )


async def ready() -> None:
    """Be ready at once."""


STAGE = cast(
    "Stage",
    SimpleNamespace(
        proxies={},
        postgres=SimpleNamespace(runs=True),
        redis=SimpleNamespace(runs=True),
        all_up=ready,
    ),
)


@pytest.mark.parametrize(("progress", "idle_times"), [(0, 1), (1, SETTLING_ENDS)])
async def test_settling_ends_without_progress_and_after_some_time_with_it(
    progress: int, idle_times: float
) -> None:
    left = count(1_000_000, -progress)

    async def unfinished(_stage: Stage) -> int:
        return next(left)

    began = time.monotonic()
    await settle(STAGE, 0.5, unfinished)
    assert idle_times * 0.5 <= time.monotonic() - began < idle_times * 0.5 + 1


@pytest.mark.parametrize(("hints", "answering"), [("lost", False), ("misdirected", True)])
async def test_hints_reach_no_worker_whether_redis_answers_or_not(
    redis_url: str, hints: Literal["lost", "misdirected"], answering: bool
) -> None:
    address = urlsplit(redis_url)
    async with proxy_before(address.hostname or "", address.port or 0) as proxy:
        through = address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
        settings = {"SECRET_KEY": "a secret key that only the tests have", "REDIS_URL": through}
        ours = Hints(connector(Settings.from_environ(settings)))
        redis = present(ours.redis)
        await redis.delete(NAME)
        proxies = {f"{command} → Redis": proxy for command in ("web", "worker")}
        deployment = object.__new__(Forgetful)
        stage = SimpleNamespace(deployment=deployment, proxies=proxies)
        await hinder(cast("Stage", stage), hints)
        ours.hint("run", [("ws_1", "run_1")])
        async with asyncio.timeout(20):
            while (ours.answering, proxy.hits) != (answering, 1):
                await asyncio.sleep(0.01)
        assert await redis.zcard(NAME) == 0
        proxy.heal()
        await asyncio.sleep(PAUSE_SECONDS)
        ours.hint("run", [("ws_1", "run_2")])
        await ours.close()
        async with Redis.from_url(redis_url) as straight:
            assert await straight.zcard(NAME) == 1
            await straight.delete(NAME)


def test_hints_that_nothing_has_hindered_are_a_finding() -> None:
    for hints in ("lost", "misdirected"):
        assert list(unhindered(hints, {"web": 1, "worker": 0}, 1)) == []
        assert list(unhindered(hints, {"web": 0, "worker": 1}, 1)) == [
            f"no hint of the web processes was {hints}"
        ]
        assert list(unhindered(hints, {"web": 1, "worker": 0}, 0)) == [
            "no worker has forgotten a hint that it gives itself"
        ]
    assert list(unhindered("sent", {"web": 0, "worker": 0}, 0)) == []


async def test_what_is_committed_after_its_sender_left_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaigns, "QUIET_SECONDS", 0.5)
    asked_before, left = count(), [0, 0, 1, 1]

    async def unfinished(_stage: Stage) -> int:
        number = next(asked_before)
        return left[number] if number < len(left) else 0

    await settle(STAGE, 5, unfinished)
    assert next(asked_before) > len(left)
