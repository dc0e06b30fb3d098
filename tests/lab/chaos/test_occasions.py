"""The drill of dates, schedules and segments, a short one; and an oracle that sees faults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from lab.chaos import occasions
from lab.chaos.occasions import Evidence, Missed, Moves, StartedRun

CONTACTS = 1_000
EVERY = 0.8  # seconds: workers die before even a fast machine has started them all


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_three_workers_killed_in_turn_start_one_run_for_each_occasion_or_say_that_it_was_missed(
    tmp_path: Path, fast_servers: dict[str, str]
) -> None:
    found = occasions.drill(tmp_path, fast_servers, CONTACTS, EVERY, 7)
    assert found.faults == []
    once = (len(occasions.CHANGES) - len(occasions.MOVED)) * CONTACTS
    assert found.runs + found.missed == once + found.entries + found.exits
    assert found.missed > 0
    assert found.set_aside < CONTACTS / 2
    assert found.kills > 2
    assert found.under_way > 0
    assert found.returning > 0


FLOWS = {"wfl_1": "date", "wfl_2": "paused schedule"}
NINE = "2026-11-25T09:00:00.000Z"
RUNS = [
    StartedRun(flow, contact, NINE, "COMPLETED") for flow in FLOWS for contact in ("con_1", "con_2")
]
GOOD = Evidence(RUNS, [])
LEFT = Missed("wfl_2", "con_2", "stopped")
OF_DATE = Missed("wfl_1", "con_2", "stopped")


@pytest.mark.parametrize(
    ("evidence", "fault"),
    [
        (Evidence([*RUNS, RUNS[0]], []), "date started 2 runs for con_1"),
        (Evidence(RUNS[:-1], []), "paused schedule started 0 runs for con_2"),
        (Evidence(RUNS, [LEFT]), "paused schedule started 1 runs for con_2, and it missed 1"),
        (
            Evidence(RUNS[:-1], [LEFT, LEFT]),
            "paused schedule started 0 runs for con_2, and it missed 2",
        ),
        (
            Evidence([RUNS[0], *RUNS[2:]], [OF_DATE]),
            "date started 0 runs for con_2, and it missed 1",
        ),
        (
            Evidence([*RUNS[:-1], replace(RUNS[-1], at="2026-11-25T10:00:00.000Z")], []),
            "2026-11-25T10:00:00.000Z was the occasion of 1",
        ),
        *(
            (
                Evidence([*RUNS[:-1], replace(RUNS[-1], status=status)], []),
                f"paused schedule is {status} for con_2",
            )
            for status in ("QUEUED", "FAILED")
        ),
    ],
)
def test_the_oracle_finds(evidence: Evidence, fault: str) -> None:
    assert occasions.judge(evidence, {"con_1", "con_2"}, FLOWS) == [fault]


def test_a_segment_is_moved_at_many_moments_and_nothing_of_it_is_missed() -> None:
    flows = {"wfl_3": "segment_left"}
    runs = [StartedRun("wfl_3", f"con_{n}", f"{NINE}{n}", "COMPLETED") for n in (1, 2)]
    assert occasions.judge(Evidence(runs, []), {"con_1", "con_2"}, flows) == []
    missed = Evidence(runs[:1], [Missed("wfl_3", "con_2", "inactive")])
    fault = "segment_left started 0 runs for con_2, and it missed 1"
    assert occasions.judge(missed, {"con_1", "con_2"}, flows) == [fault]


def test_what_is_true_has_no_faults_nor_has_what_killed_workers_had_in_hand_time_and_again() -> (
    None
):
    aside = [*RUNS[:-1], replace(RUNS[-1], status="FAILED", reason="poisoned")]
    for evidence in (GOOD, Evidence(RUNS[:-1], [LEFT]), Evidence(aside, [])):
        assert occasions.judge(evidence, {"con_1", "con_2"}, FLOWS) == []


MOVING = {"wfl_4": "segment_entered again", "wfl_5": "segment_left again"}
MOVED = [
    StartedRun(flow, "con_1", f"{NINE}{n}", "COMPLETED")
    for n, flow in enumerate(("wfl_4", "wfl_5", "wfl_4"))
]
TWICE = [Moves("con_1", 2, 1)]


def test_each_time_that_a_contact_enters_or_leaves_is_a_run_and_the_last_one_says_where_it_is() -> (
    None
):
    assert occasions.judge(Evidence(MOVED, []), {"con_1"}, MOVING) == []
    assert occasions.judge_moves(MOVED, TWICE, {"con_1"}, MOVING) == []
    away = [*MOVED, replace(MOVED[1], at=f"{NINE}4")]
    assert occasions.judge_moves(away, [Moves("con_1", 2, 2)], (), MOVING) == []


@pytest.mark.parametrize(
    ("runs", "moves", "members", "fault"),
    [
        (
            MOVED[:-1],
            TWICE,
            {"con_1"},
            "con_1 entered 2 times and left 1 times, is in, and these started 1 and 1 runs",
        ),
        (
            [*MOVED, MOVED[1]],
            TWICE,
            {"con_1"},
            "con_1 entered 2 times and left 1 times, is in, and these started 2 and 2 runs",
        ),
        (
            MOVED,
            TWICE,
            (),
            "con_1 entered 2 times and left 1 times, is out, and these started 2 and 1 runs",
        ),
        (
            [*MOVED, replace(MOVED[0], contact_id="con_2")],
            TWICE,
            {"con_1", "con_2"},
            "con_2 entered 0 times and left 0 times, is in, and these started 1 and 0 runs",
        ),
        (
            MOVED,
            TWICE,
            {"con_1", "con_2"},
            "con_2 entered 0 times and left 0 times, is in, and these started 0 and 0 runs",
        ),
        (MOVED[:1], [Moves("con_1", 1, 0)], {"con_1"}, "nobody has entered a segment again"),
    ],
)
def test_a_move_without_its_run_is_found_and_a_run_without_its_move(
    runs: list[StartedRun], moves: list[Moves], members: Collection[str], fault: str
) -> None:
    assert occasions.judge_moves(runs, moves, members, MOVING) == [fault]
