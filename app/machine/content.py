"""A message, part by part, on each channel; one reader for templates and inline content,
one renderer for preview, test email and send."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.headerregistry import Address
from itertools import islice
from typing import Literal, TypeAlias, get_args

from app.machine import document, effort, template
from app.machine.categories import MARKETING, TRANSACTIONAL
from app.machine.fields import (
    Field,
    Place,
    Reader,
    choice,
    described_by,
    line,
    quote,
    read_object,
    templated,
)
from app.machine.path import Path
from app.machine.plaintext import plain_text
from app.machine.program import Facts, Finding, Json
from app.machine.template import LINKS, NOTED, OF_MESSAGES, Rendered, Template


class PartError(Exception):
    """A part could not be rendered."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part
        self.message = message


# --- reading ------------------------------------------------------------------------------------

_liquid = templated(OF_MESSAGES)
_CONTENT_SID = re.compile(r"HX[0-9a-fA-F]{32}")
MOST_VARIABLES = 100
# Of the JSON of all parts together: a mail whose HTML and text are as long as they may be has room,
# at two bytes a character.
MOST_BYTES = 256 * 1024
# Of a fixed address (RFC 3696, erratum 1690): reading one takes a time that grows with the square
# of its length, and nothing can interrupt that.
LONGEST_ADDRESS = 254
LONGEST_HTML = 64 * 1024  # characters whose text is derived on an event loop: six milliseconds


@described_by({"type": "string"})
def _reply_to(raw: Json, place: Place) -> Json:
    """An address; one that Liquid makes is judged when it is made."""
    read = _liquid(raw, place)
    if read is not None and not ("{{" in raw or "{%" in raw):
        try:
            if len(raw) > LONGEST_ADDRESS:
                raise ValueError("it is too long")
            if not Address(addr_spec=raw.strip()).domain:
                raise ValueError("there is no domain")
        except (ValueError, HeaderParseError, IndexError):
            place.refuse("bad_address", f"{quote(raw)} is not an email address.")
            return None
    return read


@described_by({"type": "string", "pattern": f"^{_CONTENT_SID.pattern}$"})
def _content_sid(raw: Json, place: Place) -> Json:
    if isinstance(raw, str) and _CONTENT_SID.fullmatch(raw):
        return raw
    place.refuse("wrong_type", "This must be a content SID: HX and 32 hexadecimal digits.")
    return None


