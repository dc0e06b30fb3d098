"""What the tests of the web share."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from app import logs
from tests.web import wire

Records = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def records() -> Iterator[Records]:
    """What we (not the server, not the client) have logged since then, one mapping a line."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    logs.configure(wire.settings(LOG_LEVEL="info"), stream=stream)

    def ours() -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in stream.getvalue().splitlines())
        return [line for line in lines if line["logger"].startswith("app.")]

    yield ours
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
