"""What must hold when all is over, by the ledgers of senders and receivers and the database.

A sender that got no answer knows nothing: that its event is there and that it is not are both
right. What it was told must be so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.bench import figures
from tests.chaos.faults import NO_DATABASE, NO_WEB
from tests.chaos.probes import Probed
from tests.chaos.senders import AWAY, CUT, LATE, Sent, Try
from tests.chaos.stage import Stage
from tests.receivers import Received

SETTLED = {"SENT", "DELIVERED", "FAILED", "UNKNOWN", "SUPPRESSED"}

# What a sender may be told, or not told, because of which faults; after them until everything has
# found its connections again.
EXCUSES = {503: NO_DATABASE, CUT: NO_WEB, AWAY: NO_WEB, LATE: NO_DATABASE | NO_WEB}
AFTERWARDS_SECONDS = 15.0


@dataclass(slots=True)
class Struck:
    """One fault."""

    name: str
    began: float
    ended: float
    broke: str | None = None  # what it could not do, or did not find as it should be


@dataclass(slots=True)
class Evidence:
    """Everything there is to know once nothing is due any more."""

    ledger: Sequence[Sent]
    paths: Mapping[str, Sequence[str]]  # of node ids, by flow
    definitions: Mapping[str, str]  # flow by id
    faults: Sequence[Struck]
    probed: Probed
    runs: list[Any]
    steps: list[Any]
    attempts: list[Any]
    mails: Sequence[Received]
    contacts_twice: list[Any]
    tracebacks: list[str]
    figures: dict[str, object] = field(default_factory=dict)


async def gathered(
    stage: Stage,
    ledger: Sequence[Sent],
    flows: Mapping[str, tuple[str, Sequence[str]]],
    faults: Sequence[Struck],
    probed: Probed,
) -> Evidence:
    """`flows`: the definition's id and the ids of its nodes, by name."""
    async with stage.database() as db:
        return Evidence(
            ledger=ledger,
            paths={name: nodes for name, (_, nodes) in flows.items()},
            definitions={made: name for name, (made, _) in flows.items()},
            faults=faults,
            probed=probed,
            runs=await db.fetch("SELECT * FROM runs ORDER BY id"),
            steps=await db.fetch("SELECT * FROM run_steps ORDER BY run_id, position"),
            attempts=await _attempts(db),
            mails=stage.mail.received,
            contacts_twice=await db.fetch(
                "SELECT workspace_id, email_key FROM contacts WHERE email_key IS NOT NULL"
                " GROUP BY 1, 2 HAVING count(*) > 1"
            ),
            tracebacks=[
                f"{log.name}: {line}"
                for log in stage.logs
                for line in log.read_text().splitlines()
                if "Traceback" in line
            ],
        )


async def _attempts(db: asyncpg.Connection) -> list[Any]:
    return list(
        await db.fetch(
            "SELECT a.*, m.run_id, m.node_id FROM delivery_attempts a"
            " JOIN messages m ON m.workspace_id = a.workspace_id AND m.id = a.message_id"
        )
    )


def findings(evidence: Evidence) -> list[str]:
    """Everything that should not be, in words; empty is what we want."""
    checks = (
        _what_was_accepted_is_there,
        _one_key_is_one_run,
        _what_was_refused_is_not_there,
        _every_sender_was_answered,
        _every_run_ended,
        _every_path_was_walked_once,
        _no_message_went_twice,
        _every_message_is_accounted_for,
        _opt_outs_hold,
        _waits_never_end_early,
    )
    _time_until_work_went_on(evidence)
    _time_until_accepted(evidence)
    found = [finding for check in checks for finding in check(evidence)]
    found += [f"one contact twice: {row['email_key']}" for row in evidence.contacts_twice]
    found += evidence.tracebacks
    found += [f"{fault.name}: {fault.broke}" for fault in evidence.faults if fault.broke]
    return found + evidence.probed.findings


