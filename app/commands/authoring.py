"""Commands for who writes definitions: cases simulated, files brought to a workspace and back."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from app.commands import definition_files
from app.config.settings import Settings
from app.errors import Problem
from app.main import NotReady
from app.simulation import cases


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
    """Play the case in the file. Returns whether it came as expected, as it does once that is
    written."""
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
    if not difference:
        print(f"{file}: {case.name}")
        return True
    if case.expected is None:
        verdict = "nothing is expected yet; --write records the result, which is:"
    else:
        verdict = "differs from the expected trace:"
    print(f"{file}: {verdict}")
    for finding in cases.found_in(case):
        print(f"{finding.severity} at {finding.pointer}: {finding.message}")
    print(difference)
    return False


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
    asyncio.run(import_module("app.commands.mcp_server").serve(url, key))
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
