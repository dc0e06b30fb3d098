"""The command line: python -m app run | web | worker | migrate | demo | grant-super-admin."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from app import demo, identity, logs, tasks
from app.addresses import BadAddress
from app.config import ConfigError, Settings
from app.errors import Problem
from app.main import FOR_EVER, Front, NotReady, database_of, opened, web
from app.process import SCHEMA
from app.store.db import migrate
from app.store.migrations import MigrationError
from app.vault import VaultError
from app.web import server
from workers.main import work


def run(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Everything in one process: migrate, web and worker; in the sandbox also the demo."""
    asyncio.run(_migrate(settings))

    async def main(stop: asyncio.Event) -> None:
        async with opened(settings) as process:
            seeded = None if settings.production else await demo.seed(process)
            listener = server.listen(settings.host, settings.port)
            print(_welcome(settings, seeded), flush=True)
            await _together(
                stop,
                server.serve(web(process), settings, stop, listener=listener),
                work(process, stop),
            )

    return server.run(main)


def serve(settings: Settings, _arguments: argparse.Namespace) -> int:
    """The web processes: WEB_CONCURRENCY of them on one port."""
    _refuse_alone("web", settings)

    async def main(listener: socket.socket, stop: asyncio.Event) -> None:
        front, served = Front(settings), asyncio.Event()
        opening = asyncio.create_task(front.open(settings, served))
        opening.add_done_callback(lambda _: stop.set())
        await server.serve(front, settings, stop, listener=listener)
        served.set()
        if not front.opened:
            await tasks.end(opening)
        if not opening.cancelled():
            await opening

    return server.launch(settings, main)


def worker(settings: Settings, _arguments: argparse.Namespace) -> int:
    """One worker process: moves runs and delivers messages."""
    _refuse_alone("worker", settings)

    async def main(stop: asyncio.Event) -> None:
        async with opened(settings, FOR_EVER) as process:
            await work(process, stop)

    return server.run(main)


def apply_schema(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Bring the database's schema up to date; safe to run twice, and at once."""
    applied = asyncio.run(_migrate(settings))
    sections = "section" if len(applied) == 1 else "sections"
    told = f"Applied {sections} {', '.join(applied)}." if applied else "The schema is up to date."
    print(told)
    return 0


def show_demo(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Seed the demo workspace of a sandbox, once, and print how to try it."""
    if settings.production:
        raise NotReady("The demo is for the sandbox: leave ENVIRONMENT unset.")

    async def main() -> None:
        async with opened(settings) as process:
            print(_welcome(settings, await demo.seed(process)))

    asyncio.run(main())
    return 0


def grant_super_admin(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make a user, named by email address, administrator of every workspace."""

    async def main() -> bool:
        async with opened(settings) as process:
            return await identity.grant_super_admin(process, arguments.email)

    if not asyncio.run(main()):
        raise NotReady(f"No user has the address {arguments.email}; register first.")
    print(f"{arguments.email} is a super-admin.")
    return 0


def _refuse_alone(command: str, settings: Settings) -> None:
    """What web has taken in, a worker elsewhere must be able to see."""
    if settings.sqlite or settings.redis_url is None:
        raise NotReady(
            f"A separate {command} process needs PostgreSQL and Redis: set DATABASE_URL and"
            " REDIS_URL, or use `python -m app run`, which is web and worker in one."
        )


async def _migrate(settings: Settings) -> list[str]:
    async with database_of(settings) as database:
        return await migrate(database, SCHEMA)


async def _together(stop: asyncio.Event, *parts: Awaitable[None]) -> None:
    """Until all have ended; when one breaks, the others are told to stop."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(*tasks)


def _welcome(settings: Settings, seeded: demo.Demo | None) -> str:
    at = settings.base_url
    if settings.production:
        return f"Tidings runs at {at}."
    if seeded is None:
        return (
            f"Tidings runs at {at}. The demo's workflow is gone; remove the database to reseed it."
        )
    file = settings.database_url.removeprefix("sqlite:///")
    kept = f" Everything is kept in {file}." if settings.sqlite else ""
    return f"""
Tidings runs at {at}. This is a sandbox: messages are captured, not sent.

1. Send an event, as a shop would:

{seeded.curl()}

2. See the message it became at {at}/sandbox, with this API key:

   {seeded.api_key}

   or: curl -sS {at}/sandbox/messages -H 'Authorization: Bearer {seeded.api_key}'

Stop with Ctrl-C.{kept}
"""


# --- the table of commands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    act: Callable[[Settings, argparse.Namespace], int]
    arguments: Mapping[str, str]  # name → help


COMMANDS: Mapping[str, Command] = {
    "run": Command(run, {}),
    "web": Command(serve, {}),
    "worker": Command(worker, {}),
    "migrate": Command(apply_schema, {}),
    "demo": Command(show_demo, {}),
    "grant-super-admin": Command(grant_super_admin, {"email": "the user's address"}),
}

EXPECTED = (ConfigError, NotReady, MigrationError, VaultError, BadAddress, Problem)


def main() -> int:
    arguments = _parser().parse_args()
    try:
        settings = Settings.from_environ(os.environ)
        logs.configure(settings)
        return COMMANDS[arguments.command].act(settings, arguments)
    except EXPECTED as error:
        # What a person can mend is told in a sentence, not in a traceback.
        print(f"tidings: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        description="Tidings: a webhook comes in, a run moves on, a message goes out.",
        epilog="Settings come from environment variables; the README lists them.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        told = (command.act.__doc__ or "").strip()
        sub = commands.add_parser(name, help=told, description=told)
        for argument, help in command.arguments.items():
            sub.add_argument(argument, help=help)
    return parser


if __name__ == "__main__":
    sys.exit(main())
