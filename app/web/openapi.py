"""The route table → an OpenAPI 3.1 document: what clients program against is what is served."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from app.errors import CODES
from app.identity.roles import PERMISSIONS, ROLES
from app.machine.content import CHANNELS
from app.web.body import MERGE_PATCH, Query, Writable
from app.web.endpoints import Endpoint
from app.web.idempotency import KEY
from app.web.multipart import FORM
from app.web.naming import PARAMETER, operation_id, path_of, tag_of, words_of
from app.web.reply import Page
from app.web.routing import ADMIN, MEMBER, PUBLIC
from app.web.schemas import PLACE, UNTOLD, Schema, Schemas, not_null

REQUEST_ID = "0199c0de-7e57-7a11-b0b0-5eed5eed5eed"

# --- what is the same everywhere ------------------------------------------------------------------

ABOUT = """\
A webhook comes in, one run starts for the right contact, and a message goes out.

**Authentication.** `Authorization: Bearer` with an API key or an access token. Each operation names
the permission that it needs.

**Lists** are paged, newest first: `limit` sets the page size, and `cursor` takes the `nextCursor`
of the previous page, with the same filters. A page has an `ETag`: ask again with it in
`If-None-Match`, and while nothing on it has changed the answer is 304, without a body.

**Changes** are merge patches (RFC 7396): absent members are unchanged, null removes. A resource
with an `ETag` supports `If-None-Match` on reads (304 if nothing has changed) and `If-Match` on
changes (412 if something has). Without an `ETag`, `If-Match` always gets 412. A PUT with
`If-None-Match: *` creates what does not exist, and otherwise changes nothing (412). A patch that
makes no difference gets 200 and changes nothing: the `ETag` stays.

**Retries.** A POST with an `Idempotency-Key` takes effect once in 24 hours; a retry gets the first
response, with `Idempotency-Replayed: true`.

**Errors** are `application/problem+json` (RFC 9457): a stable `code`, a `detail` that says what to
do, and in `errors` every error with a JSON Pointer to its place. Unknown fields and parameters are
refused, not ignored. Any operation can answer 500 `internal` if there is an error on our side.

