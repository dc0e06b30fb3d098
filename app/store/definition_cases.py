"""Cases of definitions: what is given to a simulation, and the part of its trace that must come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle

COLUMNS = "name, given, expect, revision, created_at, updated_at"


@dataclass(frozen=True, slots=True)
class DefinitionCase:
    """`given` and `expect` are JSON with its literals."""

    name: str
    given: str
    expect: str
    revision: int
    created_at: datetime
    updated_at: datetime

    @property
    def length(self) -> int:
        return len(self.given) + len(self.expect)


async def of_definition(
    db: Handle, *, workspace_id: str, definition_id: str
) -> Sequence[DefinitionCase]:
    """All of them, by name."""
    return await db.fetch_all_as(
        DefinitionCase,
        f"""
        SELECT {COLUMNS} FROM definition_cases
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
        ORDER BY name
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
    )


async def by_name(
    db: Handle, *, workspace_id: str, definition_id: str, name: str
) -> DefinitionCase | None:
    return await db.fetch_one_as(
        DefinitionCase,
        f"""
        SELECT {COLUMNS} FROM definition_cases
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id AND name = :name
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        name=name,
    )


async def put(
    db: Handle, *, workspace_id: str, definition_id: str, name: str, given: str, expect: str
) -> None:
    """A new case, or another content of the one with that name."""
    await db.execute(
        """
        INSERT INTO definition_cases (workspace_id, definition_id, name, given, expect, revision,
                                      created_at, updated_at)
        VALUES (:workspace_id, :definition_id, :name, :given, :expect, 1, :now, :now)
        ON CONFLICT (workspace_id, definition_id, name)
        DO UPDATE SET given = excluded.given, expect = excluded.expect,
                      revision = definition_cases.revision + 1, updated_at = excluded.updated_at
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        name=name,
        given=given,
        expect=expect,
    )


async def delete(db: Handle, *, workspace_id: str, definition_id: str, name: str) -> None:
    await db.execute(
        """
        DELETE FROM definition_cases
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id AND name = :name
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        name=name,
    )


async def copy(db: Handle, *, workspace_id: str, definition_id: str, to_id: str) -> None:
    """All of a definition's to another one, which has none."""
    await db.execute(
        """
        INSERT INTO definition_cases (workspace_id, definition_id, name, given, expect, revision,
                                      created_at, updated_at)
        SELECT workspace_id, :to_id, name, given, expect, 1, :now, :now
        FROM definition_cases
        WHERE workspace_id = :workspace_id AND definition_id = :definition_id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        to_id=to_id,
    )
