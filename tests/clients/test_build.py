"""The clients as they are published: each compiles README's tour and takes it on a real server.

`make clients` builds them; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from app.machine import check, description, document
from app.machine.schema import written
from tests.deployment import Part, until
from tests.machine import samples
from tests.machine.test_description import BODIES, QUICK, refused
from tests.servers import free_port

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
DIST = ROOT / "clients/dist"
MODULES = ROOT / "clients/typescript/node_modules"
PACKAGES = sorted(DIST.glob("tidings*.*"))
NODE = shutil.which("node")
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.json"))

pytestmark = [
    pytest.mark.skipif(
        (len(PACKAGES) < 2 or NODE is None) and os.environ.get("REQUIRE_CLIENTS") != "1",
        reason="make clients builds them first",
    ),
    pytest.mark.timeout(180),
]
TRACE = [
    "branch case1 pro",
    "add_tag COMPLETED",
    "send_message SENT SENT",
    "404 not_found",
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """`python -m app run`: where it answers, and a key."""
    place = tmp_path_factory.mktemp("service")
    port = free_port()
    environ = {"PORT": str(port), "DATABASE_URL": f"sqlite:///{place}/tidings.db"}
    part = Part("run", environ, place, forked=True)
    try:
        until(lambda: "Stop with Ctrl-C" in part.text, "it says how to try it", part)
        [key, *_] = re.findall(r"td_test_\w+", part.text)
        yield f"http://127.0.0.1:{port}", key
    finally:
        part.kill()


def ran(*words: Any, place: Path, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        cwd=place,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- Python ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the wheel, installed, and the tour."""
    place = tmp_path_factory.mktemp("python")
    [wheel] = DIST.glob("*.whl")
    install = ("uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--target", place)
    tools = Path(sys.executable).parent
    installed = ran(tools / install[0], *install[1:], wheel, place=place)
    assert installed.returncode == 0, installed.stderr
    shutil.copy(HERE / "tour.py", place)
    return place


def test_the_tour_in_python_is_typed(python: Path):
    text = (python / "tour.py").read_text()
    (python / "misspelt.py").write_text(text.replace("receipt.run_id", "receipt.runid"))
    how = ("--strict", "--warn-unreachable", "--follow-imports=silent")
    checked = ran(sys.executable, "-m", "mypy", *how, "tour.py", "misspelt.py", place=python)
    *errors, _ = checked.stdout.splitlines()
    assert {error.partition(":")[0] for error in errors} == {"misspelt.py"}, checked.stdout
    assert '"Accepted" has no attribute "runid"' in errors[0]


def test_the_tour_in_python_ends_with_the_trace_of_the_run(python: Path, service: tuple[str, str]):
    toured = ran(sys.executable, "tour.py", *service, place=python)
    assert (toured.returncode, toured.stdout.splitlines()) == (0, TRACE), toured.stderr


# --- TypeScript -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def typescript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the package, installed, and the tour."""
    place = tmp_path_factory.mktemp("typescript")
    client = place / "node_modules/@tidings/client"
    client.mkdir(parents=True)
    [packed] = DIST.glob("*.tgz")
    with tarfile.open(packed) as files:
        files.extractall(place, filter="data")
    (place / "package").rename(client)
    for name in ("openapi-fetch", "openapi-typescript-helpers"):
        (place / "node_modules" / name).symlink_to(MODULES / name)
    (place / "package.json").write_text('{"type": "module"}')
    shutil.copy(HERE / "tour.ts", place)
    return place


MISSPELT = {
    "a member of a step": ("templateId: template.id", "templateld: template.id"),
    "a member of an inner step": ("type: 'add_tag', tag:", "type: 'add_tag', tags:"),
    "a type": ("type: 'send_message'", "type: 'send_mesage'"),
    "an operator": ("op: 'eq'", "op: 'equals'"),
    "a member of a trigger": ("contactPath:", "contactpath:"),
    "a member of an output": ("step.output?.status", "step.output?.state"),
}


