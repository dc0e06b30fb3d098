"""A run on paper: the same machine, renderer and checks, with a virtual clock and no side effects.

What runner.py and delivery.py do in the database and with providers is done here to values: a table
carries the same effects out. What the world would answer (deliveries, HTTP, events, splits) is part
of the Scenario; the clock jumps to the next thing that happens. Nothing here reads or writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from app.contacts import addresses, audience, profile, subscriptions
from app.errors import FieldError, Problem
from app.machine import content, document, step
from app.machine.content import ADDRESS_FIELD
from app.machine.program import (
    AddTag,
    Answered,
    ChangeContact,
    Changed,
    Delivered,
    Effect,
    Event,
    Finish,
    Go,
    Happened,
    HttpCall,
    Json,
    Limited,
    Program,
    Record,
    RemoveTag,
    Resend,
    Send,
    StartRun,
    State,
    Step,
    Take,
    Taken,
    WaitFor,
    WaitUntil,
    Woken,
)
from app.machine.reasons import SENTENCES, Reason
from app.runs.outcome import StepOutcome
from app.simulations.traces import End, Passage, Said, Trace
from app.store.db import Row

MOST_VISITS = 2_000  # a person reads less; a run may make five times as many
MOST_BYTES = 4 * 1024 * 1024  # of what was rendered and noted
MOST_SECONDS = 5.0
STOPPED = "STOPPED"  # where only a simulation ends: it has shown as much as it may

Foreseen = TypeVar("Foreseen")

NOBODY = "0" * 26  # in place of the number that an id has in the database


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """What is to become of a message, when it can be made."""

    status: Literal["SENT", "FAILED", "SUPPRESSED", "UNKNOWN"] = "SENT"
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that befalls the contact: an event of that name, or a change of its values."""

    at: datetime
    name: str | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)
    changes: Mapping[str, Json] | None = None  # a merge patch; `tags` are all that it has then


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run depends on. By node: `endings`, `answers` and what `program` says of splits
    (`steered`); the last of several serves for all later visits."""

    program: Program
    trigger: Json
    contact: Row  # as it is stored
    tags: Sequence[str]
    workspace: Mapping[str, Json]  # id, name, timezone, country
    start_at: datetime
    definition_id: str = f"wfl_{NOBODY}"
    version: int = 1
    sender: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    happenings: Sequence[Happening] = ()
    endings: Mapping[str, Sequence[MessageOutcome]] = field(default_factory=dict)
    answers: Mapping[str, Sequence[Answered]] = field(default_factory=dict)
    channels: Collection[str] = content.CHANNELS
    startable: Collection[str] | None = None  # None: whatever it starts is active


def simulate(scenario: Scenario) -> Trace:
    """What the run would do, to its end or to where nothing more happens."""
    return Paper(scenario).play()


def steered(program: Program, ports: Mapping[str, str]) -> Program:
    """The same, with splits that all go one way: the other variants weigh nothing."""
    nodes = dict(program.nodes)
    for id, port in ports.items():
        variants = [
            {**variant, "weight": 1 if variant["port"] == port else 0}
            for variant in nodes[id].config["variants"]
        ]
        nodes[id] = replace(nodes[id], config={**nodes[id].config, "variants": variants})
    return replace(program, nodes=nodes)


Waiting: TypeAlias = WaitUntil | WaitFor
Outcome: TypeAlias = StepOutcome[Waiting]


class Paper:
    """One run, with its clock and its contact."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = scenario.start_at
        self.contact = dict(scenario.contact)
        self.tags = list(scenario.tags)
        self.passages: dict[tuple[str, int], Passage] = {}
        self.taken: dict[tuple[str, str], list[datetime]] = {}
        self.messages: dict[str, _Message] = {}
        self.started = 0
        self.state: State = step.start(scenario.program)
        self._coming = deque(sorted(scenario.happenings, key=lambda one: one.at))
        self._bytes = 0
        self._deadline = time.monotonic() + MOST_SECONDS

    def play(self) -> Trace:
        event: Event | None = Go()
        waiting: Waiting | None = None
        while event is not None:
            if self._is_spent():
                return self._trace(
                    End(
                        STOPPED,
                        self.now,
                        Reason.SIMULATION_LIMIT,
                        SENTENCES[Reason.SIMULATION_LIMIT],
                    )
                )
            result = self.step(event)
            if result.record is None and not result.effects:
                event = self._next(waiting)  # it was not what the run waits for
                continue
            before, self.state = self.resource(), result.state
            outcome = self._carry_out(result)
            self._keep(outcome.record, before)
            if outcome.finish is not None:
                finish = outcome.finish
                return self._trace(End(finish.status, self.now, finish.code, finish.detail))
            waiting = outcome.waiting
            event = outcome.answer or (self._next(waiting) if waiting else Go())
        return self._trace(End("WAITING", self.now))

    def step(self, event: Event) -> Step:
        return step.step(self.scenario.program, self.state, event, self.facts())

    def facts(self) -> dict[str, Json]:
        """As facts.of_run tells them."""
        scenario = self.scenario
        return {
            "trigger": scenario.trigger,
            "contact": self.resource(),
            "workspace": scenario.workspace,
            "run": {
                "id": f"run_{NOBODY}",
                "definitionId": scenario.definition_id,
                "version": scenario.version,
                "createdAt": scenario.start_at,
            },
            "steps": self.state.outputs,
            "now": self.now,
        }

    def resource(self) -> dict[str, Json]:
        return audience.resource(self.contact, sorted(self.tags))

    # --- what happens next ------------------------------------------------------------------------

    def _next(self, waiting: Waiting | None) -> Event | None:
        """The clock goes to the next thing that the run hears of; None when there is no such."""
        if isinstance(waiting, WaitUntil):
            for happening in self._until(waiting.at):
                self._befall(happening)  # and nobody listens
            self.now = max(self.now, waiting.at)
            return Woken()
        if waiting is None:
            return None
        for happening in self._until(waiting.until):
            self.now = max(self.now, happening.at)
            self._befall(happening)
            if happening.name is not None and happening.name in waiting.events:
                return Happened(happening.name, happening.properties, happening.at)
            if happening.changes is not None and waiting.contact:
                return Changed()
        if waiting.until is None:
            return None
        self.now = waiting.until
        return Woken()

    def _until(self, moment: datetime | None) -> Iterator[Happening]:
        """What comes until then, in its order; what comes at that moment comes before its end."""
        while self._coming and (moment is None or self._coming[0].at <= moment):
            yield self._coming.popleft()

    def _befall(self, happening: Happening) -> None:
        if happening.changes is not None:
            patch = dict(happening.changes)
            tags = patch.pop("tags", None)
            self.change(patch, happening.at)
            self.tags = self.tags if tags is None else list(dict.fromkeys(tags))

    # --- what the run does ------------------------------------------------------------------------

    def _carry_out(self, result: Step) -> Outcome:
        outcome = Outcome(result.record)
        for effect in result.effects:
            EFFECTS[type(effect)](self, effect, outcome)
        return outcome

    def change(self, patch: Mapping[str, Json], at: datetime) -> None:
        """Raises Problem for what the contact may not have, and then nothing has changed."""
        values = document.merge(audience.writable(self.contact), profile.normal(patch))
        checked = profile.check(self.scenario.workspace["country"], values, None)
        checked.raise_errors()
        self.contact |= {**checked.columns, "updated_at": at}

    def _keep(self, record: Record | None, before: Mapping[str, Json]) -> None:
        """A visit that waited is told once, by how it ended."""
        if record is None:
            return
        key = record.node_id, record.visit
        earlier, message = self.passages.get(key), self.messages.get(record.node_id)
        said = message.said if message and message.visit == record.visit else None
        after = self.resource()
        changes = {
            name: (before[name], after[name])
            for name in after
            if name != "updatedAt" and before[name] != after[name]
        }
        self.passages[key] = Passage(
            record.node_id,
            record.kind,
            record.visit,
            record.status,
            record.code,
            record.detail,
            record.port,
            record.output,
            entered_at=earlier.entered_at if earlier else self.now,
            left_at=None if record.status == "WAITING" else self.now,
            said=said,
            changes=changes or None,
        )
        self._bytes += len(document.dumps([record.output, said and said.content]))

    def _is_spent(self) -> bool:
        return (
            len(self.passages) >= MOST_VISITS
            or self._bytes > MOST_BYTES
            or time.monotonic() > self._deadline
        )

    def _trace(self, end: End) -> Trace:
        return Trace(self.scenario.start_at, list(self.passages.values()), end, self.resource())


