"""`python -m app …`, whose statements are recorded: python -m lab.citus.recorded worker.

The record is left in the directory that CITUS_RECORD names, once the process has ended in order.
"""

from __future__ import annotations

import sys

from app.__main__ import main
from lab.citus import recording

if __name__ == "__main__":
    recording.begin()
    try:
        code = main()
    finally:
        recording.keep()
    sys.exit(code)
