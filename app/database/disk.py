"""Room on the database's disk, as far as this process has been told."""

from __future__ import annotations

import logging
import time

from app.runtime.outages import Outage

# A process that is not asked anything writes its figures every five seconds, if nothing else. And a
# write that needs no room says nothing about the others: none ends it.
REMEMBERED_SECONDS = 15.0


class Disk:
    def __init__(self) -> None:
        self._outage = Outage(
            "the database's disk is full: nothing can be written until there is room",
            "the database's disk has room again",
            logging.ERROR,
        )

    @property
    def is_full(self) -> bool:
        return self._outage.is_on and not self._is_over()

    def failed(self, error: BaseException) -> None:
        self._outage.failed(error)

    def worked(self) -> None:
        """A transaction was committed."""
        if self._outage.is_on and self._is_over():
            self._outage.worked()

    def _is_over(self) -> bool:
        return time.monotonic() > self._outage.last + REMEMBERED_SECONDS
