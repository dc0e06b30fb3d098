"""Reasons why a flow did or did not reach a contact: the stable codes, sentences and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

from app.machine.reasons import SENTENCES, member

EvidenceType: TypeAlias = Literal[
    "definition", "event", "webhook_request", "run", "message", "broadcast"
]


class Explanation(StrEnum):
    """Codes are kept for ever: people's own programs remember them."""

    # The definition, and how far back its records go.
    NOT_ACTIVE = "not_active"
    GIVEN_UP = "given_up"
    NO_EVENT = "no_event"
    NOT_KNOWN_BEFORE = "not_known_before"

    # An event or a request that started no run.
    EVENT_STARTED_NOTHING = "event_started_nothing"
    REPEATED = "repeated"
    REFUSED_SIGNATURE = "refused_signature"
    REFUSED_INACTIVE = "refused_inactive"
    REFUSED_NO_CONTACT = "refused_no_contact"
    REFUSED_CHAIN = "refused_chain"
    REFUSED_REQUEST = "refused_request"
    REFUSED_UNREADABLE = "refused_unreadable"

    # A date, a time of a schedule, an entry or an exit that started no run, or a late one.
    MISSED_INACTIVE = "missed_inactive"
    MISSED_FILLING = "missed_filling"
    MISSED_LATE = "missed_late"
    MISSED_RESTORED = "missed_restored"
    STARTED_LATE = "started_late"

    # A run, and where it is.
    RUN_QUEUED = "run_queued"
    RUN_MOVING = "run_moving"
    WAITING_FOR_TIME = "waiting_for_time"
    WAITING_FOR_EVENT = "waiting_for_event"
    WAITING_FOR_DELIVERY = "waiting_for_delivery"
    WAITING_FOR_ANSWER = "waiting_for_answer"
    RUN_COMPLETED = "run_completed"
    REENTRY_REFUSED = "reentry_refused"
    RUN_FAILED = "run_failed"
    RUN_CANCELLED = "run_cancelled"

    # A step that led elsewhere.
    OTHER_BRANCH = "other_branch"
    THROTTLED = "throttled"
    STEP_NOTED = "step_noted"

    # A broadcast that has no message to the contact, or not yet.
    NOT_FROZEN = "not_frozen"
    NOT_IN_AUDIENCE = "not_in_audience"
    EXCLUDED = "excluded"
    AWAITS_TURN = "awaits_turn"
    BROADCAST_CANCELLED = "broadcast_cancelled"
    MESSAGE_PRUNED = "message_pruned"
    RECIPIENT_PRUNED = "recipient_pruned"

    # A message, and what became of it.
    MESSAGE_QUEUED = "message_queued"
    MESSAGE_HELD = "message_held"
    SENT = "sent"
    DELIVERED = "delivered"
    SUPPRESSED = "suppressed"
    MESSAGE_FAILED = "message_failed"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    OUTCOME_UNKNOWN = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class Meaning:
    """The sentence, where the record says nothing more exact, and the record that proves it."""

    sentence: str
    evidence: EvidenceType


