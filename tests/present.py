"""An assertion that the type checker can follow."""

from __future__ import annotations

from typing import TypeVar

Thing = TypeVar("Thing")


def present(thing: Thing | None) -> Thing:
    """The thing itself, of which the test knows that it is there."""
    assert thing is not None
    return thing
