"""Traces of runs, real or simulated, and the normal form in which two of them compare.

What differs from one run to the next by nature is taken out: ids are numbered in the order in which
they appear, as are the keys by which files name topics; times are told in minutes since the start,
and of an HTTP answer the headers are left out. What is left is what a definition means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.definitions import portable
from app.machine import document
from app.machine.program import Json


@dataclass(frozen=True, slots=True)
class SentMessage:
    """The message of a visit: what was rendered, to whom, and what became of it."""

    channel: str
    to: str | None
    status: str
    template_id: str | None
    content: Mapping[str, Json] | None
    held_until: datetime | None = None  # by quiet hours


@dataclass(frozen=True, slots=True)
class Passage:
    """One visit of one node, as it ended or as it still is."""

    node_id: str
    kind: str
    visit: int
    status: str
    code: str | None
    detail: str | None
    port: str | None
    output: Mapping[str, Json] | None
    entered_at: datetime
    left_at: datetime | None
    sent: SentMessage | None = None
    changes: Mapping[str, tuple[Json, Json]] | None = None  # of the contact: before, after


@dataclass(frozen=True, slots=True)
class End:
    status: str
    at: datetime
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """`contact` is as the API shows it, at the end."""

    start_at: datetime
    passages: Sequence[Passage]
    end: End
    contact: Mapping[str, Json]


# --- the normal form ----------------------------------------------------------------------------

NAMELESS = ("id", "createdAt", "updatedAt")  # of a contact: another one in every run


def normal(trace: Trace) -> dict[str, Json]:
    """JSON; equal for two runs that did the same."""
    since = trace.start_at
    normalised = {
        "steps": [_step(passage, since) for passage in trace.passages],
        "end": {
            "status": trace.end.status,
            "reason": trace.end.code,
            # A code has its own sentence; an exit says what its author made it say.
            "detail": None if trace.end.code else trace.end.detail,
            "at": offset(trace.end.at, since),
        },
        "contact": {
            name: value
            for name, value in trace.contact.items()
            if name not in NAMELESS and value not in (None, [], {})
        },
    }
    names = _Names()
    plain: dict[str, Json] = names.strip(portable.traced(normalised, names.of_topic))
    return plain


def _step(passage: Passage, since: datetime) -> dict[str, Json]:
    sent, output = passage.sent, dict(passage.output or {})
    if passage.kind == "http_request":
        output.pop("headers", None)
    # Times that the machine itself noted are shown like all others.
    if passage.kind == "wait" and "until" in output:
        output["until"] = offset(datetime.fromisoformat(output["until"]), since)
    if passage.kind == "wait_for" and "event" in output:
        event = output["event"]
        output["event"] = {**event, "at": offset(datetime.fromisoformat(event["at"]), since)}
    return {
        "nodeId": passage.node_id,
        "kind": passage.kind,
        "visit": passage.visit,
        "status": passage.status,
        "reason": passage.code,
        "port": passage.port,
        "output": output or None,
        "message": sent and {"channel": sent.channel, "to": sent.to, "content": sent.content},
        "entered": offset(passage.entered_at, since),
        "left": passage.left_at and offset(passage.left_at, since),
    }


def offset(moment: datetime, since: datetime) -> str:
    """Write the time since a moment, in minutes: `P3DT4H`. A real run takes its milliseconds."""
    minutes = round((moment - since) / timedelta(minutes=1))
    sign, minutes = ("-", -minutes) if minutes < 0 else ("", minutes)
    days, minutes = divmod(minutes, 24 * 60)
    hours, minutes = divmod(minutes, 60)
    date = f"{days}D" if days else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    return f"{sign}P{date}T{time}" if time else f"{sign}P{date or 'T0M'}"


_ID = re.compile(r"\b([a-z]{2,4})_[0-9a-hjkmnp-tv-z]{26}\b")  # routes/ids.py
_LINK = re.compile(r"(https?://[^\s\"'<>]+/u/)[\w.~-]+")  # the way out of a marketing mail


class _Names:
    """`con_1` for the first contact that is named, and so on."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def strip(self, value: Json) -> Json:
        """Remove from a value what differs by nature, such as ids, and members that are null."""
        match value:
            case str():
                return _LINK.sub(r"\1…", _ID.sub(self._name, document.text(value)))
            case Mapping():
                return {
                    self.strip(name): self.strip(inner)
                    for name, inner in value.items()
                    if inner is not None
                }
            case list() | tuple():
                return [self.strip(inner) for inner in value]
            case _:
                return value

    def of_topic(self, topic: portable.Mention) -> str:
        return self._numbered(topic.id, "top_")

    def _name(self, match: re.Match[str]) -> str:
        return self._numbered(match[0], f"{match[1]}_")

    def _numbered(self, id: str, prefix: str) -> str:
        if id not in self._known:
            number = 1 + sum(name.startswith(prefix) for name in self._known.values())
            self._known[id] = f"{prefix}{number}"
        return self._known[id]
