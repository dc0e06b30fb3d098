"""A run of tests in which one never ends, by a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import asyncio
import pytest
from tests.conftest import *  # its hooks

@pytest.fixture(scope="session", autouse=True)
async def shared(worker_id):
    yield
    if worker_id == "gw0":
        await asyncio.Event().wait()
"""
SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = session
asyncio_default_test_loop_scope = session
timeout = 7
filterwarnings = error
timeout_method = thread
"""


LEFT_OPEN = """
import asyncio
import gc
kept = []

async def test_that_closes_nothing():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    kept.append(await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname()))
    gc.freeze()
"""

pytestmark = [pytest.mark.drill, pytest.mark.timeout(150)]  # each imports the whole service


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (directory / "pytest.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "pytest", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *options, str(directory)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_run_ends_after_a_test_process_that_did_not_end_and_says_what_it_waited_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(
            "async def test_first(): ...\ndef test_last(): ...\n"
        )
    ran = run(tmp_path, "-n", "2", "--dist", "loadfile")
    assert "1 failed, 8 passed" in ran.stdout, ran.stdout
    assert "await asyncio.Event().wait()" in ran.stderr, ran.stderr
    assert ran.returncode == 1


def test_a_run_ends_though_two_of_its_processes_die_at_once(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")
    hangs = "import asyncio\nasync def test_first(): await asyncio.Event().wait()\n"
    for name in "abcdefgh":
        first = hangs if name in "ab" else "def test_first(): ...\n"
        (tmp_path / f"test_{name}.py").write_text(f"{first}def test_last(): ...\n")
    ran = run(tmp_path, "-n", "2", "--dist", "loadfile")
    assert "2 failed, 14 passed" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 1


def test_a_run_ends_though_a_test_has_left_a_connection_open(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *")
    (tmp_path / "test_left_open.py").write_text(LEFT_OPEN)
    ran = run(tmp_path)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stderr
