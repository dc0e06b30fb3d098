"""The scene of explanations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.process import Process
from app.providers import inbox
from tests.cast import Cast, any_address
from tests.routes.test_webhooks import sending
from tests.runs.scene import EMAIL, Scene


@pytest.fixture
async def scene(
    process: Process, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    monkeypatch.setattr(inbox, "STALLS_SECONDS", 0.01)
    async with sending(process, any_address()) as sender:
        ada = await cast.ed.made("/contacts", {"email": EMAIL, "metadata": {"crmId": 17}})
        yield Scene(process, cast, sender, ada)
