"""A run of tests in which one never ends, by a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
timeout_method = thread
"""


def test_a_run_ends_after_a_test_process_that_did_not_end_and_says_what_it_waited_for(
    tmp_path: Path,
):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(
            "async def test_first(): ...\ndef test_last(): ...\n"
        )
    command = [sys.executable, "-m", "pytest", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, "-n", "2", "--dist", "loadfile", str(tmp_path)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert "1 failed, 8 passed" in ran.stdout, ran.stdout
    assert "await asyncio.Event().wait()" in ran.stderr, ran.stderr
    assert ran.returncode == 1
