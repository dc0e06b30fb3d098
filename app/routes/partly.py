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
) -> tuple[Written, list[FieldError]]:
    """What the body says, or makes of what is `stored`, and everything that could not be read of
    it; `without` stands in for what a new one may not lack. Raises Problem where there is nothing
    to go on with."""
    raw, errors, headers = call.body, list[FieldError](), call.request.headers
    detail = ""
    for _ in range(MOST_ROUNDS):
        try:
            if stored is None:
                return body.read(model, headers, raw), errors
            return body.patch(model, stored, headers, raw), errors
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
            rest = _pruned(document.parse(raw), wrong)
            raw = document.dumps(rest if stored is not None else {**without, **rest})
    raise Problem("invalid", detail, errors=errors)


def _pruned(value: dict[str, Any], wrong: Iterable[FieldError]) -> dict[str, Any]:
    """Without the members in which something is wrong; of a list there is all or nothing."""
    for error in wrong:
        _, *tokens = (
            token.replace("~1", "/").replace("~0", "~") for token in error.pointer.split("/")
        )
        holder = value
        while len(tokens) > 1 and isinstance(holder.get(tokens[0]), dict):
            holder = holder[tokens.pop(0)]
        holder.pop(tokens[0], None)
    return value
