"""Tidings as it is deployed: web and worker processes of their own, started and killed for real."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, TypeAlias
from unittest import mock

import httpx2

from app.__main__ import main
from app.audience import segment_jobs
from app.broadcasts import freezing
from app.database import db as database_module
from app.database.db import Database
from app.net.tls import system_trust
from app.web.throttle import API
from tests.receivers import Received, read_ledger
from tests.servers import free_port

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 20.0
COMMAND_SECONDS = 50.0  # that a command may take which comes to an end
A_CALL_EVERY = 0.15  # of the API, which takes 600 a minute


FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["tests.deployment"])  # all that a process of ours imports
system_trust()  # here, and not by each fork for itself


class Forked:
    """Command of `python -m app` in a fork of a process that has imported everything. A start takes
    milliseconds, where Python and the libraries need a second of one core."""

    def __init__(
        self,
        words: Sequence[str],
        environ: Mapping[str, str],
        directory: Path,
        output: Path | Connection,
        errors: Path | None = None,  # where they are kept apart
        program: Callable[[], int] = main,
    ) -> None:
        files = (output, errors or output)
        for file in files:
            if isinstance(file, Path):
                file.touch()
        self._process = FORKING.Process(
            target=_begin, args=(list(words), dict(environ), directory, files, program)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0)
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _begin(
    words: list[str],
    environ: dict[str, str],
    directory: Path,
    files: tuple[Path | Connection, Path | Connection],
    program: Callable[[], int],
) -> None:
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environ)
    for standard, file in zip((sys.stdout, sys.stderr), files, strict=True):
        if isinstance(file, Connection):
            os.dup2(file.fileno(), standard.fileno())
            continue
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, standard.fileno())
        os.close(descriptor)
    for file in files:
        if isinstance(file, Connection) and not file.closed:
            file.close()  # whoever reads it knows that all have ended by its end
    sys.argv = ["app", *words]
    sys.exit(program())


def tireless() -> int:
    """`python -m app`, for a browser in which tests do in a minute what takes people an hour: one
    may ask as often as one likes."""
    object.__setattr__(API, "amount", 100_000)
    return main()


def in_chunks(contacts: int) -> int:
    """`python -m app`, which looks at most at so many contacts at a time, for an audience that it
    freezes and for what comes in segments."""
    with (
        mock.patch.object(freezing, "CHUNK", contacts),
        mock.patch.object(segment_jobs, "CHUNK", contacts),
    ):
        return main()


def impatient() -> int:
    """`python -m app`, which tries a section of the schema once."""
    with mock.patch.object(database_module, "TRIES", 1):
        return main()


class Command:
    """`python -m app …` that comes to an end, in a fork."""

    def __init__(
        self,
        *words: str,
        environ: Mapping[str, str],
        directory: Path | None = None,
        program: Callable[[], int] = main,
    ) -> None:
        self._kept = tempfile.TemporaryDirectory(prefix="command-")
        self._files = [Path(self._kept.name) / name for name in ("output", "errors")]
        environ = {"PATH": os.defpath, "COLUMNS": "100", **environ}
        output, errors = self._files
        self._process = Forked(words, environ, directory or ROOT, output, errors, program)

    def ended(self) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        with self._kept:
            try:
                code = self._process.wait(COMMAND_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
            output, errors = (file.read_text() for file in self._files)
            return code, output, errors


class Part:
    """One process, its output kept in a file: a new `python -m app <command>`, or a fork."""

    def __init__(
        self,
        command: str,
        environ: Mapping[str, str],
        directory: Path,
        *,
        forked: bool = False,
        program: Callable[[], int] = main,  # of a fork
        module: str = "app",
    ) -> None:
        self.output = directory / f"{command}-{time.monotonic_ns()}.log"
        environ = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), **environ}
        self.process: Running
        if forked:
            self.process = Forked([command], environ, directory, self.output, program=program)
            return
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, command],
                cwd=directory,
                env=environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """-9: no handler runs, nothing is finished."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """Stop as a platform does; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)

    @property
    def text(self) -> str:
        return self.output.read_text()


Running: TypeAlias = subprocess.Popen[bytes] | Forked


