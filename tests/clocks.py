"""A clock of its own for a process, which jumps while the process lives, as after an NTP step.

By libfaketime, preloaded: what asks the kernel for the time of day hears another. The monotonic
clock goes on, as it does on a machine whose clock is set.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

SEEN_SECONDS = 1.0  # until the library looks at the file again


def _library() -> Path | None:
    spec = importlib.util.find_spec("libfaketime")
    directory = Path(spec.origin).parent if spec and spec.origin else Path()
    return next(directory.glob("vendor/libfaketime/src/libfaketime.so.1"), None)


LIBRARY = _library()  # None where there is no wheel with one


class Clock:
    """Right, until it jumps. `environ`: what a process needs to go by it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)
        self.environ = {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": str(int(SEEN_SECONDS)),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, seconds: int) -> None:
        """Jump to so much before or after the right time."""
        whole = self._file.with_suffix(".new")
        whole.write_text(f"{seconds:+d}\n")
        whole.replace(self._file)  # nobody reads half of it