def _what_was_accepted_is_there(evidence: Evidence) -> Iterator[str]:
    runs = {row["id"]: row for row in evidence.runs}
    for sent in evidence.ledger:
        for one in sent.accepted:
            run = runs.get(one.answer["runId"])
            if run is None:
                yield f"{sent.name} was answered with {one.answer['runId']}, which is not there"
            elif bytes(run["body"]) != sent.body:
                yield f"{sent.name}: the body of its run is another"
            elif run["contact_id"] != one.answer["contactId"]:
                yield f"{sent.name}: its run is about another contact than the answer said"
    evidence.figures["accepted"] = sum(bool(sent.accepted) for sent in evidence.ledger)


def _runs_by_event(evidence: Evidence) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for row in evidence.runs:
        found.setdefault(bytes(row["body"]), []).append(row["id"])
    return found


def _one_key_is_one_run(evidence: Evidence) -> Iterator[str]:
    runs = _runs_by_event(evidence)
    for sent in evidence.ledger:
        made = runs.get(sent.body, [])
        told = {one.answer["runId"] for one in sent.accepted}
        most = 1 if sent.kind == "keyed" else len(sent.tries)
        if not len(told) <= len(made) <= most:
            yield f"{sent.name} ({sent.kind}): {len(made)} runs of {len(sent.tries)} tries"
        if sent.kind == "keyed" and len(told) > 1:
            yield f"{sent.name}: one key was answered with {told}"
    evidence.figures["runs"] = sum(map(len, runs.values()))


def _what_was_refused_is_not_there(evidence: Evidence) -> Iterator[str]:
    runs = _runs_by_event(evidence)
    wanted = {"forged": {401}, "malformed": {400}}
    unasked: Counter[str] = Counter()
    for sent in evidence.ledger:
        statuses = {one.status for one in sent.tries}
        refused = statuses and all(status and 400 <= status < 500 for status in statuses)
        if refused and sent.body in runs:
            yield f"{sent.name} was refused with {statuses}, and is there"
        for one in sent.tries:
            right = {202, *wanted.get(sent.kind, ()), 503, None}
            if sent.kind in wanted:
                right.discard(202)
            if one.status not in right:
                yield f"{sent.name} ({sent.kind}) was answered with {one.status}: {one.answer}"
            unasked[str(one.status)] += 1
    evidence.figures["answers"] = dict(unasked.most_common())


def _every_sender_was_answered(evidence: Evidence) -> Iterator[str]:
    """Without 503, or silence, but those that a fault excuses."""
    for sent in evidence.ledger:
        for one in sent.tries:
            told = one.silence if one.status is None else one.status
            if told in EXCUSES and not _excused(one, evidence.faults, EXCUSES[told]):
                yield f"{sent.name} ({sent.kind}) at {one.began:.1f}: {told}, without a reason"


def _excused(one: Try, faults: Sequence[Struck], by: Container[str]) -> bool:
    return any(
        fault.name in by
        and fault.began < one.ended
        and one.began < fault.ended + AFTERWARDS_SECONDS
        for fault in faults
    )


def _every_run_ended(evidence: Evidence) -> Iterator[str]:
    """A call that was cut off is no success, and its run says so."""
    for row in evidence.runs:
        honest = row["status"] == "COMPLETED" or str(row["reason_code"]).startswith("http_")
        if row["finished_at"] is None:
            yield f"{row['id']} is still {row['status']}"
        elif row["definition_id"] in evidence.definitions and not honest:
            yield f"{row['id']} is {row['status']}: {row['reason_code']}"


def _every_path_was_walked_once(evidence: Evidence) -> Iterator[str]:
    walked: dict[str, list[str]] = {}
    for row in evidence.steps:
        walked.setdefault(row["run_id"], []).append(row["node_id"])
    for row in evidence.runs:
        flow = evidence.definitions.get(row["definition_id"])
        if not flow or row["status"] != "COMPLETED":
            continue
        if walked.get(row["id"]) != list(evidence.paths[flow]):
            yield f"{row['id']} ({flow}) walked {walked.get(row['id'])}"