@described_by(
    {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": MOST_VARIABLES,
    }
)
def _variables(raw: Json, place: Place) -> Json:
    if not isinstance(raw, dict):
        place.refuse("wrong_type", "This must be an object of variables by name.")
    elif len(raw) > MOST_VARIABLES:
        place.refuse("too_many", f"A message has at most {MOST_VARIABLES} variables.")
    else:
        return {name: _liquid(value, place.at(name)) for name, value in raw.items()}
    return None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of Liquid, unless `read` says otherwise. HTML is escaped where values enter it."""

    about: str
    needed: bool = False
    html: bool = False
    read: Reader = _liquid


PARTS: Mapping[str, Mapping[str, Part]] = {
    "email": {
        "subject": Part("The subject.", needed=True),
        "html": Part(
            "The mail as HTML; values are escaped where they enter it.",
            html=True,
            read=templated(OF_MESSAGES, html=True),
        ),
        "text": Part("The mail as plain text; without it, made of the HTML."),
        "preheader": Part("What mail programs show beside the subject."),
        "fromName": Part("The sender's name, instead of the workspace's."),
        "replyTo": Part("Where replies go.", read=_reply_to),
    },
    "sms": {"text": Part("The message.", needed=True)},
    "whatsapp": {
        "text": Part("The message, or else `contentSid`."),
        "contentSid": Part("A template that was approved by WhatsApp.", read=_content_sid),
        "variables": Part("The variables of that template, by name.", read=_variables),
    },
}
ChannelName: TypeAlias = Literal["email", "sms", "whatsapp"]
CHANNELS: tuple[ChannelName, ...] = get_args(ChannelName)
# The field of a contact that a channel writes to.
ADDRESS_FIELD: Mapping[str, str] = {"email": "email", "sms": "phone", "whatsapp": "phone"}
CATEGORY = {  # of inline content
    "category": Field(
        choice(TRANSACTIONAL, MARKETING),
        about="Marketing is only sent to those who are subscribed.",
        default=TRANSACTIONAL,
    ),
    "topicId": Field(
        line, about="The topic of marketing, which its reader must have agreed to get."
    ),
}
UNASKED = "Only marketing has a topic: nobody is asked for what is transactional."

# A draft whose channel is not chosen yet may say whatever some channel can.
ANY_PART = {
    name: Field(part.read, about=part.about)
    for parts in reversed([*PARTS.values()])
    for name, part in parts.items()
}


FIELDS: Mapping[str, Mapping[str, Field]] = {
    channel: {
        name: Field(
            part.read,
            f"A message by {channel} cannot do without {name}." if part.needed else None,
            part.about,
        )
        for name, part in parts.items()
    }
    for channel, parts in PARTS.items()
}


def read(
    channel: str | None, raw: Json, place: Place, more: Mapping[str, Field] | None = None
) -> dict[str, Json]:
    """The parts as they were written, without empty ones; what is wrong goes to `place`."""
    fields = ANY_PART if channel is None else FIELDS[channel]
    members = read_object(raw, {**fields, **(more or {})}, place)
    if "topicId" in members and members.get("category") != MARKETING:
        place.at("topicId").hold("needs_marketing", UNASKED)
    if channel == "email" and isinstance(raw, dict) and not (raw.get("html") or raw.get("text")):
        place.at("html").hold("missing", "A message by email needs html or text.")
    if channel == "whatsapp" and isinstance(raw, dict):
        # A text of one's own, or one that was approved before, with its variables.
        if raw.get("text") and raw.get("contentSid"):
            place.at("contentSid").hold("both", "Give a text or a contentSid, not both.")
        elif not raw.get("text") and not raw.get("contentSid"):
            place.at("text").hold("missing", "Say what to send: a text, or a contentSid.")
        if raw.get("variables") and not raw.get("contentSid"):
            place.at("variables").hold("needs_content_sid", "Variables need a contentSid.")
    return {name: raw[name] for name in members}


def checked(
    channel: str, raw: Json, pointer: str = "/content", more: tuple[str, ...] = ()
) -> tuple[dict[str, Json], list[Finding]]:
    """Read as `read` does content that stands at the pointer, with these members of CATEGORY."""
    findings: list[Finding] = []
    place, beside = Place(pointer, findings), {name: CATEGORY[name] for name in more}
    members = read(channel, raw, place, beside)
    if len(document.dumps(members)) > MOST_BYTES:
        place.limit("too_long", f"A content has at most {MOST_BYTES // 1024} KiB of JSON.")
    return members, findings


def all_checked(
    given: Sequence[tuple[str, Json, str]],
) -> list[tuple[dict[str, Json], list[Finding]]]:
    """Read each: its channel, itself, its pointer."""
    return [checked(channel, raw, pointer) for channel, raw, pointer in given]


# --- rendering ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Message:
    """Its parts, and the paths that were printed but lead nowhere."""

    parts: dict[str, str]
    missing: tuple[str, ...]


def render(channel: str, content: Mapping[str, Json], facts: Facts) -> Message:
    """Every part that is there, rendered, variables as JSON, and the text of a mail that has only
    HTML. Raises PartError."""
    facts = document.read_trigger(facts)
    parts = {
        name: render_part(channel, name, content[name], facts)
        for name in given_parts(channel, content)
    }
    texts = {name: part.text for name, part in parts.items()}
    return Message({**texts, **derived(texts)}, _missing(parts.values()))


def preview(channel: str, content: Mapping[str, Json], facts: Facts) -> dict[str, dict[str, Json]]:
    """Preview by part: what would be sent and the paths that led nowhere, or why it cannot be."""
    parts: dict[str, dict[str, Json]] = {}
    for name in given_parts(channel, content):
        try:
            part = render_part(channel, name, content[name], facts)
        except PartError as error:
            parts[name] = {"error": error.message}
        else:
            missing = {"missing": list(part.missing)} if part.missing else {}
            parts[name] = {"rendered": part.text, **missing}
    rendered = {name: part["rendered"] for name, part in parts.items() if "rendered" in part}
    if "error" not in parts.get("text", {}):
        parts |= {name: {"rendered": text} for name, text in derived(rendered).items()}
    return parts


def derived(parts: Mapping[str, str]) -> dict[str, str]:
    """Derive from rendered parts what readers without HTML get, where the author did not say it."""
    if "html" not in parts or parts.get("text"):
        return {}
    effort.yield_beyond(LONGEST_HTML, len(parts["html"]))
    return {"text": plain_text(parts["html"])}


def render_part(channel: str, name: str, source: Json, facts: Facts) -> Rendered:
    """Raises PartError."""
    html = PARTS[channel][name].html
    try:
        if isinstance(source, dict):
            values = {key: _rendered(value, html, facts) for key, value in sorted(source.items())}
            text = document.dumps({key: value.text for key, value in values.items()}).decode()
            return Rendered(text, _missing(values.values()))
        return _rendered(source, html, facts)
    except (template.TemplateError, template.RenderError) as error:
        raise PartError(name, str(error)) from None


def _rendered(source: str, html: bool, facts: Facts) -> Rendered:
    return _parsed(source, html).render(facts)


def _parsed(source: str, html: bool) -> Template:
    return template.parse(source, html=html, roots=OF_MESSAGES)


def _missing(pieces: Iterable[Rendered]) -> tuple[str, ...]:
    """Each path once, as many as a single piece may note."""
    paths = dict.fromkeys(path for piece in pieces for path in piece.missing)
    return tuple(islice(paths, NOTED))


def given_parts(channel: str, content: Mapping[str, Json]) -> Iterator[str]:
    """The names of the parts that are there, in the channel's order: a database keeps none."""
    return (name for name in PARTS[channel] if content.get(name))


def reads(channel: str, content: Mapping[str, Json]) -> Iterator[tuple[tuple[str, ...], Path]]:
    """The paths that the parts read, each after its place in the content."""
    for name in given_parts(channel, content):
        source = content[name]
        pieces: list[tuple[tuple[str, ...], str]] = [((name,), source)]
        if isinstance(source, dict):
            pieces = [((name, key), source[key]) for key in sorted(source)]
        for place, piece in pieces:
            for segments in _parsed(piece, PARTS[channel][name].html).paths:
                yield place, Path(segments)


def reads_a_link(channel: str, content: Mapping[str, Json]) -> bool:
    """Return whether the author has placed a link for the recipient to choose by."""
    return any(path.segments[0] in LINKS for _, path in reads(channel, content))


def variables(channel: str, content: Mapping[str, Json]) -> list[str]:
    """The paths that the parts read, such as `trigger.data.email`, each once."""
    return list(dict.fromkeys(str(path) for _, path in reads(channel, content)))
