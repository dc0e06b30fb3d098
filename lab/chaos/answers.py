"""Judgement of the answers that senders got while everything broke."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from lab.chaos.evidence import Evidence
from lab.chaos.faults import NO_DATABASE
from lab.chaos.senders import AWAY, CUT, LATE, Try

# What may be answered to each kind, beside 503 where a fault excuses it, and silence.
RIGHT = {"forged": 401, "malformed": 400}

Check: TypeAlias = Callable[[Evidence], Iterator[str]]
Judged: TypeAlias = Callable[[Evidence], int]  # how many a check has looked at

BACK_SECONDS = 5.0  # after a fault of the database, as promise 7 has it
# For a 503 to come. Promise 7 has 2 s, on a machine that has time, and not from a database that is
# slow before it falls silent: how many took longer is a figure. Longer than this, and it hangs.
REFUSAL_SECONDS = 10.0
PROMISED_SECONDS = 2.0
NOTICED_SECONDS = 1.0  # that a death is known of too late, on a busy machine
START_SECONDS = 15.0  # that a process may take, on a busy machine


def every_sender_was_answered(evidence: Evidence) -> Iterator[str]:
    """Find senders that got a 503 or silence, but those that a fault excuses."""
    excused: Counter[str] = Counter()
    for sent in evidence.ledger:
        for one in sent.tries:
            what = f"{one.status or one.silence}"
            if one.status == 503 and one.retry_after is None:
                yield f"{sent.name} at {one.began:.1f}: 503 without Retry-After"
            if one.status == 503 and one.waited > REFUSAL_SECONDS:
                yield f"{sent.name} at {one.began:.1f}: 503 after {one.waited:.1f} s"
            if one.status not in {202, RIGHT.get(sent.kind), 503, None}:
                yield f"{sent.name} ({sent.kind}) was answered with {what}: {one.answer}"
            elif sent.kind in RIGHT and one.status == 202:
                yield f"{sent.name} ({sent.kind}) was accepted"
            if one.status == 503 or one.silence in {AWAY, CUT, LATE}:
                excused[what] += 1
                if not _excused(one, evidence):
                    yield f"{sent.name} ({sent.kind}) at {one.began:.1f}: {what}, without a reason"
    tries = [one for sent in evidence.ledger for one in sent.tries]
    by_answer = Counter(f"{one.status or one.silence}" for one in tries)
    evidence.figures["answers"] = dict(by_answer.most_common())
    evidence.figures["excused"] = f"{dict(excused)}, {_share(tries, evidence):.0%} of the time none"
    refused = [one for one in tries if one.status == 503]
    late = [one for one in refused if one.waited > PROMISED_SECONDS]
    during = Counter(name for one in late for name in _faults_of_the_database(one, evidence))
    evidence.figures["answered with 503"] = (
        f"{times(one.waited for one in refused)}; {len(late)} of {len(refused)} after more than"
        f" {PROMISED_SECONDS:g} s, {dict(during)}"
    )


def _faults_of_the_database(one: Try, evidence: Evidence) -> set[str]:
    """Name the faults of the database that stood in the way of a try; "none" where none did."""
    return {
        fault.name
        for fault in evidence.faults
        if fault.name in NO_DATABASE and fault.began < one.ended and one.began < fault.ended
    } or {"none"}


def _excused(one: Try, evidence: Evidence) -> bool:
    """503 while the database is away and until it must be back; being cut off by the death of the
    very process that was asked; finding nobody where all of them have died. That nothing comes in
    time is never right: whoever cannot reach the database says so."""
    if one.status == 503:
        # A web process may listen before it has its database: what comes to it in that moment is
        # told to come again, by this process alone.
        booting = evidence.booting.get(one.port or 0, ())
        return any(
            began < one.ended and one.began < ended
            for began, ended in (*_without_database(evidence), *booting)
        )
    killed = [death for death in evidence.deaths if death.code == -9]
    if one.silence == CUT:
        return any(
            evidence.ports.get(death.name) == one.port
            and one.began - NOTICED_SECONDS < death.at < one.ended + NOTICED_SECONDS
            for death in killed
        )
    if one.silence == AWAY:
        since = one.began - START_SECONDS
        gone = {death.name for death in killed if since < death.at < one.ended}
        return evidence.ports.keys() <= gone
    return False


def _without_database(evidence: Evidence) -> list[tuple[float, float]]:
    return [
        (fault.began, fault.ended + BACK_SECONDS)
        for fault in evidence.faults
        if fault.name in NO_DATABASE and fault.hits
    ]


def _share(tries: Sequence[Try], evidence: Evidence) -> float:
    """The share of the time in which no 503 would have been excused."""
    first, last = min(one.began for one in tries), max(one.ended for one in tries)
    bad, until = 0.0, first
    for began, ended in sorted(_without_database(evidence)):
        bad += max(0.0, min(ended, last) - max(began, until))
        until = max(until, ended)
    return 1 - bad / (last - first)


def what_was_accepted_is_there(evidence: Evidence) -> Iterator[str]:
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


def one_event_is_as_many_runs_as_were_accepted(evidence: Evidence) -> Iterator[str]:
    """Judge events by tries: of one without an answer its sender does not know; under one key all
    are one; of what was refused, or told that nothing was changed, or sent by halves, or to nobody,
    there is none."""
    runs = evidence.runs_by_event()
    for sent in evidence.ledger:
        made = len(runs.pop(sent.body, ()))
        run_ids = {one.answer["runId"] for one in sent.accepted}
        if not len(run_ids) <= made <= sent.most_runs:
            yield (
                f"{sent.name} ({sent.kind}): {made} runs of {len(sent.tries)} tries,"
                f" {sent.most_runs} of which may be one"
            )
        if sent.kind == "keyed" and len(run_ids) > 1:
            yield f"{sent.name}: one key was answered with {run_ids}"
    for body in runs:
        yield f"there is a run of what nobody sent: {body[:100]!r}"
    rows = [row for row in evidence.runs if row["definition_id"] in evidence.definitions]
    evidence.figures["runs"] = len(rows)


def times(seconds: Iterator[float]) -> str:
    took = sorted(seconds)
    if not took:
        return "none"
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    return f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, last {took[-1] * 1000:.0f} ms"


CHECKS: Mapping[Check, Judged | None] = {
    every_sender_was_answered: lambda evidence: sum(len(sent.tries) for sent in evidence.ledger),
    what_was_accepted_is_there: lambda evidence: sum(
        len(sent.accepted) for sent in evidence.ledger
    ),
    one_event_is_as_many_runs_as_were_accepted: lambda evidence: len(evidence.ledger),
}
