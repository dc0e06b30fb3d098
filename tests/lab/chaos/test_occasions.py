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


def test_what_is_true_has_no_faults_nor_has_a_run_that_was_set_aside() -> None:
    aside = [*RUNS[:-1], replace(RUNS[-1], status="FAILED", reason="poisoned")]
    for evidence in (GOOD, Evidence(RUNS[:-1], [LEFT]), Evidence(aside, [])):
        assert occasions.judge(evidence, {"con_1", "con_2"}, FLOWS) == []


MOVING = {"wfl_4": "segment_entered again", "wfl_5": "segment_left again"}


def started_by(*definition_ids: str) -> list[StartedRun]:
    """Runs for Ada, in the order of time."""
    return [
        StartedRun(id, "con_1", f"{NINE}{n}", "COMPLETED") for n, id in enumerate(definition_ids)
    ]


RETURNED = started_by("wfl_4", "wfl_5", "wfl_4")
TWICE = {"con_1": ["entered", "left", "entered"]}


def test_each_entry_and_each_exit_starts_a_run_in_turns() -> None:
    assert occasions.judge(Evidence(RETURNED, []), {"con_1"}, MOVING) == []
    assert occasions.judge_moves(RETURNED[::-1], TWICE, {"con_1"}, MOVING) == []
    away = started_by("wfl_4", "wfl_5", "wfl_4", "wfl_5")
    moves = {"con_1": ["entered", "left", "entered", "left"]}
    assert occasions.judge_moves(away, moves, (), MOVING) == []


@pytest.mark.parametrize(
    ("runs", "moves", "members", "fault"),
    [
        (
            RETURNED[:-1],
            TWICE,
            {"con_1"},
            "con_1 entered, left, entered, is in, and the runs started are: entered, left",
        ),
        (
            started_by("wfl_4", "wfl_5", "wfl_5", "wfl_4", "wfl_4"),
            {"con_1": ["entered", "left", "entered", "left", "entered"]},
            {"con_1"},
            "con_1 entered, left, entered, left, entered, is in, and the runs started are:"
            " entered, left, left, entered, entered",
        ),
        (
            RETURNED,
            TWICE,
            (),
            "con_1 entered, left, entered, is out, and the runs started are:"
            " entered, left, entered",
        ),
        (
            [*RETURNED, replace(RETURNED[0], contact_id="con_2")],
            TWICE,
            {"con_1", "con_2"},
            "con_2 never moved, is in, and the runs started are: entered",
        ),
        (
            RETURNED,
            TWICE,
            {"con_1", "con_2"},
            "con_2 never moved, is in, and the runs started are: none",
        ),
        (
            RETURNED[:1],
            {"con_1": ["entered"]},
            {"con_1"},
            "nobody has entered a segment again",
        ),
    ],
)
def test_a_move_without_its_run_is_found_and_a_run_without_its_move(
    runs: list[StartedRun], moves: Moves, members: Collection[str], fault: str
) -> None:
    assert occasions.judge_moves(runs, moves, members, MOVING) == [fault]
