"""The laboratory's README lists its targets and its decisions."""

from __future__ import annotations

import re
from pathlib import Path

from lab import house

ROOT = Path(__file__).parents[2]
LAB = ROOT / "lab"
README = (LAB / "README.md").read_text()


def test_the_readme_lists_every_target_and_every_decision_once() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (LAB / "Makefile").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`make -C lab ([a-z-]+)`", README)) == sorted({*targets} - {"help"})
    there = {path.name for path in (LAB / "decisions").glob("*.md")}
    assert sorted(re.findall(r"\]\(decisions/(\S+)\)", README)) == sorted(there)


def test_the_figures_of_the_house_hold() -> None:
    """The identifiers and the row["…"] are in tests/test_house.py."""
    figures = dict(house.figures_of_code(ROOT))
    assert figures["imports that point up"] == 0
    for figure, most in {"rooms": 26, "of these called once": 400}.items():
        found = figures[figure]
        assert isinstance(found, int)
        assert found <= most, figure
