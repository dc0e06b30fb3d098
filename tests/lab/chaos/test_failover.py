"""The failover drill, with one promotion."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.chaos import failover
from tests import servers

pytestmark = pytest.mark.drill


@pytest.mark.timeout(240)
async def test_a_promotion_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    if next(servers.postgres_binaries(), None) is None:
        pytest.skip("PG_URL names a server that must not be killed")
    report = await failover.drill(tmp_path, promotions=1)
    assert report.faults == []
    assert report.events > 50
