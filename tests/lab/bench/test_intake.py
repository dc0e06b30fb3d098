"""Rounds of a benchmark of the intake; the load itself takes its time elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from lab.bench.intake import LEAST_IDLE, Target, column, ratio, tails, valid
from tests.deployment import Part

PART = cast("Part", SimpleNamespace(process=SimpleNamespace(pid=os.getpid())))


def test_a_round_in_which_the_bare_route_stalled_is_no_good_one() -> None:
    bare = [{"p99_ms": ms, "idle": 0.5} for ms in (2.0, 80.0, 2.5)]
    signed = [{"p99_ms": ms, "idle": 0.5} for ms in (20.0, 20.0, 30.0)]
    assert tails(signed, bare) == [8.0, 8.0, 12.0]


def test_a_round_with_a_busy_generator_does_not_count_and_the_others_do() -> None:
    quiet, busy = ({"a_second": 8.0, "p99_ms": 4.0, "idle": idle} for idle in (0.5, 0.1))
    assert column("a_second", [quiet, busy]) == [8.0, None]
    assert ratio("a_second", [quiet, busy, quiet], [quiet, quiet, busy]) == [1.0, None, None]
    assert tails([quiet, busy], [busy, quiet]) == [1.0, None]
    assert tails([quiet], [busy]) == [None]


@pytest.mark.parametrize(
    ("idle", "is_valid"),
    [(LEAST_IDLE, True), (LEAST_IDLE - 0.01, False)],
)
@pytest.mark.parametrize("warms_up", [True, False])
def test_a_round_is_valid_if_the_generator_was_not_the_limit(
    monkeypatch: pytest.MonkeyPatch, idle: float, is_valid: bool, warms_up: bool
) -> None:
    line = json.dumps({"answered": 100, "refused": 0, "idle": idle})
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: line)
    target = Target(8000, "/", PART)
    assert valid(target.hit(1, warms_up=warms_up)) is is_valid


def test_nothing_may_be_refused_but_while_it_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"answered": 100, "refused": 1, "idle": 0.7})
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: line)
    target = Target(8000, "/", PART)
    with pytest.raises(AssertionError):
        target.hit(1)
    assert target.hit(1, warms_up=True)["answered"] == 100
