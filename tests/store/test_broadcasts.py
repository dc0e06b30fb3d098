"""Columns of a broadcast that are written by name."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from app.store.broadcasts import Beside, Broadcast, Work, Written


def test_what_is_written_by_name_are_columns_that_no_author_writes() -> None:
    columns = {field.name for field in fields(Broadcast)}
    written = {field.name for field in fields(Written)}
    named = get_type_hints(Beside).keys()
    assert get_type_hints(Work).keys() < named <= columns - written
