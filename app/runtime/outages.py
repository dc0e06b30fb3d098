"""Log lines of an outage: one when it begins, one every minute, one when it is over."""

from __future__ import annotations

import logging
import time

AGAIN_SECONDS = 60.0

log = logging.getLogger(__name__)


class Outage:
    """The outage of one dependency, as one process sees it."""

    def __init__(self, away: str, back: str, level: int = logging.WARNING) -> None:
        self._away = away
        self._back = back
        self._level = level
        self._began: float | None = None
        self._logged_at = 0.0
        self._failures = 0  # since it was last logged
        self.last = -AGAIN_SECONDS  # failure, on the monotonic clock

    @property
    def is_on(self) -> bool:
        return self._began is not None

    def failed(self, error: BaseException) -> None:
        self.last = now = time.monotonic()
        self._failures += 1
        if self._began is None:
            self._began = now
        elif now < self._logged_at + AGAIN_SECONDS:
            return
        seconds = round(now - self._began)
        about = {"error": repr(error), "failures": self._failures, "for_seconds": seconds}
        log.log(self._level, self._away, extra=about)
        self._logged_at, self._failures = now, 0

    def worked(self) -> None:
        if self._began is not None:
            seconds = round(time.monotonic() - self._began)
            log.info(self._back, extra={"after_seconds": seconds})
            self._began = None
