"""What a benchmark of the intake makes of its rounds; the load itself takes its time elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from lab.bench.intake import LEAST_IDLE, Target, tails
from tests.deployment import Part

PART = cast("Part", SimpleNamespace(process=SimpleNamespace(pid=os.getpid())))


def test_a_round_in_which_the_bare_route_stalled_is_no_good_one() -> None:
    bare = [{"p99_ms": ms} for ms in (2.0, 80.0, 2.5)]
    signed = [{"p99_ms": ms} for ms in (20.0, 20.0, 30.0)]
    assert tails(signed, bare) == [8.0, 8.0, 12.0]


@pytest.mark.parametrize(
    ("idle", "refused", "is_valid"),
    [(LEAST_IDLE, 0, True), (LEAST_IDLE - 0.01, 0, False), (0.7, 1, False)],
)
def test_a_round_counts_if_all_were_taken_and_the_generator_was_not_the_limit(
    monkeypatch: pytest.MonkeyPatch, idle: float, refused: int, is_valid: bool
) -> None:
    line = json.dumps({"answered": 100, "refused": refused, "idle": idle})
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: line)
    target = Target(8000, "/", PART)
    if is_valid:
        assert target.hit(1)["answered"] == 100
    else:
        with pytest.raises(AssertionError):
            target.hit(1)
    assert target.hit(1, warms_up=True)["answered"] == 100
