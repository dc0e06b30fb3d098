"""The record of the steps of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle
from app.database.sql import columns, named_values, values


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One visit of one node, as it stands now."""

    node_id: str
    visit: int
    kind: str
    status: str
    reason_code: str | None
    reason_detail: str | None
    port: str | None
    output: str | None  # JSON
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep(Step):
    position: int  # among all visits of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep(NewStep):
    started_at: datetime
    output_bytes: int  # also of an output that is left out


# Of a run, those of its newest steps.
MOST = 2_000
MOST_BYTES = 2 * 1024 * 1024  # of their outputs
_BYTES = "octet_length(COALESCE(newest.output, ''))"
_OUTPUT = f"""CASE WHEN SUM({_BYTES}) OVER (ORDER BY newest.position DESC) <= :most_bytes
                 THEN newest.output END AS output"""
_STEP = columns(NewStep, "newest").replace("newest.output", _OUTPUT)
SHOWN = f"{_STEP}, newest.started_at, {_BYTES} AS output_bytes"


async def record(db: Handle, *, workspace_id: str, run_id: str, steps: Iterable[NewStep]) -> None:
    """Each visit once; the end of a waiting visit completes the record of its beginning."""
    await db.execute_many(
        f"""
        INSERT INTO run_steps (workspace_id, run_id, {columns(NewStep)}, started_at)
        VALUES (:workspace_id, :run_id, {values(NewStep)}, :now)
        ON CONFLICT (workspace_id, run_id, node_id, visit) DO UPDATE
        SET status = excluded.status, reason_code = excluded.reason_code,
            reason_detail = excluded.reason_detail, port = excluded.port,
            output = excluded.output, finished_at = excluded.finished_at
        """,
        [{"workspace_id": workspace_id, "run_id": run_id, **named_values(step)} for step in steps],
    )


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Number of runs that wait at a node, and of visits that passed it."""

    node_id: str
    here: int
    passed: int


async def end_open(
    db: Handle, *, workspace_id: str, run_ids: Sequence[str], status: str, reason_code: str | None
) -> None:
    """End the steps that the runs stand in."""
    await db.execute(
        """
        UPDATE run_steps
        SET status = :status, reason_code = :reason_code, finished_at = :now
        WHERE workspace_id = :workspace_id AND run_id = ANY(:run_ids) AND finished_at IS NULL
        """,
        workspace_id=workspace_id,
        status=status,
        reason_code=reason_code,
        run_ids=list(run_ids),
    )


async def of_run(db: Handle, *, workspace_id: str, run_id: str) -> list[RunStep]:
    """The newest, in the order in which the run took them; of older ones' outputs none when the
    newer ones are MOST_BYTES already."""
    return await db.fetch_all_as(
        RunStep,
        f"""
        SELECT {SHOWN}
        FROM (SELECT * FROM run_steps
              WHERE workspace_id = :workspace_id AND run_id = :run_id
              ORDER BY position DESC
              LIMIT :most) newest
        ORDER BY newest.position
        """,
        workspace_id=workspace_id,
        run_id=run_id,
        most=MOST,
        most_bytes=MOST_BYTES,
    )


async def counts_of_run(db: Handle, *, workspace_id: str, run_id: str) -> list[NodeCounts]:
    """Count for each node that the run has visited."""
    return await db.fetch_all_as(
        NodeCounts,
        """
        SELECT node_id,
               SUM(CASE WHEN status = 'WAITING' THEN 1 ELSE 0 END) AS here,
               SUM(CASE WHEN status = 'COMPLETED' THEN 1 ELSE 0 END) AS passed
        FROM run_steps
        WHERE workspace_id = :workspace_id AND run_id = :run_id
        GROUP BY node_id
        """,
        workspace_id=workspace_id,
        run_id=run_id,
    )


async def counts(
    db: Handle, *, workspace_id: str, definition_id: str, most: int
) -> list[NodeCounts]:
    """Count for each node that the newest `most` runs have visited."""
    return await db.fetch_all_as(
        NodeCounts,
        """
        SELECT s.node_id,
               SUM(CASE WHEN s.status = 'WAITING' THEN 1 ELSE 0 END) AS here,
               SUM(CASE WHEN s.status = 'COMPLETED' THEN 1 ELSE 0 END) AS passed
        FROM (SELECT id FROM runs
              WHERE workspace_id = :workspace_id AND definition_id = :definition_id
              ORDER BY id DESC
              LIMIT :most) newest
        JOIN run_steps s ON s.workspace_id = :workspace_id AND s.run_id = newest.id
        GROUP BY s.node_id
        """,
        workspace_id=workspace_id,
        definition_id=definition_id,
        most=most,
    )
