"""A mail server that says 454 for a moment."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from app import settling
from app.process import Process
from tests.chaos import throttling


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_no_message_pays_for_a_server_that_wants_less(
    process: Process, acme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(settling, "RETRY_SECONDS", (0.5, 1.0))  # of those who came before it shut
    found = await throttling.drain(process, acme, tmp_path / "ledger", 40, 1.0)
    print(f"\n{found}")
    assert found.ended == Counter(SENT=40)
    assert found.twice == 0
    assert 0 < found.asked < 30, found  # those under way, and a few to see how it is
