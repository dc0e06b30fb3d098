"""The examples of the documentation: each does on paper and in a real run what its file says."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.machine import document
from app.process import Process
from app.simulation import cases, traces
from app.simulation.cases import Case
from app.simulation.scenes import HttpAnswer
from tests.driving import drive, opened_on
from tests.listener import Listener, Respond, says

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
EXAMPLES = sorted(FOLDER.glob("*.json"))
README = (FOLDER / "README.md").read_text()
NAMES = [path.stem for path in EXAMPLES]


@pytest.fixture(scope="module")
async def real(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Process]:
    file = shutil.copy(sqlite_template, tmp_path_factory.mktemp("examples") / "tidings.db")
    async with opened_on(Path(file)) as process:
        yield process


def read(name: str) -> Case:
    return cases.read((FOLDER / f"{name}.json").read_bytes())


def test_there_are_twelve_and_the_readme_tells_of_each() -> None:
    assert len(EXAMPLES) == 12
    assert sorted(re.findall(r"\]\((.+)\.json\)", README)) == NAMES


def test_the_command_plays_them_all_and_none_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["app", "simulate", *map(str, EXAMPLES)])
    assert main() == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(EXAMPLES) + 1
    assert printed[-1] == "12 of 12 cases match."


def test_none_has_an_error_or_a_warning() -> None:
    assert {
        name: found for name in NAMES if (found := (read(name).expected or {})["findings"])
    } == {}


def test_templates_are_called_by_words() -> None:
    """As the first thing that a newcomer sees of them, on the boxes of the diagram."""
    files = [json.loads(path.read_text("utf-8")) for path in EXAMPLES]
    named = [one["name"] for file in files for one in file.get("templates", {}).values()]
    assert len(named) > 10
    assert [name for name in named if "{" in name] == []


@pytest.mark.parametrize("name", NAMES)
async def test_a_real_run_does_what_the_example_says(real: Process, name: str) -> None:
    case, url = read(name), ""
    async with Listener(answering(case)) as listener:
        raw = (FOLDER / f"{name}.json").read_text()
        asked = re.search(r'"url": "(https://[^/]+)', raw)
        if asked:
            url = asked[1]
            case = cases.read(raw.replace(url, listener.url).encode())
        driven = await drive(real, case)
    came: Any = {"findings": driven.findings, **traces.normal(driven.trace)}
    if url:
        came = document.parse(document.dumps(came).replace(listener.url.encode(), url.encode()))
    difference = cases.difference(read(name).expected, came)
    assert not difference, f"\n{difference}"


def answering(case: Case) -> Respond:
    """Answer as the one server does that an example asks at most."""
    [answer] = list(case.input.http_answers.values()) or [HttpAnswer(status=200)]
    assert isinstance(answer, HttpAnswer)
    return says(answer.body, f"{answer.status} Done")


def test_a_difference_is_shown_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = (FOLDER / "order-updates.json").read_bytes().replace(b"71.10", b"71.1", 1)
    file = tmp_path / "mine.json"
    file.write_bytes(changed)
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(file)])
    assert main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [
        f"{file}: differs from the expected trace:",
        "--- expected",
        "+++ result",
    ]
    differ = [line.lstrip("+- ")[:8] for line in printed if re.match(r"[+-] ", line)]
    assert differ == ['"html": ', '"html": ', '"text": ', '"text": ']
    monkeypatch.setattr(sys, "argv", ["app", "simulate", "--write", str(file)])
    assert main() == 0
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(file)])
    assert main() == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "not JSON"),
        (b'{"name": "x"}', "/definition"),
        (b'{"name": "x", "definition": {}, "input": {}}', "/startAt"),
        (b'{"name": "x", "definition": {}, "input": {"startAt": "2026-01-01T00:00:00Z"}}', "which"),
    ],
)
def test_what_is_no_case_is_refused_in_a_sentence(
    content: bytes,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(file)])
    assert main() == 1
    assert expected in capsys.readouterr().err


def test_a_file_that_cannot_be_read_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.json"
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(gone), str(EXAMPLES[0])])
    assert main() == 1
    printed = capsys.readouterr()
    assert printed.err == f"tidings: {gone}: No such file or directory.\n"
    assert printed.out.splitlines() == [
        f"{EXAMPLES[0]}: {read(NAMES[0]).name}",
        "1 of 2 cases match.",
    ]


def test_what_is_new_or_cannot_run_is_told_in_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(
        b'{"name": "x", "definition": {"steps": [{"type": "wait"}]},'
        b' "input": {"startAt": "2026-01-01T00:00:00Z", "contact": {"email": "a@b.example"}}}'
    )
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(file)])
    assert main() == 1
    printed = capsys.readouterr().out
    assert "nothing is expected yet; --write records the result" in printed
    assert "\nerror at /steps/0/duration: Say how long to wait" in printed


def test_a_file_that_was_exported_can_be_played_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.json"
    example: Any = document.parse(EXAMPLES[0].read_bytes())
    example["definition"]["trigger"]["signed"] = True
    file.write_bytes(document.dumps({**example, "key": "mine", "cases": [], "casesGate": True}))
    monkeypatch.setattr(sys, "argv", ["app", "simulate", str(file)])
    assert main() == 0
