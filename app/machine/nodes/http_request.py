"""http_request: ask another system something, and wait for its answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl, quote_plus

from app.machine import document
from app.machine.fields import Field, Liquid, Place, choice, described_by, liquid, quote
from app.machine.http_fields import FIELD_NAME, FRAMING, LONGEST_URL, UNSENDABLE, split_url
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, missing, onward
from app.machine.program import Answered, Event, HttpCall, Json
from app.machine.reasons import Reason
from app.machine.schema import ACTIVE, MISSING, given, when
from app.machine.secrets import MASK, is_secret_name
from app.machine.template import RenderError

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
USUAL_MS, LEAST_MS, MOST_MS = 10_000, 100, 15_000
MOST_HEADERS = 50
LONGEST_BODY = 256 * 1024

# What frames a request, and what the sender vouches for, is not for a definition to say.
RESERVED = FRAMING | {
    "idempotency-key",
    "tidings-chain",
    "tidings-depth",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
    "x-service-signature",
}


class Unsendable(Exception):
    """The templates' output is no request; says why."""


# --- asking ---------------------------------------------------------------------------------------


def http_request(visit: Visit) -> NodeOutcome:
    absent: list[str] = []
    noted: dict[str, Json] = {}
    try:
        call = _call(visit, absent)
    except RenderError as error:
        return _failed(visit, Reason.TEMPLATE_ERROR, error.message, noted)
    except Unsendable as error:
        return _failed(visit, Reason.HTTP_INVALID, str(error), noted)
    # Credentials are masked; the body is left out, for nothing in it says which word is one.
    request = {
        "method": call.method,
        "url": _shown_url(call.url),
        "headers": {name: _masked(name, value) for name, value in call.headers},
        "bodyBytes": len(call.body.encode()),
    }
    noted = {"request": request, **missing(absent)}
    return NodeOutcome("WAITING", effects=(call,), output=noted, noted=noted)


def _call(visit: Visit, absent: list[str]) -> HttpCall:
    """Raises RenderError, Unsendable."""

    def render(value: Liquid) -> str:
        rendered = value.render(visit.facts)
        absent.extend(rendered.missing)
        return rendered.text

    config = visit.config
    headers = {
        name.lower(): render(value).strip() for name, value in config.get("headers", {}).items()
    }
    for name, value in headers.items():
        if UNSENDABLE.search(value):
            raise Unsendable(f"The header {name} came out with characters that no header may hold.")
    body, given = "", config.get("body")
    if isinstance(given, Liquid):
        body = render(given)
    elif given is not None:
        # The text inside is rendered, so that no value can break out of its quotation marks.
        body = document.dumps(_filled(given, render)).decode()
    if len(body.encode()) > LONGEST_BODY:
        raise Unsendable(f"The body came out larger than {LONGEST_BODY // 1024} KiB.")
    if body:
        json = not isinstance(given, Liquid) or body.lstrip().startswith(("{", "["))
        media_type = "application/json" if json else "text/plain; charset=utf-8"
        headers.setdefault("content-type", media_type)
    url = render(config["url"]).strip().replace(" ", "%20")
    if len(url) > LONGEST_URL:
        raise Unsendable(f"The URL came out longer than {LONGEST_URL:,} characters.")
    return HttpCall(
        visit.node.id,
        visit.number,
        config["method"],
        url,
        tuple(headers.items()),
        body,
        config.get("timeoutMs", USUAL_MS),
    )


def _filled(value: Json, render: Callable[[Liquid], str]) -> Json:
    match value:
        case Liquid():
            return render(value)
        case dict():
            return {name: _filled(inner, render) for name, inner in value.items()}
        case list():
            return [_filled(inner, render) for inner in value]
        case _:
            return value


# --- going on -------------------------------------------------------------------------------------


def answered(visit: Visit, event: Event) -> NodeOutcome | None:
    if not isinstance(event, Answered):
        return None
    noted: dict[str, Json] = {**visit.noted, "tries": event.tries}
    if event.status is None:
        return _failed(visit, event.code, event.detail, noted)
    noted |= {
        "status": event.status,
        "headers": {name: _masked(name, value) for name, value in event.headers.items()},
        "body": event.body,
    }
    if event.truncated:
        noted["truncated"] = True
    if 200 <= event.status < 300:
        return onward(output=noted, noted=noted)
    return _failed(visit, Reason.HTTP_STATUS, f"The server answered {event.status}.", noted)


def _failed(
    visit: Visit, code: str | None, detail: str | None, noted: Mapping[str, Json]
) -> NodeOutcome:
    """Leave by the `failed` exit when it is wired; else the run has failed, and may be retried."""
    note = partial(NodeOutcome, code=code, detail=detail, output=noted or None, noted=noted)
    return note("COMPLETED", "failed") if "failed" in visit.node.exits else note("FAILED")


# --- what a record may show -----------------------------------------------------------------------


