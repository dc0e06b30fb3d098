"""A simulated run: the same machine, renderer and checks, with a virtual clock and no side effects.

What runs/runner.py and messages/delivery.py do in the database and with providers is done here in
memory: a table applies the same effects. The results of deliveries, HTTP calls and splits, and the
events of the contact, are part of the Scenario; the clock jumps to the next event. Nothing here
reads or writes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from app.audience import addresses, profile, shapes, subscriptions
from app.errors import FieldError, Problem
from app.machine import content, document, effort, reentry, step
from app.machine.categories import MARKETING
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
    MessageEnd,
    Moved,
    Program,
    Record,
    RemoveTag,
    Send,
    SendAgain,
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
from app.machine.reentry import Entry
from app.messages import footers
from app.runs.outcome import StepOutcome
from app.simulation import gating
from app.simulation.gating import Gate, Leaving
from app.simulation.traces import End, Passage, SentMessage, Trace
from app.store.contacts import Contact

MOST_VISITS = 2_000  # a person reads less; a run may make five times as many
MOST_BYTES = 4 * 1024 * 1024  # of what was rendered and noted
MOST_SECONDS = 1.0  # of CPU time
LAST_YEAR = 9990  # of its clock, to which a step adds a year and a few days at most
STOPPED = "STOPPED"  # where only a simulation ends: it has shown as much as it may

Expected = TypeVar("Expected")

LINK = footers.example_url("https://tidings.example")  # a case comes out alike wherever it is run
NOBODY = "0" * 26  # in place of the number that an id has in the database


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """The expected outcome of a message that can be rendered."""

    status: MessageEnd = "SENT"
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ScenarioEvent:
    """An event of the contact's with that name, or a change of its values."""

    at: datetime
    name: str | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)
    changes: Mapping[str, Json] | None = None  # a merge patch; `tags` are all that it has then
    moved: str | None = None  # a segment that it enters or leaves (segment_changes.moved)


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a run depends on. By node id: `outcomes` of messages and `answers` of HTTP calls, of
    which the last one repeats. Variants of splits are set in `program` (`with_variants`)."""

    program: Program
    trigger: Json
    contact: Contact  # as it is stored
    tags: Sequence[str]
    workspace: Mapping[str, Json]  # as facts.workspace_root has it
    start_at: datetime
    definition_id: str = f"wfl_{NOBODY}"
    version: int = 1
    sender: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    events: Sequence[ScenarioEvent] = ()
    outcomes: Mapping[str, Sequence[MessageOutcome]] = field(default_factory=dict)
    answers: Mapping[str, Sequence[Answered]] = field(default_factory=dict)
    channels: Collection[str] = content.CHANNELS
    gate: Gate = Gate()  # noqa: RUF009 - frozen
    startable: Collection[str] | None = None  # None: whatever it starts is active
    reentry: Json = None  # the trigger's policy, and
    entries: Sequence[Entry] = ()  # who went through before
    received: Sequence[tuple[datetime, str]] = ()  # marketing before: when, on which channel


def simulate(scenario: Scenario) -> Trace:
    """The trace of the run to its end, or to where it waits for something that never happens."""
    run = SimulatedRun(scenario)
    obstacle = reentry.obstacle(scenario.reentry, scenario.entries, scenario.start_at)
    if obstacle is None:
        return run.run()
    detail = reentry.sentence(scenario.reentry, obstacle)
    return run.ended("COMPLETED", Reason.REENTRY_REFUSED, detail)


def with_variants(program: Program, ports: Mapping[str, str]) -> Program:
    """The program with the weight 0 for all other variants of these splits."""
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


class SimulatedRun:
    """One run, with its clock and its contact."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = scenario.start_at
        self.contact = scenario.contact
        self.tags = list(scenario.tags)
        self.passages: dict[tuple[str, int], Passage] = {}
        self.taken: dict[tuple[str, str], list[datetime]] = {}
        self.messages: dict[str, _Message] = {}
        # That the contact has got, by its ID if it is this run's.
        self.marketing = {str(number): one for number, one in enumerate(scenario.received)}
        self.started = 0
        self.state: State = step.start(scenario.program)
        self._events = deque(sorted(scenario.events, key=lambda one: one.at))
        self._bytes = 0
        self._exhausted = time.thread_time() + MOST_SECONDS

    def run(self) -> Trace:
        event: Event | None = Go()
        waiting: Waiting | None = None
        while event is not None:
            if (
                len(self.passages) >= MOST_VISITS
                or self._bytes > MOST_BYTES
                or self.now.year > LAST_YEAR
                or time.thread_time() > self._exhausted
                or effort.is_exhausted()
            ):
                code = Reason.SIMULATION_LIMIT
                return self.ended(STOPPED, code, SENTENCES[code])
            result = self.step(event)
            if result.record is None and not result.effects:
                event = self._next(waiting)  # it was not what the run waits for
                continue
            before, self.state, since = self.resource(), result.state, self.now
            outcome = Outcome(result.record)
            for effect in result.effects:
                EFFECTS[type(effect)](self, effect, outcome)
            self._keep(outcome.record, before, since)
            if outcome.finish is not None:
                finish = outcome.finish
                return self._trace(End(finish.status, self.now, finish.code, finish.detail))
            waiting = outcome.waiting
            event = outcome.answer or (self._next(waiting) if waiting else Go())
        return self._trace(End("WAITING", self.now))

    def step(self, event: Event) -> Step:
        return step.step(self.scenario.program, self.state, event, self.facts())

    def facts(self) -> dict[str, Json]:
        """The facts, of the same form as facts.of_run."""
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
        return shapes.resource(self.contact, sorted(self.tags))

    # --- what happens next ------------------------------------------------------------------------

    def _next(self, waiting: Waiting | None) -> Event | None:
        """Move the clock to the next event that the run receives; None when there is none."""
        if isinstance(waiting, WaitUntil):
            self.wait_until(waiting.at)
            return Woken()
        if waiting is None:
            return None
        for event in self._until(waiting.until):
            self.now = max(self.now, event.at)
            self._apply_event(event)
            if event.name is not None and event.name in waiting.events:
                return Happened(event.name, event.properties, event.at)
            if event.changes is not None and waiting.contact:
                return Changed()
            if event.moved is not None and event.moved in waiting.segments:
                return Moved(event.moved, event.at)
        if waiting.until is None:
            return None
        self.now = waiting.until
        return Woken()

    def wait_until(self, moment: datetime) -> None:
        """Apply what happens until then, though the run does not look."""
        for event in self._until(moment):
            self._apply_event(event)
        self.now = max(self.now, moment)

    def _until(self, moment: datetime | None) -> Iterator[ScenarioEvent]:
        """The events until then, in order, those of that very moment included."""
        while self._events and (moment is None or self._events[0].at <= moment):
            yield self._events.popleft()

    def _apply_event(self, event: ScenarioEvent) -> None:
        """Raises Problem for a change that a PATCH of the contact would be refused."""
        if event.changes is not None:
            patch = dict(event.changes)
            tags = patch.pop("tags", None)
            kept = self.change(patch, event.at, tags)
            self.tags = self.tags if tags is None else kept

    # --- what the run does ------------------------------------------------------------------------

    def change(self, patch: Mapping[str, Json], at: datetime, tags: Json = None) -> list[str]:
        """Change the contact, and return its tags as they are stored. Raises Problem for what the
        contact may not have, and then nothing has changed."""
        values = document.merge(shapes.writable(self.contact), profile.normal(patch))
        checked = profile.check(self.scenario.workspace["country"], values, tags)
        checked.raise_errors()
        self.contact = replace(self.contact, **checked.columns, updated_at=at)
        return list(checked.tags)

    def _keep(self, record: Record | None, before: Mapping[str, Json], since: datetime) -> None:
        """A visit that waited is kept once, with its last status."""
        if record is None:
            return
        key = record.node_id, record.visit
        earlier, message = self.passages.get(key), self.messages.get(record.node_id)
        sent = message.sent if message and message.visit == record.visit else None
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
            entered_at=earlier.entered_at if earlier else since,
            left_at=None if record.status == "WAITING" else self.now,
            sent=sent,
            changes=changes or None,
        )
        self._bytes += len(document.dumps([record.output, sent and sent.content]))

    def ended(self, status: str, code: str, detail: str) -> Trace:
        return self._trace(End(status, self.now, code, detail))

    def _trace(self, end: End) -> Trace:
        return Trace(self.scenario.start_at, list(self.passages.values()), end, self.resource())


