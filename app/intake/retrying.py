"""A refused event once more: by today's configuration, and a member vouches for its signature."""

from __future__ import annotations

from collections.abc import Mapping

from app.database.db import new_id
from app.errors import Problem, Unavailable
from app.intake import webhooks
from app.intake.acceptance import Accepted
from app.intake.lookup import Found
from app.intake.webhook_requests import Head, IncomingRequest
from app.process import Process
from app.store import definition_starts, webhook_requests
from app.store.webhook_requests import LONGEST_BODY


async def retry(process: Process, workspace_id: str, id: str) -> Accepted:
    """The one run that the request makes, however often it is tried: with the sender's key, if it
    has one, and else with its own id for a key. Raises Problem: what it is refused for now."""
    return await webhooks.until_current(lambda: _retried(process, workspace_id, id))


async def _retried(process: Process, workspace_id: str, id: str) -> Accepted:
    async with process.database.read() as db:
        record = await webhook_requests.by_id(db, workspace_id=workspace_id, id=id)
        if record is None:
            raise _unknown()
        row = await definition_starts.webhook_target(
            db, workspace_id=workspace_id, id=record.definition_id
        )
    if row is None:
        raise _unknown()
    target = webhooks.target_of(process, row)
    if record.outcome != "REFUSED":
        raise Problem("conflict", f"It was already accepted: its run is {record.run_id}.")
    if target.closed_reason is not None:
        detail = f"It can be retried once events are accepted again. {target.closed_reason}"
        raise Problem("conflict", detail)
    head, body = _head(record.headers, record.ip), record.body or b""
    if len(body) >= LONGEST_BODY:
        kept = f"the first {LONGEST_BODY // 1024} KiB"
        detail = f"Only {kept} of its body were stored; ask the sender to send it again."
        raise Problem("conflict", detail)
    found: Found | None = None
    key: bytes | None = None
    try:
        found = await webhooks.found_in(process, target, body)
        key = webhooks.key_of(target, head, found.deduped)
    except Problem as problem:
        if isinstance(problem, Unavailable):
            raise  # it may have a key that is not known yet
        # What is wrong with it is told where events are judged.
    if key is None:
        head = _head({**record.headers, "idempotency-key": record.id}, record.ip)
    # Under a new id, which its run will have too.
    request = IncomingRequest(new_id("req"), target.workspace.id, target.definition_id, head, body)
    return await webhooks.admit(process, target, request, found=found)


def _unknown() -> Problem:
    return Problem("not_found", "There is no such webhook request.")


def _head(headers: Mapping[str, str], ip: str) -> Head:
    """Their bytes, with question marks for what is masked: a member vouches for the signature."""
    named = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]
    return Head(named, ip)
