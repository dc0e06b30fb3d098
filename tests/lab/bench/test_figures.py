"""The table and the plots of `make -C lab bench`; the benchmarks themselves take their time
elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.bench import figures
from lab.bench.figures import BY, GOALS, table
from tests.deployment import ROOT

SVG = "{http://www.w3.org/2000/svg}"
LINES: dict[str, list[tuple[str, Sequence[float | str], Sequence[float]]]] = {
    "intake": [("p50", [100.0, 900.0], [5.0, 30.0]), ("p99", [100.0, 900.0], [15.0, 330.0])],
    "backlog": [("runs completed", [500, 5000], [150.0, 190.0])],
    "recovery": [("runs", [0.1, 18.0], [50.0, 100.0])],
    "scale": [("1,000,000 contacts / 1,000", ["contact by id", "tags"], [1.01, 1.29])],
}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "figures.jsonl"
    monkeypatch.setenv("BENCH_LEDGER", str(path))
    return path


def test_the_table_says_of_every_goal_whether_it_was_reached(ledger: Path) -> None:
    figures.measured("S3", 0.39)
    figures.measured("S3", 0.41)  # measured again: the newest counts
    figures.measured("S5", 1.31)
    figures.measured("P4", 16.4, of=50)
    rows = table(list(figures.read(ledger)))
    assert len(rows) == 2 + len(GOALS)
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")] for row in rows}
    assert cells["S3"][3:6] == ["≥ 0.40", "0.41", "yes"]
    assert cells["S5"][3:6] == ["≤ 1.30", "1.31", "**no**"]
    assert cells["P4"][4:6] == ["16.4 s", "for 94 of 100"]
    assert cells["S8"][4:6] == ["–", "not measured"]
    assert {name[:2] for name in GOALS} == set(BY)


def test_the_table_in_the_documents_is_that_of_the_figures_beside_it() -> None:
    kept = ROOT / "docs/plots"
    rows = table(list(figures.read(kept / "figures.jsonl")))
    assert (kept / "summary.md").read_text().splitlines()[2:] == rows


def test_no_figure_is_noted_that_has_no_goal(ledger: Path) -> None:
    with pytest.raises(AssertionError):
        figures.measured("S99", 1)


def test_nothing_is_written_unless_a_ledger_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    figures.measured("S3", 1)
    assert list(tmp_path.iterdir()) == []


def test_every_curve_becomes_a_picture_without_scripts(ledger: Path, tmp_path: Path) -> None:
    for plot, lines in LINES.items():
        for of, x, y in lines:
            figures.curve(of, plot, x, y)
    drawing = [sys.executable, "-m", "lab.bench", "--redraw", "--out", str(tmp_path)]
    output = subprocess.run(drawing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    written = sorted(tmp_path.glob("*.svg"))
    assert {path.stem for path in written} == set(LINES)
    assert all(str(path) in output for path in written), output
    for path in written:
        text = path.read_text()
        svg = ElementTree.fromstring(text)
        assert svg.tag == SVG + "svg"
        assert not list(svg.iter(SVG + "script"))
        output = " ".join(element.text or "" for element in svg.iter(SVG + "text"))
        for of, x, _ in LINES[path.stem]:
            assert path.stem == "recovery" or of in text, f"{of} is not named"
            assert all(name in output for name in x if isinstance(name, str)), output


def test_a_ledger_is_lines_of_json(ledger: Path) -> None:
    figures.curve("p50", "intake", [1], [2])
    assert json.loads(ledger.read_text()) == {"plot": "intake", "of": "p50", "x": [1], "y": [2]}
