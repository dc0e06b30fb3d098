"""The values that paths in a template find, and how they are printed."""

from __future__ import annotations

from typing import cast

from liquid import Markup
from liquid.expression import Expression
from liquid.undefined import Undefined

from app.machine import document
from app.machine.path import MISSING, Path, follow


class Nothing(Undefined):
    """The value of a path that leads nowhere."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        super().__init__(str(path.segments[0]))
        self.path = path


def followed(value: object, segment: object) -> object:
    """One step of a path, with Liquid's own properties where no key can stand."""
    found = follow(value, segment)
    if found is not MISSING or not isinstance(value, list | tuple | str):
        return found
    if isinstance(value, tuple):  # a key and its value, from a loop over an object
        return followed(list(value), segment)
    if segment == "size":
        return len(value)
    if isinstance(value, list) and value and segment in ("first", "last"):
        return value[0 if segment == "first" else -1]
    return MISSING


def as_segment(segment: object) -> str | int:
    whole = isinstance(segment, int) and not isinstance(segment, bool)
    return cast("int", segment) if whole else words(segment)


def words(value: object) -> str:
    """The printed form: markup that is already escaped stays markup."""
    if type(value) is Markup:
        return value
    if type(value) is not str and isinstance(value, Undefined | Expression):
        return ""  # an Expression: `empty` and `blank` evaluate to themselves
    return document.text(value)