def _shown_url(url: str) -> str:
    try:
        parts = split_url(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return MASK
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(
        f"{quote_plus(name)}={_masked(name, quote_plus(text))}" for name, text in pairs
    )
    return parts._replace(netloc=host, query=query, fragment="").geturl()


def _masked(name: str, value: str) -> str:
    return MASK if is_secret_name(name) else value


# --- its configuration ----------------------------------------------------------------------------


@described_by(
    {"type": "string", ACTIVE: {"pattern": r"^[\s\x1c-\x1f]*([hH][tT]{2}[pP][sS]?://|\{[{%])"}}
)
def _url(raw: Json, place: Place) -> Liquid | None:
    read = liquid(raw, place)
    if read is not None and not re.match(r"\s*(https?://|\{[{%])", read.source, re.IGNORECASE):
        place.hold("bad_url", "A URL must begin with https:// or http://.")
    return read


@described_by(
    {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "propertyNames": {"pattern": f"^{FIELD_NAME.pattern}$"},
        "maxProperties": MOST_HEADERS,
    }
)
def _headers(raw: Json, place: Place) -> dict[str, Json] | None:
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "This must be an object.")
        return None
    if len(raw) > MOST_HEADERS:
        place.refuse("too_many", f"A request may have at most {MOST_HEADERS} headers of its own.")
    names = [name.lower() for name in raw]
    for name in raw:
        if not FIELD_NAME.fullmatch(name):
            place.at(name).refuse("bad_header", f"{quote(name)} cannot be a header's name.")
        elif name.lower() in RESERVED:
            place.at(name).refuse("bad_header", f"{quote(name)} is reserved for Tidings.")
        elif names.count(name.lower()) > 1:
            place.at(name).refuse("bad_header", f"{quote(name)} is given twice.")
    return {name: liquid(value, place.at(name)) for name, value in raw.items()}


def _body(raw: Json, place: Place) -> Json:
    match raw:
        case str():
            return liquid(raw, place)
        case dict():
            return {name: _body(inner, place.at(name)) for name, inner in raw.items()}
        case list():
            return [_body(inner, place.at(index)) for index, inner in enumerate(raw)]
        case _:
            return raw


@described_by({"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array", "items": {}}]})
def _whole_body(raw: Json, place: Place) -> Json:
    if isinstance(raw, str | dict | list):
        return _body(raw, place)
    place.refuse("wrong_type", "This must be text, an object or a list; it may contain Liquid.")
    return None


@described_by({"type": "integer", "minimum": LEAST_MS, "maximum": MOST_MS})
def _milliseconds(raw: Json, place: Place) -> int | None:
    if type(raw) is int and LEAST_MS <= raw <= MOST_MS:
        return raw
    place.refuse("wrong_type", f"This must be a whole number from {LEAST_MS} to {MOST_MS:,}.")
    return None


def _settle(config: Config, place: Place) -> Config:
    if "body" in config and config.get("method") in BODILESS:
        place.at("body").hold("needless", f"A {config['method']} request has no body.")
    return config


HTTP_REQUEST = NodeKind(
    http_request,
    "Calls another system and waits for its answer, whose body is at `steps.<id>.body`.",
    {
        "method": "POST",
        "url": "https://crm.example/leads",
        "headers": {"Authorization": "Bearer …"},
        "body": {"email": "{{contact.email}}"},
    },
    answered,
    fields={
        "method": Field(choice(*METHODS), "Say which method, such as POST.", "The method."),
        "url": Field(
            _url,
            "Say which URL to call.",
            "Begins with https:// or http://; may contain Liquid. Only public addresses are called,"
            " unless the operator allows more.",
        ),
        "headers": Field(
            _headers,
            about="By name; values may contain Liquid. Credentials belong here: they are encrypted"
            " where they are kept, and shown masked.",
        ),
        "body": Field(
            _whole_body,
            about="Text, or an object or a list that is sent as JSON; every text in it may contain"
            f" Liquid. At most {LONGEST_BODY // 1024} KiB when rendered. None with"
            f" {', '.join(sorted(BODILESS))}.",
        ),
        "timeoutMs": Field(
            _milliseconds, about="How long an answer may take, in milliseconds.", default=USUAL_MS
        ),
    },
    settle=_settle,
    arms=("failed",),
    exits={"failed": "the request did not succeed; without it, the run fails"},
    rules=(when("method", sorted(BODILESS), {"not": given("body")}),),
    output={
        "request": {"type": "object", "description": "What was asked, credentials masked."},
        "tries": {"type": "integer", "description": "How often it was asked."},
        "status": {"type": "integer", "description": "The status of the answer."},
        "headers": {"type": "object", "description": "The headers of the answer."},
        "body": {"description": "The body of the answer, read if it is JSON."},
        "truncated": {"type": "boolean", "description": "Whether the body was cut short."},
        **MISSING,
    },
)
