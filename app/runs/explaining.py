"""Explains why a flow did or did not reach a contact, from the records of what happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.audience import lookups
from app.database.db import Handle
from app.machine import document, occasions, segment_changes
from app.machine.program import Program, State
from app.machine.reasons import SENTENCES, STATES, Reason
from app.process import Process
from app.runs import explaining_occasions, programs
from app.runs.explanations import Explained, Explanation
from app.store import explaining, segments, workspaces
from app.store.contacts import Contact
from app.store.definitions import Definition
from app.store.explaining import ExplainedMessage, ExplainedRequest, ExplainedRun, ExplainedStep
from app.store.row_keys import WorkspaceKey
from app.store.webhook_requests import KEPT_FOR

MOST_NAMED = 3  # messages in one sentence
MESSAGE_CODES: Mapping[str, Explanation] = {
    "QUEUED": Explanation.MESSAGE_QUEUED,
    "SENDING": Explanation.MESSAGE_QUEUED,
    "SENT": Explanation.SENT,
    "DELIVERED": Explanation.DELIVERED,
    "SUPPRESSED": Explanation.SUPPRESSED,
    "FAILED": Explanation.MESSAGE_FAILED,
    "BOUNCED": Explanation.BOUNCED,
    "COMPLAINED": Explanation.COMPLAINED,
    "UNKNOWN": Explanation.OUTCOME_UNKNOWN,
}
RUN_CODES: Mapping[str, Explanation] = {
    "QUEUED": Explanation.RUN_QUEUED,
    "RUNNING": Explanation.RUN_MOVING,
    "COMPLETED": Explanation.RUN_COMPLETED,
    "FAILED": Explanation.RUN_FAILED,
    "CANCELLED": Explanation.RUN_CANCELLED,
}
WAITING_CODES: Mapping[str, Explanation] = {
    "time": Explanation.WAITING_FOR_TIME,
    "event": Explanation.WAITING_FOR_EVENT,
    "delivery": Explanation.WAITING_FOR_DELIVERY,
    "http": Explanation.WAITING_FOR_ANSWER,
}
REFUSED_CODES: Mapping[str | None, Explanation] = {
    "invalid_signature": Explanation.REFUSED_SIGNATURE,
    "not_found": Explanation.REFUSED_INACTIVE,
    "contact_not_found": Explanation.REFUSED_NO_CONTACT,
    "chain_too_long": Explanation.REFUSED_CHAIN,
}
NOTHING_CAME: Mapping[str, str] = {
    "inbound_webhook": "No request to the webhook URL named this contact{since}.",
    "contact_created": "The contact was not created{since} while the flow was active, or it came"
    " with an import that starts nothing.",
    "tag_added": "The contact was not given the tag {tag}{since} while the flow was active.",
    "event": "The contact did nothing that is called {name}{since}.",
    "segment_entered": "The contact did not enter the segment {segment}{since} while the flow was"
    " active.",
    "segment_left": "The contact did not leave the segment {segment}{since} while the flow was"
    " active.",
    "date": "No date in the contact's {field} came{since} while the flow was active; one that is"
    " set more than {grace} after it came starts nothing.",
    "schedule": "The contact was not in the segment {segment} at a time of the schedule{since}"
    " while the flow was active.",
    "manual": "Nobody started a run for this contact{since}, and no other run did.",
}


class Asked(WorkspaceKey):
    definition_id: str | None
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Question:
    """The contact, and the definition and the time that it is about, if any are given."""

    workspace_id: str
    contact: Contact
    definition: Definition | None
    since: datetime | None

    @property
    def asked(self) -> Asked:
        definition_id = self.definition.id if self.definition is not None else None
        return Asked(workspace_id=self.workspace_id, definition_id=definition_id, since=self.since)


async def explain(process: Process, db: Handle, question: Question) -> list[Explained]:
    """All that is known, newest first. Raises Heavy."""
    contact_id = question.contact.id
    known = await explaining.runs(db, contact_id=contact_id, **question.asked)
    found = [
        *await _of_requests(process, db, question),
        *await _of_runs(process, db, question, known),
    ]
    if question.definition is not None:
        found += await _of_events(db, question, question.definition, known)
        begun = question.contact.created_at
        found += await explaining_occasions.missed(
            db,
            workspace_id=question.workspace_id,
            definition_id=question.definition.id,
            contact_id=question.contact.id,
            since=max(question.since or begun, begun),
        )
        found += await _of_definition(process, db, question, question.definition, found)
    return sorted(found, key=lambda one: one.at, reverse=True)


# --- requests -----------------------------------------------------------------------------------


async def _of_requests(process: Process, db: Handle, question: Question) -> list[Explained]:
    hashes = lookups.hashes(process.vault, question.workspace_id, question.contact)
    found = [
        _request(REFUSED_CODES.get(one.code, Explanation.REFUSED_REQUEST), one)
        for one in await explaining.refused(db, looked_up=hashes, **question.asked)
    ]
    found += [
        _request(Explanation.REPEATED, one)
        for one in await explaining.repeated(db, contact_id=question.contact.id, **question.asked)
    ]
    if question.definition is not None:
        found += [
            _request(Explanation.REFUSED_UNREADABLE, one)
            for one in await explaining.refused_unreadable(
                db,
                workspace_id=question.workspace_id,
                definition_id=question.definition.id,
                since=question.since,
            )
        ]
    return found


def _request(code: Explanation, request: ExplainedRequest) -> Explained:
    refused = request.detail if code in DETAILED else None
    return Explained(request.created_at, code, request.id, refused, reason=request.code)


# Those whose own words are more exact, and are about the request.
DETAILED = frozenset(
    {
        Explanation.REFUSED_INACTIVE,
        Explanation.REFUSED_NO_CONTACT,
        Explanation.REFUSED_CHAIN,
        Explanation.REFUSED_REQUEST,
    }
)


# --- runs ---------------------------------------------------------------------------------------


async def _of_runs(
    process: Process, db: Handle, question: Question, known: Sequence[ExplainedRun]
) -> list[Explained]:
    workspace_id, ids = question.workspace_id, [run.id for run in known]
    if question.definition is None:
        messages = await explaining.messages(
            db,
            workspace_id=workspace_id,
            contact_id=question.contact.id,
            since=question.since,
        )
    else:
        messages = await explaining.messages_of_runs(db, workspace_id=workspace_id, run_ids=ids)
    steps: defaultdict[str, list[ExplainedStep]] = defaultdict(list)
    for step in await explaining.steps(db, workspace_id=workspace_id, run_ids=ids):
        steps[step.run_id].append(step)
    sent = {(one.run_id, one.node_id, one.visit) for one in messages}
    found = [message(one) for one in messages]
    timed = []
    for run in known:
        version = await programs.of(
            process,
            db,
            workspace_id=workspace_id,
            definition_id=run.definition_id,
            version=run.version,
        )
        found += _Walked(run, version.program, steps[run.id]).explained(sent)
        if version.source in explaining_occasions.TIMED:
            timed.append(run)
    return [*found, *await explaining_occasions.started_late(db, workspace_id, timed)]


def message(sent: ExplainedMessage) -> Explained:
    code = MESSAGE_CODES[sent.status]
    if code is Explanation.MESSAGE_QUEUED and sent.reason_code is not None:
        code = Explanation.MESSAGE_HELD
    detail, sentence = sent.reason_detail, SENTENCES.get(sent.reason_code or "")
    if detail is None and sent.waits_until is not None and sent.reason_code == Reason.SCHEDULED:
        detail = f"The message is to be sent at {document.text(sent.waits_until)}."
    elif detail is None and sent.waits_until is not None and sentence is not None:
        detail = f"{sentence.removesuffix('.')}, until {document.text(sent.waits_until)}."
    return Explained(sent.created_at, code, sent.id, detail, sent.reason_code, sent.node_id)


@dataclass(slots=True)
class _Walked:
    """A run, and what it says of itself and its steps."""

    run: ExplainedRun
    program: Program
    steps: Sequence[ExplainedStep]
    elsewhere: set[str] = field(default_factory=set)  # nodes that led to another branch

    def explained(self, sent: set[tuple[str | None, str | None, int | None]]) -> list[Explained]:
        found = [*self._other_branches(), self._itself()]
        for step in self.steps:
            is_explained = (self.run.id, step.node_id, step.visit) in sent
            is_explained |= step.reason_code is None or step.node_id in self.elsewhere
            if not is_explained:
                is_throttled = step.reason_code == Reason.THROTTLED
                noted = Explained(
                    step.finished_at or step.started_at,
                    Explanation.THROTTLED if is_throttled else Explanation.STEP_NOTED,
                    step.run_id,
                    step.reason_detail,
                    step.reason_code,
                    step.node_id,
                )
                found.append(noted)
        return found

    def _itself(self) -> Explained:
        run = self.run
        waiting = run.waiting_for or {}
        if run.status == "WAITING":
            until, detail = waiting.get("until"), None
            if waiting["kind"] == "time":
                detail = f"The run waits until {until}."
            elif waiting["kind"] == "event":
                awaited = [
                    *(f"the event {name}" for name in waiting["events"]),
                    *map(_move, waiting.get("segments", ())),
                    *(["a change of the contact"] if waiting["contact"] else []),
                ]
                limit = f", until {until} at the latest" if until else ""
                detail = f"The run waits for {' or '.join(awaited)}{limit}."
            code = WAITING_CODES[waiting["kind"]]
            return Explained(run.created_at, code, run.id, detail, node_id=self._state.at)
        is_refused = run.reason_code == Reason.REENTRY_REFUSED
        return Explained(
            run.finished_at or run.created_at,
            Explanation.REENTRY_REFUSED if is_refused else RUN_CODES[run.status],
            run.id,
            run.reason_detail,
            run.reason_code,
        )

    @property
    def _state(self) -> State:
        raw = self.run.state
        return State(None) if raw is None else State.from_json(document.parse(raw.encode()))

    def _other_branches(self) -> Iterator[Explained]:
        """The last decision that led away from each message which cannot be reached any more."""
        if self.run.state is None:
            return
        state = self._state
        ahead = _reached(self.program, [state.at] if state.at else [])
        missed: defaultdict[str, list[str]] = defaultdict(list)
        last = {step.node_id: step for step in self.steps if step.port is not None}
        for node in self.program.nodes.values():
            if node.kind == "send_message" and node.id not in {*state.visits, *ahead}:
                decision = self._decision(last.values(), node.id)
                if decision is not None:
                    missed[decision.node_id].append(node.id)
        for node_id, ids in missed.items():
            step = last[node_id]
            self.elsewhere.add(node_id)
            named = ", ".join(ids[:MOST_NAMED]) + (" …" if len(ids) > MOST_NAMED else "")
            yield Explained(
                step.finished_at or step.started_at,
                Explanation.THROTTLED
                if step.reason_code == Reason.THROTTLED
                else Explanation.OTHER_BRANCH,
                self.run.id,
                f"The run left {node_id} by {step.port}, which does not lead to {named}.",
                step.reason_code,
                node_id,
            )

    def _decision(self, taken: Iterable[ExplainedStep], missed: str) -> ExplainedStep | None:
        found = None
        for step in taken:
            node = self.program.nodes.get(step.node_id)
            if node is not None and len(node.exits) > 0:
                others = [to for port, to in node.exits.items() if port != step.port]
                if missed in _reached(self.program, others):
                    found = step
        return found


def _reached(program: Program, ids: Iterable[str]) -> set[str]:
    """Find these nodes, and all that follow them."""
    reached: set[str] = set()
    waiting = list(ids)
    while waiting:
        id = waiting.pop()
        if id in program.nodes and id not in reached:
            reached.add(id)
            waiting += program.nodes[id].exits.values()
    return reached


def _move(what: str) -> str:
    entered, left = segment_changes.MOVED
    if what.startswith(entered):
        return f"the contact's entry into {what.removeprefix(entered)}"
    return f"the contact's exit from {what.removeprefix(left)}"


# --- the definition -----------------------------------------------------------------------------


async def _of_events(
    db: Handle, question: Question, definition: Definition, known: Sequence[ExplainedRun]
) -> list[Explained]:
    """Events since the newest run: an older one may have started a later run."""
    trigger = definition.trigger_config
    if trigger["source"] != "event" or "name" not in trigger:  # of a DRAFT, nobody has said which
        return []
    events = await explaining.events(
        db,
        workspace_id=question.workspace_id,
        contact_id=question.contact.id,
        name=trigger["name"],
        since=question.since,
    )
    newest = max((run.id[4:] for run in known), default="")  # behind its prefix an id is a time
    return [
        Explained(event.at, Explanation.EVENT_STARTED_NOTHING, event.id)
        for event in events
        if event.id[4:] > newest
    ]


async def _of_definition(
    process: Process,
    db: Handle,
    question: Question,
    definition: Definition,
    found: Sequence[Explained],
) -> list[Explained]:
    now, id = await db.now(), definition.id
    more = []
    if definition.state != "ACTIVE":
        since = definition.deactivated_at
        when = f", not active since {document.text(since)}" if since else ""
        detail = f"The flow is {STATES[definition.state]}{when}, so it starts no runs."
        more.append(Explained(now, Explanation.NOT_ACTIVE, id, detail))
    elif given_up := await explaining_occasions.given_up(db, question.workspace_id, definition):
        more.append(Explained(now, Explanation.GIVEN_UP, id, given_up))
    if all(one.code is Explanation.REFUSED_UNREADABLE for one in found):
        trigger = definition.trigger_config
        named = trigger.get("segmentId") or ""
        whose = {"workspace_id": question.workspace_id, "id": named}
        segment = await segments.by_id(db, **whose) if named else None
        words = {
            **dict.fromkeys(("tag", "name", "field"), ""),
            **trigger,
            "since": f" after {document.text(question.since)}" if question.since else "",
            "segment": named if segment is None else segment.name,
            "grace": explaining_occasions.spelled(occasions.grace(trigger)),
        }
        detail = NOTHING_CAME[trigger["source"]].format_map(words)
        more.append(Explained(now, Explanation.NO_EVENT, id, detail))
    bound = await _known_since(process, db, question, definition)
    if (question.since or definition.created_at) < bound:
        more.append(Explained(bound, Explanation.NOT_KNOWN_BEFORE, id))
    return more


async def _known_since(
    process: Process, db: Handle, question: Question, definition: Definition
) -> datetime:
    """The time before which records may be gone: those of requests, where it starts by requests."""
    now, workspace_id = await db.now(), question.workspace_id
    if definition.trigger_config["source"] == "inbound_webhook":
        oldest = await explaining.requests_known_since(
            db, workspace_id=workspace_id, definition_id=definition.id
        )
        return max(now - KEPT_FOR, oldest or now - KEPT_FOR)
    workspace = await workspaces.by_id(db, id=workspace_id)
    days = workspace and workspace.retention_days
    return now - timedelta(days=days or process.settings.retention_days)
