"""Reading a definition's JSON field by field, and saying what is wrong with it and where."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

from app.machine import document
from app.machine.program import Facts, Finding, Json
from app.machine.schema import ACTIVE, Schema, blank_or
from app.machine.template import ROOTS, Rendered, Template, TemplateError, excess, parse
from app.machine.text import encodable, is_line

# --- where, and what is wrong -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A value's place in a definition (RFC 6901), and the list that collects its findings."""

    pointer: str
    findings: list[Finding]

    def at(self, *keys: str | int) -> Place:
        return Place(self.pointer + document.pointer(*keys), self.findings)

    def refuse(self, code: str, message: str) -> None:
        """Add a finding with which even a draft may not be saved."""
        self.findings.append(Finding(code, self.pointer, message, draft=True))

    def limit(self, code: str, message: str) -> None:
        """Refuse by a limit: it can be read, so what was saved with it before runs on."""
        self.findings.append(Finding(code, self.pointer, message, draft=True, limit=True))

    def hold(self, code: str, message: str, *, limit: bool = False) -> None:
        """A draft may stand like this; an active definition may not, but for one that ran with it
        before it was made a `limit`."""
        self.findings.append(Finding(code, self.pointer, message, limit=limit))

    def warn(self, code: str, message: str) -> None:
        self.findings.append(Finding(code, self.pointer, message, severity="warning"))

    def has_findings(self, *keys: str) -> bool:
        """Return whether something is wrong with one of these members already, or within it."""
        within = tuple(f"{self.at(key).pointer}/" for key in keys)
        return any(f"{finding.pointer}/".startswith(within) for finding in self.findings)


def quote(text: str) -> str:
    """Somebody's text inside a sentence of ours: in quotation marks, and short."""
    return f"“{encodable(text if len(text) <= 60 else text[:59] + '…')}”"


# --- objects of fields --------------------------------------------------------------------------

