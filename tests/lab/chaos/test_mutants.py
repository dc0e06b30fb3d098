"""The mutants themselves are run by `make -C lab chaos-mutants`; here they are kept fit to be
run."""

from __future__ import annotations

import ast
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from lab.chaos import mutants
from lab.chaos.mutants import CONTROL, DID_NOT_END, MUTANTS, ROOT, applied, asked, findings, path_of

# Like a campaign that hangs: it heeds no interrupt, and its server has a session of its own.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"],
                          start_new_session=True)
open("pid", "w").write(str(server.pid))
time.sleep(300)
"""


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_still_applies_and_is_python(name: str, tmp_path: Path) -> None:
    mutant = MUTANTS[name]
    paths = [path_of(name) for name in (mutant.function, *(also[0] for also in mutant.also))]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    applied(mutant, tmp_path)
    for path in paths:
        ast.parse((tmp_path / path).read_text())


@pytest.mark.drill
def test_a_run_that_does_not_end_is_killed_with_its_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutants, "RUN_SECONDS", 8)  # to start in
    monkeypatch.setattr(mutants, "PUT_AWAY_SECONDS", 0.5)
    assert findings(tmp_path, ["-c", STUBBORN]) == [DID_NOT_END]
    server = int((tmp_path / "pid").read_text())
    command = ["ps", "-o", "state=", "-p", str(server)]
    deadline = time.monotonic() + 10
    state = "R"
    while (
        state not in {"", "Z"} and time.monotonic() < deadline
    ):  # it is killed, and takes a moment
        state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    assert state in {"", "Z"}  # a zombie, where nobody reaps what has lost its parent


def test_without_a_name_all_are_run() -> None:
    assert list(asked([])) == [CONTROL, *MUTANTS]
    assert list(asked(["m3"])) == ["m3"]
    with pytest.raises(SystemExit):
        asked(["m99"])


def test_a_run_that_ends_is_read(tmp_path: Path) -> None:
    assert findings(tmp_path, ["-c", "pass"]) is None
    detail = "print('should not be 1'); print('  a loss'); exit(1)"
    assert findings(tmp_path, ["-c", detail]) == ["a loss"]
    crashed = "print('  1. a fault: 0.1 s'); raise KeyError('runs')"
    assert findings(tmp_path, ["-c", crashed]) == ["KeyError: 'runs'"]
