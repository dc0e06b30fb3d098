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
        verdicts = api.fuzz(
            deployment,
            1,
            {"viewer": 2, "owner": 4},  # who is mostly refused is soon through
            *("--phases", "fuzzing,stateful", "--no-shrink"),
        )
    for verdict in verdicts:
        print(verdict)
        assert verdict.exit_code == 0, verdict.told
        assert verdict.cases > 0
        assert not any(status >= 500 for status in verdict.statuses), web.text
