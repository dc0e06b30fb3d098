"""Records of the requests to a webhook URL: what came, and why it was refused.

Records of accepted requests are written with their runs; those of refused ones after the answer, so
that writing them down neither delays nor fails it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import orjson

from app.errors import Problem
from app.machine import document
from app.machine.secrets import MASK, is_secret_name
from app.machine.text import replace_unstorable
from app.process import Process
from app.runtime.batching import batched
from app.store import webhook_requests
from app.store.webhook_requests import LONGEST_BODY, Outcome, RequestRecord

log = logging.getLogger(__name__)

# Long runs of what keys are made of; also what stands after /webhooks/in/.
KEY_LIKE = re.compile(r"[A-Za-z0-9_+/=.~-]{24,}")
LONGEST_REWRITTEN = 16 * 1024  # bytes of a body that is written in other ways, to find out why
DEEPEST_REWRITTEN = 32  # levels of it: each line of what is at the bottom is indented by as many
LONGEST_KNOWN = 64  # bytes of a header's name that is kept
NO_SECRET = frozenset({"idempotency-key", "webhook-id", "x-request-id", "content-type", "host"})


@dataclass(slots=True)
class Head:
    """The facts of a request beside its body."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=list)  # names in lower case
    ip: str = ""
    began: float = field(default_factory=time.perf_counter)

    def values(self, name: bytes) -> list[str]:
        return [value.decode("latin-1") for key, value in self.headers if key == name]

    def elapsed_ms(self) -> int:
        return round((time.perf_counter() - self.began) * 1000)


def masked(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Read the headers by name, secrets masked; repeated ones are joined by a comma (RFC 9110
    §5.3)."""
    kept: dict[str, str] = {}
    for raw_name, raw_value in headers:
        # Kept where it is short, as nearly all are: strangers choose these names.
        is_short = len(raw_name) <= LONGEST_KNOWN
        judged = _known(raw_name) if is_short else _known.__wrapped__(raw_name)
        name, is_secret, is_plain = judged
        value = MASK if is_secret else raw_value.decode("latin-1")
        if len(value) >= 24 and not is_plain:
            value = KEY_LIKE.sub(MASK, value)
        kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


@lru_cache(1_024)
def _known(raw_name: bytes) -> tuple[str, bool, bool]:
    """A header's name, whether its value opens something, and whether it surely does not."""
    name = raw_name.decode("latin-1")
    is_plain = name in NO_SECRET
    return name, not is_plain and is_secret_name(name), is_plain


@dataclass(slots=True)
class IncomingRequest:
    """A request to the webhook URL of a definition, as it was received."""

    id: str
    workspace_id: str
    definition_id: str
    head: Head
    body: bytes


def record(
    request: IncomingRequest,
    outcome: Outcome,
    status: int,
    *,
    code: str | None = None,
    detail: str | None = None,
    body: bytes | None = None,
    run_id: str | None = None,
    contact_id: str | None = None,
    looked_up: str | None = None,
) -> RequestRecord:
    return RequestRecord(
        workspace_id=request.workspace_id,
        definition_id=request.definition_id,
        id=request.id,
        outcome=outcome,
        status=status,
        headers=masked(request.head.headers),
        ip=request.head.ip,
        duration_ms=request.head.elapsed_ms(),
        code=code,
        detail=detail,
        body=body,
        run_id=run_id,
        contact_id=contact_id,
        looked_up=looked_up,
    )


def refusal(
    request: IncomingRequest,
    problem: Problem,
    detail: str | None = None,
    looked_up: str | None = None,
) -> RequestRecord:
    """`detail`: more than its sender was told; `looked_up`: the hash of whom it is about."""
    return record(
        request,
        "REFUSED",
        problem.status,
        code=problem.code,
        detail=replace_unstorable(detail or problem.detail),
        body=request.body[:LONGEST_BODY],
        looked_up=looked_up,
    )


# --- written after the answer ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """A request to be written down; whom it is about, and a `cause`, are found out only then, for
    that may cost something."""

    request: RequestRecord
    look_up: Callable[[], str | None]
    cause: Callable[[], str | None] | None = None


def note(process: Process, note: Note) -> None:
    """Record a request later, and return at once. Under a flood of refused ones the newest go
    unrecorded."""
    if not process.batches.run_later(write_some, process, note):
        log.warning("too many refused requests to write each down")


def _weight(note: Note) -> int:
    return len(note.request.body or b"")


@batched(max_items=100, weigh=_weight, whose=lambda note: note.request.workspace_id)
async def write_some(process: Process, notes: Sequence[Note]) -> Sequence[None]:
    requests = await asyncio.to_thread(
        lambda: [
            replace(
                note.request,
                cause=note.cause() if note.cause else note.request.cause,
                looked_up=note.look_up(),
            )
            for note in notes
        ]
    )
    async with process.database.write() as db:
        await webhook_requests.insert_many(db, requests)
    return [None] * len(notes)


# --- why a signature was wrong --------------------------------------------------------------------


def is_reserialised(body: bytes, is_right: Callable[[bytes], bool]) -> bool:
    """Return whether the signature fits the same JSON written in another way. The sender parsed its
    body and signed what it wrote again, the most common mistake of all."""
    if len(body) > LONGEST_REWRITTEN:
        return False
    try:
        document.refuse_deep(body, DEEPEST_REWRITTEN)
        value = orjson.loads(body)
    except (document.MalformedJson, orjson.JSONDecodeError):
        return False
    return any(is_right(other) for other in _rewritten(body, value))


def _rewritten(body: bytes, value: Any) -> Iterator[bytes]:
    """One after another: indented, each may be many times as long as the body."""
    yield body.strip()
    yield body.strip() + b"\n"
    for layout in _LAYOUTS:
        for ascii_only in (True, False):
            try:
                yield json.dumps(value, ensure_ascii=ascii_only, **layout).encode()
            except (UnicodeEncodeError, RecursionError):
                continue


_LAYOUTS: Sequence[Mapping[str, Any]] = (
    {"separators": (",", ":")},
    {},
    {"indent": 2},
    {"separators": (",", ":"), "sort_keys": True},
    {"sort_keys": True},
)
