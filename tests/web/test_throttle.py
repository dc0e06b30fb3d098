"""Limits: exact on real Redis, on the one in process and in memory; approximate when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from app.errors import Problem
from app.net import networks
from app.web import throttle
from app.web.throttle import API, AUTH, INTAKE, Rule, Throttle
from tests.conftest import Records
from tests.proxy import Proxy

Make = Callable[[], Awaitable[Throttle]]

QUICK = Rule("quick", 3, 1)
PATIENT = 5.0  # where the count is the question, a busy machine must not be the answer


@asynccontextmanager
async def throttling(redis: Redis, *, trip_seconds: float = PATIENT) -> AsyncIterator[Throttle]:
    one = Throttle(redis, trip_seconds=trip_seconds)
    try:
        yield one
    finally:
        await one.close()
        await redis.aclose(close_connection_pool=True)


@pytest.fixture
async def on_redis(redis_url: str) -> AsyncIterator[Make]:
    """Throttles that share one Redis, as processes do."""
    async with AsyncExitStack() as made:

        async def make() -> Throttle:
            return await made.enter_async_context(throttling(Redis.from_url(redis_url)))

        async with Redis.from_url(redis_url) as redis:
            await redis.flushall()
        yield make


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[Proxy]:
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    address = urlsplit(redis_url)
    proxy = Proxy(address.hostname or "", address.port or 0)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture(params=["redis", "in process", "memory"])
async def limiting(request: pytest.FixtureRequest, redis_url: str) -> AsyncIterator[Throttle]:
    if request.param == "memory":
        yield Throttle(None)
        return
    redis = Redis.from_url(redis_url) if request.param == "redis" else FakeAsyncRedis()
    await redis.flushall()
    async with throttling(redis) as one:
        yield one


def limited(proxy: Proxy) -> AbstractAsyncContextManager[Throttle]:
    """One that reaches Redis through the proxy."""
    return throttling(Redis(port=proxy.port), trip_seconds=throttle.TRIP_SECONDS)


async def allowed(one: Throttle, tries: int, key: str = "1.2.3.4", rule: Rule = INTAKE) -> int:
    """Count how many of so many at once are allowed."""
    verdicts = await asyncio.gather(*(one.hit(rule, key) for _ in range(tries)))
    return sum(verdict.allowed for verdict in verdicts)


async def test_of_200_at_once_exactly_120_are_allowed(limiting: Throttle) -> None:
    assert await allowed(limiting, 200) == 120
    assert await allowed(limiting, 10) == 0
    assert await allowed(limiting, 200, key="5.6.7.8") == 120


async def test_processes_count_together(on_redis: Make) -> None:
    two = [await on_redis(), await on_redis()]
    assert sum(await asyncio.gather(*(allowed(one, 100) for one in two))) == 120


async def test_a_key_that_was_used_up_elsewhere_is_known_to_be_once_it_was_refused(
    on_redis: Make,
) -> None:
    here, elsewhere = await on_redis(), await on_redis()
    assert await allowed(elsewhere, 10, rule=AUTH) == 10
    assert here.used_up(AUTH, "1.2.3.4") is None
    assert not (await here.hit(AUTH, "1.2.3.4")).allowed
    refusal = here.used_up(AUTH, "1.2.3.4")
    assert refusal is not None
    assert 0 < refusal.tally.wait <= 60
    await elsewhere.forgive(AUTH, "1.2.3.4")
    assert (await here.hit(AUTH, "1.2.3.4")).allowed


async def test_rules_count_apart(limiting: Throttle) -> None:
    assert await allowed(limiting, 20, rule=AUTH) == 10
    assert await allowed(limiting, 20, rule=INTAKE) == 20


async def test_a_window_moves(limiting: Throttle) -> None:
    assert await allowed(limiting, 2, rule=QUICK) == 2
    await asyncio.sleep(0.6)
    assert await allowed(limiting, 5, rule=QUICK) == 1
    await asyncio.sleep(0.6)  # the first two are older than a second now, the third is not
    assert await allowed(limiting, 5, rule=QUICK) == 2


async def test_what_is_forgiven_does_not_count(limiting: Throttle) -> None:
    assert await allowed(limiting, 3, rule=QUICK) == 3
    assert await allowed(limiting, 1, rule=QUICK) == 0
    await limiting.forgive(QUICK, "1.2.3.4")
    assert await allowed(limiting, 2, rule=QUICK) == 1
    await limiting.forgive(QUICK, "5.6.7.8")  # which never hit
    assert await allowed(limiting, 5, key="5.6.7.8", rule=QUICK) == 3


async def test_what_is_forgiven_while_redis_is_silent_holds_nobody_up(proxy: Proxy) -> None:
    async with limited(proxy) as one:
        await allowed(one, 3, rule=QUICK)
        proxy.swallow()
        async with asyncio.timeout(1):
            await one.forgive(QUICK, "1.2.3.4")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1.2.3.4", "1.2.3.5", False),
        ("1.2.3.4", "1.2.3.4", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::9", True),
        ("2001:db8:1::1", "2001:db8:2::1", False),
        ("unknown", "unknown", True),
    ],
)
def test_a_site_of_ipv6_is_a_48(one: str, other: str, same: bool) -> None:
    assert (networks.site(one) == networks.site(other)) is same


async def test_a_refusal_says_when_to_come_back(limiting: Throttle) -> None:
    await allowed(limiting, 120)
    verdict = await limiting.hit(INTAKE, "1.2.3.4")
    seconds = int(verdict.headers["Retry-After"])
    assert 58 <= seconds <= 60
    assert verdict.headers == {
        "Retry-After": str(seconds),
        "RateLimit-Policy": '"intake";q=120;w=60',
        "RateLimit": f'"intake";r=0;t={seconds}',
    }


async def test_whoever_may_is_told_what_is_left(limiting: Throttle) -> None:
    listed = [(await limiting.check(QUICK, "1.2.3.4")).limits for _ in range(QUICK.amount)]
    assert listed == [
        {"RateLimit-Policy": '"quick";q=3;w=1', "RateLimit": f'"quick";r={left};t=1'}
        for left in (2, 1, 0)
    ]
    assert (await limiting.hit(QUICK, "1.2.3.4")).limits["RateLimit"].startswith('"quick";r=0;')
    await asyncio.sleep(1.05)
    assert (await limiting.check(QUICK, "1.2.3.4")).limits["RateLimit"] == '"quick";r=2;t=1'


async def test_what_is_left_is_of_all_processes_and_of_this_one_while_redis_is_silent(
    on_redis: Make, proxy: Proxy
) -> None:
    other = await on_redis()
    async with limited(proxy) as one:
        await allowed(other, 5, rule=AUTH)
        assert (await one.check(AUTH, "1.2.3.4")).tally.left == AUTH.amount - 6
        proxy.swallow()
        assert (await one.check(AUTH, "1.2.3.4")).tally.left == AUTH.amount - 2


async def test_check_raises_what_hit_refuses(limiting: Throttle) -> None:
    for _ in range(AUTH.amount):
        await limiting.check(AUTH, "1.2.3.4")
    with pytest.raises(Problem) as refused:
        await limiting.check(AUTH, "1.2.3.4")
    assert refused.value.code == "rate_limited"
    assert int(refused.value.headers["Retry-After"]) > 50


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("1.2.3.4", "1.2.3.5", False),
        ("ws_1", "ws_2", False),
        ("not:an:address", "not:an:other", False),
    ],
)
async def test_an_ipv6_subscriber_is_one_key(one: str, other: str, same: bool) -> None:
    limiting = Throttle(None)
    rule = Rule("once", 1, 60)
    assert (await limiting.hit(rule, one)).allowed
    assert (await limiting.hit(rule, other)).allowed is not same


async def test_without_redis_this_process_counts_and_nobody_waits(
    proxy: Proxy, records: Records
) -> None:
    async with limited(proxy) as one:
        await proxy.stop()
        async with asyncio.timeout(1):
            assert await allowed(one, 200) == 120
    assert [line["event"] for line in records()] == ["redis is silent, counting here"]


async def test_what_redis_had_counted_still_counts_when_it_goes_silent(proxy: Proxy) -> None:
    async with limited(proxy) as one:
        assert await allowed(one, 50) == 50
        proxy.swallow()
        assert await allowed(one, 200) == 70


async def test_a_silent_redis_costs_one_trip_and_no_more(proxy: Proxy) -> None:
    async with limited(proxy) as one:
        await one.hit(INTAKE, "1.2.3.4")
        proxy.swallow()
        async with asyncio.timeout(throttle.TRIP_SECONDS * 4):
            for _ in range(50):
                await one.hit(INTAKE, "1.2.3.4")


async def test_redis_counts_again_when_it_is_back(proxy: Proxy, redis_url: str) -> None:
    async with limited(proxy) as one, Redis.from_url(redis_url) as redis:
        proxy.swallow()
        assert await allowed(one, 100) == 100
        assert await redis.keys() == []
        await proxy.stop()
        proxy.heal()
        await proxy.start()
        async with asyncio.timeout(throttle.RETRY_SECONDS * 5):
            while not await redis.keys():
                await one.hit(INTAKE, "5.6.7.8")
                await asyncio.sleep(0.05)


async def test_redis_may_forget_its_scripts(redis_url: str, on_redis: Make) -> None:
    one = await on_redis()
    assert await allowed(one, 10) == 10
    async with Redis.from_url(redis_url) as redis:
        await redis.script_flush()
    assert await allowed(one, 200) == 110


async def test_forgotten_windows_take_no_memory() -> None:
    one = Throttle(None)
    blink = Rule("blink", 5, 0)
    for number in range(1_000):
        await one.hit(blink, str(number))
    assert len(one._local._hits[blink]) < 10


async def test_of_the_requests_of_one_key_600_a_minute_are_allowed(limiting: Throttle) -> None:
    assert await allowed(limiting, 700, key="key_1", rule=API) == 600
    assert await allowed(limiting, 5, key="ses_1", rule=API) == 5


async def test_what_comes_together_shares_a_trip(redis_url: str, on_redis: Make) -> None:
    """Whoever it is counted for, and by whichever rule."""
    one = await on_redis()
    await one.hit(API, "key_0")  # connects, and tells Redis the script
    async with Redis.from_url(redis_url) as redis:
        before = await reads(redis)
        hits = (one.hit(rule, f"key_{n}") for n in range(20) for rule in (API, INTAKE))
        await asyncio.gather(*hits)
        assert await reads(redis) - before <= 3  # the forty hits, and the question itself


async def reads(redis: Redis) -> int:
    """Count how often Redis has read from its clients: a pipeline is read as a whole."""
    return int((await redis.info("stats"))["total_reads_processed"])
