"""The drill of `python -m lab.attacks.connections`, bounded for the suite."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from lab.attacks import connections
from lab.attacks.connections import KINDS, UNREAD

pytestmark = pytest.mark.drill

FEW = 256  # descriptors
HELD = 900  # connections, more than there are descriptors


async def test_connections_of_every_kind_end_and_starve_nobody(tmp_path: Path) -> None:
    process, port = await connections.boot(tmp_path, FEW, FEW)
    try:
        kinds = [kind for kind in KINDS if kind != UNREAD]  # half a minute; tests/web has it
        found = await connections.drill(port, HELD, 14, kinds)
    finally:
        process.terminate()
        await process.wait()
    shown = connections.table(found)
    assert all(not held.closed["NEVER"] for held in found.held.values()), shown
    assert not found.failures, shown
    assert "Too many open files" not in (tmp_path / "output").read_text()


async def test_a_low_soft_limit_is_raised(tmp_path: Path) -> None:
    process, _ = await connections.boot(tmp_path, 200, 2_000)
    try:
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    finally:
        process.terminate()
        await process.wait()
    assert (soft, hard) == (2_000, 2_000)