class Deployment:
    """Web and worker on real PostgreSQL, Redis and SMTP, in production."""

    def __init__(
        self, directory: Path, *, database_url: str, redis_url: str, smtp_url: str, **more: str
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environ = {
            "ENVIRONMENT": "production",
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SMTP_URL": smtp_url,
            "MAIL_FROM": "Acme <hello@acme.test>",
            "BASE_URL": self.url,
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "SECRET_KEY": "a production key that only this test has",
            "DEFAULT_PLAN": "enterprise",
            **more,
        }
        self.parts: list[Part] = []
        self.program: Callable[[], int] = main

    def start(self, command: str, **more: str) -> Part:
        preloads = "LD_PRELOAD" in more  # which only a new program heeds
        environ = {**self.environ, **more}
        part = Part(command, environ, self.directory, forked=not preloads, program=self.program)
        self.parts.append(part)
        return part

    def web(self) -> Part:
        """Returns once it is ready."""
        part = self.start("web")
        until(lambda: answers(self.url + "/readyz"), "the web process is ready", part)
        return part

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts:
            if part.process.poll() is None:
                part.kill()


class Started(Deployment):
    """Each process as a platform starts it, Python and all imports included."""

    module = "app"

    def start(self, command: str, **more: str) -> Part:
        environ = {**self.environ, **more}
        part = Part(command, environ, self.directory, module=self.module)
        self.parts.append(part)
        return part


def answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=1, verify=system_trust()).status_code == 200
    except httpx2.HTTPError:
        return False


def until(
    happens: Callable[[], object],
    what: str,
    part: Part | None = None,
    seconds: float = PATIENCE_SECONDS,
    every: float = 0.02,
) -> float:
    """Wait for it; the seconds it took. A process that died meanwhile will not do it."""
    began = time.monotonic()
    while not happens():
        output = part.text[-3000:] if part else ""
        assert part is None or part.process.poll() is None, f"it died before {what}:\n{output}"
        assert time.monotonic() - began < seconds, f"not after {seconds} s: {what}\n{output}"
        time.sleep(every)
    return time.monotonic() - began


class MailServer:
    """tests/receivers.py as a process of its own: it lives through whatever befalls ours."""

    def __init__(
        self, directory: Path, script: str = "", pause: float = 0.0, hold: float = 0.0
    ) -> None:
        self.ledger = directory / "ledger.jsonl"
        options = ("--script", script, "--pause", str(pause), "--hold", str(hold))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.receivers", str(self.ledger), *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    @property
    def received(self) -> list[Received]:
        return read_ledger(self.ledger)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


async def establish(database_url: str) -> None:
    """All workspaces are a year old and their owners' addresses verified: nothing is held back of
    what they send."""
    database = Database(database_url)
    await database.connect()
    try:
        async with database.write() as db:
            await db.execute("UPDATE users SET email_verified_at = :now")
            year = await db.now() - timedelta(days=365)
            await db.execute("UPDATE workspaces SET created_at = :year", year=year)
    finally:
        await database.disconnect()


@contextmanager
def owner_of(
    deployment: Deployment, workspace: str, email: str = "olivia@acme.test", address: str = ""
) -> Iterator[httpx2.Client]:
    """Olivia registers the workspace, and makes a key for her program; the client carries it. In
    production, which asks a workspace to earn its sending, that was a year ago. `address`: hers,
    where the deployment is behind a proxy: few may register from one."""
    with httpx2.Client(base_url=deployment.url, timeout=10, verify=system_trust()) as client:
        if address:
            client.headers["X-Forwarded-For"] = address
        registered = made(
            client,
            "/auth/register",
            {
                "email": email,
                "password": "correct horse battery",
                "name": "Olivia",
                "workspaceName": workspace,
            },
        )
        client.headers["Authorization"] = f"Bearer {registered['accessToken']}"
        if deployment.environ["ENVIRONMENT"] == "production":
            asyncio.run(establish(deployment.environ["DATABASE_URL"]))
        key = made(client, "/settings/api-keys", {"name": "program", "role": "owner"})["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


def made(client: httpx2.Client, url: str, body: Any) -> dict[str, Any]:
    """Make something by a POST that must succeed."""
    response = client.post(url, json=body)
    assert response.status_code in (200, 201, 202), f"{url}: {response.text}"
    answer: dict[str, Any] = response.json()
    return answer
