"""Errors: every code with its status and title, and the exceptions that carry it.

Problem                 an answer in the shape of RFC 9457; raised anywhere below the edge
├── Unavailable         a dependency cannot be reached; nothing was changed, try again
│   ├── DiskFull        the database's disk has no room
│   ├── Contended       other work is in the way, in a database that answers
│   │   ├── Locked      it had a lock for longer than this one waits
│   │   └── Deadlocked  so that each waited for the other; this one was ended
│   ├── Silent          it is a server of the operator's choice; the cause is for the operator
│   └── CommitUnknown   COMMIT was sent and its answer lost: the caller re-reads before it answers
Duplicate               a unique constraint spoke; who knows the resource makes it a conflict
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CODES: Mapping[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not JSON"),
    "malformed_request": (400, "The request is malformed"),
    "unauthenticated": (401, "Authentication is required"),
    "invalid_signature": (401, "The signature is missing or wrong"),
    "payment_required": (402, "Payment is required"),
    "forbidden": (403, "You may not do this"),
    "plan_required": (403, "Your plan does not include this"),
    "quota_exceeded": (403, "A quota is used up"),
    "workspace_suspended": (403, "The workspace is suspended"),
    "not_found": (404, "Not found"),
    "contact_not_found": (404, "No such contact"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_acceptable": (406, "Not acceptable"),
    "request_timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "Conflict"),
    "last_owner": (409, "The last owner must stay"),
    "invitation_used": (409, "The invitation was used"),
    "idempotency_in_progress": (409, "The first request with this key is still running"),
    "stale": (412, "The resource has changed"),
    "body_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "Unsupported media type"),
    "invalid": (422, "The request is invalid"),
    "lookup_unresolved": (422, "The lookup path resolved to nothing usable"),
    "chain_too_long": (422, "The chain of runs is too long"),
    "not_activatable": (422, "The definition cannot be activated"),
    "idempotency_mismatch": (422, "The key was used with another body"),
    "rate_limited": (429, "Too many requests"),
    "internal": (500, "Something went wrong on our side"),
    "not_implemented": (501, "The method is not known"),
    "billing_not_configured": (503, "Billing is not configured"),
    "unavailable": (503, "Temporarily unavailable"),
}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong: where (RFC 6901 pointer, or `?name` for a query parameter), and what."""

    pointer: str
    message: str


class Problem(Exception):
    """An answer that says what to do. `extra` members stand beside the standard ones."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        **extra: object,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status, self.title = CODES[code]
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.extra = extra


class Unavailable(Problem):
    """The database, or what else a request cannot do without, did not answer in time."""

    def __init__(
        self, detail: str, *, retry_after_seconds: int = 2, unanswered: bool = False
    ) -> None:
        super().__init__("unavailable", detail, headers={"Retry-After": str(retry_after_seconds)})
        # Nothing was heard until the deadline: who asks next waits as long.
        self.unanswered = unanswered


class Silent(Unavailable):
    """Another server, which the operator has chosen, did not answer with sense; why is for the
    operator to know."""

    def __init__(self, detail: str, cause: str) -> None:
        super().__init__(detail)
        self.cause = cause


class NotForThis(Silent):
    """Refusal by a server that answered, about one thing; it may answer about others."""


class DiskFull(Unavailable):
    """The disk of the database has no room left: only who runs the service can help."""

    def __init__(self) -> None:
        super().__init__(
            "The database's disk is full. Nothing was changed; send it again once the operator has"
            " made room.",
            retry_after_seconds=30,
        )


class Contended(Unavailable):
    """Another transaction holds what this one needs, waits for it, or has changed it meanwhile; or
    a statement has taken too long. The database answers, and has other things to give."""


class Locked(Contended):
    """Another transaction had a lock for longer than this one waits for it."""


class Deadlocked(Contended):
    """Deadlock of two transactions: this one was ended, and the other goes on."""


class CommitUnknown(Unavailable):
    """The connection was lost while COMMIT was on its way: the change may or may not exist."""


class Duplicate(Exception):
    """A unique constraint was violated: `constraint`, by PostgreSQL's name on both engines."""

    def __init__(self, constraint: str) -> None:
        super().__init__(f"unique constraint violated: {constraint}")
        self.constraint = constraint