# --- messages and calls ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Message:
    """The newest message of a node."""

    id: str
    visit: int
    send: Send
    said: Said
    number: int = 0
    missing: tuple[str, ...] = ()  # of its content


def _send(paper: Paper, effect: Send, outcome: Outcome) -> None:
    unsent = Said(effect.channel, effect.to, "QUEUED", effect.template_id, None)
    count = sum(passage.kind == "send_message" for passage in paper.passages.values()) + 1
    message = _Message(f"msg_{count:026}", effect.visit, effect, unsent)
    paper.messages[effect.node_id] = message
    outcome.answer = _attempt(paper, message)


def _resend(paper: Paper, effect: Resend, outcome: Outcome) -> None:
    [message] = [one for one in paper.messages.values() if one.id == effect.message_id]
    outcome.answer = _attempt(paper, message)


def _attempt(paper: Paper, message: _Message) -> Delivered:
    message.number += 1
    ending = _ended(paper, message)
    message.said = replace(message.said, status=ending.status)
    called = ending.status != "SUPPRESSED"  # what is suppressed is not rendered
    missing = message.missing if called else ()
    return Delivered(ending.status, message.id, message.number, ending.code, ending.detail, missing)


def _ended(paper: Paper, message: _Message) -> MessageOutcome:
    """As delivery.py judges it at the intent; then as the scenario has it. What must not be sent
    is judged here, between the address and the content."""
    send, scenario = message.send, paper.scenario
    foreseen = scenario.endings.get(send.node_id)
    if foreseen is None and send.channel not in scenario.channels:
        return MessageOutcome("FAILED", Reason.CHANNEL_NOT_CONFIGURED)
    to = send.to or paper.contact[ADDRESS_FIELD[send.channel]]
    if not to:
        detail = f"The contact has no {ADDRESS_FIELD[send.channel]}."
        return MessageOutcome("FAILED", Reason.NO_ADDRESS, detail)
    said = _content_of(scenario, send)
    if said is None:
        return MessageOutcome("FAILED", Reason.TEMPLATE_MISSING)
    try:
        to = subscriptions.clean(send.channel, to, scenario.workspace["country"])
        rendered = content.render(send.channel, said, paper.facts())
    except addresses.BadAddress as error:
        return MessageOutcome("FAILED", Reason.INVALID_ADDRESS, str(error))
    except content.PartError as error:
        return MessageOutcome("FAILED", Reason.TEMPLATE_ERROR, str(error))
    sender = scenario.sender if send.channel == "email" else {}
    message.said = replace(message.said, to=to, content={**sender, **rendered.parts})
    message.missing = rendered.missing
    return _nth(foreseen or [MessageOutcome()], message.number + _earlier(paper, send))