MEANINGS: Mapping[Explanation, Meaning] = {
    Explanation.NOT_ACTIVE: Meaning("The flow is not active, so it starts no runs.", "definition"),
    Explanation.GIVEN_UP: Meaning(
        "The work on what starts the flow was given up, so it may start no runs.",
        "definition",
    ),
    Explanation.NO_EVENT: Meaning(
        "Nothing that starts the flow came for this contact.", "definition"
    ),
    Explanation.NOT_KNOWN_BEFORE: Meaning(
        "Older records are no longer kept, so nothing is known from before this time.",
        "definition",
    ),
    Explanation.EVENT_STARTED_NOTHING: Meaning(
        "The contact's event was recorded and started no run: it was reported more than an hour"
        " late, or the flow did not listen for it then.",
        "event",
    ),
    Explanation.REPEATED: Meaning(
        "The request repeated an earlier one, so it started no run of its own.",
        "webhook_request",
    ),
    Explanation.REFUSED_SIGNATURE: Meaning(
        "The request was refused because its signature was missing or wrong.", "webhook_request"
    ),
    Explanation.REFUSED_INACTIVE: Meaning(
        "The request was refused because the flow accepted no events.", "webhook_request"
    ),
    Explanation.REFUSED_NO_CONTACT: Meaning(
        "The request was refused because no contact matched it then.", "webhook_request"
    ),
    Explanation.REFUSED_CHAIN: Meaning(
        "The request was refused because too many runs had started one another.",
        "webhook_request",
    ),
    Explanation.REFUSED_REQUEST: Meaning(
        "The request was refused; its detail says why.", "webhook_request"
    ),
    Explanation.REFUSED_UNREADABLE: Meaning(
        "The newest request that was refused without naming anybody; it may have been about this"
        " contact.",
        "webhook_request",
    ),
    Explanation.MISSED_INACTIVE: Meaning(
        "The contact's date, a time of the schedule, or the contact's entry or exit came while the"
        " flow was not active, or before it was paused or changed, so it started no run.",
        "definition",
    ),
    Explanation.MISSED_FILLING: Meaning(
        "The contact's entry or exit came while the segment was being filled, so it started no"
        " run.",
        "definition",
    ),
    Explanation.MISSED_LATE: Meaning(
        "The contact's date, or a time of the schedule, was looked at later than the flow's trigger"
        " allows, so it starts no run any more.",
        "definition",
    ),
    Explanation.MISSED_RESTORED: Meaning(
        "The contact's date, or a time of the schedule, came before a backup was restored, which"
        " does not say whether it started its run, so it starts none.",
        "definition",
    ),
    Explanation.STARTED_LATE: Meaning("The run started later than its time.", "run"),
    Explanation.RUN_QUEUED: Meaning("The run waits for a worker.", "run"),
    Explanation.RUN_MOVING: Meaning("The run is moving on right now.", "run"),
    Explanation.WAITING_FOR_TIME: Meaning("The run waits until a time.", "run"),
    Explanation.WAITING_FOR_EVENT: Meaning(
        "The run waits for something that the contact does or becomes.", "run"
    ),
    Explanation.WAITING_FOR_DELIVERY: Meaning(
        "The run waits until the outcome of its message is known.", "run"
    ),
    Explanation.WAITING_FOR_ANSWER: Meaning("The run waits for the answer of a server.", "run"),
    Explanation.RUN_COMPLETED: Meaning("The run went on to its end.", "run"),
    Explanation.REENTRY_REFUSED: Meaning(
        "The run ended at once: the flow does not let the contact through again yet, or ever.",
        "run",
    ),
    Explanation.RUN_FAILED: Meaning("The run failed.", "run"),
    Explanation.RUN_CANCELLED: Meaning("The run was cancelled.", "run"),
    Explanation.OTHER_BRANCH: Meaning(
        "The run took another branch, which does not lead to a message of the flow.", "run"
    ),
    Explanation.THROTTLED: Meaning(
        "The contact has passed this step as often as it allows.", "run"
    ),
    Explanation.STEP_NOTED: Meaning("A step did not do the obvious thing.", "run"),
    Explanation.NOT_FROZEN: Meaning(
        "The broadcast's audience is not fixed yet, or not as far as the contact.",
        "broadcast",
    ),
    Explanation.NOT_IN_AUDIENCE: Meaning(
        "The contact was not in the broadcast's audience when that was fixed.", "broadcast"
    ),
    Explanation.EXCLUDED: Meaning(
        "The contact is in the broadcast's audience, and gets no message for this reason.",
        "broadcast",
    ),
    Explanation.AWAITS_TURN: Meaning(
        "The contact is in the broadcast's audience, and its message is made when its turn comes.",
        "broadcast",
    ),
    Explanation.BROADCAST_CANCELLED: Meaning(
        "The broadcast was cancelled before the contact's message was made.", "broadcast"
    ),
    Explanation.MESSAGE_PRUNED: Meaning(
        "The broadcast's message to the contact is no longer kept; the reason is how it ended.",
        "broadcast",
    ),
    Explanation.RECIPIENT_PRUNED: Meaning(
        "The broadcast ended so long ago that its recipients are no longer kept, so nobody knows"
        " whether the contact was one of them.",
        "broadcast",
    ),
    Explanation.MESSAGE_QUEUED: Meaning("The message is about to be sent.", "message"),
    Explanation.MESSAGE_HELD: Meaning("The message is held back for now.", "message"),
    Explanation.SENT: Meaning("The provider accepted the message.", "message"),
    Explanation.DELIVERED: Meaning("The provider reported the message as delivered.", "message"),
    Explanation.SUPPRESSED: Meaning("The message was not sent because it must not be.", "message"),
    Explanation.MESSAGE_FAILED: Meaning("The message could not be made or sent.", "message"),
    Explanation.BOUNCED: Meaning("The recipient's server refused the message.", "message"),
    Explanation.COMPLAINED: Meaning("The recipient reported the message as spam.", "message"),
    Explanation.OUTCOME_UNKNOWN: Meaning(
        "Nobody knows whether the provider accepted the message.", "message"
    ),
}


