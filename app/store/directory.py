"""Directory of the workspace that a token, a key or a customer belongs to, and the row there.

Read before anything of the workspace, so that the next statement can name it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from app.database.db import Handle
from app.database.handle import lock_number

Kind: TypeAlias = Literal["webhook", "api_key", "customer"]


@dataclass(frozen=True, slots=True)
class Place:
    """The row that a key belongs to."""

    workspace_id: str
    id: str


async def find(db: Handle, kind: Kind, *, keys: Sequence[str]) -> dict[str, Place]:
    """The places of the keys that there are."""
    rows = await db.fetch_tuples(
        "SELECT key, workspace_id, id FROM directory WHERE kind = :kind AND key = ANY(:keys)",
        kind=kind,
        keys=list(keys),
    )
    return {key: Place(workspace_id, id) for key, workspace_id, id in rows}


async def find_one(db: Handle, kind: Kind, *, key: str) -> Place | None:
    return (await find(db, kind, keys=[key])).get(key)


async def put(db: Handle, kind: Kind, *, workspace_id: str, id: str, key: str | None) -> None:
    """Put a key in place of the one that the row had before; None leaves it without one. In the
    transaction that changes the row. Raises errors.Duplicate when another row has the key."""
    await delete(db, kind, workspace_id=workspace_id, ids=[id])
    if key is not None:
        await db.execute(
            """
            INSERT INTO directory (kind, key, workspace_id, id)
            VALUES (:kind, :key, :workspace_id, :id)
            """,
            kind=kind,
            key=key,
            workspace_id=workspace_id,
            id=id,
        )


async def delete(db: Handle, kind: Kind, *, workspace_id: str, ids: Sequence[str]) -> None:
    if not ids:
        return
    # On Citus a node commits before the coordinator, so a row may be changed again, and is locked
    # no more, before its key is there.
    digests = (sha256(f"directory|{kind}|{id}".encode()).digest() for id in ids)
    await db.lock(*map(lock_number, digests))
    await db.execute(
        """
        DELETE FROM directory
        WHERE workspace_id = :workspace_id AND kind = :kind AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        kind=kind,
        ids=list(ids),
    )
