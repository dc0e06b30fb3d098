"""The table and the plots of `make -C lab bench`; the benchmarks themselves take their time
elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from lab.bench import figures, scale
from lab.bench.figures import GOALS, table
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


def test_the_table_says_of_every_goal_whether_the_median_of_all_rounds_reached_it(
    ledger: Path,
) -> None:
    figures.measured("S3", [0.30, 0.39, 0.38])
    figures.measured("S3", [0.39, 0.41, 0.44])  # measured again: the newest counts
    figures.measured("S8", [0.9, 0.3, 0.31])  # the best round is above the floor
    figures.measured("S4, p50", [14.0, 15.0])
    figures.measured("S5", [1.31])
    figures.measured("S7", [0.5, 0.6, 1.2])  # once is too often
    figures.measured("CPU, run", [1.25])
    figures.measured("P4", [16.4], of=50)
    rows = table(list(figures.read(ledger)))
    assert len(rows) == 2 + len(GOALS)
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")] for row in rows}
    assert cells["S3"][3:8] == ["≥ 0.40", "≥ 0.55", "0.41", "0.39 0.41 0.44", "yes"]
    assert cells["S8"][5:8] == ["0.31", "0.90 0.30 0.31", "**no**"]
    assert cells["S4, p50"][3:8] == ["≤ 30.0 ms", "≤ 15.0 ms", "14.5 ms", "14.0 15.0", "aim"]
    assert cells["S5"][3:8] == ["≤ 1.30", "–", "1.31", "1.31", "**no**"]
    assert cells["S7"][5:8] == ["1.20 s", "0.50 0.60 1.20", "**no**"]
    assert cells["CPU, run"][3:8] == ["–", "–", "1.25 ms", "1.25", "–"]
    assert cells["P4"][5:8] == ["16.4 s", "16.4", "for 94 of 100"]
    assert cells["S6, start"][5:8] == ["–", "–", "not measured"]
    assert re.fullmatch(r"(\w{7,}\+?|none), \d{4}-\d\d-\d\d", cells["S3"][9])


@pytest.mark.parametrize(
    ("rounds", "cells"),
    [
        ([0.5, None, 0.7], ["0.60", "0.50 – 0.70", "aim"]),
        ([0.5, None], ["–", "0.50 –", "not valid"]),
        ([None], ["–", "–", "not valid"]),
    ],
)
def test_a_round_that_is_not_valid_is_marked_and_half_of_them_are_no_figure(
    ledger: Path, rounds: Sequence[float | None], cells: Sequence[str]
) -> None:
    figures.measured("S3", rounds)
    [row] = [row for row in table(list(figures.read(ledger))) if row.startswith("| S3 ")]
    assert [cell.strip() for cell in row.split("|")][5:8] == cells


@pytest.mark.parametrize("name", ["S2", "S2, two processes", "S5", "P4"])
@pytest.mark.parametrize(
    ("day", "reached"), [("", "older rule"), ("2026-11-29", "older rule"), ("2026-11-30", "yes")]
)
def test_what_was_measured_by_an_older_rule_reaches_nothing(
    name: str, day: str, reached: str
) -> None:
    goal = GOALS[name]
    line = {"figure": name, "rounds": [goal.floor], "load": 0.1, "commit": "1", "day": day}
    [row] = [row for row in table([line]) if row.startswith(f"| {name} ")]
    assert [cell.strip() for cell in row.split("|")][7] == reached


def test_an_infinite_figure_is_kept_and_is_not_reached(ledger: Path) -> None:
    figures.measured("S5", [scale.ratio(1.0, 1.1, ["Seq Scan on runs"])])
    [row] = [row for row in table(list(figures.read(ledger))) if row.startswith("| S5 ")]
    assert [cell.strip() for cell in row.split("|")][5:8] == ["inf", "inf", "**no**"]


def test_a_command_of_the_table_is_a_target_of_the_laboratory() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "lab/Makefile").read_text(), re.MULTILINE))
    assert {goal.by.split()[0] for goal in GOALS.values()} <= targets


def test_the_table_in_the_documents_is_that_of_the_figures_beside_it() -> None:
    kept = ROOT / "docs/plots"
    rows = table(list(figures.read(kept / "figures.jsonl")))
    assert (kept / "summary.md").read_text().splitlines()[2:] == rows


def test_no_figure_is_noted_that_has_no_goal(ledger: Path) -> None:
    with pytest.raises(AssertionError):
        figures.measured("S99", [1])


def test_nothing_is_written_unless_a_ledger_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BENCH_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    figures.measured("S3", [1])
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
    line = json.loads(ledger.read_text())
    assert re.fullmatch(r"(\w{7,}\+?|none)", line.pop("commit"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", line.pop("day"))
    assert line == {"plot": "intake", "of": "p50", "x": [1], "y": [2]}


def noted(kind: str, name: str, stamp: str = "") -> dict[str, Any]:
    on = dict(zip(("commit", "day"), stamp.split(), strict=True)) if stamp else {}
    if kind == "plot":
        return {"plot": name, "of": "all", "x": [1], "y": [1], **on}
    return {"figure": name, "rounds": [1.0], "load": 0.1, **on}


NEW = "22222222 2026-12-01"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        # Without a commit: measured before they were noted.
        ([noted("figure", "S5"), noted("plot", "scale")], "–"),
        ([noted("figure", "S5"), *[noted("plot", "scale")] * 2], "–; its plot is newer"),
        ([noted("figure", "S5"), noted("plot", "scale", NEW)], "–; its plot is newer"),
        ([noted("plot", "scale"), noted("figure", "S5")], "–"),
        ([noted("figure", "S5", NEW), noted("plot", "scale", NEW)], "22222222, 2026-12-01"),
        ([noted("figure", "S5", NEW), noted("plot", "backlog", NEW)], "22222222, 2026-12-01"),
        (
            [noted("figure", "S5", "11111111 2026-11-30"), noted("figure", "S7", NEW)],
            "11111111, 2026-11-30; another commit",
        ),
        (
            [noted("figure", "S5", "22222222 2026-11-30"), noted("plot", "scale", NEW)],
            "22222222, 2026-11-30; its plot is newer",
        ),
    ],
)
def test_a_figure_of_another_commit_or_older_than_its_plot_is_marked(
    lines: Sequence[dict[str, Any]], wanted: str
) -> None:
    [row] = [row for row in table(lines) if row.startswith("| S5 ")]
    assert row.split("|")[9].strip() == wanted
