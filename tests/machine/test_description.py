"""The description agrees with the readers: neither refuses what the other takes, but for a list."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.machine import check, description, document, triggers
from app.machine.condition import OPS
from app.machine.fields import Place
from app.machine.nodes import NODES
from app.machine.program import Finding
from app.machine.schema import ref, written
from tests.examples import examples
from tests.machine import samples
from tests.machine.test_defects import DEFECTS

QUICK = examples(500)  # many times as many: make -C lab fuzz-definitions
ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests/machine/programs").glob("*.json"))
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.json"))
BODIES: dict[check.Shape, Any] = {"steps": description.STEPS, "graph": ref("Graph")}


@cache
def validator(shape: check.Shape, *, active: bool) -> Any:
    place = "#/$defs/"
    schema = written(BODIES[shape], place, active=active)
    named = description.components(place, active=active)
    return jsonschema_rs.Draft202012Validator({**schema, "$defs": named})


def is_valid(shape: check.Shape, body: Any, *, active: bool) -> bool:
    return bool(validator(shape, active=active).is_valid(body))


def faults(shape: check.Shape, body: Any, *, active: bool) -> list[str]:
    found = validator(shape, active=active).iter_errors(body)
    return [f"{error.instance_path}: {error.message}" for error in found]


def refused(found: Collection[Finding], *, active: bool) -> set[str]:
    """The codes for which a draft, or an active one, is refused."""
    errors = [one for one in found if one.severity == "error"]
    return {one.code for one in errors if one.draft or active}


def compare(shape: check.Shape, body: Any) -> bool:
    """Compare reader and schema; returns whether the body can be activated."""
    body = document.parse(document.dumps(body))
    found = check.compile(shape, body).findings
    plain = json.loads(document.dumps(body))
    for active in (False, True):
        codes, valid = refused(found, active=active), is_valid(shape, plain, active=active)
        if not codes:
            assert valid, (active, plain, faults(shape, plain, active=active))
        if valid:
            assert codes <= description.BEYOND, (active, plain, found)
    return not codes


SAMPLES: dict[check.Shape, st.SearchStrategy[Any]] = {
    "steps": samples.arrays,
    "graph": samples.graphs(),
}


@pytest.mark.parametrize("shape", SAMPLES)
def test_definitions_that_are_read_are_valid_and_others_refused_for_listed_reasons(
    shape: check.Shape,
) -> None:
    """About half of the samples can be activated, or the rest would be about nothing."""
    taken: list[bool] = []

    @QUICK
    @given(samples.mutated(SAMPLES[shape]))
    def look(body: Any) -> None:
        taken.append(compare(shape, body))

    look()
    assert 0.3 < sum(taken) / len(taken) < 0.8


def test_a_tag_of_no_words_is_judged_alike() -> None:
    compare("steps", [{"type": "add_tag", "tag": ""}])


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_of_the_tests_are_valid(path: Path) -> None:
    shape: check.Shape = "graph" if ".graph." in path.name else "steps"
    body = json.loads(path.read_text())
    assert faults(shape, body, active=True) == []
    compare(shape, body)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_the_documentation_are_valid(path: Path) -> None:
    definition = json.loads(path.read_text())["definition"]
    shape: check.Shape = "graph" if "graph" in definition else "steps"
    assert faults(shape, definition[shape], active=True) == []


# --- what both refuse -----------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "body", "_pointer"), DEFECTS)
def test_a_seeded_defect_is_judged_alike(code: str, body: Any, _pointer: str) -> None:
    compare("graph" if isinstance(body, dict) else "steps", body)


def test_every_code_that_a_schema_can_tell_is_refused_by_it() -> None:
    """Of each such code some seeded defect is not valid either; the others are listed."""
    met: set[str] = set()
    for code, body, _ in DEFECTS:
        shape: check.Shape = "graph" if isinstance(body, dict) else "steps"
        plain = json.loads(document.dumps(body))
        codes = refused(check.compile(shape, plain).findings, active=True)
        if codes == {code} and not is_valid(shape, plain, active=True):
            met.add(code)
    errors = {one for code, body, _ in DEFECTS for one in _errors(body)}
    assert errors - met <= description.BEYOND
    assert met >= description.STRUCTURAL
    assert errors >= description.BEYOND, "take out what no reader refuses"


def _errors(body: Any) -> set[str]:
    found = check.compile("graph" if isinstance(body, dict) else "steps", body).findings
    return refused(found, active=True)


# --- examples and rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_the_example_of_a_kind_can_be_activated(name: str) -> None:
    step = {"type": name, **NODES[name].example}
    assert refused(check.compile("steps", [step]).findings, active=True) == set()
    assert faults("steps", [step], active=True) == []
    node = {"id": "a", "type": name, "data": dict(NODES[name].example)}
    graph = {
        "nodes": [{"id": "t", "type": "trigger"}, node],
        "edges": [{"source": "t", "target": "a"}],
    }
    assert refused(check.compile("graph", graph).findings, active=True) == set()
    assert faults("graph", graph, active=True) == []


@pytest.mark.parametrize("name", NODES)
def test_a_kind_says_what_it_is_and_what_each_of_its_members_and_ports_does(name: str) -> None:
    kind = NODES[name]
    assert kind.about.endswith(".")
    assert [member for member, one in kind.fields.items() if not one.about.strip()] == []
    named = {*kind.ports, *kind.arms} - {"next"}
    assert kind.exits.keys() == named


@pytest.mark.parametrize("name", NODES)
def test_the_ports_of_a_kind_are_those_that_its_example_has(name: str) -> None:
    kind = NODES[name]
    config = kind.read(kind.example, Place("", []))
    ports = description.COMPONENTS[f"{description.title(name)}Data"]["x-ports"]
    items = [item["port"] for item in config.get(ports["each"], ())]
    there = [port for port in ports["open"] if port not in ports["given"] or port in config]
    assert (*items, *there, *ports["wired"]) == kind.all_ports(config)
    assert {*ports["ends"], *ports["about"]} <= {*ports["open"], *ports["wired"]}


def test_every_operator_says_when_it_holds() -> None:
    assert [op for op, one in OPS.items() if not one.about] == []


def test_every_member_of_a_trigger_belongs_to_a_source_or_to_all() -> None:
    own = {name for source in triggers.SOURCES.values() for name in source.members}
    assert triggers.MEMBERS.keys() == own | {"source", "reentry"}


def test_a_reader_and_its_schema_tell_a_time_of_day_alike() -> None:
    place = Place("", [])
    read = NODES["wait"].fields["time"].read
    schema = jsonschema_rs.Draft202012Validator(written(read.schema, "", active=True))
    for text in ("00:00", "09:30", "23:59", "24:00", "9:00", "09:60", "09:00 ", "", "0９:00"):
        assert schema.is_valid(text) is (read(text, place) is not None and text != "")
