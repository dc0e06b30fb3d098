"""Commands that serve: all in one process, web processes, a worker; and the schema before that."""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
from collections.abc import Awaitable

from app.commands import demo
from app.commands.startup import StartupGate
from app.config.settings import Settings
from app.database.db import migrate
from app.errors import Unavailable
from app.main import FOR_EVER, NotReady, cause_of, database_of, open_process, web
from app.process import SCHEMA
from app.runtime import processes, tasks
from app.runtime.peers import Peers
from app.web import server
from workers.main import work

log = logging.getLogger(__name__)


def run(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Run everything in one process: migrate, web and worker; in the sandbox also the demo.

    All settings are environment variables; start with HOST, PORT, DATABASE_URL and ENVIRONMENT.
    Without DATABASE_URL, the database is data/tidings.db in the current directory, with the secret
    key beside it.
    """
    asyncio.run(_migrate(settings))

    async def main(stop: asyncio.Event) -> None:
        async with open_process(settings) as process:
            seeded = None if settings.production else await demo.seed(process)
            listener = server.listen(settings.host, settings.port)
            print(demo.welcome(settings, seeded, await demo.console_link(process)), flush=True)
            await _run_all(
                stop,
                server.serve(
                    web(process), settings, stop, listener=listener, metrics=process.metrics
                ),
                work(process, stop),
            )

    return processes.run(main)


def serve(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Run the web processes: WEB_CONCURRENCY of them on one port."""
    _refuse_alone("web", settings)
    log.info(settings.connections_sentence)

    async def main(listener: socket.socket, stop: asyncio.Event, peers: Peers) -> None:
        gate, served = StartupGate(settings), asyncio.Event()
        opening = asyncio.create_task(gate.open(settings, served))
        opening.add_done_callback(lambda _: stop.set())
        await gate.wait_until_ready(stop)
        if not stop.is_set():
            await server.serve(
                gate, settings, stop, listener=listener, metrics=gate.metrics, peers=peers
            )
        served.set()
        if not gate.ready.is_set():
            await tasks.end(opening)
        if not opening.cancelled():
            await opening

    return processes.launch(
        main, server.bound(settings.host, settings.port), settings.web_concurrency
    )


def worker(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Run one worker process, which moves runs and delivers messages."""
    _refuse_alone("worker", settings)
    log.info(settings.connections_sentence)

    async def main(stop: asyncio.Event) -> None:
        async with open_process(settings, FOR_EVER) as process:
            await work(process, stop)

    return processes.run(main)


def apply_schema(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Bring the database's schema up to date; safe to run twice or concurrently."""
    applied = asyncio.run(_migrate(settings))
    sections = "section" if len(applied) == 1 else "sections"
    summary = (
        f"Applied {sections} {', '.join(applied)}." if applied else "The schema is up to date."
    )
    print(summary)
    return 0


def _refuse_alone(command: str, settings: Settings) -> None:
    """Refuse a web or worker process alone, without PostgreSQL and Redis to meet in."""
    if settings.sqlite or settings.redis_url is None:
        raise NotReady(
            f"A separate {command} process needs PostgreSQL and Redis: set DATABASE_URL and"
            " REDIS_URL, or use `python -m app run`, which runs both in one process."
        )


async def _migrate(settings: Settings) -> list[str]:
    async with database_of(settings) as database:
        try:
            return await migrate(database, SCHEMA)
        except Unavailable as problem:
            raise NotReady(
                f"The schema was not brought up to date: {cause_of(problem)}. Run migrate again:"
                " sections that were applied stay."
            ) from problem


async def _run_all(stop: asyncio.Event, *parts: Awaitable[None]) -> None:
    """Run all until one ends, or breaks; then stop the others, and wait until they have ended.
    Raises what the first of them raised."""
    running = [asyncio.ensure_future(part) for part in parts]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(running)
    await asyncio.gather(*running)
