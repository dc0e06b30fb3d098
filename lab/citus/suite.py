"""The tests of both engines on a cluster as a third one, and how many shards answer what they sent.

python -m lab.citus.suite [path …]: those that a sharded database has to pass, or these. What they
have sent is judged (lab.citus.statements), however they ended.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab.citus import report, statements
from lab.versions import versions
from tests import servers
from tests.deployment import ROOT

# Of both engines' tests, those that a sharded database has to pass too.
PATHS = (
    *(
        f"tests/{name}"
        for name in (
            *("store", "intake", "runs", "messages", "workers", "accounts", "audit", "billing"),
            *("audience", "broadcasts", "consent", "files", "outbound"),
            *("test_story.py", "test_tenants.py"),
        )
    ),
    *(
        f"tests/routes/test_{name}.py"
        for name in (
            *("admin", "account", "audit_logs", "billing", "broadcasts", "callbacks"),
            *("invitations", "memberships", "passwords", "session_cookie", "sessions", "settings"),
            *("single_sign_on", "troubles", "webhook_requests", "webhooks", "workspaces"),
        )
    ),
)
# One process of tests: one that hangs is ended with it, and the others go on in the next.
PYTEST = ("pytest", "-q", "-n", "1", "--timeout", "180", "-p", "lab.citus.recording")
COUNTS = re.compile(r"(\d+ (?:passed|failed|skipped|error).*) in [\d.]+s")


def tested(paths: Sequence[str], records: str) -> tuple[int, str]:
    """The exit code, and pytest's own count."""
    environ = {
        **os.environ,
        "ENGINES": "citus",
        "CITUS_RECORD": records,
        "REQUIRE_CITUS": "1",
        "PYTHONPATH": str(ROOT),
    }
    counts = "it counted nothing"
    command = [sys.executable, "-m", *PYTEST, *paths]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if found := COUNTS.search(line):
                counts = found[1]
    return process.returncode, counts


async def servers_versions() -> str:
    server = servers.Citus()
    await asyncio.to_thread(server.start)
    try:
        return await versions(await servers.new_database(server.url, ""))
    finally:
        server.remove()


def main(paths: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as records:
        code, counts = tested(paths, records)
        on = asyncio.run(servers_versions())
        report.show(f"the tests of both engines as a third one, {len(paths)} groups", counts, on)
        explained = statements.main(Path(records))
    return code or explained


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PATHS))
