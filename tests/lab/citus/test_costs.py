"""Costs of a cluster, as they are printed."""

from __future__ import annotations

import pytest

from lab.citus import costs


def test_the_two_parts_of_a_cost_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The database's cores are not multiplied by what is ours."""
    plain = dict(zip(costs.PARTS, ([1.0], [1.0], [2.0], [1.0], *[[1.0]] * 4), strict=True))
    cluster = dict(zip(costs.PARTS, ([1.2], [3.0], [2.0], [4.0], *[[1.0]] * 4), strict=True))
    costs.report(plain, cluster)
    lines = capsys.readouterr().out.splitlines()[1:]
    found = {line.partition(" plain")[0].split(" (")[0].strip(): line for line in lines}
    ratios = {what: float(line.partition("ratio ")[2].split()[0]) for what, line in found.items()}
    judged = {what: ratio for what, ratio in ratios.items() if what.startswith(costs.JUDGED)}
    assert judged == {
        "event, ours": 1.2,
        "event, the database's": 3.0,
        "event, together": 2.1,
        "run, ours": 1.0,
        "run, the database's": 4.0,
        "run, together": 2.0,
    }
