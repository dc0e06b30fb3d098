"""Durations beside what is wanted: figures, no findings, for the machine may be busy. Promise 4
alone is judged, by a campaign about it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from lab.bench import figures
from lab.chaos.answers import times
from lab.chaos.evidence import Evidence

WAIT_SECONDS = 2  # of the flow that waits
NEAR_SECONDS = 5.0  # as I12 has it
JUDGED_FROM = 300  # interrupted runs: fewer say nothing of 99 of 100
JUDGED_KILLS = 30  # likewise: what one kill interrupts ends together


def measure(evidence: Evidence) -> None:
    accepted = (one.ended - one.began for sent in evidence.ledger for one in sent.accepted)
    # Promise 6 has a figure for it, while Redis is away.
    evidence.figures["answered with 202"] = f"{times(accepted)}; wanted p99 300 ms without Redis"
    evidence.figures["waits, late"] = f"{times(_late_waits(evidence))}; wanted 1 s between faults"
    _until_work_went_on(evidence)


def _late_waits(evidence: Evidence) -> Iterator[float]:
    """Seconds from the end of a wait to its message, where no fault was near."""
    arrived = {mail.subject: mail.at for mail in evidence.mails}
    for sent in evidence.ledger:
        if sent.flow != "waiting" or sent.name not in arrived or len(sent.tries) != 1:
            continue
        began, due = sent.tries[0].began, sent.tries[0].ended + WAIT_SECONDS
        if not any(
            fault.began < due + NEAR_SECONDS and began < fault.ended + NEAR_SECONDS
            for fault in evidence.faults
        ):
            yield max(0.0, arrived[sent.name] - due)


def work_went_on_soon(evidence: Evidence) -> Iterator[str]:
    """Check promise 4 where hints, workers and faults are those that it is about, and enough kills
    and runs in hand to speak of 99 of 100. The bound is near what is usual, so that a busy machine
    alone may break it: the finding names the load."""
    if evidence.promise != 4:
        return
    resumed, most = _resumed(evidence), figures.GOALS["P4"].floor
    kills = len(evidence.interrupted)
    if kills < JUDGED_KILLS or 0 < len(resumed) < JUDGED_FROM:
        evidence.figures["promise 4"] = (
            f"not judged: {kills} kills and {len(resumed)} interrupted runs, of {JUDGED_KILLS} and"
            f" {JUDGED_FROM}"
        )
    elif not resumed:
        yield "no run was in hand at a kill: promise 4 is not shown"
    elif most is not None and _p99(resumed) > most:
        yield (
            f"p99 {_p99(resumed):.1f} s from a kill to the end of what was in hand, of {most:g} s,"
            f" at a load of {os.getloadavg()[1]:.1f}"
        )


def _p99(ordered: Sequence[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]


def _resumed(evidence: Evidence) -> Sequence[float]:
    """List the seconds from a worker's kill to the end of each run that it had in hand. What struck
    after it does not matter: the others are not interrupted."""
    ended = {
        row["id"]: row["finished_at"].timestamp()
        for row in evidence.runs
        if row["definition_id"] in evidence.definitions and row["finished_at"] is not None
    }
    return sorted(
        ended[run_id] - kill.at
        for kill in evidence.interrupted
        for run_id in kill.runs
        if run_id in ended
    )


def _until_work_went_on(evidence: Evidence) -> None:
    if resumed := _resumed(evidence):
        shares = [(number + 1) * 100 / len(resumed) for number in range(len(resumed))]
        step = max(1, len(resumed) // 100)
        figures.curve("runs", "recovery", resumed[::step], shares[::step])
        p99 = _p99(resumed)
        figures.measured("P4", [p99], of=len(resumed))
        evidence.figures["interrupted by a kill"] = (
            f"{len(resumed)} runs, ended p50 {resumed[len(resumed) // 2]:.1f} s, p99 {p99:.1f} s,"
            f" last {resumed[-1]:.1f} s later"
        )
