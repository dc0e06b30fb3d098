"""Wrong bearers, counted by the address that they come from.

Whether a bearer is right only the database knows, and nobody may keep it busy with wrong ones.
After too many of them an address is answered 429 instead of 401, and its bearers are looked up one
at a time. One that was right lately does not wait in that line, but is looked up as ever: what is
remembered of it is no permission. So it is with the tokens of callbacks, or somebody who has
Twilio post to a wrong one would keep out what Twilio's addresses report to all others.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TypeVar

from app.errors import Problem
from app.net.networks import subscriber
from app.web.throttle import Rule, Throttle, Verdict

WRONG = Rule("wrong_bearers", 60, 60)
REMEMBERED = 10_000  # bearers that were right
IN_LINE = 50  # of one address; who comes then is refused unheard
PAUSE_SECONDS = 0.02  # after each wrong one
REFUSALS = ("unauthenticated", "not_found", "invalid_signature")  # of a wrong one

Result = TypeVar("Result")


class Bearers:
    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._lines: defaultdict[str, _Line] = defaultdict(_Line)

    async def judged(
        self, address: str, bearer: str, authenticate: Callable[[], Awaitable[Result]]
    ) -> Result:
        """The result of `authenticate`, which raises one of REFUSALS for a wrong bearer. Raises
        that, or Problem `rate_limited` after too many wrong ones from this address."""
        digest = blake2b(bearer.encode(), digest_size=16).digest()
        verdict = self._throttle.used_up(WRONG, address)
        if verdict is None or digest in self._right:
            return await self._tried(address, digest, authenticate)
        async with self._in_line(subscriber(address), verdict):
            try:
                return await self._tried(address, digest, authenticate)
            except Problem:
                await asyncio.sleep(PAUSE_SECONDS)
                raise

    async def _tried(
        self, address: str, digest: bytes, authenticate: Callable[[], Awaitable[Result]]
    ) -> Result:
        try:
            found = await authenticate()
        except Problem as problem:
            if problem.code not in REFUSALS:
                raise
            self._right.pop(digest, None)
            verdict = await self._throttle.hit(WRONG, address)
            if not verdict.allowed:
                raise _too_many(verdict) from None
            raise
        self._right[digest] = None
        self._right.move_to_end(digest)
        if len(self._right) > REMEMBERED:
            self._right.popitem(last=False)
        return found

    @asynccontextmanager
    async def _in_line(self, source: str, verdict: Verdict) -> AsyncIterator[None]:
        line = self._lines[source]
        if line.length >= IN_LINE:
            raise _too_many(verdict)
        line.length += 1
        try:
            async with line.turn:
                yield
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[source]


class _Line:
    __slots__ = ("length", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.length = 0


def _too_many(verdict: Verdict) -> Problem:
    seconds = math.ceil(verdict.tally.wait)
    return Problem(
        "rate_limited",
        f"More than {WRONG.amount} wrong bearers came from this address in {WRONG.seconds} seconds;"
        f" this one is not valid either. Try again in {seconds} s.",
        headers=verdict.headers,
    )
