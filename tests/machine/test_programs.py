"""A graph and a step array are two spellings of the same Program."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.machine import check, document
from app.machine.nodes import NODES
from tests.present import present

PAIRS = sorted(Path(__file__).with_name("programs").glob("*.graph.json"))


def compiled(path: Path) -> check.Compiled:
    shape: check.Shape = "graph" if ".graph." in path.name else "steps"
    return check.compile(shape, document.parse(path.read_bytes()))


def twin(path: Path) -> Path:
    return path.with_name(path.name.replace(".graph.", ".steps."))


@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.name.partition(".")[0])
def test_both_shapes_are_the_same_program(path: Path) -> None:
    graph, steps = compiled(path), compiled(twin(path))
    assert [finding for finding in graph.findings if finding.severity == "error"] == []
    assert graph.program is not None
    assert graph.program == steps.program
    assert [finding.code for finding in graph.findings] == [
        finding.code for finding in steps.findings
    ]


def test_no_array_is_without_its_graph() -> None:
    arrays = set(Path(__file__).with_name("programs").glob("*.steps.json"))
    assert arrays == {twin(path) for path in PAIRS}


def test_the_pairs_use_every_kind_and_differ_from_each_other() -> None:
    programs = [present(compiled(path).program) for path in PAIRS]
    kinds = {node.kind for program in programs for node in program.nodes.values()}
    assert kinds == set(NODES)
    same = [(one, two) for one in programs for two in programs if one == two and one is not two]
    assert all(one.entry is None for one, _ in same)  # nothing at all can be drawn in two ways
