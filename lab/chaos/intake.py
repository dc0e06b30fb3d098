"""Commits cut off from the intake, right before and right after: each answer must be true.

python -m lab.chaos.intake [cuts]: so many of each; twenty senders at once for every cut, with an
Idempotency-Key that some of them share, without one, or half of them with it. Contacts that are to
be created take a COMMIT; for those that exist, the statement that accepts the events is cut. Each
time the database is asked whether it had happened. Prints what became of them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

import asyncpg
import orjson

from app.config.settings import Settings
from app.errors import CommitUnknown, Unavailable
from app.intake import webhooks
from app.intake.acceptance import Accepted
from app.intake.webhook_requests import Head
from app.main import open_process
from app.process import Process
from tests import servers
from tests.cast import hook, workspace
from tests.conftest import SCHEMA
from tests.proxy import Proxy, proxy_before

CUTS = 200
SENDERS = 20
Where = Literal["cut_before", "cut_after"]
Which = Literal["COMMIT", "statement"]
Keys = Literal["with receipts", "without", "some with"]

# What is cut carries this, and nothing before it: the beginning of every request's id is among the
# values of the accepting statement, and not in its text, which a new connection prepares first.
PATTERNS: dict[Which, bytes] = {"COMMIT": b"COMMIT", "statement": b"req_0"}
KEYS: Mapping[Keys, Callable[[int], str | None]] = {  # of the nth sender
    "with receipts": lambda n: f"key {n % 12}",
    "without": lambda _: None,
    "some with": lambda n: f"key {n % 4}" if n % 2 else None,
}


@asynccontextmanager
async def cut_off(
    database_url: str, redis_url: str, directory: Path
) -> AsyncIterator[tuple[Process, Proxy]]:
    """A process that reaches its PostgreSQL through a proxy."""
    where = urlsplit(database_url)
    async with proxy_before("127.0.0.1", servers_port(database_url)) as proxy:
        environ = {
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{proxy.port}{where.path}",
            "REDIS_URL": redis_url,
            "SECRET_KEY": "a secret key that only the tests have",
            "LOG_LEVEL": "error",
        }
        settings = Settings.from_environ(environ, secret_key_file=directory / "secret.key")
        async with open_process(settings) as process:
            yield process, proxy


def servers_port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or int(dict(part.split("=") for part in parts.query.split("&"))["port"])


async def cut_commits(
    process: Process,
    proxy: Proxy,
    database_url: str,
    acme: str,
    where: Where,
    cuts: int,
    which: Which = "COMMIT",
    keys: Keys = "some with",
) -> Counter[str]:
    """Raises AssertionError when an answer and the database disagree, or a cut was not where it
    should have been. `database_url` leads past the proxy."""
    became: Counter[str] = Counter()
    if which == "statement":
        token = await hook(process, acme)
        known = [send(process, token, which, n, None) for n in range(SENDERS)]
        await judge(process, await asyncio.gather(*known), Counter())
    there: list[int] = []  # runs, when a connection was cut
    direct = await asyncpg.connect(database_url)

    async def look() -> None:
        there.append(await direct.fetchval("SELECT count(*) FROM runs"))

    proxy.witness = look
    try:
        for cut in range(cuts):
            tokens = [await hook(process, acme) for _ in range(2)]
            hits = proxy.hits
            there.clear()
            getattr(proxy, where)(PATTERNS[which])
            name = f"{where}-{keys}-{cut}".replace(" ", "-") if which == "COMMIT" else which
            senders = [
                asyncio.create_task(send(process, tokens[n % 2], name, n, KEYS[keys](n)))
                for n in range(SENDERS)
            ]
            while proxy.hits == hits and not all(sender.done() for sender in senders):
                await asyncio.sleep(0.0005)
            proxy.heal()
            became["cuts"] += proxy.hits - hits
            answers = await asyncio.gather(*senders)
            assert there, "nothing was cut"
            assert bool(there[0]) == (where == "cut_after"), (
                f"{where}: {there[0]} runs were there when the {which} was cut"
            )
            await judge(process, answers, became)
    finally:
        proxy.witness = None
        await direct.close()
    return became


async def send(process: Process, token: str, name: str, n: int, key: str | None) -> Accepted | str:
    body = orjson.dumps({"email": f"{name}-{n % 7}@example.com"})
    head = Head([] if key is None else [(b"idempotency-key", key.encode())])
    try:
        return await webhooks.receive(process, token=token, body=body, head=head)
    except CommitUnknown:
        return "unknown"
    except Unavailable:
        return "unavailable"


async def judge(process: Process, answers: list[Accepted | str], became: Counter[str]) -> None:
    async with process.database.write() as db:
        found = await db.fetch_all("SELECT id, contact_id FROM runs")
        twice = await db.fetch_all(
            "SELECT email_key FROM contacts GROUP BY email_key HAVING count(*) > 1"
        )
        ghosts = await db.fetch_all(
            """
            SELECT id FROM receipts r
            WHERE NOT EXISTS (SELECT 1 FROM runs
                              WHERE workspace_id = r.workspace_id AND id = r.run_id)
            """
        )
        await db.execute("DELETE FROM receipts")
        await db.execute("DELETE FROM runs")
    made = {row["id"]: row["contact_id"] for row in found}
    accepted = [one for one in answers if isinstance(one, Accepted)]
    fresh = {one.run_id for one in accepted if not one.replayed}
    assert not twice
    assert not ghosts, "a receipt, and no run"
    for one in accepted:
        assert made[one.run_id] == one.contact_id, "answered with 202, and not there"
    assert len(fresh) == sum(not one.replayed for one in accepted), "two senders have one run"
    if "unknown" not in answers:
        assert made.keys() == {one.run_id for one in accepted}, "there, and not answered with 202"
    became["accepted"] += len(fresh)
    became["repeated"] += len(accepted) - len(fresh)
    became["503, nothing there"] += answers.count("unavailable")
    became["503, unknown"] += answers.count("unknown")


async def main(cuts: int) -> None:
    postgres = servers.postgres_server(durable=True)
    redis = servers.redis_server()
    postgres.start()
    redis.start()
    database_url = await servers.new_database(postgres.url, SCHEMA.read_text())
    with tempfile.TemporaryDirectory() as directory:
        async with cut_off(database_url, redis.url, Path(directory)) as (process, proxy):
            acme = await workspace(process, "Acme")
            for which, where, keys in product(PATTERNS, get_args(Where), KEYS):
                became = await cut_commits(
                    process, proxy, database_url, acme, where, cuts, which, keys
                )
                print(f"{which} {where}, {keys}: {dict(became)}", flush=True)
    redis.remove()
    postgres.remove()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else CUTS))
