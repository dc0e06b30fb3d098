"""Record what a worker sends to a cluster, and how often it looks at all shards.

python -m lab.citus.looks [seconds]: a worker, which is recorded, under events of some workspaces
for so long, and as long with nothing to do. What looks at several shards must be listed in
lab.citus.statements, lock nothing, and come no more than once a second.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from app.net.tls import system_trust
from lab.citus import report, statements
from lab.citus.stage import Stage, Workspace, staged

SECONDS = 45.0
SENDERS_EACH = 2  # of a workspace
PAUSE_SECONDS = 0.15  # of each, after each event


async def load(stage: Stage, seconds: float) -> None:
    ends_at = time.monotonic() + seconds
    async with httpx2.AsyncClient(timeout=10, trust_env=False, verify=system_trust()) as client:

        async def send(one: Workspace) -> None:
            while time.monotonic() < ends_at:
                await one.send_one(client)
                await asyncio.sleep(PAUSE_SECONDS)

        await asyncio.gather(*(send(one) for one in stage.workspaces for _ in range(SENDERS_EACH)))


def main(seconds: float = SECONDS) -> int:
    with tempfile.TemporaryDirectory() as directory, staged(record=Path(directory)) as stage:
        asyncio.run(load(stage, seconds))
        time.sleep(seconds)
        code = stage.worker.stop()
        record = statements.read(Path(directory))
        found = asyncio.run(statements.explained(stage.database_url, record))
        places = asyncio.run(statements.places_of(stage.database_url))
    looking = statements.looking(found, record)
    faults = [*statements.faults(found, record, places), *statements.too_often(found, record)]
    if code or not looking:
        faults.append(f"the worker ended with {code}, and looked {len(looking)} times")
    print("\n".join(map(str, looking)))
    print("\n".join(faults))
    seen = (
        f"{len(stage.accepted()):,} events; {len(found)} statements, of which {len(looking)} look"
        f" at several shards, the most frequent: {'; '.join(map(str, looking[:3]))};"
        f" {report.outcome(faults, 'none that is not listed, none more than once a second')}"
    )
    what = f"what a worker sends in {seconds:.0f} s of load and {seconds:.0f} s without"
    report.show(what, seen, stage.on)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