**Limits.** 600 requests a minute for each key or session. Every response to one says in `RateLimit`
how many are left; a 429 says in `Retry-After` when to retry.
"""

# What a body of another media type than JSON is, where that is not a text.
FILES: Mapping[str, Schema] = {
    FORM: {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
        "additionalProperties": False,
    }
}

PROBLEM: Schema = {
    "type": "object",
    "title": "Problem",
    "description": "What went wrong, and what to do about it (RFC 9457).",
    "required": ["type", "title", "status", "detail", "code", "requestId"],
    "properties": {
        "type": {"type": "string", "description": "A page about this kind of error."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence that says what to do."},
        "code": {"type": "string", "enum": list(CODES)},
        "requestId": {"type": "string", "description": "Quote it to the operator."},
        "errors": {
            "type": "array",
            "description": "Every error, with its place.",
            "items": {"$ref": f"{PLACE}FieldError"},
        },
    },
}
FIELD_ERROR: Schema = {
    "type": "object",
    "title": "FieldError",
    "description": "One error, and where it is.",
    "required": ["pointer", "message"],
    "additionalProperties": False,
    "properties": {
        "pointer": {
            "type": "string",
            "description": "A pointer into the body (RFC 6901), or `?name` of a query parameter.",
        },
        "message": {"type": "string"},
    },
}

TEXT: Schema = {"type": "string"}
ETAG: Schema = {"type": "string", "pattern": '^(W/)?"[!#-~]+"$'}
SECONDS: Schema = {"type": "integer", "minimum": 0}

ANSWER_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-Id": ("Identifies the request in our log; your own value, if you sent one.", TEXT),
    "ETag": (
        "Changes whenever the answer does: for If-None-Match, and of a resource for If-Match.",
        ETAG,
    ),
    "Location": ("Where the new resource is.", TEXT),
    "Idempotency-Replayed": (
        "`true` on the response to a retry.",
        {"type": "string", "const": "true"},
    ),
    "WWW-Authenticate": ("`Bearer`.", TEXT),
    "Retry-After": ("Seconds to wait before a retry.", SECONDS),
    "RateLimit": ("How many requests are left, and when the limit resets.", TEXT),
    "RateLimit-Policy": ("How many requests are allowed in how many seconds.", TEXT),
}
ASKED_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "Makes retries safe: at most one effect per key in 24 hours.",
        {"type": "string", "pattern": f"^{KEY.pattern}$"},
    ),
    "If-Match": (
        "Changes it only if it is still the revision that you have read.",
        TEXT,
    ),
    "If-None-Match": (
        "If it is still this revision, a GET gets 304, and a change gets 412; * is any revision.",
        TEXT,
    ),
}
# What stands in a path beside the ids of resources, which say themselves what they look like.
IN_PATHS: Mapping[str, Schema] = {
    "token": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    "code": {"type": "string", "enum": list(CODES)},
    "channel": {"type": "string", "enum": list(CHANNELS)},
    "version": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    "other": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
}
LIMITS = ("RateLimit", "RateLimit-Policy")
CODE_HEADERS: Mapping[str, Sequence[str]] = {
    "unauthenticated": ("WWW-Authenticate",),
    "idempotency_in_progress": ("Retry-After",),
    "rate_limited": ("Retry-After", *LIMITS),
    "unavailable": ("Retry-After",),
}


# --- the document ---------------------------------------------------------------------------------


def document(
    endpoints: Sequence[Endpoint],
    *,
    base_url: str,
    version: str,
    examples: Mapping[str, Any],
    events: Mapping[str, type[BaseModel]] = MappingProxyType({}),
) -> Schema:
    """`events` are the models of what is posted to a workspace's own endpoints, by type."""
    taken = {one.takes for one in endpoints if isinstance(one.takes, type)}
    contents = [one for endpoint in endpoints for one in (endpoint.takes, *endpoint.gives.values())]
    models = {one for one in contents if isinstance(one, type)}
    schemas = Schemas({*models, *events.values()}, examples, taken)
    writer = _Writer(schemas, {(one.method, one.path): one for one in endpoints})
    paths: defaultdict[str, Schema] = defaultdict(dict)
    for endpoint in endpoints:
        operation = writer.operation(endpoint)
        paths[path_of(endpoint)][endpoint.method.lower()] = operation
    tags = sorted(dict.fromkeys(map(tag_of, endpoints)), key=lambda tag: tag == "public")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings", "version": version, "description": ABOUT},
        "servers": [{"url": base_url}],
        "tags": [{"name": tag} for tag in tags],
        "paths": dict(paths),
        "webhooks": {type: writer.webhook(type, model) for type, model in events.items()},
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, or the access token of a session.",
                }
            },
            "headers": {
                name: {"description": description, "schema": schema}
                for name, (description, schema) in ANSWER_HEADERS.items()
            },
            "responses": dict(sorted(writer.refusals.items())),
            "examples": {code: {"value": _problem(code)} for code in CODES},
            "schemas": {
                **dict(sorted(schemas.named.items())),
                "FieldError": FIELD_ERROR,
                "Problem": PROBLEM,
            },
        },
    }


# --- one operation --------------------------------------------------------------------------------


