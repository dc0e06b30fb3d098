"""The command line: python -m app run | web | worker | migrate | demo | doctor | …"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import os
import re
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.accounts import registration as accounts
from app.accounts import sign_in_domains as domains
from app.audience import addresses
from app.audience.addresses import BadAddress
from app.audit import chain, trail
from app.billing import quotas
from app.commands import after_restore as restoring
from app.commands import definition_files, demo, doctor
from app.commands.definition_files import FilesError
from app.commands.startup import StartupGate
from app.config.settings import ConfigError, Settings, place_of_key
from app.database.db import migrate
from app.database.migrations import MigrationError
from app.errors import Problem
from app.machine import reasons
from app.main import FOR_EVER, NotReady, database_of, open_process, web
from app.process import SCHEMA
from app.runtime import descriptors, logs, processes, tasks
from app.simulation import cases
from app.store import keys, retention, user_identities, workspaces
from app.store.sign_in_domains import SignInDomain
from app.vault.vault import VaultError
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

    async def main(listener: socket.socket, stop: asyncio.Event) -> None:
        gate, served = StartupGate(settings), asyncio.Event()
        opening = asyncio.create_task(gate.open(settings, served))
        opening.add_done_callback(lambda _: stop.set())
        await gate.wait_until_ready(stop)
        if not stop.is_set():
            await server.serve(gate, settings, stop, listener=listener, metrics=gate.metrics)
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


def show_demo(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Seed the demo workspace of a sandbox once, and print how to try it."""
    if settings.production:
        raise NotReady("The demo is only for the sandbox: leave ENVIRONMENT unset.")

    async def main() -> None:
        async with open_process(settings) as process:
            print(demo.welcome(settings, await demo.seed(process)))

    asyncio.run(main())
    return 0