def _no_message_went_twice(evidence: Evidence) -> Iterator[str]:
    received = Counter(mail.message_key for mail in evidence.mails)
    for key, times in received.items():
        if times > 1:
            yield f"the receiver has {key} {times} times"
    evidence.figures["messages received"] = len(evidence.mails)


def _every_message_is_accounted_for(evidence: Evidence) -> Iterator[str]:
    received = {mail.message_key for mail in evidence.mails}
    sent_for = {(row["run_id"], row["node_id"]) for row in evidence.attempts}
    by_status = Counter(row["status"] for row in evidence.attempts)
    for row in evidence.attempts:
        there, status = row["message_key"] in received, row["status"]
        if status not in SETTLED:
            yield f"attempt {row['id']} is still {status}"
        elif status in {"SENT", "DELIVERED"} and not there:
            yield f"attempt {row['id']} is {status}, and the receiver does not have it"
        elif status in {"FAILED", "SUPPRESSED"} and there:
            yield f"attempt {row['id']} is {status}, and the receiver has it"
        elif status == "FAILED":
            yield f"attempt {row['id']} failed: {row['reason_code']} {row['reason_detail']}"
    for row in evidence.runs:
        if row["definition_id"] not in evidence.definitions or row["status"] != "COMPLETED":
            continue
        if (row["id"], "say") not in sent_for:
            yield f"{row['id']} completed without its message"
    evidence.figures["attempts"] = dict(by_status)


def _opt_outs_hold(evidence: Evidence) -> Iterator[str]:
    excused = {
        row["message_key"]
        for row in evidence.attempts
        if row["message_id"] in evidence.probed.in_flight
    }
    for mail in evidence.mails:
        since = evidence.probed.silent_from.get(mail.recipients[0])
        if since is not None and mail.at > since and mail.message_key not in excused:
            yield f"{mail.recipients[0]} got a message {mail.at - since:.1f} s after opting out"
    evidence.figures["opt-outs"] = len(evidence.probed.silent_from)


def _waits_never_end_early(evidence: Evidence) -> Iterator[str]:
    """`PT2S` counts from the step's own beginning."""
    for row in evidence.steps:
        if row["kind"] == "wait" and row["finished_at"] is not None:
            took = (row["finished_at"] - row["started_at"]).total_seconds()
            if took < 2:
                yield f"{row['run_id']} waited for {took:.3f} s instead of 2"


def _time_until_accepted(evidence: Evidence) -> None:
    """What a sender waits for a 202; promise 6 has a figure for it, while Redis is away."""
    took = sorted(one.ended - one.began for sent in evidence.ledger for one in sent.accepted)
    if took:
        p99 = took[int(len(took) * 0.99)]
        evidence.figures["answered with 202"] = (
            f"p50 {took[len(took) // 2] * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
        )


def _time_until_work_went_on(evidence: Evidence) -> None:
    """From a kill to the end of each run that was open then, whatever struck after it."""
    resumed: list[float] = []
    for fault in evidence.faults:
        if not fault.name.startswith("kill"):
            continue
        for row in evidence.runs:
            flow = evidence.definitions.get(row["definition_id"])
            if flow is None or flow == "waiting" or row["finished_at"] is None:
                continue
            if row["created_at"].timestamp() < fault.began < row["finished_at"].timestamp():
                resumed.append(row["finished_at"].timestamp() - fault.began)
    resumed.sort()
    if resumed:
        shares = [(number + 1) * 100 / len(resumed) for number in range(len(resumed))]
        step = max(1, len(resumed) // 100)
        figures.curve("runs", "recovery", resumed[::step], shares[::step])
        p99 = resumed[int(len(resumed) * 0.99)]
        figures.measured("P4", p99)
        evidence.figures["ended after a kill"] = (
            f"{len(resumed)} runs, p50 {resumed[len(resumed) // 2]:.1f} s, p99 {p99:.1f} s,"
            f" last {resumed[-1]:.1f} s"
        )
