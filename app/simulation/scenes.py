"""The input of a simulation, and the Scenario made of it: the contact, its events, and the outcomes
of messages and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from app.audience import profile, topics
from app.errors import FieldError, Problem
from app.intake import lookup
from app.machine import compare, defaults, document, effort, segment_changes
from app.machine.content import ChannelName
from app.machine.fields import LONGEST_DURATION, parse_duration
from app.machine.program import Answered, Json, Program
from app.machine.reasons import Reason
from app.machine.reentry import Entry
from app.simulation import simulation
from app.simulation.simulation import NOBODY, MessageOutcome, ScenarioEvent
from app.store.contacts import Contact
from app.web.body import Moment, Name, Shape

YEARS = (1970, 2200)  # what is far from it, a few thousand waits would leave the calendar from


# --- what is given --------------------------------------------------------------------------------


def _this_age(moment: datetime) -> datetime:
    if not YEARS[0] <= moment.year <= YEARS[1]:
        raise ValueError(f"Must be from {YEARS[0]} to {YEARS[1]}.")
    return moment


def _at(text: str) -> str:
    length, moment = parse_duration(text), compare.time(text)
    if length is None and moment is None:
        raise ValueError(
            "Must be a time or a duration since the start, such as 2026-03-01T09:00:00Z or P1D."
        )
    if length is not None and length > LONGEST_DURATION:
        raise ValueError(f"May be at most {LONGEST_DURATION.days} days.")
    if moment is not None:
        _this_age(moment)
    return text


class SimulatedEvent(Shape):
    """An event of the contact (`name`), a change to it (`contact`, a merge patch), or the ID of a
    segment that it enters or leaves. `at` is a time, or a duration since the start."""

    at: Annotated[str, AfterValidator(_at)]
    name: Name | None = None
    properties: dict[str, Any] = Field(default_factory=dict)
    contact: dict[str, Any] | None = None
    segment_entered: Name | None = None
    segment_left: Name | None = None

    @property
    def moved(self) -> str | None:
        id = self.segment_entered or self.segment_left
        return id and segment_changes.moved(id, entered=self.segment_entered is not None)

    @model_validator(mode="after")
    def _is_one(self) -> SimulatedEvent:
        given = (self.name, self.contact, self.segment_entered, self.segment_left)
        if sum(one is not None for one in given) != 1:
            raise ValueError("Give the name of an event, the contact's changes, or a segment.")
        return self


Status: TypeAlias = Literal["sent", "failed", "suppressed", "unknown"]


class Outcome(Shape):
    """The outcome of a message."""

    status: Status
    code: str | None = None
    detail: str | None = None


class HttpAnswer(Shape):
    """The response of a server; without a `status`, why there was none (`code`)."""

    status: Annotated[int, Field(ge=100, le=599)] | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    code: Literal["http_refused", "http_unreachable", "http_timeout", "http_broken"] | None = None
    detail: str | None = None


class Entered(Shape):
    """A run by which the contact went through the definition before, and whether it runs on."""

    at: Annotated[Moment, AfterValidator(_this_age)]
    running: bool = False


class Received(Shape):
    """A message of marketing that the contact has got before."""

    at: Annotated[Moment, AfterValidator(_this_age)]
    channel: ChannelName


class Given(Shape):
    """Everything that happens to the run. The `contact` may say when it was created (`createdAt`)
    and last changed (`updatedAt`), which is otherwise when the run starts. `entered` counts where
    the trigger limits `reentry`, and `received` where the workspace has a `frequencyCap`; for a
    stored contact all of these are what the records say, `entered` and `received` unless they are
    given. `outcomes`, `httpAnswers` and `variants` are by node ID; of a list, each visit gets the
    next item, and the last one repeats.
    """

    trigger: dict[str, Any] = Field(default_factory=dict)
    contact: dict[str, Any] | None = None
    start_at: Annotated[Moment, AfterValidator(_this_age)] | None = None
    entered: Entered | None = None
    received: Annotated[list[Received], Field(max_length=1_000)] = Field(default_factory=list)
    events: Annotated[list[SimulatedEvent], Field(max_length=1_000)] = Field(default_factory=list)
    outcomes: dict[str, Status | Outcome | list[Outcome]] = Field(default_factory=dict)
    http_answers: dict[str, HttpAnswer | list[HttpAnswer]] = Field(default_factory=dict)
    variants: dict[str, str] = Field(default_factory=dict)


# --- from there to a scenario ---------------------------------------------------------------------


def of(
    given: Given, program: Program, trigger: Mapping[str, Json], country: str | None
) -> dict[str, Any]:
    """The arguments of a Scenario. `trigger` is the definition's. Raises Problem."""
    start_at = given.start_at
    if start_at is None:
        raise invalid([FieldError("/startAt", "Say when the run starts.")])
    _refuse_unknown(given, program)
    events = [scenario_event(event, start_at) for event in given.events]
    early = [
        FieldError(document.pointer("events", index, "at"), "Must not be before startAt.")
        for index, event in enumerate(events)
        if event.at < start_at
    ]
    if early:
        raise invalid(early)
    contact = (
        new_contact(trigger, given.trigger, country, start_at)
        if given.contact is None
        else given_contact(given.contact, country, start_at)
    )
    if contact is None:
        raise invalid([FieldError("/contact", "Say which contact the run is for.")])
    return {
        "program": simulation.with_variants(program, given.variants),
        "trigger": given.trigger,
        "contact": contact[0],
        "tags": contact[1],
        "start_at": start_at,
        "reentry": trigger.get("reentry"),
        "entries": [Entry(None, was.at, was.running)] if (was := given.entered) else [],
        "received": [(one.at, one.channel) for one in given.received],
        "events": events,
        "outcomes": {id: _outcomes(outcome) for id, outcome in given.outcomes.items()},
        "answers": {id: _answers(answer) for id, answer in given.http_answers.items()},
    }


