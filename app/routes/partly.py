"""Bodies of which some is wrong: the rest is read all the same, so that one answer names all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from app.errors import FieldError, Problem
from app.machine import document
from app.machine.program import Json
from app.web import body
from app.web.body import Unchanged, Writable
from app.web.routing import Call

Written = TypeVar("Written", bound=Writable)

MOST_ROUNDS = 3  # some of it is judged only once its parts are right


def read(
    call: Call,
    model: type[Written],
    stored: Mapping[str, Json] | None,
    *,
    without: Mapping[str, Json],
    changed: bytes | None = None,
) -> tuple[Written, list[FieldError], set[str]]:
    """Read what the body says, or makes of what is `stored`; all that could not be read of it; and
    the pointers to what was left out for that. `without` stands in for what a new one may not lack,
    `changed` for the body. Raises Problem where there is nothing to go on with."""
    raw, errors, headers = changed or call.body, list[FieldError](), call.request.headers
    detail, gone = "", set[str]()
    for _ in range(MOST_ROUNDS):
        try:
            if stored is None:
                return body.read(model, headers, raw), errors, gone
            return body.patch(model, stored, headers, raw), errors, gone
        except Unchanged:
            if not errors:
                raise
            break  # nothing of it is right
        except Problem as problem:
            wrong = problem.errors
            if problem.code != "invalid" or not all(error.pointer for error in wrong):
                raise
            errors += wrong
            detail = detail or problem.detail
            rest = document.parse(raw)
            gone |= _prune(rest, wrong)
            rest = rest if stored is not None else {**without, **rest}
            if rest == document.parse(raw):
                break  # it would be wrong again, and told again
            raw = document.dumps(rest)
    raise Problem("invalid", detail, errors=errors)


def _prune(value: dict[str, Any], wrong: Iterable[FieldError]) -> set[str]:
    """Take out the members in which something is wrong, of a list all, and tell their pointers."""
    gone = set()
    for error in wrong:
        _, *tokens = (
            token.replace("~1", "/").replace("~0", "~") for token in error.pointer.split("/")
        )
        holder, depth = value, 0
        while depth + 1 < len(tokens) and isinstance(holder.get(tokens[depth]), dict):
            holder = holder[tokens[depth]]
            depth += 1
        if tokens[depth] in holder:
            del holder[tokens[depth]]
            gone.add(document.pointer(*tokens[: depth + 1]))
    return gone
