"""What an old make or Python is told; which tests run by themselves, and that none runs twice."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ELSEWHERE = {"browser", "clients"}


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


# A process of the service that stays once it has been started, a server that is killed.
STARTS = re.compile(r"\b(?:Part|Deployment|Forked)\(|\b(?:fast_servers|own_server)\b")


def test_what_starts_processes_that_stay_is_a_drill() -> None:
    """And runs beside no other test than another drill."""
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path.parent.name not in ELSEWHERE and STARTS.search(path.read_text())
    ]
    assert len(found) > 10
    assert [name for name in found if "mark.drill" not in (ROOT / name).read_text()] == []


def test_no_test_has_a_second_chance() -> None:
    for name in ("Makefile", ".ci/run"):
        assert not re.search(r"last-failed|--lf\b|reruns", (ROOT / name).read_text())
