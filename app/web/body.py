"""JSON bodies and query strings → checked pydantic values; every error at once, in sentences."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Annotated, Any, TypeAlias, TypeVar, get_args
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from app.errors import FieldError, Problem
from app.machine import calendar, document, spelling
from app.machine.program import Json
from app.machine.text import is_storable

Model = TypeVar("Model", bound=BaseModel)

JSON = frozenset({"application/json"})
MERGE_PATCH = JSON | {"application/merge-patch+json"}  # RFC 7396 §4
BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})  # Unicode: controls, half pairs, line separators
PARAMETERS = 100  # of one query string
ERRORS = 100  # that are listed: an answer must not outgrow its question
PART_ERRORS = 10  # likewise, of a part that is judged by itself
# Of one body, for it is parsed and checked on the event loop: a graph of the largest size has about
# two thirds of that.
MOST_VALUES = 30_000


class Shape(BaseModel):
    """A JSON object as clients see it: camelCase names, exact types, no unknown fields."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=False,
        hide_input_in_errors=True,
    )

    @classmethod
    def of(cls, row: object, **computed: object) -> dict[str, Any]:
        """The JSON object: each field is `computed`, or the row's column of the same name. A column
        that the shape does not name is never shown."""
        return {
            field.alias or name: computed[name] if name in computed else getattr(row, name)
            for name, field in cls.model_fields.items()
        }


class Writable(Shape):
    """The fields of a resource that can be written: POST takes all of it, PATCH what changes of
    it."""

    @classmethod
    def normal(cls, changes: dict[str, Json]) -> dict[str, Json]:
        """A patch in the spelling of what is stored, for what it names must be met there."""
        return changes


Written = TypeVar("Written", bound=Writable)


class Unchanged(Exception):
    """A merge patch after which everything is as it was: there is nothing to do, or to tell."""


class Nothing(Shape):
    """An empty object."""


class Query(BaseModel):
    """Query parameters: camelCase names, values read from text, no unknown names."""

    model_config = ConfigDict(**{**Shape.model_config, "strict": False})


# --- values that text carries -----------------------------------------------------------------


def _moment(value: Any) -> datetime:
    """RFC 3339, always with its offset; a `+` that a query made a space is forgiven."""
    if not isinstance(value, str) or not _RFC_3339.fullmatch(value):
        raise ValueError(_MOMENT)
    try:
        return datetime.fromisoformat(value.upper().replace(" ", "+")).astimezone(UTC)
    except (ValueError, OverflowError):  # 9999-12-31T23:59:59-23:59 is no time in UTC
        raise ValueError(_MOMENT) from None


_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+\- ]\d\d:\d\d)", re.ASCII
)
_MOMENT = "Must be a time with its offset, such as 2026-01-31T09:30:00Z (RFC 3339)."


def _after(moment: datetime) -> datetime:
    """Times are kept to the microsecond and shown to the millisecond. What is later than a shown
    time is what is *shown* later, or a client that asks for what came after its newest row would
    get that row again."""
    whole = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000)
    last_shown_so = MILLISECOND - datetime.resolution
    return whole + last_shown_so  # within its second: no time is too late for it


def _before(moment: datetime) -> datetime:
    """The bound of what is shown as earlier: answers show milliseconds."""
    over = moment.microsecond % 1_000
    try:
        return moment + timedelta(microseconds=1_000 - over if over else 0)
    except OverflowError:  # the last millisecond of the year 9999
        return moment


MILLISECOND = timedelta(milliseconds=1)


