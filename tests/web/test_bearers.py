"""Wrong bearers of one address are bounded; right ones behind it still work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.errors import Problem
from app.identity.identity import unauthenticated
from app.web import bearers
from app.web.bearers import Bearers
from app.web.throttle import Throttle

HOME, ELSEWHERE = "192.0.2.1", "192.0.2.2"


class Lookups:
    """Lookups that answer for the database, and count how many ask at once."""

    def __init__(self) -> None:
        self.running = self.most = self.made = 0
        self.bearers = Bearers(Throttle(None))

    def looking_up(self, bearer: str) -> Callable[[], Awaitable[str]]:
        async def authenticate() -> str:
            self.running += 1
            self.made += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.001)
            self.running -= 1
            if not bearer.startswith("right"):
                raise unauthenticated("wrong")
            return bearer

        return authenticate

    async def code(self, bearer: str, address: str = HOME) -> str:
        """Return the code of the refusal, or the bearer."""
        try:
            return await self.bearers.judged(address, bearer, self.looking_up(bearer))
        except Problem as problem:
            return problem.code


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Lookups:
    monkeypatch.setattr(bearers, "PAUSE_SECONDS", 0.0)
    return Lookups()


async def test_too_many_wrong_ones_of_one_address_are_told_to_wait(lookups: Lookups) -> None:
    codes = [await lookups.code(f"wrong {n}") for n in range(62)]
    assert codes == ["unauthenticated"] * 60 + ["rate_limited"] * 2
    assert await lookups.code("wrong", ELSEWHERE) == "unauthenticated"


async def test_a_right_one_works_behind_a_flood_of_wrong_ones(lookups: Lookups) -> None:
    assert await lookups.code("right and known") == "right and known"
    for n in range(60):
        await lookups.code(f"wrong {n}")
    flood = [asyncio.create_task(lookups.code(f"wrong again {n}")) for n in range(40)]
    assert await lookups.code("right and known") == "right and known"
    assert await lookups.code("right and new") == "right and new"
    assert {await one for one in flood} == {"rate_limited"}


async def test_a_flood_is_looked_up_one_at_a_time_and_no_further_than_its_line(
    lookups: Lookups,
) -> None:
    for n in range(60):
        await lookups.code(f"wrong {n}")
    lookups.most = lookups.made = 0
    codes = await asyncio.gather(*(lookups.code(f"wrong again {n}") for n in range(400)))
    assert set(codes) == {"rate_limited"}
    assert (lookups.most, lookups.made) == (1, bearers.IN_LINE)


async def test_one_that_was_right_and_is_revoked_is_wrong(lookups: Lookups) -> None:
    valid = "right"

    async def authenticate() -> str:
        if valid != "right":
            raise unauthenticated("revoked")
        return valid

    assert await lookups.bearers.judged(HOME, "key", authenticate) == "right"
    valid = "wrong"
    with pytest.raises(Problem, match="revoked"):
        await lookups.bearers.judged(HOME, "key", authenticate)
