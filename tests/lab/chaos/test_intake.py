"""The drill that cuts commits notices a cut that was elsewhere; that it finds nothing is shown by
tests/intake/test_acceptance.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.process import Process
from lab.chaos import intake
from lab.chaos.intake import Where, cut_commits, cut_off


@pytest.mark.parametrize(
    ("where", "pattern", "found"),
    [
        # In the statement's own text, which comes to be prepared before it is run.
        ("cut_after", b"run_", "cut_after: 0 runs were there when the statement was cut"),
        ("cut_after", b"in nothing that is sent", "nothing was cut"),
        ("cut_before", b"in nothing that is sent", "nothing was cut"),
    ],
)
async def test_a_statement_that_was_cut_elsewhere_is_noticed(
    process: Process,
    acme: str,
    where: Where,
    found: str,
    pattern: bytes,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    if process.database.engine != "postgresql" or process.database.is_sharded:
        pytest.skip("the statement for known contacts is PostgreSQL's alone")
    monkeypatch.setitem(intake.PATTERNS, "statement", pattern)
    url, redis_url = (request.getfixturevalue(name) for name in ("database_url", "redis_url"))
    async with cut_off(url, redis_url, tmp_path) as (through, proxy):
        with pytest.raises(AssertionError, match=found):
            await cut_commits(through, proxy, url, acme, where, 3, "statement")