def _content_of(scenario: Scenario, send: Send) -> Mapping[str, Json] | None:
    if send.template_id is None:
        return send.content
    template = scenario.templates.get(send.template_id)
    return template["content"] if template else None


def _earlier(paper: Paper, send: Send) -> int:
    """Attempts of this node's earlier visits: the scenario counts them all."""
    past = (paper.passages.get((send.node_id, visit)) for visit in range(1, send.visit))
    return sum((passage.output or {}).get("number", 1) for passage in past if passage)


def _call(paper: Paper, effect: HttpCall, outcome: Outcome) -> None:
    foreseen = paper.scenario.answers.get(effect.node_id)
    outcome.answer = _nth(foreseen or [Answered(200)], effect.visit)


def _nth(foreseen: Sequence[Foreseen], number: int) -> Foreseen:
    """The last one repeats."""
    return foreseen[min(number, len(foreseen)) - 1]


# --- the contact, time, and other runs ------------------------------------------------------------


def _change_contact(paper: Paper, effect: ChangeContact, outcome: Outcome) -> None:
    try:
        paper.change(effect.changes, paper.now)
    except Problem as problem:
        outcome.note_refusal(problem)


def _add_tag(paper: Paper, effect: AddTag, outcome: Outcome) -> None:
    errors: list[FieldError] = []
    tags = profile.check_tags([effect.tag], errors)
    if len({*paper.tags, *tags}) > profile.TAGS:
        errors.append(FieldError("/tags", f"A contact has at most {profile.TAGS} tags."))
    if errors:
        outcome.note_refusal(profile.invalid(errors))
    else:
        paper.tags = list(dict.fromkeys([*paper.tags, *tags]))


def _remove_tag(paper: Paper, effect: RemoveTag, _outcome: Outcome) -> None:
    gone = profile.normal(effect.tag)
    paper.tags = [tag for tag in paper.tags if tag != gone]


def _wait(_paper: Paper, effect: Waiting, outcome: Outcome) -> None:
    outcome.waiting = effect


def _take(paper: Paper, effect: Take, outcome: Outcome) -> None:
    taken = paper.taken.setdefault((effect.node_id, effect.key), [])
    if sum(at > paper.now - effect.window for at in taken) >= effect.limit:
        outcome.answer = Limited()
    else:
        taken.append(paper.now)
        outcome.answer = Taken()


def _start_run(paper: Paper, effect: StartRun, outcome: Outcome) -> None:
    startable = paper.scenario.startable
    if startable is not None and effect.definition_id not in startable:
        outcome.note(Reason.START_REFUSED)
    else:
        paper.started += 1
        outcome.add_output(runId=f"run_{paper.started:026}")


def _finish(_paper: Paper, effect: Finish, outcome: Outcome) -> None:
    outcome.finish = effect


EFFECTS: Mapping[type[Effect], Callable[[Paper, Any, Outcome], None]] = {
    Send: _send,
    Resend: _resend,
    HttpCall: _call,
    ChangeContact: _change_contact,
    AddTag: _add_tag,
    RemoveTag: _remove_tag,
    WaitUntil: _wait,
    WaitFor: _wait,
    Take: _take,
    StartRun: _start_run,
    Finish: _finish,
}