# Answers with the checked value, or with None when it has left a finding.
Read: TypeAlias = Callable[[Json, Place], Json | None]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of a value, with the JSON Schema of what it may be (schema.py)."""

    read: Read
    schema: Schema

    def __call__(self, value: Json, place: Place) -> Json | None:
        return self.read(value, place)


def described_by(schema: Schema) -> Callable[[Read], Reader]:
    """Make a function a Reader of such values."""
    return lambda read: Reader(read, schema)


@dataclass(frozen=True, slots=True)
class Field:
    """One member of an object: how it is read, what to say when it is needed and absent, and what
    it is `about`, for people. `default` is what an absent one means."""

    read: Reader
    needed: str | None = None
    about: str = ""
    default: Json = None

    @property
    def schema(self) -> Schema:
        """The JSON Schema as a member: blank where it may be absent."""
        value = self.read.schema
        if self.needed and value.get("type") == "string":
            value = {**value, ACTIVE: {"minLength": 1, **value.get(ACTIVE, {})}}
        schema = blank_or(value, in_drafts=bool(self.needed))
        if not self.about:
            return schema
        # There is no member `default`: generators of clients take such a member for given.
        default = "" if self.default is None else f" Default: {document.text(self.default)}."
        return {**schema, "description": self.about + default}


def object_schema(
    fields: Mapping[str, Field], *rules: Schema, needed: Collection[str] = ()
) -> Schema:
    """The JSON Schema of what read_object takes; the `rules` between members hold when it is
    active. `needed` are members that a draft needs too."""
    active = [name for name, one in fields.items() if one.needed]
    schema: Schema = {
        "type": "object",
        "properties": {name: one.schema for name, one in fields.items()},
        "additionalProperties": False,
    }
    if needed:
        schema["required"] = list(needed)
    if active or rules:
        required = {"required": list(dict.fromkeys([*needed, *active]))} if active else {}
        schema[ACTIVE] = {**required, **({"allOf": list(rules)} if rules else {})}
    return schema


def read_object(raw: Json, fields: Mapping[str, Field], place: Place) -> dict[str, Json]:
    """The members that could be read; any other is refused."""
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "This must be an object.")
        return {}
    refuse_unknown(raw, fields, place)
    return read_members(raw, fields, place)


def read_members(
    raw: Mapping[str, Json], fields: Mapping[str, Field], place: Place
) -> dict[str, Json]:
    """The members that could be read. null and "" count as absent: editors save empty boxes."""
    members: dict[str, Json] = {}
    for name, member in fields.items():
        value = raw.get(name)
        if value is not None and value != "":
            read = member.read(value, place.at(name))
            if read is not None:
                members[name] = read
        elif member.needed:
            place.at(name).hold("missing", member.needed)
    return members


def refuse_unknown(raw: Iterable[str], known: Collection[str], place: Place) -> None:
    for name in raw:
        if name not in known:
            hint = f"known fields are {', '.join(known)}" if known else "it has no fields"
            place.at(name).refuse("unknown_field", f"There is no field {quote(name)}; {hint}.")


# --- readers ------------------------------------------------------------------------------------

LONGEST_LINE = 200
ONE_LINE = r"^[^\u0000-\u001f\u007f]*$"  # as text.is_line has it


@described_by({"type": "string", "minLength": 1, "maxLength": LONGEST_LINE, "pattern": ONE_LINE})
def line(value: Json, place: Place) -> str | None:
    """One short line of plain text: an id, a name, a port."""
    if not isinstance(value, str):
        place.refuse("wrong_type", "This must be text.")
    elif len(value) > LONGEST_LINE:
        place.refuse("too_long", f"This may have at most {LONGEST_LINE} characters.")
    elif not is_line(value):
        place.refuse("wrong_type", "This must be one line without control characters.")
    else:
        return value
    return None


def count(least: int, most: int) -> Reader:
    """A whole number."""

    def read(value: Json, place: Place) -> int | None:
        if not isinstance(value, int) or isinstance(value, bool):
            place.refuse("wrong_type", "This must be a whole number.")
        elif not least <= value <= most:
            place.hold("out_of_range", f"This must be from {least:,} to {most:,}.")
        else:
            return value
        return None

    return Reader(read, {"type": "integer", ACTIVE: {"minimum": least, "maximum": most}})


def choice(*options: str) -> Reader:
    @described_by({"type": "string", "enum": list(options)})
    def read(value: Json, place: Place) -> str | None:
        if isinstance(value, str) and value in options:
            return value
        place.refuse("wrong_type", f"This must be one of {', '.join(options)}.")
        return None

    return read


@dataclass(frozen=True, slots=True)
class Liquid:
    """A template parsed with its definition; two are equal when their sources are."""

    source: str
    template: Template = field(compare=False, repr=False)

    def render(self, facts: Facts) -> Rendered:
        """Raises RenderError."""
        return self.template.render(facts)


def templated(roots: frozenset[str] = ROOTS, *, html: bool = False) -> Reader:
    """Text that may contain Liquid over the roots."""

    @described_by({"type": "string"})
    def read(value: Json, place: Place) -> Liquid | None:
        if not isinstance(value, str):
            place.refuse("wrong_type", "This must be text; it may contain Liquid.")
            return None
        try:
            read = Liquid(value, parse(value, html=html, roots=roots))
        except TemplateError as error:
            place.refuse("bad_template", encodable(str(error)))
            return None
        if fault := excess(read.template):
            place.limit("bad_template", fault)
        return read

    return read


liquid = templated()

_COUNT = r"([0-9]{1,8}(?:[.,][0-9]{1,6})?)"
_UNITS = rf"P(?=.)(?:{_COUNT}W)?(?:{_COUNT}D)?(?:T(?=.)(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}S)?)?"
_DURATION = re.compile(_UNITS)
_SECONDS = (7 * 86_400, 86_400, 3_600, 60, 1)
LONGEST_DURATION = timedelta(days=36_600)
YEAR = timedelta(days=366)
NOT_ZERO = "This must be longer than zero, such as P1D."


def lasting(longest: timedelta = LONGEST_DURATION, *, positive: bool = False) -> Reader:
    """An ISO 8601 duration, longer than zero if it is to be `positive`. Days are 24 hours; months
    and years have no length and are refused."""

    @described_by(
        {"type": "string", "examples": ["PT1H", "P3D"], ACTIVE: {"pattern": f"^{_UNITS}$"}}
    )
    def read(value: Json, place: Place) -> timedelta | None:
        if not isinstance(value, str):
            place.refuse("wrong_type", "This must be an ISO 8601 duration, such as PT1H or P3D.")
            return None
        length = parse_duration(value)
        if length is None:
            place.hold(
                "bad_duration",
                f"{quote(value)} is not a duration; write weeks, days, hours, minutes or seconds"
                " like P2W, P3D, PT1H, P1DT12H.",
            )
        elif length > longest:
            place.hold("bad_duration", f"This may be at most {longest.days} days.")
            return None
        elif positive and not length:
            place.hold("bad_duration", NOT_ZERO)
            return None
        return length

    return read


duration = lasting()


def parse_duration(text: str) -> timedelta | None:
    """None when the text is not a duration. Only the last count may have a fraction."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    counts = [(text, unit) for text, unit in zip(match.groups(), _SECONDS, strict=True) if text]
    if any(not text.isdigit() for text, _ in counts[:-1]):
        return None
    seconds = sum(Decimal(text.replace(",", ".")) * unit for text, unit in counts)
    return timedelta(microseconds=int(seconds * 1_000_000))
