"""What an old make or Python is told; what `make again` runs a second time, and what not."""

from __future__ import annotations

import re
import subprocess
import sys
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


OLD_PYTHON = f"""#!/bin/sh
exec {sys.executable} -c '
import sys
sys.version_info, sys.version = (3, 9, 6), "3.9.6 (of a Mac)"
exec(sys.argv[1])
' "$2"
"""


def test_who_has_an_old_python_is_told_how_to_name_another(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(OLD_PYTHON)
    old.chmod(0o755)
    command = ["make", "run", f"PYTHON={old}", f"RUNTIME={tmp_path}/runtime"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    sentence = (
        "Tidings needs Python 3.11 or newer; this is 3.9.6. Name another: make PYTHON=python3.12"
    )
    assert (ran.returncode, sentence in ran.stderr) == (2, True), ran.stderr


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
