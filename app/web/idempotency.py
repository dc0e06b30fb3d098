"""Idempotency-Key: the copies of a request get its first answer, and have no effect of their own.

The answer is kept in the request's own transaction: it and the effect exist together or not at
all, so a refused request leaves its key free. Whoever has to ask somebody outside before that
transaction looks for a kept answer first, and keeps its own at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from app.database.db import Database, Handle
from app.errors import Problem
from app.identity.identity import Member
from app.store import idempotency
from app.vault.vault import Vault
from app.web.reply import KeptResponse, SecretResponse

KEPT_FOR = timedelta(hours=24)
KEPT_HEADERS = ("content-type", "location", "etag")
PURPOSE = "idempotency"

KEY = re.compile(r"[ -~]{1,255}")  # printable ASCII
ID = re.compile(r"\b[a-z]+_[0-9a-z]{26}\b")


def key_of(headers: Headers) -> str | None:
    """Raises Problem `malformed_request`."""
    given = headers.getlist("idempotency-key")
    if len(given) > 1 or not all(KEY.fullmatch(key) for key in given):
        raise Problem(
            "malformed_request",
            "Send one Idempotency-Key of 1 to 255 printable ASCII characters, or none.",
        )
    return given[0] if given else None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that carries a key."""

    vault: Vault
    member: Member
    id: bytes  # of the key in its place: workspace, method and path
    path: str
    content: bytes  # a hash of what was asked

    @classmethod
    def by(cls, scope: Scope, body: bytes, key: str, *, vault: Vault, member: Member) -> Asked:
        place = json.dumps([member.workspace_id, scope["method"], scope["path"], key]).encode()
        # Keyed as well: a body may be a secret that is easily guessed.
        content = scope["query_string"] + b"\n" + body
        return cls(
            vault,
            member,
            vault.keyed_hash(f"{PURPOSE} key", place),
            scope["path"],
            vault.keyed_hash(f"{PURPOSE} body", content),
        )

    async def answer(self, db: Handle) -> Response | None:
        """The answer that was given before. Raises Problem `idempotency_mismatch`, and `conflict`
        when nobody may be told that any more."""
        member = self.member
        kept = await idempotency.by_id(db, workspace_id=member.workspace_id, id=self.id)
        if kept is None:
            return None
        if kept.asked != self.content:
            raise Problem(
                "idempotency_mismatch",
                "This Idempotency-Key was used with another body; a new request needs a new key.",
            )
        if kept.only_for not in (None, member.via_id):
            raise Problem(
                "idempotency_mismatch",
                "This Idempotency-Key was used by somebody else, and its response had a secret.",
            )
        if not kept.answer:
            raise Problem(
                "conflict",
                "The response for this Idempotency-Key contained data of a person erased since; a"
                " new request needs a new key.",
            )
        written = self.vault.decrypt(PURPOSE, kept.answer, member.workspace_id, self.id.hex())
        head, _, body = written.partition(b"\n")
        status, headers = json.loads(head)
        return KeptResponse(body, status, {**headers, "Idempotency-Replayed": "true"})

    async def earlier(self, database: Database) -> Response | None:
        """The answer that was given before, if there is one, once it is safe. Raises as `answer`
        does."""
        async with database.read() as db:
            kept = await self.answer(db)
        if kept is not None:
            async with database.write() as db:
                await db.use(lambda link: link.confirm_reads())
        return kept

    async def once(self, db: Handle, work: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of `work`, or its earlier one; `db` is the transaction that it works in.

        Raises Problem `idempotency_in_progress`, `idempotency_mismatch` and `conflict`.
        """
        if not await idempotency.lock(db, id=self.id):
            raise Problem(
                "idempotency_in_progress",
                "The first request with this Idempotency-Key is still running; retry later.",
                headers={"Retry-After": "1"},
            )
        # Only now, in a statement of its own: what the lock's last holder wrote has to be seen.
        kept = await self.answer(db)
        if kept is not None:
            # Its commit may have been given up while no standby had it: then it is no answer yet.
            await db.use(lambda link: link.confirm_reads())
            return kept
        answer = await work()
        workspace_id = self.member.workspace_id
        headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        head = json.dumps([answer.status_code, headers]).encode()
        written = head + b"\n" + bytes(answer.body)
        # What the answer made, or was asked about.
        about = ID.search(answer.headers.get("location", self.path))
        await idempotency.insert(
            db,
            workspace_id=workspace_id,
            id=self.id,
            asked=self.content,
            only_for=self.member.via_id if isinstance(answer, SecretResponse) else None,
            about=about and about[0],
            answer=self.vault.encrypt(PURPOSE, written, workspace_id, self.id.hex()),
            expires_at=await db.now() + KEPT_FOR,
        )
        return answer
