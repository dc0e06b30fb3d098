"""Judgement of the events that an endpoint's subscriber was sent, by what happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from lab.chaos.answers import Check, Judged
from lab.chaos.evidence import Evidence
from lab.chaos.subscriber import ABOUT


def every_event_is_signed_and_its_copies_are_the_same(evidence: Evidence) -> Iterator[str]:
    first: dict[str | None, bytes] = {}
    for one in evidence.received:
        if one.wrong is not None:
            yield f"event {one.id} is signed wrongly: {one.wrong}"
        if first.setdefault(one.id, one.body) != one.body:
            yield f"event {one.id} came with two bodies"
    again = len(evidence.received) - len(first)
    evidence.figures["events heard"] = f"{len(first)}, and {again} of them told again"


def what_happened_was_told_once(evidence: Evidence) -> Iterator[str]:
    """Find what was not reported under exactly one id, however often that came."""
    seen: Counter[tuple[str, str]] = Counter()
    for body in {one.id: one.body for one in evidence.received}.values():
        event = json.loads(body)
        seen[event["type"], event["data"][ABOUT[event["type"]]]] += 1
    happened = _happened(evidence)
    for what in happened.keys() | seen.keys():
        if seen[what] != happened[what]:
            yield f"{' of '.join(what)} happened {happened[what]} times, and {seen[what]} were told"


def _happened(evidence: Evidence) -> Counter[tuple[str, str]]:
    """Count what happened since the endpoint subscribed, by the rows."""
    happened: Counter[tuple[str, str]] = Counter()
    for row in evidence.contacts:
        happened["contact.created", row["id"]] += row["created_at"] > evidence.subscribed_at
    for row in evidence.runs:
        happened["run.failed", row["id"]] += row["status"] == "FAILED"
    for row in evidence.attempts:
        if row["account_mail"] is None:
            unknown = sum(one["status"] == "UNKNOWN" for one in json.loads(row["events"]))
            happened["message.unknown", row["id"]] += unknown
    return happened


def every_event_was_taken(evidence: Evidence) -> Iterator[str]:
    ids = {one.id for one in evidence.received}
    for row in evidence.event_attempts:
        if row["status"] != "SUCCEEDED":
            yield f"event {row['event_id']} is {row['status']}: {row['reason_code']}"
        elif row["event_id"] not in ids:
            yield f"event {row['event_id']} is SUCCEEDED, and nobody heard it"


CHECKS: Mapping[Check, Judged | None] = {
    every_event_is_signed_and_its_copies_are_the_same: lambda evidence: len(evidence.received),
    what_happened_was_told_once: lambda evidence: _happened(evidence).total(),
    every_event_was_taken: lambda evidence: len(evidence.event_attempts),
}
