"""schema.sql as numbered sections: what they are, and which are still to be applied."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.database.sql import COMMENT, QUOTED, essence, refuse_current_time

CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    section TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
)
"""

_KEPT = re.compile(rf"(?P<quoted>{QUOTED})|{COMMENT}", re.S)
_UNCUT = re.compile(
    r"\$\w*\$|\bE''|\bCREATE(?:\s+(?:OR|REPLACE|CONSTRAINT|TEMP|TEMPORARY))*\s+TRIGGER\b", re.I
)
_HEADING = re.compile(r"^-- section (\d{4}): (.*\S)\s*$", re.M)


class MigrationError(Exception):
    """The sections and what was applied before do not fit; the sentence says what to do."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the schema that is applied once, as a whole."""

    number: str
    name: str
    sql: str
    checksum: str  # of what it does: comments and layout may be improved afterwards


@lru_cache(4)  # every probe of readiness asks
def sections(schema: str) -> tuple[Section, ...]:
    """Cut at the lines `-- section 0001: words`."""
    preamble, *parts = _HEADING.split(schema)
    if essence(preamble):
        raise MigrationError("SQL stands before the first line `-- section 0001: …`.")
    found = tuple(
        Section(number, name, sql, hashlib.sha256(essence(sql).encode()).hexdigest())
        for number, name, sql in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    )
    numbers = [section.number for section in found]
    if numbers != sorted(set(numbers)):
        raise MigrationError("The sections' numbers must rise from one to the next.")
    for section in found:
        refuse_current_time(section.sql)
        bare = _KEPT.sub(lambda match: "''" if match["quoted"] else " ", section.sql)
        if _UNCUT.search(bare):
            raise MigrationError(
                f"Section {section.number} ({section.name}) has $$, E'' or CREATE TRIGGER, and is"
                " cut into statements by rules that know none of them. Write it without."
            )
    return found


def statements(script: str) -> Iterator[str]:
    """Cut a script into its statements; what is quoted or a comment ends none. What would be cut
    wrongly `sections` refuses."""
    begun = ""
    for piece in re.split(r"(?<=;)", script):
        begun += piece
        if sqlite3.complete_statement(begun):
            yield begun
            begun = ""
    if begun.strip():
        yield begun


def pending(found: Sequence[Section], applied: Mapping[str, str]) -> list[Section]:
    """The sections not yet applied; `applied` maps numbers to checksums.

    It may hold newer ones than ours: after a roll-back older code runs on the newer schema.
    """
    for section in found:
        if applied.get(section.number, section.checksum) != section.checksum:
            raise MigrationError(
                f"Section {section.number} ({section.name}) was changed after it was applied here. "
                "Put it back as it was, and write the change as a new section at the end."
            )
    left = [section for section in found if section.number not in applied]
    if left and applied and left[0].number < max(applied):
        raise MigrationError(
            f"Section {left[0].number} ({left[0].name}) is older than {max(applied)}, which is "
            "applied here. Give it the next number and put it at the end."
        )
    return left
