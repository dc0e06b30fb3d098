"""A node that is silent is tried by one statement at a time, and others are not held up."""

from __future__ import annotations

import pytest

from app.database import nodes
from app.database.nodes import MOST, Nodes, NodeSilent


def silenced() -> Nodes:
    found = Nodes()
    for _ in range(MOST):
        found.enter(1, object())
        found.failed(1)
    return found


def test_a_node_that_was_silent_is_tried_by_one_at_a_time() -> None:
    found, first, second = silenced(), object(), object()
    found.enter(1, first)
    found.enter(1, first)
    with pytest.raises(NodeSilent):
        found.enter(1, second)
    found.leave(1, second)
    with pytest.raises(NodeSilent):
        found.enter(1, second)
    found.leave(1, first)
    found.enter(1, second)


def test_of_another_node_nobody_is_refused() -> None:
    found = silenced()
    found.enter(1, object())
    found.enter(2, object())
    found.enter(2, object())


def test_one_answer_is_enough() -> None:
    found = silenced()
    found.enter(1, object())
    found.answered(1)
    found.enter(1, object())
    found.failed(1)
    found.enter(1, object())


def test_where_a_workspace_lies_is_asked_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 100.0
    monkeypatch.setattr("app.database.nodes.time.monotonic", lambda: clock)
    found = Nodes()
    assert found.of("ws_acme") is None
    assert found.learn("ws_acme", 1) == found.of("ws_acme") == 1
    clock += nodes.REMEMBERED_SECONDS + 1
    assert found.of("ws_acme") is None
