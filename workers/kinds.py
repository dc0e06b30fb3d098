"""The act for a claimed job, by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.audience import segment_jobs
from app.broadcasts import sending
from app.messages import delivery
from app.outbound import deliver
from app.process import Process
from app.runs import calling, runner
from app.store.jobs import Kind
from workers.pool import Act, WorkerPool


@dataclass(frozen=True, slots=True)
class Worker:
    """Function that does a kind of job, and how many at a time: half of them for one workspace."""

    act: Act
    concurrency: int


WORKERS: Mapping[Kind, Worker] = {
    "run": Worker(runner.move, 256),  # they share transactions
    "message": Worker(delivery.deliver, 256),  # most of the time they wait for a provider
    "call": Worker(calling.make, 64),  # most of the time they wait for a server
    "segment": Worker(segment_jobs.work, 4),  # one transaction after another
    "event_attempt": Worker(deliver.post, 32),  # with calls less than the guarded client's sockets
    "broadcast": Worker(sending.move, 8),  # each is a chain of transactions
}


def pool(process: Process, kind: Kind) -> WorkerPool:
    worker = WORKERS[kind]
    return WorkerPool(process, kind, worker.act, concurrency=worker.concurrency)


def pools(process: Process) -> dict[Kind, WorkerPool]:
    return {kind: pool(process, kind) for kind in WORKERS}
