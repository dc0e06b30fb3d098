"""Names of operations, for people and in programs: by their paths and handlers."""

from __future__ import annotations

import re

from app.web.routing import PUBLIC, Endpoint

VERBS = {
    "index": "list",
    "show": "get",
    "page": "open",
    "create": "create",
    "update": "update",
    "remove": "delete",
}
SILENT = ("v1", "in", "auth")
SPELLED = {"u": "preferences"}  # of links in messages, which must be short
PREFIXED = ("admin", "sandbox")  # what is below them has its namesake elsewhere
PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def path_of(endpoint: Endpoint) -> str:
    return PARAMETER.sub(r"{\1}", endpoint.path)


def tag_of(endpoint: Endpoint) -> str:
    if endpoint.can == PUBLIC and endpoint.method == "GET" and "/auth/" not in endpoint.path:
        return "public"
    first, second, *_ = [*endpoint.path.strip("/").split("/"), ""]
    return SPELLED.get(first, second if first == "v1" else first).replace("-", " ")


def words_of(endpoint: Endpoint) -> list[str]:
    """The operation in words: a verb, and its object from the path. The folders above a resource
    are silent; a resource that has an id is told with its own."""
    handler = endpoint.handler.__name__.rstrip("_").split("_")
    verb = VERBS.get(handler[0])
    if verb is None and len(handler) > 1:
        return handler
    parts = [SPELLED.get(part, part) for part in endpoint.path.split("/")]
    parts = [part for part in parts if part and part not in (handler[0], *SILENT)]
    nouns: list[str] = []
    for place, part in enumerate(parts):
        below = parts[place + 1 :]
        if part.startswith("{"):
            continue
        if all(one.startswith("{") for one in below):
            nouns += part.partition(".")[0].split("-")
        elif below[0].startswith("{") or part in PREFIXED:
            nouns += singular(part.replace("-", " ")).split(" ")
    if verb == "list" or (nouns and nouns[-1] in UNCOUNTED):
        return [verb or handler[0], *nouns]
    return [verb or handler[0], *nouns[:-1], *(singular(noun) for noun in nouns[-1:])]


UNCOUNTED = ("activity", "analytics", "stats", "invariants", "preferences")


def singular(noun: str) -> str:
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def operation_id(endpoint: Endpoint) -> str:
    first, *rest = words_of(endpoint)
    return first + "".join(word.capitalize() for word in rest)
