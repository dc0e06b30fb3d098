"""Runs as they are let in: for events, by other runs, by what a contact does, by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from app.database.db import Handle
from app.store import jobs

INSERT = """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body, depth,
                      root, created_at)
    SELECT workspace_id, CAST(:id AS TEXT), id, version, CAST(:contact_id AS TEXT), 'QUEUED',
           CAST(:body AS BYTEA), CAST(:depth AS INTEGER), CAST(:root AS TEXT), :now
    FROM definitions
    WHERE workspace_id = :workspace_id AND id = :definition_id AND state = 'ACTIVE'
    ON CONFLICT DO NOTHING
    """


@dataclass(slots=True)
class NewRun:
    workspace_id: str
    id: str
    definition_id: str
    revision: int  # of the definition
    contact_id: str
    body: bytes
    depth: int = 0  # in a chain of runs that start one another
    root: str | None = None  # of that chain


async def insert(
    db: Handle,
    *,
    workspace_id: str,
    id: str,
    definition_id: str,
    contact_id: str,
    body: bytes,
    depth: int = 0,
    root: str | None = None,
) -> bool:
    """False when the definition is no longer ACTIVE, whatever was read before, or the id exists."""
    inserted = await db.fetch_value(
        f"{INSERT} RETURNING id",
        workspace_id=workspace_id,
        id=id,
        definition_id=definition_id,
        contact_id=contact_id,
        body=body,
        depth=depth,
        root=root,
    )
    if inserted is not None:
        await jobs.add(db, "run", workspace_id=workspace_id, ids=[id])
    return inserted is not None


INSERT_EACH = """
    INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status, body, depth,
                      root, created_at)
    SELECT d.workspace_id, given.id, d.id, d.version, given.contact_id, 'QUEUED', given.body,
           given.depth, given.root, :now
    FROM unnest(CAST(:workspace_ids AS TEXT[]), CAST(:ids AS TEXT[]),
                CAST(:definition_ids AS TEXT[]), CAST(:revisions AS INTEGER[]),
                CAST(:contact_ids AS TEXT[]), CAST(:bodies AS BYTEA[]),
                CAST(:depths AS INTEGER[]), CAST(:roots AS TEXT[]))
         AS given (workspace_id, id, definition_id, revision, contact_id, body, depth, root)
    JOIN definitions d ON d.workspace_id = given.workspace_id AND d.id = given.definition_id
    WHERE d.state = 'ACTIVE' AND d.revision = given.revision
    ON CONFLICT DO NOTHING
    RETURNING workspace_id, id
    """
INSERT_EACH_WITH_JOBS = f"""
    WITH made AS ({INSERT_EACH})
    INSERT INTO jobs ({jobs.COLUMNS})
    SELECT workspace_id, 'run', id, {jobs.DUE_NOW} FROM made
    RETURNING workspace_id, id
    """


async def insert_each(db: Handle, runs: Sequence[NewRun]) -> set[str]:
    """The ids of those that are there now for this, and due: not of one whose definition is no
    longer ACTIVE or has been changed since, nor of one whose id existed."""
    # SQLite changes nothing within WITH; a sharded database sends it through its coordinator.
    within = db.engine == "postgresql" and not db.is_sharded
    rows = await db.fetch_tuples(
        INSERT_EACH_WITH_JOBS if within else INSERT_EACH,
        workspace_ids=[run.workspace_id for run in runs],
        ids=[run.id for run in runs],
        definition_ids=[run.definition_id for run in runs],
        revisions=[run.revision for run in runs],
        contact_ids=[run.contact_id for run in runs],
        bodies=[run.body for run in runs],
        depths=[run.depth for run in runs],
        roots=[run.root for run in runs],
    )
    if not within:
        for workspace_id, own in groupby(sorted(rows), key=itemgetter(0)):
            await jobs.add(db, "run", workspace_id=workspace_id, ids=[id for _, id in own])
    return {id for _, id in rows}


async def insert_many(
    db: Handle,
    *,
    workspace_id: str,
    rows: Iterable[tuple[str, str, str]],
    body: bytes,
    depth: int,
    root: str | None = None,
) -> None:
    """(id, definition, contact) of each; none of a definition that is no longer ACTIVE."""
    same = {"workspace_id": workspace_id, "body": body, "depth": depth, "root": root}
    made = [
        {"id": id, "definition_id": definition_id, "contact_id": contact_id, **same}
        for id, definition_id, contact_id in rows
    ]
    await db.execute_many(INSERT, made)
    await db.execute(
        f"""
        INSERT INTO jobs ({jobs.COLUMNS})
        SELECT workspace_id, 'run', id, {jobs.DUE_NOW} FROM runs
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=[one["id"] for one in made],
    )


# --- chains of runs that start one another --------------------------------------------------------


async def chain(db: Handle, *, workspace_id: str, id: str) -> tuple[int, str]:
    """The run's depth in its chain, and the root of that; as of a root when it is gone."""
    found = await db.fetch_tuples(
        "SELECT depth, root FROM runs WHERE workspace_id = :workspace_id AND id = :id",
        workspace_id=workspace_id,
        id=id,
    )
    [(depth, root)] = found or [(0, None)]
    return depth, root or id


async def started_by_root(db: Handle, *, workspace_id: str, root: str, most: int) -> int:
    """Count the runs that the chain of this root has started, up to `most`. Those that did not come
    back by a webhook are of one contact: while it is locked, nobody else starts any."""
    sql = "SELECT id FROM runs WHERE workspace_id = :workspace_id AND root = :root"
    return await db.count(sql, most=most, workspace_id=workspace_id, root=root)