class _Writer:
    def __init__(self, schemas: Schemas, table: Mapping[tuple[str, str], Endpoint]) -> None:
        self._schemas = schemas
        self._table = table
        self.refusals: dict[str, Schema] = {}

    def operation(self, endpoint: Endpoint) -> Schema:
        about = " ".join((inspect.getdoc(endpoint.handler) or "").split())
        plan = f" Requires the plan `{endpoint.plan}` or above." if endpoint.plan else ""
        operation: Schema = {
            "operationId": operation_id(endpoint),
            "summary": " ".join(words_of(endpoint)).capitalize(),
            "description": "\n\n".join(filter(None, (about, WHO[endpoint.can] + plan))),
            "tags": [tag_of(endpoint)],
            "parameters": [*self._parameters(endpoint)],
            "responses": self._responses(endpoint),
            "security": [] if endpoint.can == PUBLIC else [{"bearer": []}],
            "x-permission": endpoint.can,
        }
        takes = endpoint.takes
        content: Schema = {}
        if isinstance(takes, tuple):
            content = {media_type: {"schema": FILES.get(media_type, TEXT)} for media_type in takes}
        elif takes is not None:
            patch = endpoint.method == "PATCH" and issubclass(takes, Writable)
            schema = self._schemas.patch_of(takes) if patch else self._schemas.of(takes)
            media = {"schema": schema, "example": self._schemas.example(schema, patch=patch)}
            media_types = sorted(MERGE_PATCH) if patch else ["application/json"]
            content = dict.fromkeys(media_types, media)
        if takes is not None:
            operation["requestBody"] = {"required": True, "content": content}
        return {key: value for key, value in operation.items() if value != [] or key == "security"}

    def webhook(self, type: str, model: type[BaseModel]) -> Schema:
        schema = self._schemas.of(model)
        example = {**self._schemas.example(schema), "type": type}
        media = {"schema": schema, "example": example}
        noun, _, verb = type.partition(".")
        return {
            "post": {
                "operationId": f"on{noun.capitalize()}{verb.capitalize()}",
                "summary": f"{noun} {verb}".capitalize(),
                "description": f"`{type}`, posted to the event endpoints that want it and signed by"
                " the Standard Webhooks specification.",
                "parameters": [
                    {"name": name, "in": "header", "required": True, "schema": TEXT}
                    for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
                ],
                "requestBody": {"required": True, "content": {"application/json": media}},
                "responses": {
                    "2XX": {"description": "Counts as delivered."},
                    "410": {"description": "Disables the endpoint."},
                    "default": {"description": "Tried again, ten times in three days."},
                },
                "security": [],
            }
        }

    # --- what comes in ---

    def _parameters(self, endpoint: Endpoint) -> Iterator[Schema]:
        """The parameters of its path, its query and its head."""
        for match in PARAMETER.finditer(endpoint.path):
            schema = self._id_of(endpoint.path[: match.end()]) or IN_PATHS.get(match[1], TEXT)
            yield {
                "name": match[1],
                "in": "path",
                "required": True,
                "schema": schema,
                "example": self._schemas.example(schema, match[1]),
            }
        query = self._schemas.parameters_of(endpoint.parameters or Query)
        for name, inner in query.get("properties", {}).items():
            found = not_null(inner)
            parameter: Schema = {"name": name, "in": "query", "schema": found}
            if name in query.get("required", ()):
                parameter["required"] = True
            if found.get("type") == "object":
                parameter |= {"style": "deepObject", "explode": True}
            if "description" in found:
                parameter["description"] = found.pop("description")
            example = self._schemas.example(found, f"?{name}")
            yield parameter if example == UNTOLD else {**parameter, "example": example}
        judges = endpoint.judges_tag(self._table.get(("GET", endpoint.path)))
        for name, wanted in (
            ("Idempotency-Key", endpoint.takes_key),
            ("If-Match", judges),
            ("If-None-Match", judges or (endpoint.method == "GET" and endpoint.has_tag(200))),
        ):
            if wanted:
                description, schema = ASKED_HEADERS[name]
                yield {"name": name, "in": "header", "description": description, "schema": schema}

    def _id_of(self, path: str) -> Schema | None:
        """The type of the id of the resource at the path."""
        for place in (path, path.rpartition("/")[0]):
            shown = self._table.get(("GET", place))
            model = shown and shown.gives.get(200)
            if isinstance(model, type):
                schema = self._schemas.resolved(self._schemas.of(model))
                if issubclass(model, Page):
                    schema = self._schemas.resolved(schema["properties"]["data"]["items"])
                found: Schema | None = schema.get("properties", {}).get("id")
                return found if found and "pattern" in found else None
        return None

    # --- what goes out ---

    def _responses(self, endpoint: Endpoint) -> Schema:
        """A page may say no; what is no path of ours gets a problem there all the same."""
        answers = {str(status): self._answer(endpoint, status) for status in endpoint.gives}
        limits = _limits(endpoint)
        if endpoint.method == "GET" and endpoint.has_tag(200):
            answers["304"] = {
                "description": "Not modified since the version in If-None-Match.",
                "headers": _headers(["ETag", *limits]),
            }
        by_status: defaultdict[int, list[str]] = defaultdict(list)
        for code in self.codes(endpoint):
            by_status[CODES[code][0]].append(code)
        refusals = {
            str(status): self._refusal(by_status[status], limits) for status in sorted(by_status)
        }
        for status in answers.keys() & refusals.keys():
            refusal = self.refusals[refusals[status]["$ref"].rpartition("/")[2]]
            content = {**answers[status]["content"], **refusal["content"]}
            answers[status] = {**refusal, "content": content}
        return {**refusals, **answers}

    def _answer(self, endpoint: Endpoint, status: int) -> Schema:
        content = endpoint.gives[status]
        names = [
            *(["Location"] if status in (201, 302, 303) else ()),
            *(["ETag"] if endpoint.has_tag(status) else ()),
            *(["Idempotency-Replayed"] if endpoint.takes_key else ()),
            *_limits(endpoint),
        ]
        answer: Schema = {"description": HTTPStatus(status).phrase, "headers": _headers(names)}
        if isinstance(content, tuple):
            answer["content"] = {media_type: {"schema": TEXT} for media_type in content}
        elif content is not None:
            schema = self._schemas.of(content)
            media = {"schema": schema, "example": self._schemas.example(schema)}
            answer["content"] = {"application/json": media}
        if status != 201:
            return answer
        links = {  # from what was made to what can be done with it
            operation_id(one): {
                "operationId": operation_id(one),
                "parameters": {"id": "$response.body#/id"},
            }
            for (_, path), one in self._table.items()
            if path.startswith(f"{endpoint.path}/{{id}}") and path.count("{") == 1
        }
        return {**answer, "links": links} if links else answer

    def _refusal(self, codes: Sequence[str], limits: Sequence[str]) -> Schema:
        """Much the same everywhere: written once for each set of codes, for bearers and others."""
        name = ".".join(codes if limits else [*codes, "public"])
        names = [header for code in codes for header in CODE_HEADERS.get(code, ())]
        self.refusals[name] = {
            "description": "; ".join(f"`{code}`: {CODES[code][1].lower()}" for code in codes),
            "headers": _headers([*names, *limits]),
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": f"{PLACE}Problem"},
                    "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
                }
            },
            "x-codes": list(codes),
        }
        return {"$ref": f"#/components/responses/{name}"}

    def codes(self, endpoint: Endpoint) -> list[str]:
        """Every problem that it may answer with, each once."""
        member, model = endpoint.can != PUBLIC, isinstance(endpoint.takes, type)
        changes, reads_body = endpoint.method != "GET", endpoint.takes is not None
        reads_body |= changes and endpoint.tx is not None
        reads_body |= endpoint.refuses_body
        judges_body = endpoint.takes is not None or endpoint.refuses_body
        by_wrapper = member and endpoint.tx is not None
        rules: Sequence[tuple[bool, Sequence[str]]] = (
            (True, ("malformed_request", "unavailable")),
            (member, ("unauthenticated", "workspace_suspended", "rate_limited", "invalid")),
            (member and endpoint.can != MEMBER, ("forbidden",)),
            (endpoint.plan is not None, ("plan_required",)),
            ("{" in endpoint.path, ("not_found",)),
            (reads_body, ("body_too_large", "request_timeout")),
            (judges_body, ("unsupported_media_type", "invalid")),
            (model or endpoint.refuses_body, ("malformed_json",)),
            (endpoint.takes_key, ("idempotency_in_progress", "idempotency_mismatch", "conflict")),
            (member and changes, ("stale",)),
            (by_wrapper or endpoint.concludes, ("not_acceptable",)),
            (True, endpoint.raises),
        )
        return list(dict.fromkeys(code for holds, codes in rules if holds for code in codes))


def _limits(endpoint: Endpoint) -> Sequence[str]:
    """A bearer's requests are counted, and every answer says how many are left."""
    return () if endpoint.can == PUBLIC else LIMITS


def _headers(names: Sequence[str]) -> Schema:
    """References to X-Request-Id, which every answer has, and to the headers of these names."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ["X-Request-Id", *names]}


def _problem(code: str) -> Schema:
    status, title = CODES[code]
    return {
        "type": f"/problems/{code}",
        "title": title,
        "status": status,
        "detail": "A sentence that says what to do.",
        "code": code,
        "requestId": REQUEST_ID,
    }


WHO = {
    **{
        can: f"Requires `{can}`: {role}{'' if role == ROLES[-1] else ' and above'}."
        for role in reversed(ROLES)  # the least that has it comes last, and stays
        for can in PERMISSIONS[role]
    },
    PUBLIC: "Public.",
    MEMBER: "For every member of the workspace.",
    ADMIN: "For super-admins with a session.",
}
