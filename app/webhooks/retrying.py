"""A refused event once more: by today's configuration, and a member vouches for its signature."""

from __future__ import annotations

from collections.abc import Mapping

from app import intake
from app.errors import Problem
from app.intake import Door
from app.process import Process
from app.store import definitions, webhook_requests
from app.store.db import Row, new_id
from app.store.webhook_requests import LONGEST_BODY
from app.webhooks.acceptance import Accepted
from app.webhooks.webhook_requests import Head, Visit


async def retry(process: Process, workspace_id: str, id: str) -> Accepted:
    """The one run that the request makes, however often it is tried: with the sender's key, if it
    has one, and else with its own id for a key. Raises Problem: what it is refused for now."""
    return await intake.settled(lambda: _retried(process, workspace_id, id))


async def _retried(process: Process, workspace_id: str, id: str) -> Accepted:
    async with process.database.read() as db:
        request = await webhook_requests.by_id(db, workspace_id=workspace_id, id=id)
        row = request and await definitions.door(
            db, workspace_id=workspace_id, id=request["definition_id"]
        )
    if request is None or row is None:
        raise unknown()
    door = intake.door_of(process, row)
    _refuse_needless(request, door)
    return await intake.admit(process, door, _visit(door, request))


def unknown() -> Problem:
    return Problem("not_found", "There is no such webhook request.")


def _refuse_needless(request: Row, door: Door) -> None:
    if request["outcome"] != "REFUSED":
        raise Problem("conflict", f"It was already accepted: its run is {request['run_id']}.")
    if door.shut is not None:
        raise Problem("conflict", f"It can be retried once events are accepted again. {door.shut}")
    if len(request["body"] or b"") >= LONGEST_BODY:
        kept = f"the first {LONGEST_BODY // 1024} KiB"
        raise Problem(
            "conflict", f"Only {kept} of its body were stored; ask the sender to send it again."
        )


def _visit(door: Door, request: Row) -> Visit:
    """As it came, but with a number of its own, which its run will have too."""
    body = request["body"] or b""
    head = _head(request["headers"], request["ip"])
    if not _is_keyed(door, head, body):
        head = _head({**request["headers"], "idempotency-key": request["id"]}, request["ip"])
    return Visit(new_id("req"), door.workspace.id, door.definition_id, head, body)


def _head(headers: Mapping[str, str], ip: str) -> Head:
    named = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return Head(named, ip)


def _is_keyed(door: Door, head: Head, body: bytes) -> bool:
    try:
        return intake.key_of(door, head, intake.parse(body)) is not None
    except Problem:
        return False  # what is wrong with it is told where events are judged