@pytest.fixture(scope="module")
def errors(typescript: Path) -> dict[str, list[str]]:
    """Of the compiler, by the file: the tour, and one misspelt in each way."""
    text, files = (HERE / "tour.ts").read_text(), {"the tour": "tour.ts"}
    for what, (right, wrong) in MISSPELT.items():
        assert text.count(right) == 1
        files[what] = f"{what.replace(' ', '_')}.ts"
        (typescript / files[what]).write_text(text.replace(right, wrong))
    options = "--strict --noUncheckedIndexedAccess --target ES2022 --lib ES2022,DOM,DOM.Iterable"
    how = [*options.split(), "--module", "NodeNext", *files.values()]
    checked = ran(NODE, MODULES / "typescript/bin/tsc", *how, place=typescript)
    lines = checked.stdout.splitlines()
    return {what: [line for line in lines if line.startswith(f)] for what, f in files.items()}


def test_the_tour_in_typescript_compiles(errors: dict[str, list[str]]):
    assert errors["the tour"] == []


@pytest.mark.parametrize("what", MISSPELT)
def test_what_is_misspelt_in_typescript_does_not_compile(errors: dict[str, list[str]], what: str):
    text = (HERE / "tour.ts").read_text()
    at = text[: text.index(MISSPELT[what][0])].count("\n") + 1
    assert errors[what]
    line = int(re.findall(r"\((\d+),", errors[what][0])[0])
    assert abs(line - at) <= 8, errors[what]


@pytest.mark.usefixtures("errors")  # which has compiled it
def test_the_tour_in_typescript_ends_with_the_trace_of_the_run(
    typescript: Path, service: tuple[str, str]
):
    toured = ran(NODE, "tour.js", *service, place=typescript)
    assert (toured.returncode, toured.stdout.splitlines()) == (0, TRACE), toured.stderr


# --- what a schema says, by ajv -------------------------------------------------------------------


def schema(shape: check.Shape, *, active: bool) -> Any:
    place = "#/$defs/"
    body = written(BODIES[shape], place, active=active)
    return {**body, "$defs": description.components(place, active=active)}


def drawn() -> list[tuple[check.Shape, Any]]:
    """500 definitions, half of them one mutation away from being right; and the examples."""
    found: list[tuple[check.Shape, Any]] = []

    @settings(QUICK, max_examples=250)
    @given(samples.mutated(samples.arrays), samples.mutated(samples.graphs()))
    def collect(steps: Any, graph: Any) -> None:
        for shape, body in (("steps", steps), ("graph", graph)):
            found.append((shape, document.parse(document.dumps(body))))  # type: ignore[arg-type]

    collect()
    for path in EXAMPLES:
        definition = document.parse(path.read_bytes())["definition"]
        shape: check.Shape = "graph" if "graph" in definition else "steps"
        found.append((shape, definition[shape]))
    return found


def test_the_reader_and_ajv_differ_only_by_the_codes_of_the_printed_list(tmp_path: Path):
    bodies = drawn()
    assert len(bodies) >= 500
    drafts = (False, True)
    asked = {
        "schemas": {
            f"{shape} {active}": schema(shape, active=active)
            for shape in BODIES
            for active in drafts
        },
        "bodies": [[f"{shape} {active}", body] for shape, body in bodies for active in drafts],
    }
    judged = ran(NODE, HERE / "valid.mjs", MODULES, place=tmp_path, given=json.dumps(asked))
    assert judged.returncode == 0, judged.stderr
    verdicts = iter(json.loads(judged.stdout))
    taken = 0
    for shape, body in bodies:
        found = check.compile(shape, body).findings
        for active in drafts:
            codes, is_valid = refused(found, active=active), next(verdicts)
            assert codes or is_valid, (active, body)
            assert not is_valid or codes <= description.BEYOND, (active, body, found)
            taken += active and not codes
    assert 0.3 < taken / len(bodies) < 0.8
