"""Servers for the short drills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.chaos import killing
from tests import servers


@pytest.fixture
def fast_servers() -> Iterator[dict[str, str]]:
    """The URLs of a PostgreSQL and a Redis of the test's own; fsync is not what it is about."""
    if next(servers.postgres_binaries(), None) is None:
        pytest.skip("PG_URL names a server that others use")
    with killing.own_servers(durable=False) as urls:
        yield urls