def _count(value: Any) -> int:
    """Plain digits: int() alone would take `1_0`, ` 1` and Arabic ones."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}", value):
        raise ValueError("Must be a whole number, in plain digits.")
    return int(value)


def _one_line(text: str) -> str:
    if not text.strip() or any(unicodedata.category(one) in BREAKING for one in text):
        raise ValueError("Must be one line of text, without control characters.")
    return text.strip()


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_one_line)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
After = Annotated[Moment, AfterValidator(_after)]
Before = Annotated[Moment, AfterValidator(_before)]
TimeOfDay = Annotated[
    str, AfterValidator(calendar.check_time), WithJsonSchema(dict(calendar.TIME_OF_DAY))
]
DIGITS = BeforeValidator(_count)  # behind what bounds it: a schema tells no more than stands before


# --- the two ways in --------------------------------------------------------------------------


def read(model: type[Model], headers: Headers, body: bytes) -> Model:
    """Raises Problem `malformed_json`, `unsupported_media_type`, or `invalid` with every error."""
    return _checked(model, _object(headers, body, JSON), "body", _pointer)


def part(model: type[Model], value: Json, *place: int | str) -> Model:
    """A part of a body, at this place in it, that is right or wrong by itself. Raises Problem
    `invalid` with the first errors: a body may have hundreds of parts, all of them wrong."""
    return _checked(model, value, "body", lambda tokens: _pointer([*place, *tokens]), PART_ERRORS)


def nothing(headers: Headers, body: bytes) -> None:
    """Raises Problem for a body that says something: it must not be ignored."""
    if body and body != b"{}":  # whatever media type a client gives to so little
        read(Nothing, headers, body)


def patch(
    model: type[Written], stored: Mapping[str, Json], headers: Headers, body: bytes
) -> Written:
    """The writable part of a resource, `stored`, after the merge patch (RFC 7396). Raises
    Unchanged when that is what it was; the patch must be right all the same."""
    patched = _patched(model, stored, model.normal(_object(headers, body, MERGE_PATCH)))
    checked = _checked(model, patched, "body", _pointer)
    try:
        before = model.model_validate(dict(stored))
    except ValidationError:  # stored under other rules: the patch has put that right
        return checked
    # Compared is what both mean to the model, to the last literal: to Python 1 is true.
    given, was = (document.pretty(_meaning(one), sort=True) for one in (checked, before))
    if given == was:
        raise Unchanged
    return checked


def _meaning(value: Json) -> Json:
    """All that a model means. A member that is null means as much as one that is not there, and so
    does an object of such members; but whoever names what is never read back means something."""
    if not isinstance(value, BaseModel):
        return value
    values = dict(value.model_extra or {})
    for name, field in type(value).model_fields.items():
        inner = _meaning(getattr(value, name))
        named = name in value.model_fields_set and field.json_schema_extra == WRITE_ONLY
        if inner is not None or named:
            values[field.alias or name] = inner
    return values or None


def _patched(
    model: type[BaseModel], stored: Mapping[str, Json], changes: Mapping[str, Json]
) -> dict[str, Json]:
    """The merge, in which a null takes a member out; but one that nobody knows, or whose value
    cannot be empty, stays null for the model to refuse, and one that is never read back for its
    handler to find: nobody else can tell whether there is something to take out. What is null
    already stays so."""
    fields = {field.alias: field for field in model.model_fields.values()}
    patched = dict(document.merge(stored, changes))
    for name, value in changes.items():
        field = fields.get(name)
        stays = (
            (name in stored and stored[name] is None)
            or field is None
            or isinstance(field.default, NEVER_EMPTY)
            or field.json_schema_extra == WRITE_ONLY
        )
        if value is None and stays:
            patched[name] = None
        elif isinstance(value, dict) and (inner := field and _model_in(field.annotation)):
            within = stored.get(name)
            patched[name] = _patched(inner, within if isinstance(within, dict) else {}, value)
    return patched


NEVER_EMPTY = (bool, int, float, str, BaseModel)  # a field with such a default always has a value
# The json_schema_extra of what is never read back, such as a secret.
WRITE_ONLY: dict[str, JsonValue] = {"writeOnly": True}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, be it optional or not."""
    candidates = (annotation, *get_args(annotation))
    models = [one for one in candidates if isinstance(one, type) and issubclass(one, BaseModel)]
    return models[0] if len(models) == 1 else None


def query(model: type[Model], query_string: bytes) -> Model:
    """The parameters by their names; `metadata[city]=Rome` is {"metadata": {"city": "Rome"}}.
    Raises Problem `malformed_request`, or `invalid` with every error."""
    try:
        pairs = parse_qsl(query_string.decode(), keep_blank_values=True, max_num_fields=PARAMETERS)
    except ValueError:
        raise Problem(
            "malformed_request", f"Send a query of at most {PARAMETERS} parameters, in UTF-8."
        ) from None
    values: dict[str, Json] = {}
    errors = []
    for name, value in pairs:
        # A name within may have brackets of its own: `metadata[a[b]]` asks for `a[b]`.
        match = re.fullmatch(r"([^\[\]]+)\[(.+)\]", name, re.S)
        place, key = (values.setdefault(match[1], {}), match[2]) if match else (values, name)
        if not isinstance(place, dict) or key in place:
            errors.append(FieldError(f"?{name}", "Must be given once."))
        else:
            place[key] = value
    if errors:
        raise _invalid("query", errors)
    _refuse_unstorable("query", values, _parameter)
    return _checked(model, values, "query", _parameter)


