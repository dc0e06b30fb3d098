"""What an old make reads too; what `make again` runs a second time, and does not forgive."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTEST = """#!/bin/sh
case "$*" in
*--collect-only*) printf '{collected}\\n' ;;
*) echo "ran again" ;;
esac
"""


@pytest.mark.parametrize("makefile", ["Makefile", "lab/Makefile"])
def test_no_function_of_make_holds_a_number_sign(makefile: str) -> None:
    """Before 4.3 make takes it for a comment, also there, and stops; macOS has 3.81."""
    for line in (ROOT / makefile).read_text().splitlines():
        read, shorter = "", line
        while read != shorter:  # from the inside out
            read, shorter = shorter, re.sub(r"\([^()#]*\)", "", shorter)
        assert line.startswith("\t") or not re.search(r"\$\([^()]*#", read), line


@pytest.mark.parametrize(
    ("collected", "passes"),
    [
        ("tests/intake/test_webhooks.py: 1", True),
        ("tests/intake/test_webhooks.py: 1\\ntests/test_runner.py: 2", True),
        ("tests/intake/test_webhooks.py: 4", False),
        ("", False),
        ("tests/lab/chaos/test_campaign.py: 1", False),
        ("tests/intake/test_webhooks.py: 1\\ntests/lab/chaos/test_campaign.py: 1", False),
    ],
)
def test_few_failures_are_run_again_but_none_of_the_chaos_harness(
    collected: str, passes: bool, tmp_path: Path
) -> None:
    stub = tmp_path / "pytest"
    stub.write_text(PYTEST.format(collected=collected))
    stub.chmod(0o755)
    command = ["make", "-o", ".venv/.installed", "again", f"BIN={tmp_path}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode == 0) == passes, ran.stdout + ran.stderr
    assert ("ran again" in ran.stdout) == passes, ran.stdout
