"""Answers of the API to whatever is sent, as the document says: a short run of lab/fuzz/api.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.fuzz import api
from tests import servers

pytestmark = pytest.mark.drill

EXAMPLES = int(os.environ.get("EXAMPLES", "4"))  # an operation; make -C lab fuzz-api sends 200


@pytest.mark.timeout(600)
def test_no_request_is_answered_otherwise_than_the_document_says(
    postgres_server: servers.PostgresServer, redis_url: str, tmp_path: Path
) -> None:
    with api.deployed(postgres_server.url, redis_url, tmp_path) as deployment:
        web = deployment.web()
        verdict = api.fuzz(deployment, 1, EXAMPLES, "--phases", "fuzzing,stateful", "--no-shrink")
    print(verdict)
    assert verdict.exit_code == 0, verdict.output
    for statuses in verdict.statuses.values():
        assert len(statuses) > 3
        assert not any(status >= 500 for status in statuses), web.text
