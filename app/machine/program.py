"""The vocabulary of the machine: Program and Node, State, Event, Effect, Record, Finding.

Theory of operation. A definition, graph or step array, compiles to a Program: nodes by id, each
with a kind, a configuration and exits (port → node id). A run is a State. `step.step` enters the
node at `state.at`, or resumes it with an event, and answers with the next state, the effects the
world must carry out, and the record a person reads later. Everything here is data: the runner
carries effects out in one transaction with the state; the simulation applies them in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any  # a JSON value; the one place where Any is honest
Facts: TypeAlias = Mapping[str, Json]  # roots: trigger, contact, workspace, run, steps, now


@dataclass(frozen=True, slots=True)
class Node:
    """One thing to do. `exits` maps a port to the id of the next node; a port without one ends."""

    id: str
    kind: str
    config: Mapping[str, Json]
    exits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Program:
    """The program that both shapes compile to. `entry` is None when there is nothing to do."""

    entry: str | None
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Part:
    """A node on its way into a Program, and where in the body it and its configuration stand."""

    node: Node
    pointer: str
    config_pointer: str


@dataclass(frozen=True, slots=True)
class Outline:
    """The form that both shapes are first read as. A run begins at an entry: one, if all is well.

    `whole`: whether all of it could be read, so that it is known where paths lead.
    """

    entries: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault or warning in a definition.

    `pointer` is a JSON pointer (RFC 6901) into the definition's own body (`/steps/2/templateId`,
    `/graph/nodes/0/data/duration`). `draft` findings refuse even a draft (types, unknown
    fields, grammar, size); the others only stop an activation. A `limit` on what may be saved does
    not stop what was saved before there was one: that still compiles, and runs.
    """

    code: str
    pointer: str
    message: str
    severity: Literal["error", "warning"] = "error"
    draft: bool = False
    limit: bool = False


def warning(code: str, pointer: str, message: str) -> Finding:
    """A finding that stops nothing."""
    return Finding(code, pointer, message, severity="warning")


# --- what drives a step -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Go:
    """Enter the node at `state.at`."""


@dataclass(frozen=True, slots=True)
class Woken:
    """The time that a WaitUntil asked for has come."""


MessageEnd: TypeAlias = Literal["SENT", "FAILED", "SUPPRESSED", "UNKNOWN"]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The end of the message that a Send asked for: SENT, FAILED, SUPPRESSED or UNKNOWN."""

    status: MessageEnd
    message_id: str
    number: int = 1  # of the attempt; a resend raises it
    code: str | None = None
    detail: str | None = None
    missing: tuple[str, ...] = ()  # paths that its content printed and that lead nowhere


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of an HttpCall. Without a status there was no answer, and `code` says why."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: Json = None
    truncated: bool = False
    tries: int = 1
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that the contact did, since a WaitFor asked for it."""

    name: str
    properties: Mapping[str, Json]
    at: datetime


@dataclass(frozen=True, slots=True)
class Moved:
    """The contact has entered a segment, or left it (segment_changes.moved)."""

    what: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Changed:
    """The contact was changed; what the facts say of it is how it is now."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The place that a Take asked for was still free, and is taken."""


@dataclass(frozen=True, slots=True)
class Limited:
    """The limit that a Take asked about is reached."""


Event: TypeAlias = Go | Woken | Delivered | Answered | Happened | Moved | Changed | Taken | Limited


# --- what a step asks of the world --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Make a message. `to`, when given, overrides the contact's address. Answered by Delivered."""

    node_id: str
    visit: int
    channel: str
    template_id: str | None
    content: Mapping[str, Json] | None
    to: str | None


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Try the UNKNOWN message again under a new attempt number. Answered by Delivered."""

    message_id: str


@dataclass(frozen=True, slots=True)
class HttpCall:
    """Make a request, at least once, under one Idempotency-Key. Answered by Answered."""

    node_id: str
    visit: int
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: str
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ChangeContact:
    """A merge patch over the contact's writable fields; metadata by name inside `metadata`."""

    changes: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class AddTag:
    tag: str


@dataclass(frozen=True, slots=True)
class RemoveTag:
    tag: str


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wake the run at this moment (aware UTC). Answered by Woken."""

    at: datetime


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Tell the run what the contact does under one of these names, when the contact changes, which
    of these segments it enters or leaves, and when the moment (aware UTC) has come. Answered by
    Happened, Changed, Moved or Woken, in the order in which it came about, until the run goes on.
    """

    events: tuple[str, ...]
    contact: bool
    until: datetime | None
    segments: tuple[str, ...] = ()  # as Moved has them


@dataclass(frozen=True, slots=True)
class Take:
    """One of `limit` in any `window` of time, for the contact, the node and the key. Answered by
    Taken or Limited, in the same transaction."""

    node_id: str
    limit: int
    window: timedelta
    key: str


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start another definition for the same contact, with `data` as what triggered it."""

    definition_id: str
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Finish:
    """The run ends here."""

    status: Literal["COMPLETED", "FAILED"]
    code: str | None = None
    detail: str | None = None


Effect: TypeAlias = (
    Send
    | SendAgain
    | HttpCall
    | ChangeContact
    | AddTag
    | RemoveTag
    | WaitUntil
    | WaitFor
    | Take
    | StartRun
    | Finish
)


# --- what a step leaves behind ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """One visit of a node, as a person reads it. A waiting visit is recorded again when it ends."""

    node_id: str
    kind: str
    visit: int
    status: Literal["COMPLETED", "WAITING", "FAILED"]
    code: str | None = None  # a Reason
    detail: str | None = None
    port: str | None = None  # the exit taken; None while waiting
    output: Mapping[str, Json] | None = None  # operands of a branch, what was changed, message id


@dataclass(frozen=True, slots=True)
class State:
    """The position of a run. Small JSON, so that a run survives anything.

    `at` is the node about to be entered, or being waited in when `waiting`; None once completed. A
    run that failed stands before the node it failed at, so that a retry enters that one again.
    `visits` counts per node; `since_wait` counts visits since the last wait (limit 1,000);
    `outputs` is what `{{steps.<id>…}}` reads (limit 512 KiB as JSON).
    """

    at: str | None
    waiting: bool = False
    visits: Mapping[str, int] = field(default_factory=dict)
    since_wait: int = 0
    outputs: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {member.name: getattr(self, member.name) for member in fields(self)}

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> State:
        """A member that only newer code, running beside this one, knows is passed over."""
        known = {member.name for member in fields(cls)}
        return cls(**{name: value for name, value in body.items() if name in known})


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step: at most one record, and effects in the order they must happen."""

    state: State
    effects: tuple[Effect, ...]
    record: Record | None
