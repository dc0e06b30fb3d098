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
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from app.machine import check, description, document, triggers
from app.machine.schema import ref, written
from tests.deployment import Part, until
from tests.examples import TIMES, examples
from tests.machine import samples
from tests.machine.test_description import BODIES, refused
from tests.routes import test_definition_shapes as shapes
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
    pytest.mark.timeout(180 * TIMES),
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
        timeout=120 * TIMES,
        check=False,
    )


# --- Python ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with the tour, and an environment with the wheel and what that depends on."""
    place = tmp_path_factory.mktemp("python")
    [wheel] = DIST.glob("*.whl")
    uv, environment = Path(sys.executable).parent / "uv", place / "venv"
    made = ran(uv, "venv", "--quiet", "--python", sys.executable, environment, place=place)
    assert made.returncode == 0, made.stderr
    install = (uv, "pip", "install", "--quiet", "--python", environment)
    pinned = ("--constraint", ROOT / "requirements-dev.txt")
    installed = ran(*install, *pinned, wheel, place=place)
    if "Failed to fetch" in installed.stderr:  # no index: then with what the tests have
        [site] = environment.glob("lib/*/site-packages")
        (site / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
        installed = ran(*install, "--offline", "--no-deps", wheel, place=place)
    assert installed.returncode == 0, installed.stderr
    shutil.copy(HERE / "tour.py", place)
    return place


def test_the_tour_in_python_is_typed(python: Path) -> None:
    text = (python / "tour.py").read_text()
    (python / "misspelt.py").write_text(text.replace("receipt.run_id", "receipt.runid"))
    how = ("--strict", "--warn-unreachable", "--follow-imports=silent")
    found = ("--python-executable", python / "venv/bin/python")
    checked = ran(
        sys.executable, "-m", "mypy", *how, *found, "tour.py", "misspelt.py", place=python
    )
    *errors, _ = checked.stdout.splitlines()
    assert {error.partition(":")[0] for error in errors} == {"misspelt.py"}, checked.stdout
    assert '"Accepted" has no attribute "runid"' in errors[0]


def test_the_tour_in_python_ends_with_the_trace_of_the_run(
    python: Path, service: tuple[str, str]
) -> None:
    toured = ran(python / "venv/bin/python", "tour.py", *service, place=python)
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
    """Errors of the compiler, by the file: the tour, and one misspelt in each way."""
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


def test_the_tour_in_typescript_compiles(errors: dict[str, list[str]]) -> None:
    assert errors["the tour"] == []


@pytest.mark.parametrize("what", MISSPELT)
def test_what_is_misspelt_in_typescript_does_not_compile(
    errors: dict[str, list[str]], what: str
) -> None:
    text = (HERE / "tour.ts").read_text()
    at = text[: text.index(MISSPELT[what][0])].count("\n") + 1
    assert errors[what]
    line = int(re.findall(r"\((\d+),", errors[what][0])[0])
    assert abs(line - at) <= 8, errors[what]


@pytest.mark.usefixtures("errors")  # which has compiled it
def test_the_tour_in_typescript_ends_with_the_trace_of_the_run(
    typescript: Path, service: tuple[str, str]
) -> None:
    toured = ran(NODE, "tour.js", *service, place=typescript)
    assert (toured.returncode, toured.stdout.splitlines()) == (0, TRACE), toured.stderr


# --- what a schema says, by ajv -------------------------------------------------------------------


def schema(shape: check.Shape, *, active: bool) -> Any:
    place = "#/$defs/"
    body = written(BODIES[shape], place, active=active)
    return {**body, "$defs": description.components(place, active=active)}


def drawn() -> list[tuple[check.Shape, Any]]:
    """500 definitions (in the laboratory 10,000), half of them one mutation away from being right;
    and the examples."""
    found: list[tuple[check.Shape, Any]] = []

    @examples(250)
    @given(samples.mutated(samples.arrays), samples.mutated(samples.graphs()))
    def collect(steps: Any, graph: Any) -> None:
        found.append(("steps", document.parse(document.dumps(steps))))
        found.append(("graph", document.parse(document.dumps(graph))))

    collect()
    for path in EXAMPLES:
        definition = document.parse(path.read_bytes())["definition"]
        shape: check.Shape = "graph" if "graph" in definition else "steps"
        found.append((shape, definition[shape]))
    return found


def of_triggers() -> list[Any]:
    found: list[Any] = []

    @examples(250)
    @given(samples.mutated(samples.triggers))
    def collect(trigger: Any) -> None:
        found.append(document.parse(document.dumps(trigger)))

    collect()
    return [
        *found,
        *(document.parse(path.read_bytes())["definition"]["trigger"] for path in EXAMPLES),
    ]


def judge(place: Path, schemas: dict[str, Any], bodies: list[Any]) -> Iterator[bool]:
    """The verdicts of ajv, on each body by the schema of its name."""
    asked = json.dumps({"schemas": schemas, "bodies": bodies})
    judged = ran(NODE, HERE / "valid.mjs", MODULES, place=place, given=asked)
    assert judged.returncode == 0, judged.stderr
    yield from json.loads(judged.stdout)


DRAFTS = (False, True)


def test_the_reader_and_ajv_differ_only_by_the_codes_of_the_printed_list(tmp_path: Path) -> None:
    bodies = drawn()
    assert len(bodies) >= 500 * TIMES
    schemas = {f"{one} {active}": schema(one, active=active) for one in BODIES for active in DRAFTS}
    asked = [[f"{shape} {active}", body] for shape, body in bodies for active in DRAFTS]
    verdicts = judge(tmp_path, schemas, asked)
    taken = 0
    for shape, body in bodies:
        found = check.compile(shape, body).findings
        for active in DRAFTS:
            codes, is_valid = refused(found, active=active), next(verdicts)
            assert codes or is_valid, (active, body)
            assert not is_valid or codes <= description.BEYOND, (active, body, found)
            taken += active and not codes
    assert 0.3 < taken / len(bodies) < 0.8


def test_the_reader_of_triggers_and_ajv_differ_only_by_the_printed_list(tmp_path: Path) -> None:
    bodies, place = of_triggers(), "#/$defs/"
    schemas = {
        str(active): {
            **written(ref("WritableTrigger"), place, active=active),
            "$defs": description.components(place, active=active),
        }
        for active in DRAFTS
    }
    asked = [[str(active), body] for body in bodies for active in DRAFTS]
    verdicts = judge(tmp_path, schemas, asked)
    for body in bodies:
        for active in DRAFTS:
            codes, is_valid = shapes.refused(body, active=active), next(verdicts)
            assert codes or is_valid, (active, body)
            assert not is_valid or codes <= triggers.BEYOND, (active, body, codes)