def examine(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Check settings, database, keys, clock, Redis and all providers, and say what to fix.

    Exits with 0 when no check fails (warnings do not count), otherwise with 1.
    """

    async def main() -> bool:
        sound = True
        async for finding in doctor.examine(settings):
            print(finding, flush=True)
            sound = sound and finding.verdict != "FAIL"
        return sound

    return 0 if asyncio.run(main()) else 1


def rewrap_keys(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Wrap the data key with the first entry of SECRET_KEY, so that older ones can be removed."""

    async def main() -> bool:
        async with open_process(settings) as process, process.database.write() as db:
            old = await keys.load(db)
            return old is not None and await keys.replace(db, old=old, new=process.vault.rewrap())

    if not asyncio.run(main()):
        raise NotReady("Another process rewrapped the key at the same time; run this again.")
    print("The data key is wrapped with the first entry of SECRET_KEY.")
    print(
        "Remove the others after fifteen minutes, when the access tokens they signed have expired."
    )
    return 0


def after_restore(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Park what a restored backup says is due. Run this before the workers start.

    Otherwise workers would send again what was sent after the backup. Stop every process first,
    including web: what they accept or send meanwhile would be parked, too. docs/operating.md
    describes the whole restore.
    """

    async def main() -> restoring.Parked:
        async with open_process(settings) as process:
            return await restoring.park(process)

    parked = asyncio.run(main())
    print(f"{parked.messages} messages are now UNKNOWN and {parked.runs} runs FAILED, as restored.")
    print(f"{parked.broadcasts} broadcasts are PAUSED: resume or cancel each.")
    print(
        f"{parked.watches} dates and schedules begin anew, and {parked.segments} segments are"
        " filled anew: what time has brought up to now starts no runs."
    )
    print("They are not retried automatically; docs/operating.md says what to do with them.")
    return 0


def verify_audit(settings: Settings, _arguments: argparse.Namespace) -> int:
    """Verify the audit trail of every workspace, and report tampering.

    Exits with 0 when all are whole, and with 1 when one is not. Store the output where nobody with
    write access to the database can change it: a trail whose head is behind one printed earlier
    has been rolled back.
    """

    async def main() -> bool:
        whole, id = True, ""
        async with open_process(settings) as process:
            while True:
                async with process.database.read() as db:
                    workspace = await retention.next_workspace(db, id)
                if workspace is None:
                    return whole
                id = workspace.id
                found = await chain.verify(process, id)
                print(f"{id}  {_trail(found)}", flush=True)
                whole = whole and found.fault is None

    return 0 if asyncio.run(main()) else 1


def _trail(found: chain.Verdict) -> str:
    if found.fault is None:
        head = f"head {found.head.sequence} {found.head.hash.hex()}"
        return f"whole: {found.entries} entries, {found.unchained} not chained yet, {head}"
    at = " ".join(str(part) for part in (found.fault.sequence, found.fault.id) if part)
    return f"NOT WHOLE{at and ' at entry '}{at}: {found.fault.message}"


def grant_super_admin(settings: Settings, arguments: argparse.Namespace) -> int:
    """Make the user with this email address an administrator of every workspace."""

    async def main() -> bool:
        async with open_process(settings) as process:
            return await accounts.grant_super_admin(process, arguments.email)

    if not asyncio.run(main()):
        raise NotReady(f"No user has the address {arguments.email}; register it first.")
    print(f"{arguments.email} is a super-admin.")
    return 0


def set_limit(settings: Settings, arguments: argparse.Namespace) -> int:
    """Set how many messages a day a workspace may send through the operator's channels.

    The number holds until it is set again; "none" restores the default, which is 200 a day in the
    first seven days of a workspace that does not pay, shared by all such workspaces of an owner,
    and afterwards no limit.
    """
    id, limit = arguments.workspace, _limit(arguments.limit)

    async def main() -> bool:
        async with open_process(settings) as process, process.database.write() as db:
            row = await workspaces.locked(db, id=id)
            if row is not None:
                await quotas.set_daily_limit(
                    process, db, trail.OPERATOR, id, before=row.daily_limit, limit=limit
                )
            return row is not None

    if not asyncio.run(main()):
        raise NotReady(f"There is no workspace {id}; GET /admin/workspaces lists them.")
    print(f"{id} has the default limit." if limit is None else f"{id}: {limit} messages a day.")
    return 0


def release_domain(settings: Settings, arguments: argparse.Namespace) -> int:
    """Release a domain for sign-ins that a workspace has claimed; its members stay."""

    async def main() -> SignInDomain | None:
        domain = domains.normal(arguments.domain)
        async with open_process(settings) as process, process.database.write() as db:
            return await domains.release(process, db, domain)

    try:
        row = asyncio.run(main())
    except Problem as problem:
        raise NotReady(problem.detail) from None
    if row is None:
        raise NotReady(f"No workspace has claimed {arguments.domain}.")
    print(f"{row.domain} is no longer claimed by {row.workspace_id}.")
    return 0


def release_sign_in(settings: Settings, arguments: argparse.Namespace) -> int:
    """Forget whom single sign-on means by an account: its address's next sign-in takes it over."""

    async def main() -> int:
        key = addresses.email(arguments.email).key
        async with open_process(settings) as process, process.database.write() as db:
            return await user_identities.release(db, email_key=key)

    try:
        released = asyncio.run(main())
    except BadAddress as error:
        raise NotReady(f"{arguments.email}: {error}") from None
    if not released:
        raise NotReady(
            f"Nobody has signed in to an account of {arguments.email} by single sign-on."
        )
    print(f"The account of {arguments.email} belongs to nobody at the provider any more.")
    return 0


def _limit(text: str) -> int | None:
    if text == "none":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise NotReady("The limit must be a whole number below 1,000,000,000, or none.")
    return int(text)


def simulate(_settings: Settings, arguments: argparse.Namespace) -> int:
    """Run cases from files, without a database, and show differences from the expected trace.

    A file contains a definition, its input and the expected trace: see docs/examples/README.md.
    POST …/simulate?case=true returns such a file for a definition.
    Exits with 0 when all cases match, and with 1 when one differs or cannot be read; the others run
    all the same.
    """
    played = [_plays(Path(file), write=arguments.write) for file in arguments.files]
    if len(played) > 1:
        print(f"{played.count(True)} of {len(played)} cases match.")
    return 0 if all(played) else 1


def _plays(file: Path, *, write: bool) -> bool:
    """Whether the case in the file came as expected, as it does once that is written."""
    try:
        raw = file.read_bytes()
        case = cases.read(raw)
        came = cases.play(case)
        if write:
            file.write_text(cases.recorded(raw, came))
    except OSError as error:
        print(f"tidings: {file}: {error.strerror}.", file=sys.stderr)
        return False
    except Problem as problem:
        sentences = "\n  ".join([problem.detail, *cases.sentences(problem)])
        print(f"tidings: {file}: {sentences}", file=sys.stderr)
        return False
    difference = "" if write else cases.difference(case.expected, came)
    print(f"{file}: {_verdict(case, difference)}")
    if difference:
        for finding in cases.found_in(case):
            print(f"{finding.severity} at {finding.pointer}: {finding.message}")
        print(difference)
    return not difference


def _verdict(case: cases.Case, difference: str) -> str:
    if not difference:
        return case.name
    if case.expected is None:
        return "nothing is expected yet; --write records the result, which is:"
    return "differs from the expected trace:"


def serve_assistants(_settings: Settings, arguments: argparse.Namespace) -> int:
    """Serve an assistant over MCP: it reads, checks, simulates and drafts definitions.

    It speaks over standard input and output, and needs the package mcp, which make install has.
    The key decides what it may see; give it as TIDINGS_API_KEY, for a command line is no secret.
    It never activates, sends or erases anything: docs/mcp.md.
    """
    url, key = _server(arguments)
    if find_spec("mcp") is None:
        raise NotReady('This needs the package mcp: make install, or pip install "mcp>=2.3,<3".')
    # It is an extra, which no other command needs or waits for.
    import_module("app.commands.mcp_server").serve(url, key)
    return 0


def pull(_settings: Settings, arguments: argparse.Namespace) -> int:
    """Write the definitions of a workspace, with their templates, to files in a directory.

    The address and the API key come from --url and --key, or from TIDINGS_URL and TIDINGS_API_KEY.
    A file that means the same is left as it is. docs/definitions-as-files.md describes the files.
    """
    with _connected(arguments) as server:
        for line in definition_files.pull(server, Path(arguments.directory)):
            print(line, flush=True)
    return 0


def diff(_settings: Settings, arguments: argparse.Namespace) -> int:
    """Show what a push of these files or directories would change in a workspace.

    Exits with 0 when that is nothing, otherwise with 1.
    """
    with _connected(arguments) as server:
        lines = [*definition_files.diff(server, [Path(path) for path in arguments.paths])]
    print("\n".join(lines) or "No differences.")
    return 1 if lines else 0


def push(_settings: Settings, arguments: argparse.Namespace) -> int:
    """Bring files, or directories of them, into a workspace: each whole or not at all.

    All are tried first, and nothing is changed when one of them cannot be. What was changed in the
    workspace since it was pulled or pushed from here is not overwritten without --force. New
    definitions are DRAFT; --activate makes them ACTIVE. The signing secret of welcome-series.json
    is taken from TIDINGS_SECRET_WELCOME_SERIES.
    Exits with 1 when a file could not be pushed, or not be activated.
    """
    whole = True
    with _connected(arguments) as server:
        paths = [Path(path) for path in arguments.paths]
        options = {"activate": arguments.activate, "force": arguments.force}
        for pushed in definition_files.push(server, paths, **options):
            print(pushed.line, flush=True)
            whole = whole and pushed.is_done
    return 0 if whole else 1


def _connected(arguments: argparse.Namespace) -> AbstractContextManager[definition_files.Server]:
    """Raises NotReady."""
    return definition_files.connected(*_server(arguments))


def _server(arguments: argparse.Namespace) -> tuple[str, str]:
    """The address and the API key of a running Tidings. Raises NotReady."""
    url = arguments.url or os.environ.get("TIDINGS_URL", "")
    key = arguments.key or os.environ.get("TIDINGS_API_KEY", "")
    if not url or not key:
        raise NotReady("Give --url and --key, or set TIDINGS_URL and TIDINGS_API_KEY.")
    return url, key


def show_reasons(_settings: Settings, _arguments: argparse.Namespace) -> int:
    """Print docs/reasons.md: every reason code with its explanation."""
    print(reasons.page(), end="")
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
        return await migrate(database, SCHEMA)


async def _run_all(stop: asyncio.Event, *parts: Awaitable[None]) -> None:
    """Run all until one ends, or breaks; then stop the others, and wait until they have ended.
    Raises what the first of them raised."""
    running = [asyncio.ensure_future(part) for part in parts]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait(running)
    await asyncio.gather(*running)


# --- the table of commands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Command:
    act: Callable[[Settings, argparse.Namespace], int]
    arguments: Mapping[str, Mapping[str, Any]]  # as argparse takes them
    example: str = ""  # how it is typed, where its name alone does not say it
    is_offline: bool = False  # it touches nothing, so the installation's key is not made for it
    only_looks: bool = False  # nor by this one; its lines are a report, without others in between


PATHS: Mapping[str, Mapping[str, Any]] = {
    "paths": {"nargs": "+", "metavar": "PATH", "help": "files, or directories of them"}
}
SERVER: Mapping[str, Mapping[str, Any]] = {
    "--url": {"help": "the address of the API; default: TIDINGS_URL"},
    "--key": {"help": "an API key; default: TIDINGS_API_KEY"},
}
COMMANDS: Mapping[str, Command] = {
    "run": Command(run, {}, "PORT=8080 python -m app run"),
    "web": Command(serve, {}),
    "worker": Command(worker, {}),
    "migrate": Command(apply_schema, {}),
    "demo": Command(show_demo, {}),
    "doctor": Command(examine, {}, "python -m app doctor || exit 1", only_looks=True),
    "rewrap-keys": Command(rewrap_keys, {}, "SECRET_KEY=new,old python -m app rewrap-keys"),
    "after-restore": Command(
        after_restore, {}, "python -m app after-restore && echo start the workers"
    ),
    "verify-audit": Command(
        verify_audit, {}, "python -m app verify-audit || exit 1", only_looks=True
    ),
    "reasons": Command(show_reasons, {}, is_offline=True),
    "grant-super-admin": Command(
        grant_super_admin,
        {"email": {"help": "the user's email address"}},
        "python -m app grant-super-admin olivia@example.com",
    ),
    "set-limit": Command(
        set_limit,
        {
            "workspace": {"help": "the workspace's ID"},
            "limit": {"help": "messages a day, or none"},
        },
        "python -m app set-limit ws_01kk8f3m9xe2vb4z7c1q5t6w8y 5000",
    ),
    "release-domain": Command(
        release_domain,
        {"domain": {"help": "the domain, such as acme.com"}},
        "python -m app release-domain acme.com",
    ),
    "release-sign-in": Command(
        release_sign_in,
        {"email": {"help": "the account's email address"}},
        "python -m app release-sign-in ada@acme.com",
    ),
    "mcp": Command(
        serve_assistants,
        SERVER,
        "TIDINGS_API_KEY=td_live_… python -m app mcp --url https://tidings.example",
        is_offline=True,
        only_looks=True,
    ),
    "pull": Command(
        pull,
        {"directory": {"help": "where the files are"}, **SERVER},
        "python -m app pull flows --url https://sandbox.acme.example",
        is_offline=True,
    ),
    "diff": Command(
        diff, {**PATHS, **SERVER}, "python -m app diff flows || exit 1", is_offline=True
    ),
    "push": Command(
        push,
        {
            **PATHS,
            "--activate": {"action": "store_true", "help": "activate what is DRAFT"},
            "--force": {"action": "store_true", "help": "overwrite what was changed there"},
            **SERVER,
        },
        "python -m app push flows --url https://tidings.acme.example",
        is_offline=True,
    ),
    "simulate": Command(
        simulate,
        {
            "files": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "cases, as in docs/examples",
            },
            "--write": {"action": "store_true", "help": "record the result as expected"},
        },
        "python -m app simulate docs/examples/*.json",
        is_offline=True,
    ),
}

# What computes beside the event loop takes the interpreter for so long each time the loop waits for
# the system. By Python's default of 5 ms a request of some twenty system calls took a tenth of a
# second while a template was rendered.
SWITCH_SECONDS = 0.000_5

EXPECTED = (FilesError, ConfigError, NotReady, MigrationError, VaultError, BadAddress, Problem)


def main() -> int:
    arguments = _parser().parse_args()
    command = COMMANDS[arguments.command]
    try:
        if command.only_looks:
            logging.disable()
        makes_no_key = command.is_offline or (
            command.only_looks and not place_of_key(os.environ.get("DATABASE_URL", "")).exists()
        )
        none = {"SECRET_KEY": secrets.token_urlsafe(48)} if makes_no_key else {}
        settings = Settings.from_environ({**none, **os.environ})
        logs.configure(settings)
        descriptors.raise_limit()
        sys.setswitchinterval(SWITCH_SECONDS)
        return command.act(settings, arguments)
    except EXPECTED as error:
        # What an operator can fix is reported in a sentence, without a traceback.
        print(f"tidings: {error}", file=sys.stderr)
        return 1
    finally:
        logging.disable(logging.NOTSET)  # whoever called us in a process of their own logs on


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        description="Tidings: a webhook comes in, a run moves on, a message goes out.",
        epilog="All settings are environment variables; the README lists them.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        help_text = inspect.getdoc(command.act) or ""
        sub = commands.add_parser(
            name,
            help=help_text.partition("\n\n")[0],
            description=help_text,
            epilog=command.example and f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for argument, options in command.arguments.items():
            sub.add_argument(argument, **options)
    return parser


if __name__ == "__main__":
    sys.exit(main())
