"""The command line: python -m app run | web | worker | migrate | demo | doctor | …"""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.audience.addresses import BadAddress
from app.commands import authoring, operating, serving
from app.commands.definition_files import FilesError
from app.config.settings import ConfigError, Settings, place_of_key
from app.database.migrations import MigrationError
from app.errors import Problem
from app.main import NotReady
from app.runtime import descriptors, logs
from app.vault.vault import VaultError


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
    "run": Command(serving.run, {}, "PORT=8080 python -m app run"),
    "web": Command(serving.serve, {}),
    "worker": Command(serving.worker, {}),
    "migrate": Command(serving.apply_schema, {}),
    "demo": Command(operating.show_demo, {}),
    "doctor": Command(operating.examine, {}, "python -m app doctor || exit 1", only_looks=True),
    "rewrap-keys": Command(
        operating.rewrap_keys, {}, "SECRET_KEY=new,old python -m app rewrap-keys"
    ),
    "after-restore": Command(
        operating.after_restore, {}, "python -m app after-restore && echo start the workers"
    ),
    "verify-audit": Command(
        operating.verify_audit, {}, "python -m app verify-audit || exit 1", only_looks=True
    ),
    "reasons": Command(operating.show_reasons, {}, is_offline=True),
    "grant-super-admin": Command(
        operating.grant_super_admin,
        {
            "email": {"help": "the user's email address"},
            "--unverified": {
                "action": "store_true",
                "help": "though nobody has shown that the address is theirs",
            },
        },
        "python -m app grant-super-admin olivia@example.com",
    ),
    "set-limit": Command(
        operating.set_limit,
        {
            "workspace": {"help": "the workspace's ID"},
            "limit": {"help": "messages a day, or none"},
        },
        "python -m app set-limit ws_01kk8f3m9xe2vb4z7c1q5t6w8y 5000",
    ),
    "release-domain": Command(
        operating.release_domain,
        {"domain": {"help": "the domain, such as acme.com"}},
        "python -m app release-domain acme.com",
    ),
    "release-sign-in": Command(
        operating.release_sign_in,
        {"email": {"help": "the account's email address"}},
        "python -m app release-sign-in ada@acme.com",
    ),
    "mcp": Command(
        authoring.serve_assistants,
        SERVER,
        "TIDINGS_API_KEY=td_live_… python -m app mcp --url https://tidings.example",
        is_offline=True,
        only_looks=True,
    ),
    "pull": Command(
        authoring.pull,
        {"directory": {"help": "where the files are"}, **SERVER},
        "python -m app pull flows --url https://sandbox.acme.example",
        is_offline=True,
    ),
    "diff": Command(
        authoring.diff, {**PATHS, **SERVER}, "python -m app diff flows || exit 1", is_offline=True
    ),
    "push": Command(
        authoring.push,
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
        authoring.simulate,
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
