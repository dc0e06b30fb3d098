"""Whatever is sent, the API answers as the document says: a short run of tests/fuzz/api.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.fuzz import api


@pytest.mark.timeout(400)
def test_no_request_is_answered_otherwise_than_the_document_says(
    postgres_server: servers.PostgresServer, redis_url: str, tmp_path: Path
):
    with api.deployed(postgres_server.url, redis_url, tmp_path) as deployment:
        web = deployment.web()
        verdict = api.fuzz(deployment, 1, 5, "--phases", "fuzzing,stateful", "--no-shrink")
    print(verdict)
    assert verdict.exit_code == 0, verdict.told
    for statuses in verdict.statuses.values():
        assert len(statuses) > 3
        assert not any(status >= 500 for status in statuses), web.text
