"""The filter of a segment: the conditions of a branch over a contact, and questions about its past.

Beside comparisons at `contact.…` it asks what the contact did (`event`), which messages it got
(`message`), which flows it went through (`run`), and which other segments it is in (`segmentId`).
app/store/segment_sql.py says the same in SQL, segment_prose.py in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from app.machine import compare, condition, document, effort, path
from app.machine.condition import All, AnyOf, Comparison, Condition, Grammar, Not, Question
from app.machine.content import CHANNELS
from app.machine.document import LiteralFloat
from app.machine.fields import (
    LONGEST_DURATION,
    NOT_ZERO,
    Field,
    Place,
    Reader,
    choice,
    count,
    lasting,
    line,
    parse_duration,
    read_object,
)
from app.machine.program import Facts, Json
from app.machine.text import encodable, is_storable

FIELDS = ("id", "email", "phone", "firstName", "lastName", "timezone", "locale")
MOST_TIMES = 1_000  # that an event is counted
MOST_VALUES = 200  # to compare with, of all lists in a filter
LARGEST = 16 * 1024  # bytes of its JSON
MOST_IN_ALL = 200  # comparisons, with those of the segments that it names
DEEPEST = 5  # segments that name one another

COUNTS: Mapping[str, str] = {"eq": "=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
MESSAGES: Mapping[str, tuple[str, ...]] = {
    "sent": ("SENT", "DELIVERED", "COMPLAINED"),
    "bounced": ("BOUNCED",),
}
RUNS: Mapping[str, tuple[str, ...] | None] = {
    "entered": None,  # whatever became of it
    "completed": ("COMPLETED",),
    "in": ("QUEUED", "RUNNING", "WAITING"),
}


def _is_within(moment: datetime | None, within: timedelta | None, now: datetime) -> bool:
    """Return whether the moment is recent enough; a message that has not left has none."""
    if within is None:
        return True
    return moment is not None and timedelta(0) <= now - moment <= within


@dataclass(frozen=True, slots=True)
class Did(Question):
    """An event of the contact, so many times."""

    event: str
    op: str = "gte"
    times: int = 1
    within: timedelta | None = None
    match: Condition | None = None

    def answer(self, facts: Facts) -> tuple[bool, Mapping[str, Json]]:
        counted, now = 0, facts["now"]
        for event in facts["events"]:
            effort.is_exhausted()
            if event["name"] == self.event and _is_within(event["at"], self.within, now):
                known = {"event": {"properties": scalars(event["properties"])}, "now": now}
                if self.match is None or condition.evaluate(self.match, known).holds:
                    counted += 1
        order = (counted > self.times) - (counted < self.times)
        holds = order in _ORDERS[self.op]
        return holds, {"event": self.event, "op": self.op, "value": self.times, "found": counted}

    def comparisons(self) -> int:
        return 1 + (0 if self.match is None else condition.comparisons(self.match))


_ORDERS = {"eq": (0,), "gt": (1,), "gte": (0, 1), "lt": (-1,), "lte": (-1, 0)}


def scalars(properties: Mapping[str, Json]) -> dict[str, Json]:
    """The properties that a match reads: lists and objects are not there, and a number that no
    database holds is one that is equal to none."""
    return {
        name: math.inf if _is_far(one) else one
        for name, one in properties.items()
        if not isinstance(one, dict | list)
    }


def _is_far(value: Json) -> bool:
    return isinstance(value, LiteralFloat) and compare.is_far(value.literal)


@dataclass(frozen=True, slots=True)
class Got(Question):
    """A message to the contact that came to such an end."""

    message: str
    template_id: str | None = None
    broadcast_id: str | None = None
    within: timedelta | None = None

    def answer(self, facts: Facts) -> tuple[bool, Mapping[str, Json]]:
        holds = any(
            one["status"] in MESSAGES[self.message]
            and self.template_id in (None, one["templateId"])
            and self.broadcast_id in (None, one["broadcastId"])
            and _is_within(one["at"], self.within, facts["now"])
            for one in facts["messages"]
        )
        of = {"templateId": self.template_id, "broadcastId": self.broadcast_id}
        return holds, {"message": self.message, **of}


@dataclass(frozen=True, slots=True)
class Went(Question):
    """A run of the contact through a definition."""

    run: str
    definition_id: str

    def answer(self, facts: Facts) -> tuple[bool, Mapping[str, Json]]:
        wanted = RUNS[self.run]
        holds = any(
            one["definitionId"] == self.definition_id
            and (wanted is None or one["status"] in wanted)
            for one in facts["runs"]
        )
        return holds, {"run": self.run, "definitionId": self.definition_id}


@dataclass(frozen=True, slots=True)
class InSegment(Question):
    """Another segment, by its filter among the facts."""

    segment_id: str

    def answer(self, facts: Facts) -> tuple[bool, Mapping[str, Json]]:
        verdict = condition.evaluate(facts["segments"][self.segment_id], facts)
        return verdict.holds, {"segmentId": self.segment_id}


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mention:
    """Something that a filter names by its id, and where."""

    kind: Literal["segment", "template", "broadcast", "definition", "topic"]
    id: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Spelled:
    """A name that somebody typed in a filter, and where: of what is there once a contact has it."""

    kind: Literal["field", "tag", "event"]
    name: str
    pointer: str


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Condition
    mentions: Sequence[Mention]
    spelled: Sequence[Spelled] = ()

    @property
    def segments(self) -> list[str]:
        """The ids of those that it names, each once."""
        return list(dict.fromkeys(one.id for one in self.mentions if one.kind == "segment"))

    @property
    def topics(self) -> set[tuple[str, str]]:
        """The topics that it asks an answer about, each with the channel: of the paths as they are
        read, for one may be written in several ways."""
        found = set()
        for one in walk(self.condition):
            match one:
                case Comparison(path.Path(("contact", "topics", str(id), str(channel)))):
                    found.add((id, channel))
        return found

    def names(self) -> list[str]:
        """The names of the events that it asks for, each once."""
        found = (one.event for one in walk(self.condition) if isinstance(one, Did))
        return list(dict.fromkeys(found))

    def matched(self) -> list[str]:
        """The names of the events whose properties it reads, each once."""
        asked = (one for one in walk(self.condition) if isinstance(one, Did))
        return list(dict.fromkeys(one.event for one in asked if one.match is not None))


def read(raw: Json, place: Place, kept: timedelta = LONGEST_DURATION) -> Filter | None:
    """The filter that JSON spells, or None when findings were left. Events are `kept` so long."""
    if len(document.dumps(raw)) > LARGEST:
        place.refuse("too_long", f"A filter has at most {LARGEST // 1024} KiB of JSON.")
        return None
    mentions: list[Mention] = []
    spelled: list[Spelled] = []
    read = condition.read(raw, place, grammar=_grammar(kept, mentions, spelled))
    if read is None or place.findings:
        return None
    condition.limit([read], place)
    lists = [one.value for one in walk(read) if isinstance(one, Comparison) and one.op == "in"]
    if sum(map(len, lists)) > MOST_VALUES:
        place.limit("too_many", f"The lists of a filter have at most {MOST_VALUES} values.")
    return None if place.findings else Filter(read, mentions, spelled)


def walk(part: Condition) -> Iterator[Condition]:
    """Walk through a condition and all within it."""
    yield part
    inner: Iterable[Condition] = ()
    match part:
        case All(parts) | AnyOf(parts):
            inner = parts
        case Not(one):
            inner = (one,)
        case Did():
            inner = () if part.match is None else (part.match,)
    for one in inner:
        yield from walk(one)


def _grammar(kept: timedelta, mentions: list[Mention], spelled: list[Spelled]) -> Grammar:
    within = Field(
        lasting(kept, positive=True), about="How long ago at the most; events are kept so long."
    )

    def named(kind: Literal["segment", "template", "broadcast", "definition"]) -> Field:
        def read(raw: Json, place: Place) -> Json:
            id = line(raw, place)
            if id is not None:
                mentions.append(Mention(kind, id, place.pointer))
            return id

        return Field(Reader(read, line.schema), f"Say which {kind}, by its id.")

    got = {
        "message": Field(choice(*MESSAGES), f"Say what became of it: {' or '.join(MESSAGES)}."),
        "templateId": replace(named("template"), needed=None),
        "broadcastId": replace(named("broadcast"), needed=None),
        "within": within,
    }
    went = {
        "run": Field(choice(*RUNS), f"Say how far: {', '.join(RUNS)}."),
        "definitionId": named("definition"),
    }
    return Grammar(
        frozenset({"contact"}),
        {
            "event": lambda raw, place: _did(raw, place, within, spelled),
            "message": partial(_question, Got, got),
            "run": partial(_question, Went, went),
            "segmentId": partial(_question, InSegment, {"segmentId": named("segment")}),
        },
        partial(_refine, mentions, spelled),
    )


def _times(raw: Json, place: Place) -> tuple[str, int] | None:
    """Counted how; None with a finding."""
    members = read_object(raw, _COUNT, place)
    for name in _COUNT:
        if name not in members and not place.has_findings(name):
            place.at(name).refuse("missing", "Say `op` and `value`, such as gte and 2.")
    if members.keys() != _COUNT.keys():
        return None
    times = members["op"], members["value"]
    if times in _OF_ALL_OR_NONE:
        place.at("value").refuse("bad_value", _OF_ALL_OR_NONE[times])
    return times


_COUNT = {"op": Field(choice(*COUNTS)), "value": Field(count(0, MOST_TIMES))}
_OF_ALL_OR_NONE = {
    ("gte", 0): "Everybody did it zero times or more: compare with 1 or more.",
    ("lt", 0): "Nobody did it fewer than zero times: compare with 1 or more.",
}


def _did(raw: dict[str, Json], place: Place, within: Field, spelled: list[Spelled]) -> Did | None:
    fields = {
        "event": Field(line, "Say which event, by its name."),
        "count": Field(Reader(_times, {})),
        "within": within,
        "match": Field(Reader(lambda raw, place: condition.read(raw, place, 2, _MATCH), {})),
    }
    members = read_object(raw, fields, place)
    if "event" not in members:
        return None
    spelled.append(Spelled("event", members["event"], place.at("event").pointer))
    op, times = members.get("count", ("gte", 1))
    return Did(members["event"], op, times, members.get("within"), members.get("match"))


def _question(
    asked: Callable[..., Question], fields: Mapping[str, Field], raw: dict[str, Json], place: Place
) -> Question | None:
    """The question whose members are these fields, in their order; None when one is missing that
    is needed."""
    members = read_object(raw, fields, place)
    if any(field.needed and name not in members for name, field in fields.items()):
        return None
    return asked(*map(members.get, fields))


def _refine(mentions: list[Mention], spelled: list[Spelled], one: Comparison, place: Place) -> None:
    """Hold it to what a contact has, and to text and times that a database holds; note the topic
    that it mentions, or the field or tag that it spells."""
    _refine_value(one, place)
    match one.path.segments[1:]:
        case ("topics", str(id), str()):
            mentions.append(Mention("topic", id, place.at("path").pointer))
        case ("metadata", str(name)):
            spelled.append(Spelled("field", name, place.at("path").pointer))
        case ("tags",) if isinstance(one.value, str):
            spelled.append(Spelled("tag", one.value, place.at("value").pointer))
    match one.path.segments[1:]:
        case (str(name),) if name in (*FIELDS, "createdAt"):
            pass
        case ("tags",):
            if one.op != "contains":
                place.at("op").refuse("wrong_type", "Tags are compared by `contains` alone.")
        case ("metadata", str()):
            pass
        case ("subscriptions", str()):  # contact_values.py knows the channels
            pass
        case ("topics", str(), str(channel)) if channel in CHANNELS:
            pass
        case _:
            known = ", ".join(f"contact.{name}" for name in (*FIELDS, "createdAt", "tags"))
            place.at("path").refuse(
                "bad_path",
                f"A filter reads {known}, contact.metadata.<name>, contact.subscriptions.<channel>,"
                f" and contact.topics.<id>.<channel>; the channels are {', '.join(CHANNELS)}.",
            )


def _refine_property(one: Comparison, place: Place) -> None:
    _refine_value(one, place)
    match one.path.segments[1:]:
        case ("properties", str()):
            pass
        case _:
            place.at("path").refuse("bad_path", "A match reads event.properties.<name>.")


_MATCH = Grammar(frozenset({"event"}), refine=_refine_property)


def _refine_value(one: Comparison, place: Place) -> None:
    at = place.at("value")
    values = one.value if isinstance(one.value, list) else [one.value]
    texts = [text for text in (*one.path.segments, *values) if isinstance(text, str)]
    if not all(map(is_storable, texts)):
        at.refuse("bad_value", "This holds characters that no contact can have.")
    if one.op == "within_last" and not parse_duration(str(one.value)):
        at.refuse("bad_duration", NOT_ZERO)
    for value in values:
        if _is_far(value):
            at.refuse("bad_value", "An exponent may have at most three digits.")
        moment = compare.time(value)
        try:
            if moment is not None:
                moment.astimezone(UTC)
        except OverflowError:
            at.refuse("bad_time", f"{encodable(str(value))} is no time in UTC.")
