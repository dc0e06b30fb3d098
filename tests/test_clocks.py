"""Clocks of the campaign, which jump in a living process; the monotonic one does not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.clocks import LIBRARY, Clock
from tests.deployment import until

TELL = """
import time
while True:
    input()
    print(time.time(), time.monotonic(), flush=True)
"""


@pytest.mark.skipif(LIBRARY is None, reason="libfaketime has no wheel for this system")
def test_a_living_process_sees_the_jump_in_the_time_of_day_alone(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-c", TELL],
        env=clock.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def apart() -> tuple[float, float]:
            """Measure how far its two clocks are from ours."""
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            at, ticks = map(float, process.stdout.readline().split())
            return at - time.time(), ticks - time.monotonic()

        try:
            assert apart() == pytest.approx((0, 0), abs=5)
            for seconds in (3600, -600, 0):

                def jumped(seconds: int = seconds) -> bool:
                    return abs(apart()[0] - seconds) < 5

                clock.jump(seconds)
                until(jumped, f"its clock jumps {seconds} s")
                assert apart()[1] == pytest.approx(0, abs=5)
        finally:
            process.kill()