# --- messages and calls ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Message:
    """The newest message of a node."""

    id: str
    visit: int
    send: Send
    sent: SentMessage
    number: int = 0
    missing: tuple[str, ...] = ()  # of its content


def _send(run: SimulatedRun, effect: Send, outcome: Outcome) -> None:
    unsent = SentMessage(effect.channel, effect.to, "QUEUED", effect.template_id, None)
    count = sum(passage.kind == "send_message" for passage in run.passages.values()) + 1
    message = _Message(f"msg_{count:026}", effect.visit, effect, unsent)
    run.messages[effect.node_id] = message
    outcome.answer = _attempt(run, message)


def _send_again(run: SimulatedRun, effect: SendAgain, outcome: Outcome) -> None:
    [message] = [one for one in run.messages.values() if one.id == effect.message_id]
    outcome.answer = _attempt(run, message)


def _attempt(run: SimulatedRun, message: _Message) -> Delivered:
    message.number += 1
    outcome = _message_outcome(run, message)
    message.sent = replace(message.sent, status=outcome.status)
    # Marketing is counted as store/messages.py does: once, and not what has certainly not left.
    run.marketing.pop(message.id, None)
    is_gone = outcome.status not in ("FAILED", "SUPPRESSED")
    if is_gone and _category_of(run.scenario, message.send) == MARKETING:
        run.marketing[message.id] = run.now, message.send.channel
    called = outcome.status != "SUPPRESSED"  # what is suppressed is not rendered
    missing = message.missing if called else ()
    return Delivered(
        outcome.status, message.id, message.number, outcome.code, outcome.detail, missing
    )


