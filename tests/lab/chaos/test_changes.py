"""The drill of changes, with few of each; and that what it archives has been under traffic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.chaos.changes import ADA, KINDS, Event, Owner, made_and_archived, tried

TIMES = 2


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_an_event_after_every_change_is_judged_by_it(fast_servers: dict[str, str]) -> None:
    seen = tried(fast_servers, TIMES, rate=50)
    assert seen.wrong == []
    twice = {name: 1 + (" and " in name) for name in KINDS}
    assert seen.changes == {name: times * TIMES for name, times in twice.items()}
    assert seen.beside[202] > 0


def test_what_is_archived_took_events_until_then() -> None:
    """Traffic goes to the events of the change before."""
    patched: list[dict[str, Any]] = []
    owner = SimpleNamespace(
        workflow=lambda: {"path": "/in/token"},
        patch=lambda _workflow, **changes: patched.append(changes),
    )
    changes = made_and_archived(cast("Owner", owner))
    assert (next(changes), patched) == ([Event("/in/token", ADA, 202)], [])
    assert next(changes) == [Event("/in/token", ADA, 404)]
    assert patched == [{"state": "ARCHIVED"}]
