"""A provider's HTTP API: one call, and on which side of it a failure lies.

A request of which nothing has left is surely not accepted. Of one that has left only an answer
tells, and an answer is judged by the provider's own table of errors, then by its status.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import httpx2

from app.machine import document
from app.machine.program import Json
from app.machine.reasons import Reason
from app.net.egress import Progress
from app.net.tls import system_trust
from app.providers.base import Fault, Outcome, SendError, line
from app.runtime.backoff import retry_after

log = logging.getLogger(__name__)

CALL_SECONDS = 30.0
CONNECTIONS = 50
KEPT_BYTES = 64 * 1024  # of an answer; ours are a hundredth of that
LONGEST_RETRY_AFTER = 3_600  # seconds; a provider that asks for more is asked again all the same


@dataclass(frozen=True, slots=True)
class Verdict:
    """The meaning of an error for the message."""

    outcome: Outcome
    code: Reason
    by_policy: bool = False  # SendError has it


UNREACHABLE = Verdict("not_accepted", Reason.PROVIDER_UNREACHABLE)
THROTTLED = Verdict("not_accepted", Reason.PROVIDER_THROTTLED)
# Our settings are at fault, not the message: it waits until somebody has mended them.
MISCONFIGURED = Verdict("not_accepted", Reason.PROVIDER_MISCONFIGURED)
# The recipient's trouble: the message waits by itself, or has bounced.
DEFERRED = Verdict("not_accepted", Reason.RECIPIENT_DEFERRED)
PUT_OFF = Verdict("not_accepted", Reason.RECIPIENT_DEFERRED, by_policy=True)
DEAD = Verdict("rejected", Reason.BOUNCED_HARD)
BOUNCED = Verdict("rejected", Reason.BOUNCED_SOFT)
REJECTED = Verdict("rejected", Reason.PROVIDER_REJECTED)
BAD_ADDRESS = Verdict("rejected", Reason.INVALID_ADDRESS)
BAD_CONTENT = Verdict("rejected", Reason.TEMPLATE_ERROR)
STOPPED = Verdict("rejected", Reason.SUPPRESSED_STOPPED)
UNKNOWN = Verdict("unknown", Reason.OUTCOME_UNKNOWN)

BY_STATUS: Mapping[int, Verdict] = {
    401: MISCONFIGURED,
    402: MISCONFIGURED,
    403: MISCONFIGURED,
    404: MISCONFIGURED,
    405: MISCONFIGURED,
    408: UNKNOWN,
    429: THROTTLED,
    503: UNREACHABLE,
}
BY_CLASS: Mapping[int, Verdict] = {3: UNREACHABLE, 4: REJECTED}


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """`payload` is empty when the body is no JSON object, whatever the provider was thinking of."""

    status: int
    payload: Mapping[str, Json]
    retry_after_seconds: int | None = None

    def text_member(self, name: str) -> str | None:
        """A member that is text."""
        value = self.payload.get(name)
        return value if isinstance(value, str) and value else None

    @property
    def verdict(self) -> Verdict:
        """Verdict by the status alone. A 2xx that does not say what was accepted is nobody's
        promise."""
        return BY_STATUS.get(self.status) or BY_CLASS.get(self.status // 100, UNKNOWN)


Client: TypeAlias = httpx2.AsyncClient


def client() -> Client:
    """One for a process: all accounts share its connections, and each call brings credentials."""
    return httpx2.AsyncClient(
        headers={"Accept": "application/json", "User-Agent": "Tidings"},
        timeout=CALL_SECONDS,
        limits=httpx2.Limits(max_connections=CONNECTIONS),
        verify=system_trust(),
    )


class Api:
    """One provider with one account. Safe for many concurrent calls in one event loop."""

    def __init__(
        self, client: Client, name: str, base_url: str, headers: Mapping[str, str]
    ) -> None:
        """`name` as people know it, for sentences."""
        self.name = name
        self._client = client
        self._base_url = base_url
        self._headers = headers

    async def call(self, method: str, path: str, **sent: Any) -> ApiAnswer:
        """Raises SendError without an answer; a cancelled call, too, says what became of it."""
        progress = Progress()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._exchange(method, path, progress, sent)
        except (httpx2.HTTPError, TimeoutError, asyncio.CancelledError) as error:
            verdict = UNKNOWN if progress.sent else UNREACHABLE
            problem = (
                "got a request and did not answer it" if progress.sent else "cannot be reached"
            )
            cause = _SILENT.get(type(error)) or line(str(error)).rstrip(".") or type(error).__name__
            detail = f"{self.name} {problem}: {cause}."
            raise SendError(verdict.outcome, verdict.code, detail) from error

    async def _exchange(
        self, method: str, path: str, progress: Progress, sent: dict[str, Any]
    ) -> ApiAnswer:
        sent["headers"] = {**self._headers, **sent.get("headers", {})}
        sent["extensions"] = {"trace": progress.trace}
        async with self._client.stream(method, f"{self._base_url}{path}", **sent) as response:
            kept = bytearray()
            async for chunk in response.aiter_bytes():
                kept += chunk
                if len(kept) > KEPT_BYTES:
                    break
        try:
            parsed = document.parse(bytes(kept))
        except document.MalformedJson:
            parsed = None
        return ApiAnswer(
            response.status_code,
            parsed if isinstance(parsed, dict) else {},
            retry_after(
                response.headers.get("retry-after"), datetime.now(UTC), most=LONGEST_RETRY_AFTER
            ),
        )

    def fault(self, answer: ApiAnswer, detail: str | None) -> Fault:
        """The fault of a channel whose question had no good answer."""
        code = "credentials" if answer.verdict is MISCONFIGURED else "unreachable"
        words = f": {line(detail)}" if detail else "."
        return Fault("error", code, f"{self.name} answered {answer.status}{words}")

    def error(self, answer: ApiAnswer, verdict: Verdict, detail: str | None) -> SendError:
        words = f": {line(detail)}" if detail else ""
        return SendError(
            verdict.outcome,
            verdict.code,
            f"{self.name} answered {answer.status}{words}",
            retry_after_seconds=answer.retry_after_seconds,
        )


_SILENT = {asyncio.CancelledError: "the call was interrupted", TimeoutError: "time ran out"}