async def received(receive: Receive) -> bytes:
    """The whole body, in most cases one message. What Request.body does, at a third of its cost."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if part := message.get("body", b""):
            parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def require_media_type(headers: Headers, allowed: frozenset[str] = JSON) -> None:
    """One Content-Type that is allowed, UTF-8 if it says so, and no Content-Encoding; else 415."""
    types = [value for name, value in headers.raw if name == b"content-type"]
    if len(types) != 1 or not _is_allowed(types[0].decode("latin-1"), allowed):
        raise Problem(
            "unsupported_media_type",
            f"Send one Content-Type header, {' or '.join(sorted(allowed))}, and UTF-8.",
        )
    if "content-encoding" in headers:
        raise Problem("unsupported_media_type", "Send the body without Content-Encoding.")


@lru_cache(256)  # nearly all say the same
def _is_allowed(content_type: str, allowed: frozenset[str]) -> bool:
    media_type, *parameters = content_type.split(";")
    charsets = {
        value.strip().strip('"').lower()
        for name, _, value in (parameter.partition("=") for parameter in parameters)
        if name.strip().lower() == "charset"
    }
    return media_type.strip().lower() in allowed and charsets <= {"utf-8", "utf8"}


def _object(headers: Headers, body: bytes, allowed: frozenset[str]) -> dict[str, Json]:
    if not body:
        raise Problem("malformed_json", "The body is empty; send a JSON object.")
    require_media_type(headers, allowed)
    try:
        document.refuse_many(body, MOST_VALUES)
        value = document.parse(body)
    except document.TooManyValues:
        raise _invalid("body", [FieldError("", f"Hold at most {MOST_VALUES:,} values.")]) from None
    except document.MalformedJson as error:
        raise Problem("malformed_json", str(error)) from None
    if not isinstance(value, dict):
        raise _invalid("body", [FieldError("", "Must be an object.")])
    if ESCAPES.search(body):
        _refuse_unstorable("body", value, _pointer)
    return value


# --- what is wrong, in words ------------------------------------------------------------------

Tokens: TypeAlias = Sequence[int | str]
Pointer: TypeAlias = Callable[[Tokens], str]


def _checked(
    model: type[Model], value: Json, what: str, pointer: Pointer, most: int = ERRORS
) -> Model:
    _refuse_strange(model, value, what, pointer)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[:most]
        errors = [
            FieldError(pointer(_place(one, value)), _sentence(what, one) + _hint(model, one))
            for one in found
        ]
        raise _invalid(what, errors) from None


def _refuse_strange(
    model: type[BaseModel], value: Json, what: str, pointer: Pointer, place: Tokens = ()
) -> None:
    """More unknown names than are listed, before pydantic makes an error of each."""
    if not isinstance(value, dict) or model.model_config.get("extra") != "forbid":
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    if len(value) > len(fields) + ERRORS:
        strange = [name for name in value if name not in fields]
        sentence = SENTENCES[what, "extra_forbidden"]
        errors = [FieldError(pointer((*place, name)), sentence) for name in strange[:ERRORS]]
        raise _invalid(what, errors)
    for name, field in fields.items():
        if isinstance(value.get(name), dict) and (inner := _model_in(field.annotation)):
            _refuse_strange(inner, value[name], what, pointer, (*place, name))


def _invalid(what: str, errors: Sequence[FieldError]) -> Problem:
    first = errors[0]
    where = first.pointer or f"the {what}"
    detail = f"Correct the {what}: {where}: {first.message}"
    if len(errors) > 1:
        detail = f"Correct the {what} in {len(errors)} places; errors names them."
    return Problem("invalid", detail, errors=errors)


def _sentence(what: str, error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    if error["type"] in ("value_error", "assertion_error"):
        return str(context["error"])
    if context.get("min_length") == 1:
        return "Must not be empty."
    template = SENTENCES.get((what, error["type"])) or SENTENCES.get(("", error["type"]))
    return template.format(**context) if template else f"{error['msg']}."


# What other APIs call the parameters of a page.
PAGED = frozenset({"page", "pageNumber", "p", "offset", "skip", "start", "after", "pageToken"})


def _hint(model: type[BaseModel], error: ErrorDetails) -> str:
    """Suggest the closest known name, behind the sentence about one that nobody knows."""
    if error["type"] != "extra_forbidden":
        return ""
    *place, last = error["loc"]
    models = [model]  # that may stand at the place
    for token in place:
        within = [
            inner
            for one in models
            for name, field in one.model_fields.items()
            if token in (field.alias, name)
            for inner in _models_within(field.annotation)
        ]
        models = within or models  # an index, or the tag of a union
    known = [field.alias or name for one in models for name, field in one.model_fields.items()]
    if last in PAGED and {"cursor", "limit"} <= set(known):
        return " Lists are read with cursor, which takes the nextCursor of the page before."
    return "" if last in known else spelling.hint(str(last), known)


def _models_within(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_within(inner)


SENTENCES: Mapping[tuple[str, str], str] = {
    ("body", "missing"): "This field is required.",
    ("query", "missing"): "This parameter is required.",
    ("body", "extra_forbidden"): "This field is unknown or read-only.",
    ("query", "extra_forbidden"): "This parameter is unknown.",
    ("", "string_type"): "Must be a string.",
    ("", "string_too_short"): "Must have at least {min_length} characters.",
    ("", "string_too_long"): "Must have at most {max_length} characters.",
    ("", "string_pattern_mismatch"): "Must match {pattern}.",
    ("", "bool_type"): "Must be true or false.",
    ("", "bool_parsing"): "Must be true or false.",
    ("", "int_type"): "Must be a whole number.",
    ("", "int_from_float"): "Must be a whole number.",
    ("", "int_parsing"): "Must be a whole number.",
    ("", "float_type"): "Must be a number.",
    ("", "float_parsing"): "Must be a number.",
    ("", "finite_number"): "Must be a number that fits a double.",
    ("", "greater_than"): "Must be greater than {gt}.",
    ("", "greater_than_equal"): "Must be {ge} or more.",
    ("", "less_than"): "Must be less than {lt}.",
    ("", "less_than_equal"): "Must be {le} or less.",
    ("", "list_type"): "Must be an array.",
    ("", "too_short"): "Must have at least {min_length} items.",
    ("", "too_long"): "Must have at most {max_length} items.",
    ("", "dict_type"): "Must be an object.",
    ("", "mapping_type"): "Must be an object.",
    ("", "model_type"): "Must be an object.",
    ("", "none_required"): "Must be null.",
    ("", "literal_error"): "Must be {expected}.",
    ("", "enum"): "Must be {expected}.",
    ("", "union_tag_not_found"): "Must say which kind it is in {discriminator}.",
    ("", "union_tag_invalid"): "Must have one of {expected_tags} in {discriminator}.",
    ("", "timezone_aware"): "Must be a time with its offset.",
}


def _place(error: ErrorDetails, value: Json) -> Tokens:
    """The place in the document, without what pydantic adds, such as the tag of a union."""
    location = error["loc"]
    missing = location[-1:] if error["type"] == "missing" else ()
    tokens = []
    for token in location[: len(location) - len(missing)]:
        inside = isinstance(value, Mapping) and token in value
        if inside or (isinstance(value, list) and isinstance(token, int)):
            value = value[token]
            tokens.append(token)
    return (*tokens, *missing)


def _pointer(tokens: Tokens) -> str:
    return document.pointer(*tokens)


def _parameter(tokens: Tokens) -> str:
    """The parameter as it stands in the URL: `?limit`, `?metadata[city]`."""
    name, *inner = tokens or [""]
    return f"?{name}" + "".join(f"[{token}]" for token in inner)


# --- text that cannot be kept -----------------------------------------------------------------

# How a NUL or half of a surrogate pair gets into JSON.
ESCAPES = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def _refuse_unstorable(what: str, value: Json, pointer: Pointer) -> None:
    message = "Must not contain a NUL character or half of a surrogate pair."
    places = [*islice(_unstorable(value), ERRORS)]
    if places:
        raise _invalid(what, [FieldError(pointer(place), message) for place in places])


# A place within a document: that of what it stands in, and its name or number there.
Link: TypeAlias = "tuple[Link, int | str] | None"


def _unstorable(value: Json) -> Iterator[Tokens]:
    """The places of the strings that cannot be kept, of keys too. Without recursion: through that,
    each string would be handed up by every level above it."""
    left: deque[tuple[Link, Json]] = deque([(None, value)])
    while left:
        link, held = left.popleft()
        for key, inner in held.items() if isinstance(held, dict) else enumerate(held):
            if isinstance(key, str) and not is_storable(key):
                yield _tokens(link)
            if isinstance(inner, dict | list):
                left.append(((link, key), inner))
            elif isinstance(inner, str) and not is_storable(inner):
                yield _tokens((link, key))


def _tokens(link: Link) -> Tokens:
    tokens: list[int | str] = []
    while link is not None:
        link, token = link
        tokens.append(token)
    return tokens[::-1]
