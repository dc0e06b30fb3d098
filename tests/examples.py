"""Number of examples that a property test draws: always the same few, or EXAMPLES times as many."""

from __future__ import annotations

import os

from hypothesis import settings

TIMES = int(os.environ.get("EXAMPLES", "1"))  # more are others: make -C lab fuzz-properties


def examples(number: int) -> settings:
    return settings(
        max_examples=number * TIMES,
        deadline=None,
        derandomize=TIMES == 1,
        database=None,
        print_blob=True,
    )
