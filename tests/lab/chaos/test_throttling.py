"""A mail server that says 454, and an API that says 429, for a moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from app.messages import settling
from app.process import Process
from lab.chaos import throttling

pytestmark = pytest.mark.drill


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", throttling.PROVIDERS)
async def test_no_message_pays_for_a_provider_that_wants_less(
    process: Process, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(settling, "RETRY_SECONDS", (0.5, 1.0))  # of those who came before it shut
    monkeypatch.setattr(throttling, "PATIENCE_SECONDS", 40.0)
    by = throttling.PROVIDERS[name](tmp_path)
    found = await throttling.drain(process, acme, by, count=40, wary_seconds=1.0)
    print(f"\n{found}")
    assert found.ended == Counter(SENT=40)
    assert found.twice == 0
    assert 0 < found.asked < 30, found  # those under way, and a few to see how it is