def scenario_event(event: SimulatedEvent, start_at: datetime) -> ScenarioEvent:
    after, moment = parse_duration(event.at), compare.time(event.at)
    at = moment.astimezone(UTC) if moment else start_at + after if after else start_at
    return ScenarioEvent(at, event.name, event.properties, event.contact, event.moved)


# What is usual, unless the outcome says more.
USUAL: Mapping[Status, MessageOutcome] = {
    "sent": MessageOutcome("SENT"),
    "failed": MessageOutcome("FAILED", Reason.PROVIDER_REJECTED),
    "suppressed": MessageOutcome("SUPPRESSED", Reason.SUPPRESSED_UNSUBSCRIBED),
    "unknown": MessageOutcome("UNKNOWN", Reason.OUTCOME_UNKNOWN),
}


def _outcomes(given: Status | Outcome | Sequence[Outcome]) -> list[MessageOutcome]:
    if isinstance(given, str):
        return [USUAL[given]]
    several = [given] if isinstance(given, Outcome) else given
    return [
        replace(USUAL[one.status], code=one.code or USUAL[one.status].code, detail=one.detail)
        for one in several
    ]


def _answers(given: HttpAnswer | Sequence[HttpAnswer]) -> list[Answered]:
    several = [given] if isinstance(given, HttpAnswer) else given
    return [
        Answered(None, code=one.code or Reason.HTTP_UNREACHABLE, detail=one.detail)
        if one.status is None
        else Answered(
            one.status, {name.lower(): text for name, text in one.headers.items()}, one.body
        )
        for one in several
    ]


NODES: Mapping[str, str] = {
    "outcomes": "send_message",
    "httpAnswers": "http_request",
    "variants": "split",
}


def _refuse_unknown(given: Given, program: Program) -> None:
    """A misspelled id would otherwise be ignored."""
    errors = []
    named: Sequence[Mapping[str, object]] = (given.outcomes, given.http_answers, given.variants)
    for (member, kind), ids in zip(NODES.items(), named, strict=True):
        for id in ids:
            node = program.nodes.get(id)
            if node is None or node.kind != kind:
                message = f"There is no {kind} with this id."
                errors.append(FieldError(document.pointer(member, id), message))
    for id, port in given.variants.items():
        node = program.nodes.get(id)
        ports = [variant["port"] for variant in node.config.get("variants", ())] if node else []
        if ports and port not in ports:
            message = f"Its variants are {', '.join(ports)}."
            errors.append(FieldError(document.pointer("variants", id), message))
    if errors:
        raise invalid(errors)


def given_contact(
    given: Mapping[str, Json], country: str | None, now: datetime
) -> tuple[Contact, list[str]]:
    """A contact that is not stored, and its tags. Its `id`, if given, decides how splits go. Raises
    Problem `invalid`."""
    apart = ("id", "tags", "topics", *TIMES)
    values = {name: value for name, value in given.items() if name not in apart}
    checked = profile.check(country, values, given.get("tags"))
    answers, wrong = topics.read(given.get("topics"), None)
    # When it was created and last changed: now, unless that is given.
    moments = {name: compare.time(given.get(name, now)) for name in TIMES}
    times: dict[str, Any] = {
        TIMES[name]: moment.astimezone(UTC)
        for name, moment in moments.items()
        if moment is not None and YEARS[0] <= moment.year <= YEARS[1]
    }
    message = f"Must be a time from {YEARS[0]} to {YEARS[1]}, such as 2026-03-01T09:00:00Z."
    untimely = [FieldError(f"/{name}", message) for name in TIMES if TIMES[name] not in times]
    if errors := [*checked.errors, *wrong, *untimely]:
        raise invalid([FieldError(f"/contact{one.pointer}", one.message) for one in errors])
    row = _row(checked, str(given.get("id") or f"con_{NOBODY}"), now)
    return replace(row, topics=topics.joined({}, answers), **times), list(checked.tags)


TIMES: Mapping[str, str] = {"createdAt": "created_at", "updatedAt": "updated_at"}


def new_contact(
    trigger: Mapping[str, Json], payload: Json, country: str | None, now: datetime
) -> tuple[Contact, list[str]] | None:
    """The contact that the intake would make for this body, if any. Raises `lookup_unresolved`."""
    makes = trigger.get("createContact") and trigger.get("contactLookup") in ("email", "phone")
    if trigger.get("source") != "inbound_webhook" or not makes:
        return None
    found = lookup.resolve(trigger, payload, country)
    with effort.limited(defaults.SECONDS):
        start = defaults.over(trigger.get("contactDefaults") or {}, payload)
    checked = profile.check(country, {**start.values, found.kind: found.value}, start.tags)
    return _row(checked, f"con_{NOBODY}", now), list(checked.tags)


def _row(checked: profile.Checked, id: str, now: datetime) -> Contact:
    return Contact(**checked.columns, id=id, topics={}, revision=1, created_at=now, updated_at=now)


def invalid(errors: Sequence[FieldError]) -> Problem:
    return Problem("invalid", "This cannot be simulated; see errors.", errors=errors)