def _message_outcome(run: SimulatedRun, message: _Message) -> MessageOutcome:
    """The checks of messages/delivery.py in the same order; then the outcome that the scenario
    expects."""
    send, scenario = message.send, run.scenario
    expected = scenario.outcomes.get(send.node_id)
    if expected is None and send.channel not in scenario.channels:
        return MessageOutcome("FAILED", Reason.CHANNEL_NOT_CONFIGURED)
    to = send.to or shapes.address(run.contact, send.channel)
    if not to:
        detail = f"The contact has no {ADDRESS_FIELD[send.channel]}."
        return MessageOutcome("FAILED", Reason.NO_ADDRESS, detail)
    own_content: Mapping[str, Json] | None = send.content
    if send.template_id is not None:
        template = scenario.templates.get(send.template_id)
        own_content = template["content"] if template else None
    if own_content is None:
        return MessageOutcome("FAILED", Reason.TEMPLATE_MISSING)
    suppressed = _gated(run, message, expected is None)
    if suppressed is not None:
        return MessageOutcome("SUPPRESSED", suppressed)
    try:
        to = subscriptions.clean(send.channel, to, scenario.workspace["country"])
        rendered = _rendered(run, send, own_content)
    except addresses.BadAddress as error:
        return MessageOutcome("FAILED", Reason.INVALID_ADDRESS, str(error))
    except content.PartError as error:
        return MessageOutcome("FAILED", Reason.TEMPLATE_ERROR, str(error))
    sender = scenario.sender if send.channel == "email" else {}
    message.sent = replace(message.sent, to=to, content={**sender, **rendered.parts})
    message.missing = rendered.missing
    # The scenario counts the attempts of this node's earlier visits too.
    past = (run.passages.get((send.node_id, visit)) for visit in range(1, send.visit))
    earlier = sum((passage.output or {}).get("number", 1) for passage in past if passage)
    return _nth(expected or [MessageOutcome()], message.number + earlier)


