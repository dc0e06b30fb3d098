"""Tidings whose workers forget their own hints: python -m lab.chaos.forgetful <command>.

A worker's hint at what it has just made due crosses no network at which it could be cut: `Hints`
gives it to its own pool. Here that takes it and does nothing, as a worker does that dies before it
claims. What is due then is found by the loop alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from app import __main__ as app
from app.jobs.hints import Pair
from tests.deployment import Started
from workers.pool import WorkerPool

log = logging.getLogger(__name__)

FORGOTTEN = "a hint was forgotten"


class Forgetful(Started):
    module = "lab.chaos.forgetful"


def forget(_pool: WorkerPool, pairs: Sequence[Pair]) -> Sequence[Pair]:
    """Leave none over, of which another worker would be told."""
    log.info(FORGOTTEN, extra={"rows": len(pairs)})
    return ()


@contextmanager
def forgetting() -> Iterator[None]:
    with mock.patch.object(WorkerPool, "accept", forget):
        yield


def main() -> int:
    with forgetting():
        return app.main()


if __name__ == "__main__":
    sys.exit(main())
