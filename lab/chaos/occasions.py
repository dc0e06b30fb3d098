"""Workers killed while dates and a schedule come: each occasion starts exactly one run.

python -m lab.chaos.occasions [contacts] [seconds] [seed]: one web and three worker processes, in
production. A date of every contact and a time of a schedule for all of them come at one moment;
from then on, every so many seconds, a worker is killed with -9 and started again until all runs
have ended. Ends with 1 when an occasion started no run or two, or a run neither came to its end nor
was set aside because five of its workers were killed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, MailServer, Part, made, owner_of, until

CONTACTS = 20_000
KILL_EVERY = 2.0
WORKERS = 3
LEASE_SECONDS = "1"  # so that another goes on soon
LEAD = timedelta(seconds=4)  # from the activation to the occasions
AFTERWARDS_SECONDS = 3.0  # in which somebody who is late would start a second run
PATIENCE_SECONDS = 1_800.0
VIP = {"path": "contact.tags", "op": "contains", "value": "vip"}
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
# A run that was in the hands of five killed workers in a row is set aside, and says so.
SET_ASIDE = ("FAILED", "poisoned")
STEPS = [{"id": "been", "type": "add_tag", "tag": "been"}]


@dataclass(frozen=True, slots=True)
class StartedRun:
    definition_id: str
    contact_id: str
    at: str  # its occasion
    status: str
    reason: str | None = None


STARTED = """
    SELECT definition_id, contact_id, convert_from(body, 'UTF8')::jsonb ->> 'at' AS at, status,
           reason_code AS reason
    FROM runs
    """


async def started(url: str) -> list[StartedRun]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(STARTED)
    await connection.close()
    return [StartedRun(**dict(row)) for row in rows]


def judge(
    runs: Sequence[StartedRun], contacts: Collection[str], flows: Mapping[str, str]
) -> list[str]:
    """The faults. `flows` are the names of the definitions, by their ids."""
    counted = Counter((run.definition_id, run.contact_id) for run in runs)
    faults = [
        f"{name} started {counted[id, contact]} runs for {contact}"
        for id, name in flows.items()
        for contact in contacts
        if counted[id, contact] != 1
    ]
    faults += [f"{at} was the occasion of {n}" for at, n in _others(runs).items()]
    faults += [
        f"{flows[run.definition_id]} is {run.status} for {run.contact_id}"
        for run in runs
        if run.status != "COMPLETED" and (run.status, run.reason) != SET_ASIDE
    ]
    return faults


def _others(runs: Sequence[StartedRun]) -> dict[str, int]:
    """The occasions but for that of most runs: there is one."""
    occasions = Counter(run.at for run in runs)
    return dict(occasions.most_common()[1:])


# --- the drill ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    runs: int = 0
    kills: int = 0
    under_way: int = 0  # kills while some occasions had started their run, and others not
    set_aside: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Drill:
    """The occasions under way, and the workers that look for them."""

    deployment: Deployment
    url: str
    chance: random.Random
    workers: list[Part]
    expected: int
    found: Found = field(default_factory=Found)

    def kill_one(self, so_far: int) -> None:
        number = self.chance.randrange(len(self.workers))
        self.workers[number].kill()
        self.workers[number] = self.deployment.start("worker")
        self.found.kills += 1
        self.found.under_way += 0 < so_far < self.expected

    def run(self, kill_every: float) -> list[StartedRun]:
        """Kill until all have ended, each time once something was done since; what was started."""
        began = kill_at = time.monotonic()
        before = None
        while True:
            runs = asyncio.run(started(self.url))
            so_far = len(runs), sum(run.status in ENDED for run in runs)
            if min(so_far) >= self.expected:
                break
            now = time.monotonic()
            if now - began > PATIENCE_SECONDS:
                self.found.faults.append(f"not after {PATIENCE_SECONDS:.0f} s: {len(runs)} runs")
                break
            if now >= kill_at and so_far != before:
                self.kill_one(len(runs))
                kill_at, before = now + kill_every, so_far
            time.sleep(0.05)
        self.found.seconds = time.monotonic() - began
        time.sleep(AFTERWARDS_SECONDS)
        return asyncio.run(started(self.url))


def drill(
    directory: Path,
    urls: Mapping[str, str],
    contacts: int,
    kill_every: float,
    seed: int,
    **more: str,
) -> Found:
    with (
        MailServer(directory) as mail,
        Deployment(
            directory, **urls, smtp_url=mail.url, **{"LEASE_SECONDS": LEASE_SECONDS, **more}
        ) as deployment,
    ):
        deployment.web()
        workers = [deployment.start("worker") for _ in range(WORKERS)]
        with owner_of(deployment, "Acme") as client:
            since = datetime.now(UTC).replace(microsecond=0)
            people = _people(client, contacts, since)
            segment_id = _filled(client, contacts)
            when = (datetime.now(UTC) + LEAD).replace(microsecond=0)
            flows = _activated(client, segment_id, since, when)
            time.sleep(max(0.0, (when - datetime.now(UTC)).total_seconds()))
            url, expected = urls["database_url"], len(flows) * contacts
            under_way = Drill(deployment, url, random.Random(seed), workers, expected)
            runs = under_way.run(kill_every)
            found = under_way.found
            found.runs = len(runs)
            found.set_aside = sum((run.status, run.reason) == SET_ASIDE for run in runs)
            found.faults += judge(runs, people, flows)
        return found


def _people(client: httpx2.Client, contacts: int, since: datetime) -> list[str]:
    """The ids of contacts with a date of that time."""
    lines = "".join(f"p{n}@x.test,vip,{since.isoformat()}\n" for n in range(contacts))
    imported = client.post(
        "/contacts/import",
        content=f"email,tags,metadata.renewsAt\n{lines}",
        headers={"Content-Type": "text/csv"},
        timeout=None,
    )
    assert imported.status_code == 200, imported.text
    rows = client.get("/contacts/export?format=ndjson", timeout=None).text.splitlines()
    return [json.loads(row)["id"] for row in rows]


def _filled(client: httpx2.Client, contacts: int) -> str:
    """The segment of all of them."""
    id = str(made(client, "/segments", {"name": "Vip", "filter": VIP})["id"])
    until(
        lambda: client.get(f"/segments/{id}").json()["count"] == contacts,
        "the segment is filled",
        seconds=120,
        every=0.2,
    )
    return id


def _activated(
    client: httpx2.Client, segment_id: str, since: datetime, when: datetime
) -> dict[str, str]:
    """A flow by the date and one by a schedule, whose time is the same; id → name."""
    ahead = int((when - since).total_seconds())
    rule = f"FREQ=HOURLY;BYMINUTE={when.minute};BYSECOND={when.second}"
    triggers: Mapping[str, Mapping[str, Any]] = {
        "date": {"field": "metadata.renewsAt", "offset": f"PT{ahead}S"},
        "schedule": {"rrule": rule, "segmentId": segment_id},
    }
    flows = {}
    for source, given in triggers.items():
        trigger = {"source": source, **given}
        body = {"name": source, "state": "ACTIVE", "trigger": trigger, "steps": STEPS}
        flows[str(made(client, "/workflows", body)["id"])] = source
    return flows


# --- by itself ------------------------------------------------------------------------------------


def main(contacts: int, kill_every: float, seed: int) -> int:
    print(f"seed {seed}", flush=True)
    postgres, redis = servers.postgres_server(durable=True), servers.redis_server()
    postgres.start()
    redis.start()
    try:
        url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
        urls = {"database_url": url, "redis_url": redis.url}
        with tempfile.TemporaryDirectory() as directory:
            found = drill(Path(directory), urls, contacts, kill_every, seed)
    finally:
        redis.remove()
        postgres.remove()
    print(
        f"{contacts:,} contacts, {found.runs:,} runs in {found.seconds:.0f} s; {found.kills} kills,"
        f" {found.under_way} while runs were being started; {found.set_aside} runs set aside;"
        f" {len(found.faults)} faults"
    )
    for line in found.faults[:50]:
        print(line)
    return len(found.faults) > 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(
        main(
            int(words[0]) if words else CONTACTS,
            float(words[1]) if words[1:] else KILL_EVERY,
            int(words[2]) if words[2:] else random.randrange(10**6),
        )
    )
