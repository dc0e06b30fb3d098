"""Re-entry of a contact, by each policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.machine import reentry
from app.machine.reentry import Entry

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
ENDED = Entry("run_1", NOON, is_running=False)
RUNNING = Entry("run_2", NOON + DAY, is_running=True)


@pytest.mark.parametrize(
    ("policy", "entries", "at", "obstacle"),
    [
        (None, [RUNNING], NOON, None),
        ("always", [RUNNING], NOON, None),
        ("once", [], NOON, None),
        ("once", [ENDED], NOON + 400 * DAY, ENDED),
        ("once", [ENDED, RUNNING], NOON, RUNNING),
        ("not_while_running", [ENDED], NOON, None),
        ("not_while_running", [RUNNING, ENDED], NOON, RUNNING),
        ({"after": "P7D"}, [ENDED], NOON + 7 * DAY, None),
        ({"after": "P7D"}, [ENDED], NOON + 7 * DAY - timedelta(seconds=1), ENDED),
        ({"after": "P7D"}, [ENDED, RUNNING], NOON + 7 * DAY, RUNNING),
    ],
)
def test_the_newest_run_that_stands_in_the_way_is_found(
    policy: Any, entries: list[Entry], at: datetime, obstacle: Entry | None
) -> None:
    assert reentry.obstacle(policy, entries, at) == obstacle


@pytest.mark.parametrize("policy", ["always", "once", "not_while_running", {"after": "PT36H"}])
def test_a_policy_is_kept_as_it_is_written(policy: Any) -> None:
    assert reentry.read(policy) == policy


@pytest.mark.parametrize(
    "policy",
    [
        *("never", "", 7, ["once"], {}),
        *({"after": length} for length in ("7 days", "PT0S", "P99999D", None)),
        {"after": "P7D", "also": 1},
    ],
)
def test_any_other_is_refused_in_a_sentence(policy: Any) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        reentry.read(policy)
