"""schemathesis against a real web process on PostgreSQL and Redis, as each of two roles.

python -m lab.fuzz.api [--examples 200] [--seed N] prints its seed, how far it is, and a table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from app.process import SCHEMA
from tests import servers
from tests.deployment import ROOT, Deployment, made, owner_of

ROLES = ("owner", "viewer")
KEYS = 10  # of each, that take turns: each may call 600 times a minute
CONFIG = ROOT / "lab" / "fuzz" / "schemathesis.toml"
# The workspace is not called what the examples call it, or the first of them would delete it.
WORKSPACE = "Fuzzed"
PROGRESS_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    exit_code: int
    operations: int
    statuses: Mapping[str, Counter[int]]  # by role
    output: str

    def __str__(self) -> str:
        return "\n".join(self._row(role) for role in ROLES)

    def _row(self, role: str) -> str:
        statuses = self.statuses[role]
        groups = Counter({f"{group}xx": 0 for group in (2, 4, 5)})
        for status, times in statuses.items():
            groups[f"{status // 100}xx"] += times
        by_status = "  ".join(f"{group} {groups[group]:>6}" for group in sorted(groups))
        cases = sum(statuses.values())
        return f"{role:<8}{self.operations:>5} operations {cases:>7} cases  {by_status}"


def fuzz(
    deployment: Deployment,
    seed: int,
    examples: int,
    *more: str,
    progress: Callable[[str], None] = lambda _line: None,
) -> Verdict:
    """Run as an owner and a viewer, in a workspace that has one of everything that members cannot
    just make."""
    with owner_of(deployment, WORKSPACE) as owner:
        ids = _belongings(owner)
        keys = {role: dict(_key(owner, role, number) for number in range(KEYS)) for role in ROLES}
    directory = deployment.directory
    counts, report = directory / "counts.json", directory / "told"
    began = time.monotonic()
    with report.open("w") as output:
        process = subprocess.Popen(
            [
                *(str(Path(sys.executable).parent / "st"), "--config-file", str(CONFIG), "run"),
                f"{deployment.url}/openapi.json",
                # Without Stripe's keys there is nothing there but 503; tests/stripe_server.py has
                # them.
                *("--exclude-path", "/billing/webhooks/stripe"),
                # What is not saved may be anything; tests/machine/test_description.py tries that.
                *("--exclude-path-regex", "^/(automations|workflows)/(check|simulate)$"),
                *("--checks", "all", "--continue-on-failure", "--no-color", "--seed", str(seed)),
                # What a run before has found is found again by its seed, and not by chance.
                "--max-response-time=45",  # /sandbox/messages waits for thirty when asked to
                "--request-timeout=60",
                *("--generation-database", "none", "-n", str(examples), *more),
            ],
            cwd=directory,
            env={
                **os.environ,
                "FUZZ_KEYS": json.dumps(keys),
                "FUZZ_IDS": json.dumps(ids),
                "FUZZ_COUNTS": str(counts),
                "PYTHONPATH": str(ROOT),
                "SCHEMATHESIS_HOOKS": "lab.fuzz.hooks",
                # Tables of Unicode, which take seconds to make.
                "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while _is_running(process):
                operations, statuses = _counted(counts)
                progress(
                    f"{time.monotonic() - began:>6.0f} s {operations:>5} operations"
                    f" {statuses['owner'].total():>7} cases"
                )
        finally:
            process.kill()  # when somebody has lost patience; else it has ended
    return Verdict(process.returncode, *_counted(counts), report.read_text())


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Looked at again after a while."""
    try:
        process.wait(PROGRESS_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _key(owner: httpx2.Client, role: str, number: int) -> tuple[str, str]:
    key = made(owner, "/settings/api-keys", {"name": f"fuzz {number}", "role": role})
    return key["id"], key["key"]


def _belongings(owner: httpx2.Client) -> dict[str, str]:
    """Make what no call of the API makes at once: a run, by its webhook, and a message."""
    steps = [{"type": "wait", "duration": "P1D"}]
    trigger = {"source": "inbound_webhook", "contactLookup": "email", "createContact": True}
    workflow = {"name": "Fuzz", "state": "ACTIVE", "trigger": trigger, "steps": steps}
    url = made(owner, "/workflows", workflow)["trigger"]["webhookUrl"]
    receipt = made(owner, url, {"email": "ada@fuzzed.test"})
    email = {"to": "ada@fuzzed.test", "subject": "Hi", "html": "<p>Hi</p>"}
    sent = made(owner, "/messages/test-email", email)
    return {
        "/runs": receipt["runId"],
        "/contacts": receipt["contactId"],
        "/messages": sent["messageId"],
        "/messages/delivery-attempts": sent["deliveryAttemptId"],
        "/v1/webhooks/in": url.rpartition("/")[2],
    }


def _counted(counts: Path) -> tuple[int, dict[str, Counter[int]]]:
    """Operations, and by role how often each status was answered; so far."""
    counted: dict[str, Any] = (
        json.loads(counts.read_text()) if counts.exists() else {"operations": 0, "statuses": {}}
    )
    by_role = {role: counted["statuses"].get(role, {}) for role in ROLES}
    return counted["operations"], {
        role: Counter({int(status): times for status, times in found.items()})
        for role, found in by_role.items()
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz.api")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args(arguments)
    print(f"seed {given.seed}, {given.examples} examples an operation", flush=True)
    postgres, redis = servers.postgres_server(), servers.redis_server()
    postgres.start()
    redis.start()
    try:
        with (
            tempfile.TemporaryDirectory() as directory,
            deployed(postgres.url, redis.url, Path(directory)) as deployment,
        ):
            deployment.web()
            found = fuzz(
                deployment,
                given.seed,
                given.examples,
                progress=lambda line: print(line, flush=True),
            )
    finally:
        postgres.remove()
        redis.remove()
    print(found.output if found.exit_code else "", found, sep="\n")
    return found.exit_code


def deployed(postgres_url: str, redis_url: str, directory: Path) -> Deployment:
    """Each caller from an address of its own, for what a stranger may do is counted by it."""
    return Deployment(
        directory,
        database_url=asyncio.run(servers.new_database(postgres_url, SCHEMA)),
        redis_url=redis_url,
        smtp_url="smtp://127.0.0.1:1",
        ENVIRONMENT="sandbox",
        TRUSTED_HOPS="1",
        LOG_LEVEL="warning",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
