"""Rows that a dry run would have written, so that it sees them: in a file that has no name.

SQLite makes such a file for whoever opens it, keeps it in memory while it is small, and nobody else
can open it; it is gone when it is closed, or with the process.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.errors import Unavailable

TABLES = """
    PRAGMA journal_mode = OFF;
    PRAGMA cache_size = -32768; -- KiB
    CREATE TABLE seen (id TEXT PRIMARY KEY, email_key TEXT, phone TEXT, body TEXT) WITHOUT ROWID;
    CREATE INDEX seen_by_email ON seen (email_key) WHERE email_key IS NOT NULL;
    CREATE INDEX seen_by_phone ON seen (phone) WHERE phone IS NOT NULL;
"""
KEYS = ("email_key", "phone", "id")
FOUND = tuple(f"SELECT id, body FROM seen WHERE {key} = ?" for key in KEYS)
WEIGHED = tuple(f"SELECT id, length(body) FROM seen WHERE {key} = ?" for key in KEYS)


class DryRunContacts:
    """The contacts that a dry run would have made or changed so far, however many there are."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("")  # in one transaction, which nobody needs to end
        self._file.executescript(TABLES)

    def __enter__(self) -> DryRunContacts:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def find(
        self, *, email_keys: Sequence[str], phones: Sequence[str], ids: Sequence[str]
    ) -> dict[str, Any]:
        """The kept contacts that have one of these, by id."""
        found = self._read(FOUND, email_keys, phones, ids)
        return {id: json.loads(body) for id, body in found.items()}

    def weight(
        self, *, email_keys: Sequence[str], phones: Sequence[str], ids: Sequence[str]
    ) -> int:
        """Count the characters that those contacts are written with."""
        return sum(self._read(WEIGHED, email_keys, phones, ids).values())

    def _read(self, each: Sequence[str], *given: Sequence[str]) -> dict[str, Any]:
        try:
            return {
                id: found
                for sql, values in zip(each, given, strict=True)
                for value in values
                for id, found in self._file.execute(sql, (value,))
            }
        except sqlite3.Error as error:
            raise _no_room() from error

    def keep(self, rows: Iterable[tuple[str, Mapping[str, Any], Any]]) -> None:
        """Ids, columns, and what is to be found again by them."""
        values = [
            (id, columns["email_key"], columns["phone"], json.dumps(body))
            for id, columns, body in rows
        ]
        try:
            self._file.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?, ?, ?)", values)
        except sqlite3.Error as error:
            raise _no_room() from error


def _no_room() -> Unavailable:
    return Unavailable("There is not enough space for a dry run of this file; import it in parts.")
