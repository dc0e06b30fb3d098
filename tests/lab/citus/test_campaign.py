"""Judgements of a campaign on the answers and the mail while a node is lost."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.citus.campaign import Campaign, Outage
from lab.citus.stage import Answer, Stage, Workspace

STRUCK, OTHER = 1, 2  # ports
DOWN_AT, UP_AT = 100.0, 110.0


def outside(*, mails: int = 10, **other: list[Answer]) -> list[str]:
    """The faults, where the other node's workspace was answered so, and got so many mails."""
    struck = Workspace(1, "", "", STRUCK, 1)
    struck.answers = [Answer(503, 101.0, 2.0)]
    one = Workspace(2, "", "", OTHER, 2)
    one.answers = other.get("answers", [Answer(202, 100.5 + n, 0.1) for n in range(10)])
    one.reads = other.get("reads", [Answer(200, 101.0, 0.1)])
    stage: Any = SimpleNamespace(workspaces=[struck, one])
    outage = Outage(STRUCK, "silent", DOWN_AT, UP_AT, Counter({one.domain: mails}))
    return Campaign(cast(Stage, stage), 0, [outage])._seen_outside()


def test_a_workspace_of_the_other_node_that_goes_on_is_no_fault() -> None:
    assert outside() == []
    assert outside(mails=5) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"mails": 4}, "4 mails, of 10 events accepted"),
        ({"reads": [Answer(200, 101.0, 3.1)]}, "3.1 s until an answer"),
        ({"answers": [Answer(202, 109.9, 4.0)], "mails": 1}, "4.0 s until an answer"),
        ({"answers": [Answer(202, 101.0, 0.1), Answer(503, 109.9, 0.2)]}, "503"),
        ({"reads": [Answer(200, 99.0, 0.1)]}, "it stood still"),
    ],
)
def test_one_that_waits_or_gets_less_is_a_fault(other: dict[str, Any], words: str) -> None:
    [fault] = outside(**other)
    assert fault.startswith("workspace 2, while another node was down (silent): ")
    assert words in fault