def _gated(run: SimulatedRun, message: _Message, judges: bool) -> Reason | None:
    """Wait for the end of quiet hours, then judge what the scenario does not say: why nothing
    leaves, or None."""
    send, scenario = message.send, run.scenario
    own = shapes.address(run.contact, send.channel)
    category, topic_id = _category_of(scenario, send), (send.content or {}).get("topicId")
    if send.template_id is not None:
        topic_id = scenario.templates[send.template_id].get("topic_id")
    leaving = Leaving(send.channel, category, topic_id, send.to in (None, own))
    zone = scenario.workspace["timezone"]
    held = gating.held(scenario.gate, leaving, run.contact, zone, run.now)
    if held is not None and held.is_too_long:
        return Reason.SUPPRESSED_MAX_WAIT
    if held is not None:
        run.wait_until(held.until)
        message.sent = replace(message.sent, held_until=held.until)
    if not judges:
        return None
    barred = gating.barred(scenario.gate, leaving, run.contact)
    if barred is not None:
        return barred
    if gating.is_capped(scenario.gate, leaving, [*run.marketing.values()], run.now):
        return Reason.SUPPRESSED_CAPPED
    return None


def _rendered(run: SimulatedRun, send: Send, source: Mapping[str, Json]) -> content.Message:
    """The message as it would leave. Raises content.PartError."""
    scenario, footer = run.scenario, None
    roots = footers.with_links(run.facts(), LINK)
    if _category_of(scenario, send) == MARKETING:
        footer = footers.footer_of(roots, source, LINK, takes_replies=True)
    return footers.render(send.channel, source, roots, footer)


def _category_of(scenario: Scenario, send: Send) -> Json:
    whose = (
        (send.content or {}) if send.template_id is None else scenario.templates[send.template_id]
    )
    return whose.get("category")


def _call(run: SimulatedRun, effect: HttpCall, outcome: Outcome) -> None:
    expected = run.scenario.answers.get(effect.node_id)
    outcome.answer = _nth(expected or [Answered(200)], effect.visit)


def _nth(expected: Sequence[Expected], number: int) -> Expected:
    """The last one repeats."""
    return expected[min(number, len(expected)) - 1]


# --- the contact, time, and other runs ------------------------------------------------------------


def _change_contact(run: SimulatedRun, effect: ChangeContact, outcome: Outcome) -> None:
    try:
        run.change(effect.changes, run.now)
    except Problem as problem:
        outcome.note_refusal(problem)


def _add_tag(run: SimulatedRun, effect: AddTag, outcome: Outcome) -> None:
    errors: list[FieldError] = []
    tags = profile.check_tags([effect.tag], errors)
    if len({*run.tags, *tags}) > profile.TAGS:
        errors.append(FieldError("/tags", f"A contact has at most {profile.TAGS} tags."))
    if errors:
        outcome.note_refusal(profile.invalid(errors))
    else:
        run.tags = list(dict.fromkeys([*run.tags, *tags]))


def _remove_tag(run: SimulatedRun, effect: RemoveTag, _outcome: Outcome) -> None:
    gone = profile.normal(effect.tag)
    run.tags = [tag for tag in run.tags if tag != gone]


def _wait(_run: SimulatedRun, effect: Waiting, outcome: Outcome) -> None:
    outcome.waiting = effect


def _take(run: SimulatedRun, effect: Take, outcome: Outcome) -> None:
    taken = run.taken.setdefault((effect.node_id, effect.key), [])
    if sum(at > run.now - effect.window for at in taken) >= effect.limit:
        outcome.answer = Limited()
    else:
        taken.append(run.now)
        outcome.answer = Taken()


def _start_run(run: SimulatedRun, effect: StartRun, outcome: Outcome) -> None:
    startable = run.scenario.startable
    if startable is not None and effect.definition_id not in startable:
        outcome.note(Reason.START_REFUSED)
    else:
        run.started += 1
        outcome.add_output(runId=f"run_{run.started:026}")


def _finish(_run: SimulatedRun, effect: Finish, outcome: Outcome) -> None:
    outcome.finish = effect


EFFECTS: Mapping[type[Effect], Callable[[SimulatedRun, Any, Outcome], None]] = {
    Send: _send,
    SendAgain: _send_again,
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
