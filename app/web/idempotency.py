"""Idempotency-Key: the copies of a request get its first answer, and have no effect of their own.

The answer is kept in the request's own transaction: it and the effect exist together or not at
all, so a refused request leaves its key free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from app.errors import Problem
from app.identity import Member
from app.store import idempotency
from app.store.db import Handle, Row
from app.vault import Vault
from app.web.reply import SecretResponse

KEPT_FOR = timedelta(hours=24)
KEPT_HEADERS = ("content-type", "location", "etag")
PURPOSE = "idempotency"

KEY = re.compile(r"[ -~]{1,255}")  # printable ASCII


def key_of(headers: Headers) -> str | None:
    """Raises Problem `malformed_request`."""
    given = headers.getlist("idempotency-key")
    if len(given) > 1 or not all(KEY.fullmatch(key) for key in given):
        raise Problem(
            "malformed_request",
            "Send one Idempotency-Key of 1 to 255 printable ASCII characters, or none.",
        )
    return given[0] if given else None


async def once(
    db: Handle,
    work: Callable[[], Awaitable[Response]],
    *,
    key: str,
    vault: Vault,
    member: Member,
    request: Request,
) -> Response:
    """What `work` answers, or answered before; `db` is the transaction that it works in.

    Raises Problem `idempotency_in_progress` and `idempotency_mismatch`.
    """
    scope, workspace_id = request.scope, member.workspace_id
    place = json.dumps([workspace_id, scope["method"], scope["path"], key]).encode()
    id = vault.keyed_hash(f"{PURPOSE} key", place)
    # Keyed as well: a body may be a secret that is easily guessed.
    body = await request.body()
    asked = vault.keyed_hash(f"{PURPOSE} body", scope["query_string"] + b"\n" + body)
    if not await idempotency.lock(db, id=id):
        raise Problem(
            "idempotency_in_progress",
            "The first request with this Idempotency-Key is not done; send this one again later.",
            headers={"Retry-After": "1"},
        )
    # Only now, in a statement of its own: what the last holder of the lock wrote has to be seen.
    kept = await idempotency.by_id(db, workspace_id=workspace_id, id=id)
    if kept is not None:
        _refuse_another(kept, asked, member)
        return _replayed(vault.decrypt(PURPOSE, kept["answer"], workspace_id, id.hex()))
    response = await work()
    await idempotency.insert(
        db,
        workspace_id=workspace_id,
        id=id,
        asked=asked,
        only_for=member.via_id if isinstance(response, SecretResponse) else None,
        answer=vault.encrypt(PURPOSE, _written(response), workspace_id, id.hex()),
        expires_at=await db.now() + KEPT_FOR,
    )
    return response


def _refuse_another(kept: Row, asked: bytes, member: Member) -> None:
    if kept["asked"] != asked:
        raise Problem(
            "idempotency_mismatch",
            "This Idempotency-Key was used here with another body; a new request needs a new key.",
        )
    if kept["only_for"] not in (None, member.via_id):
        raise Problem(
            "idempotency_mismatch",
            "This Idempotency-Key was used here by somebody else, who was shown a secret.",
        )


def _written(response: Response) -> bytes:
    headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    return json.dumps([response.status_code, headers]).encode() + b"\n" + bytes(response.body)


def _replayed(written: bytes) -> Response:
    head, _, body = written.partition(b"\n")
    status, headers = json.loads(head)
    return Response(body, status, {**headers, "Idempotency-Replayed": "true"})
