"""E: the limit, and whose requests are counted together."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter

from tests.attacks.target import (
    EVENT,
    IN,
    JSON,
    SILENT,
    UNKNOWN,
    Hook,
    Line,
    Target,
    address,
    payload_of,
    read,
    request,
)
from tests.web.wire import Answer

LIMIT = 120
TRIES = 8


async def burst(
    target: Target, count: int, *headers: str, source: str | None = None
) -> Counter[int]:
    """Try a token that nobody has so many times, from one address, on four connections at once."""
    source = source or address()
    shares = [count // 4 + (n < count % 4) for n in range(4)]
    answers = await asyncio.gather(*(_share(target, n, headers, source) for n in shares if n))
    return Counter(answer.status for some in answers for answer in some)


async def _share(target: Target, count: int, headers: tuple[str, ...], source: str) -> list[Answer]:
    reader, writer = await target.connect(source)
    writer.write(request(IN + UNKNOWN, EVENT, JSON, *headers) * count)
    answers = [await read(reader) for _ in range(count)]
    writer.close()
    return answers


def while_redis_answers(line: Line) -> Line:
    """A Redis that is slow for once, as on a busy machine, is not waited for: then each process
    counts for itself. Of that E7 tells; all others are tried again."""

    async def tried(target: Target) -> None:
        for _ in range(TRIES):
            await target.until_redis_answers()  # it may be silent since the process started
            silences = target.count_of(SILENT)
            try:
                return await line(target)
            except AssertionError:
                await asyncio.sleep(0.2)  # the log is written by a thread
                if target.count_of(SILENT) == silences:
                    raise
        raise AssertionError("Redis is slow all the time")

    return tried


async def one_too_many(target: Target) -> None:
    hook = await target.hook()
    source = address()
    for _ in range(LIMIT):
        await hook.takes(source=source)
    for _ in range(2):
        answer = await hook.refuses(429, "rate_limited", source=source)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    counted = await burst(target, LIMIT, source=source)  # apart from those
    assert counted == {404: LIMIT}, counted
    await hook.takes()  # from elsewhere


async def forged_without_a_proxy(target: Target) -> None:
    source = address()
    assert await burst(target, LIMIT, source=source) == {404: LIMIT}
    for header in (
        f"X-Forwarded-For: {address()}",
        f"X-Forwarded-For: {address()}, {address()}",
        f"Forwarded: for={address()}",
        f"X-Real-IP: {address()}",
        f"True-Client-IP: {address()}",
        f"CF-Connecting-IP: {address()}",
    ):
        assert await burst(target, 1, header, source=source) == {429: 1}, header


async def forged_before_a_proxy(target: Target) -> None:
    """The proxy appends whom it saw; what the client wrote stands before."""
    peer = address()
    assert await burst(target, LIMIT, f"X-Forwarded-For: {peer}") == {404: LIMIT}
    for forged in (address(), "garbage", f"{address()}, {address()}", ""):
        assert await burst(target, 1, f"X-Forwarded-For: {forged}, {peer}") == {429: 1}, forged


async def several_lines(target: Target) -> None:
    peer = address()
    assert await burst(target, LIMIT, f"X-Forwarded-For: {peer}") == {404: LIMIT}
    for headers in (
        (f"X-Forwarded-For: {peer}", f"X-Forwarded-For: {address()}"),
        (f"X-Forwarded-For: {peer}", f"Forwarded: for={address()}"),
        (f"X-Forwarded-For: {peer}", f"X-Real-IP: {address()}", f"CF-Connecting-IP: {address()}"),
    ):
        assert await burst(target, 1, *headers) == {429: 1}, headers


async def spellings_of_one_peer(target: Target) -> None:
    peer = address()
    assert await burst(target, LIMIT, f"X-Forwarded-For: {peer}") == {404: LIMIT}
    for spelling in (f"::ffff:{peer}", f"[::ffff:{peer}]:4711", f"{peer}:4711", f"  {peer}\t"):
        assert await burst(target, 1, f"X-Forwarded-For: {spelling}") == {429: 1}, spelling
    long = "x" * 10_000
    assert await burst(target, 1, f"X-Forwarded-For: {long}, {peer}") == {429: 1}
    network = f"2001:db8:{secrets.randbelow(2**16):x}:{secrets.randbelow(2**16):x}"
    assert await burst(target, LIMIT, f"X-Forwarded-For: {network}::1") == {404: LIMIT}
    for spelling in (f"{network}::2", f"{network.upper()}:0:0:0:1", f"{network}::1%eth0"):
        assert await burst(target, 1, f"X-Forwarded-For: {spelling}") == {429: 1}, spelling
    source = address()
    for garbage in (long, "garbage", "999.1.1.1", "1.2.3.4, ,"):  # then the proxy itself
        assert await burst(target, 30, f"X-Forwarded-For: {garbage}", source=source) == {404: 30}
    assert await burst(target, 1, "X-Forwarded-For: garbage", source=source) == {429: 1}


async def without_redis(target: Target) -> None:
    """Counted by each process for itself, and nobody is answered 5xx."""
    assert target.redis is not None
    target.redis.stop()
    tried = await burst(target, 2 * LIMIT + 30)
    assert tried.keys() == {404, 429}
    assert LIMIT <= tried[404] <= 2 * LIMIT
    hook = await target.hook()
    await hook.takes()
    target.redis.start()


async def over_all_processes(target: Target) -> None:
    """Exceed the limit over all processes, whichever each connection ends at."""
    source = address()
    total = Counter[int]()
    for _ in range(10):
        total += await burst(target, 20, source=source)
    assert total == {404: LIMIT, 429: 200 - LIMIT}


async def what_a_refusal_says(target: Target) -> None:
    hook: Hook = await target.hook()
    source = address()
    await burst(target, LIMIT, source=source)
    waits = []
    for _ in range(3):
        answer = await hook.refuses(429, "rate_limited", source=source)
        assert answer.headers["ratelimit-policy"] == '"intake";q=120;w=60'
        named = re.fullmatch(r'"intake";r=0;t=([0-9]+)', answer.headers["ratelimit"])
        assert named is not None
        assert named[1] == answer.headers["retry-after"]
        waits.append(int(named[1]))
    assert waits == sorted(waits, reverse=True)


async def floods(target: Target) -> None:
    """Flood with tokens: who tries them is counted for it, and locks out nobody else."""
    source = address()
    reader, writer = await target.connect(source)
    for path in ("short", UNKNOWN, UNKNOWN + "/", "a/b/c"):
        writer.write(request(IN + path, EVENT, JSON) * (LIMIT // 4))
    assert {(await read(reader)).status for _ in range(LIMIT)} == {404}
    writer.close()
    hook = await target.hook()
    await hook.refuses(429, "rate_limited", source=source)
    await hook.takes()


async def limit_of_a_key(target: Target) -> None:
    made = await target.made("/settings/api-keys", {"name": "busy", "role": "viewer"})
    bearer = f"Authorization: Bearer {made['key']}"
    asked = request("/audit-logs", b"", bearer, method="GET")  # counted before it is forbidden
    reader, writer = await target.connect()
    writer.write(asked * 601)
    statuses = [(await read(reader)).status for _ in range(601)]
    assert Counter(statuses) == {403: 600, 429: 1}
    writer.close()


async def limit_of_guesses(target: Target) -> None:
    source = address()
    guess = b'{"email": "nobody@acme.test", "password": "password number 1"}'
    raw = request("/auth/token", guess, JSON)
    for _ in range(10):
        assert (await target.exchange(raw, source=source)).status == 401
    refused = await target.exchange(raw, source=source)
    assert (refused.status, payload_of(refused)["code"]) == (429, "rate_limited")


LINES: dict[str, Line] = {
    "E1": while_redis_answers(one_too_many),
    "E3": forged_without_a_proxy,
    "E4": while_redis_answers(forged_before_a_proxy),
    "E5": while_redis_answers(several_lines),
    "E6": while_redis_answers(spellings_of_one_peer),
    "E8": while_redis_answers(over_all_processes),
    "E9": while_redis_answers(what_a_refusal_says),
    "E10": while_redis_answers(floods),
    "E11 of a key": while_redis_answers(limit_of_a_key),
    "E11 of guesses": while_redis_answers(limit_of_guesses),
    "E7": without_redis,
}
