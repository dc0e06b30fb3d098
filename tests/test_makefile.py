"""Makefile: what an old make or Python gets to read; which tests run by themselves."""

from __future__ import annotations

import ast
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


# What starts a process of the service that stays or a server of its own, or stops one for a while.
STARTS = {"Part", "Deployment", "Forked", "PostgresServer", "Citus", "freeze"}
LENT = {"own_server", "fast_servers"}  # fixtures whose server is killed
Function = ast.FunctionDef | ast.AsyncFunctionDef


def used(function: Function) -> set[str]:
    """The fixtures that it takes, and the names of what it calls."""
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = {
        one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in called
    }
    return names | {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def unmarked(tree: ast.Module) -> list[str]:
    """The tests that start something, by themselves or by a function beside them, and are no
    drills."""
    functions = {one.name: used(one) for one in tree.body if isinstance(one, Function)}
    starting: set[str] = set()
    for _ in functions:  # the last may be the first that is known to
        known = STARTS | LENT | starting
        starting |= {name for name, names in functions.items() if names & known}
    whole = [ast.unparse(one) for one in tree.body if isinstance(one, ast.Assign)]
    if any(one.startswith("pytestmark") and "mark.drill" in one for one in whole):
        return []
    tests = [one for one in tree.body if isinstance(one, Function) and one.name in starting]
    return [
        one.name
        for one in tests
        if one.name.startswith("test_")
        and "pytest.mark.drill" not in map(ast.unparse, one.decorator_list)
    ]


def test_what_starts_processes_that_stay_is_a_drill() -> None:
    """And runs beside no other test than another drill."""
    found: list[str] = []
    beginning = re.compile(rf"\b(?:{'|'.join(STARTS | LENT)})\b")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if path.relative_to(ROOT / "tests").parts[0] not in ELSEWHERE and beginning.search(text):
            found += [f"{path.relative_to(ROOT)} {name}" for name in unmarked(ast.parse(text))]
    assert found == []


STARTING = """
{}
@pytest.fixture
def cluster(): return servers.Citus()
def begun(cluster): return cluster
{}
def test_it(begun): pass
def test_its_helper(): Deployment("here")
def test_nothing(postgres_server: servers.PostgresServer): pass
"""


@pytest.mark.parametrize(
    ("of_file", "of_test", "found"),
    [
        ("", "", ["test_it", "test_its_helper"]),
        ("", "@pytest.mark.drill", ["test_its_helper"]),
        ("pytestmark = [pytest.mark.drill]", "", []),
    ],
)
def test_a_test_without_the_mark_is_found_beside_one_that_has_it(
    of_file: str, of_test: str, found: list[str]
) -> None:
    assert unmarked(ast.parse(STARTING.format(of_file, of_test))) == found


def test_make_gives_no_test_a_second_chance() -> None:
    assert not re.search(r"last-failed|--lf\b|reruns", (ROOT / "Makefile").read_text())