# What a program reads or changes, where the sentence says it in words.
MEMBERS: Mapping[Explanation, str] = {
    Explanation.NOT_ACTIVE: "state",
    Explanation.NO_EVENT: "trigger.graceWindow",
    Explanation.MISSED_LATE: "trigger.graceWindow",
    Explanation.STARTED_LATE: "delayedBy",
    Explanation.REENTRY_REFUSED: "trigger.reentry",
    Explanation.NOT_FROZEN: "state",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One thing that is known, and the record that proves it."""

    at: datetime
    code: Explanation
    id: str  # of the evidence
    detail: str | None = None  # more exact than the code's sentence
    reason: str | None = None  # the code that the record carries
    node_id: str | None = None

    @property
    def sentence(self) -> str:
        return self.detail or SENTENCES.get(self.reason or "") or MEANINGS[self.code].sentence


def page() -> str:
    """docs/explain.md."""
    rows = "\n".join(
        f"| `{code}` | {MEANINGS[code].sentence}{member(MEMBERS.get(code))} |"
        f" {MEANINGS[code].evidence} |"
        for code in Explanation
    )
    return f"""# Why a flow did or did not reach somebody

GET `/contacts/:id/explain` lists, newest first, what is known of one contact and its flows:
`{{"at", "code", "sentence", "reason", "evidence": {{"type", "id", "nodeId"}}}}`. With
`?definitionId=` it is about one automation or workflow, and also says when nothing came, and from
when on that is known. With `?broadcastId=` it is about one broadcast. With `?since=` older records
are left out.

`sentence` is the one below, or a more exact one from the record, in the words of the console: a
flow is an automation or a workflow, and fixed is `frozen`. In parentheses is the member that a
program reads or changes. `reason` is the code that the
record itself carries: one of [reasons.md](reasons.md), of a refused request the code of its
problem, or of a broadcast's recipient the reason or the end that it has. `evidence` is the record
that proves it: GET `/runs/:id`, `/messages/:id`, `/webhook-requests/:id`, `/contact-events/:id`,
`/broadcasts/:id`, or the definition; of a step, `nodeId` names it in its run. Codes never change.

| code | what it means | evidence |
|---|---|---|
{rows}

A refused request is found by whom its body names: by the value at the trigger's path, of which a
keyed hash is kept with the request, for as long as that is (seven days, the newest 1,000 of a
definition). A body that names nobody, or of more than 16 KiB with a refusal before it was looked
up, cannot be found so; of these the newest one is shown. At most 20 runs are explained, 200
messages, 50 requests and 50 missed occasions: the newest.

An occasion is missed when it comes while the definition is not `ACTIVE`, when no worker looks at it
within its `graceWindow`, or when a backup is restored that may be older than its run: dates and
times of a schedule are recorded then, entries and exits are not. Whoever pauses a definition stops
what is under way: a date or a time that has come and has not started its run by then starts none.
Each is recorded with its contact, so that another value of the field changes nothing of it: a date
with the contact that has it, times of a schedule with each member of its segment, from the first
after the contact was created. Who was in the segment at that time is not known: the record covers
the contacts that are in it when it is made. An entry into a segment, or an exit, is recorded as it
happens, for each `PAUSED` definition that waits for it; and for each `ACTIVE` one, as long as the
segment is being filled and the fill has not come to the contact. A contact's own change in the very
moment of a pause may be neither a run nor a record. All are kept for as long as runs are.

What came before a pause is recorded when that begins. The dates and times of a pause are recorded
when it ends, or when the trigger changes, by the trigger that was there until then; before that,
`not_active` says since when it is.
"""
