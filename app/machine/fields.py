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
from app.machine.template import Rendered, Template, TemplateError, excess, parse
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
        """Even a draft may not be saved like this."""
        self.findings.append(Finding(code, self.pointer, message, draft=True))

    def limit(self, code: str, message: str) -> None:
        """As refuse; but it can be read, so what was saved with it before runs on."""
        self.findings.append(Finding(code, self.pointer, message, draft=True, limit=True))

    def hold(self, code: str, message: str) -> None:
        """A draft may stand like this; an active definition may not."""
        self.findings.append(Finding(code, self.pointer, message))

    def warn(self, code: str, message: str) -> None:
        self.findings.append(Finding(code, self.pointer, message, severity="warning"))

    def has_findings(self, *keys: str) -> bool:
        """Whether something is wrong with one of these members already, or within it."""
        within = tuple(f"{self.at(key).pointer}/" for key in keys)
        return any(f"{finding.pointer}/".startswith(within) for finding in self.findings)


def quote(text: str) -> str:
    """Somebody's text inside a sentence of ours: in quotation marks, and short."""
    return f"“{encodable(text if len(text) <= 60 else text[:59] + '…')}”"


# --- objects of fields --------------------------------------------------------------------------

# A reader answers with the checked value, or with None when it has left a finding.
Reader: TypeAlias = Callable[[Json, Place], Json | None]


@dataclass(frozen=True, slots=True)
class Field:
    """One member of an object: how it is read, and what to say when it is needed and absent."""

    read: Reader
    needed: str | None = None


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

    return read


def choice(*options: str) -> Reader:
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


def liquid(value: Json, place: Place, *, html: bool = False) -> Liquid | None:
    if not isinstance(value, str):
        place.refuse("wrong_type", "This must be text; it may contain Liquid.")
        return None
    try:
        read = Liquid(value, parse(value, html=html))
    except TemplateError as error:
        place.refuse("bad_template", encodable(str(error)))
        return None
    if told := excess(value):
        place.limit("bad_template", told)
    return read


_COUNT = r"([0-9]{1,8}(?:[.,][0-9]{1,6})?)"
_DURATION = re.compile(
    rf"P(?=.)(?:{_COUNT}W)?(?:{_COUNT}D)?(?:T(?=.)(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}S)?)?"
)
_SECONDS = (7 * 86_400, 86_400, 3_600, 60, 1)
LONGEST_DURATION = timedelta(days=36_600)


def duration(
    value: Json, place: Place, *, longest: timedelta = LONGEST_DURATION
) -> timedelta | None:
    """An ISO 8601 duration. Days are 24 hours; months and years have no length and are refused."""
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
    return length


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
