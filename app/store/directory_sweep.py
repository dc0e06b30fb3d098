"""Differences between the directory and the rows that its keys lead to.

Both are written in one transaction. Of a sharded database the row is on a node and the directory
on the coordinator, whose commits are two: a crash in between leaves one without the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from app.database.db import Handle
from app.store import directory, workspaces
from app.store.directory import Kind, Place
from app.store.job_sweep import Key

Keyed: TypeAlias = tuple[Place, str]  # a row, and the key that leads to it


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows `t` of a kind: the columns of their id and key, and which of them have one."""

    table: str
    id: str
    key: str
    have: str
    before_workspace: bool = False  # locked first, as payments lock plans


ROWS: Mapping[Kind, Rows] = {
    "webhook": Rows("definitions", "t.id", "t.token", "t.token IS NOT NULL"),
    "api_key": Rows("api_keys", "t.id", "t.hash", "t.revoked_at IS NULL"),
    "customer": Rows(
        "paid_plans",
        "t.workspace_id",
        "t.provider || ' ' || t.customer_id",
        "t.customer_id IS NOT NULL",
        before_workspace=True,
    ),
}


async def keyed(
    db: Handle, kind: Kind, *, after: Key | None, limit: int
) -> tuple[list[Keyed], Key | None]:
    """The next `limit` rows that have a key, of workspaces that are not closed; and the last of
    them, None when there are fewer."""
    rows, (whose, id) = ROWS[kind], after or ("", "")
    found = await db.fetch_tuples(
        f"""
        SELECT t.workspace_id, {rows.id} AS id, {rows.key} AS key
        FROM {rows.table} t
        JOIN workspaces w ON w.id = t.workspace_id
        WHERE {rows.have} AND w.deleted_at IS NULL AND (t.workspace_id, {rows.id}) > (:whose, :id)
        ORDER BY t.workspace_id, {rows.id}
        LIMIT :limit
        """,
        whose=whose,
        id=id,
        limit=limit,
    )
    last = (found[-1][0], found[-1][1]) if len(found) == limit else None
    return [(Place(workspace_id, id), _written(key)) for workspace_id, id, key in found], last


async def unlisted(db: Handle, kind: Kind, rows: Sequence[Keyed]) -> list[Keyed]:
    """Find the rows to which their key does not lead. While one is changed, its key may not do so
    any more, or not yet."""
    listed = await directory.find(db, kind, keys=[key for _, key in rows])
    return [(place, key) for place, key in rows if listed.get(key) != place]


async def relist(db: Handle, kind: Kind, *, workspace_id: str, id: str) -> bool:
    """Have the key of the row lead to it; False when it does, or there is none any more."""
    rows, place = ROWS[kind], Place(workspace_id, id)
    if not rows.before_workspace and not await workspaces.is_open(db, id=workspace_id):
        return False
    found = await db.fetch_value(
        f"""
        SELECT {rows.key} AS key FROM {rows.table} t
        WHERE t.workspace_id = :workspace_id AND {rows.id} = :id AND {rows.have}
        FOR UPDATE
        """,
        workspace_id=workspace_id,
        id=id,
    )
    if found is None:
        return False
    if rows.before_workspace and not await workspaces.is_open(db, id=workspace_id):
        return False
    key = _written(found)
    if not await unlisted(db, kind, [(place, key)]):
        return False
    await directory.put(db, kind, workspace_id=workspace_id, id=id, key=key)
    return True


def _written(key: bytes | str) -> str:
    """The key as the directory has it: of an API key the hash, in hexadecimal."""
    return key.hex() if isinstance(key, bytes) else key
