"""A few seconds of what `make -C lab fuzz-intake` does for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.fuzz.intake import fuzz

# Hypothesis reads all sources first.
pytestmark = [pytest.mark.drill, pytest.mark.timeout(180)]


def test_no_request_breaks_the_intake_or_starts_a_run_that_it_does_not_answer(
    tmp_path: Path,
) -> None:
    fuzzed = fuzz(tmp_path, seconds=2, first_seed=20_261_121)
    assert {202, 400, 401, 404, 415, 422} <= fuzzed.statuses.keys()
