"""Benchmark: the rate at which a file of contacts is imported, and its peak memory.

python -m lab.bench.imports [rows]: a web process of its own, on a PostgreSQL that commits to
disk; the file is made while it is sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

from tests import servers
from tests.conftest import SCHEMA
from tests.deployment import Deployment, Part, owner_of

ROWS = 1_000_000
ROWS_A_PIECE = 1_000
HEADER = "email,phone,firstName,lastName,timezone,tags,metadata.plan,metadata.crmId\n"


def file(rows: int) -> Iterator[bytes]:
    yield HEADER.encode()
    for first in range(0, rows, ROWS_A_PIECE):
        yield "".join(row(i) for i in range(first, min(first + ROWS_A_PIECE, rows))).encode()


def row(i: int) -> str:
    return (
        f"person{i}@customer{i % 997}.example,+1415{i:07},First{i % 5_000},Last{i % 20_000},"
        f"Europe/Berlin,lead;batch{i % 10},{('free', 'pro')[i % 2]},{i}\n"
    )


def resident_mb(part: Part, which: str) -> float:
    status = Path(f"/proc/{part.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith(which)]
    return int(line.split()[1]) / 1024


def timed_import(client: httpx2.Client, rows: int) -> tuple[float, dict[str, object]]:
    began = time.monotonic()
    headers = {"Content-Type": "text/csv"}
    response = client.post("/contacts/import", content=file(rows), headers=headers, timeout=None)
    took = time.monotonic() - began
    assert response.status_code == 200, response.text
    return took, json.loads(response.text.splitlines()[-1])


def timed_export(client: httpx2.Client) -> tuple[float, int]:
    began, size = time.monotonic(), 0
    with client.stream("GET", "/contacts/export", timeout=None) as response:
        for piece in response.iter_raw():
            size += len(piece)
    return time.monotonic() - began, size


def report(what: str, rows: int, took: float, web: Part, outcome: object) -> None:
    print(
        f"{what:<28}{rows:>10,} rows {took:>8.1f} s {rows / took:>9,.0f} a second"
        f"   memory {resident_mb(web, 'VmRSS'):>5.0f} MB, peak {resident_mb(web, 'VmHWM'):>5.0f} MB"
        f"   {outcome}",
        flush=True,
    )


def main(rows: int) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    database_url = asyncio.run(servers.new_database(postgres.url, SCHEMA.read_text()))
    with (
        tempfile.TemporaryDirectory() as directory,
        Deployment(
            Path(directory),
            database_url=database_url,
            redis_url=redis.url,
            smtp_url="smtp://127.0.0.1:1",
        ) as deployment,
    ):
        web = deployment.web()
        print(f"idle: {resident_mb(web, 'VmRSS'):.0f} MB", flush=True)
        with owner_of(deployment, "Acme") as client:
            for what in ("import", "the same file again"):
                took, totals = timed_import(client, rows)
                report(what, rows, took, web, totals)
            took, size = timed_export(client)
            report("export", rows, took, web, f"{size / 2**20:,.0f} MB")
    redis.remove()
    postgres.remove()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
