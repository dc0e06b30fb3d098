"""A shard moved to another node under load: none lost, none doubled, nobody waits long.

python -m lab.citus.moving [events a second] [moves]: events of one workspace in an open loop, while
Citus moves the shard that has it to the other node, and back.
"""

from __future__ import annotations

import asyncio
import sys
import time

import asyncpg
import httpx2

from app.net.tls import system_trust
from lab.chaos.failover import drained, judged
from lab.citus import report
from lab.citus.stage import Stage, Workspace, staged

RATE = 100.0
MOVES = 2
QUIET_SECONDS = 3.0  # of load before each move, and after the last
LONGEST_SECONDS = 5.0  # that an event may wait for its 202
MOVE_SECONDS = 300.0
DEADLINES = (
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0"
)
MOVE = """
    SELECT citus_move_shard_placement($1::bigint, '127.0.0.1', $2::int, '127.0.0.1', $3::int,
                                      'force_logical')
    """


async def offered(one: Workspace, rate: float, ending: asyncio.Event) -> None:
    """Each event is sent when it is due, whatever has become of those before it."""
    under_way: set[asyncio.Task[None]] = set()
    limits = httpx2.Limits(max_connections=100)
    async with httpx2.AsyncClient(
        timeout=10, limits=limits, trust_env=False, verify=system_trust()
    ) as client:
        began, number = time.monotonic(), 0
        while not ending.is_set():
            while number < (time.monotonic() - began) * rate:
                due = began + number / rate
                under_way.add(asyncio.create_task(one.send_one(client, due)))
                number += 1
            under_way = {task for task in under_way if not task.done()}
            await asyncio.sleep(0.002)
        await asyncio.gather(*under_way)


async def moved(stage: Stage, one: Workspace, moves: int) -> list[float]:
    """The seconds that each move took."""
    ports = [one.port, next(node.port for node in stage.cluster.nodes if node.port != one.port)]
    connection = await asyncpg.connect(stage.database_url)
    await connection.execute(DEADLINES)
    took = []
    for number in range(moves):
        await asyncio.sleep(QUIET_SECONDS)
        there, away = ports[:: 1 if number % 2 == 0 else -1]
        began = time.monotonic()
        await connection.execute(MOVE, one.shard, there, away, timeout=MOVE_SECONDS)
        took.append(time.monotonic() - began)
    await asyncio.sleep(QUIET_SECONDS)
    await connection.close()
    return took


async def drill(stage: Stage, rate: float, moves: int) -> tuple[list[float], list[str]]:
    """The seconds of each move, and the faults."""
    one, ending = stage.workspaces[0], asyncio.Event()
    load = asyncio.create_task(offered(one, rate, ending))
    took = await moved(stage, one, moves)
    ending.set()
    await load
    connection = await asyncpg.connect(stage.database_url, command_timeout=60)
    left = await drained(connection)
    faults = [f"{left} runs do not end"] if left else []
    if not left:
        faults = await judged(connection, stage.accepted(), stage.mail)
    await connection.close()
    if max(one.waits) > LONGEST_SECONDS:
        faults.append(f"an event waited {max(one.waits):.1f} s for its 202")
    return took, faults


def main(rate: float = RATE, moves: int = MOVES) -> int:
    with staged() as stage:
        took, faults = asyncio.run(drill(stage, rate, moves))
        waits = sorted(stage.workspaces[0].waits)
    seen = (
        f"{len(waits):,} events; a shard and its group moved in"
        f" {' and '.join(f'{seconds:.1f}' for seconds in took)} s;"
        f" waits p50 {waits[len(waits) // 2] * 1000:.0f} ms, longest {waits[-1]:.2f} s"
    )
    print("\n".join(faults[:50]))
    what = f"a shard moved to the other node and back under {rate:.0f} events a second"
    report.show(what, f"{seen}; {report.outcome(faults, '0 lost, 0 doubled')}", stage.on)
    return 1 if faults else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(float(words[0]) if words else RATE, int(words[1]) if words[1:] else MOVES))
