"""The house: rooms and API each stand on one page that is printed here, and words are plain."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import app
from app import routes
from app.routes import CONSOLE_ROUTES, ROUTES, SANDBOX_ROUTES
from lab import house as figures

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
LAYERS: list[str] = CONTRACTS[0]["layers"]
LOOSE = {"__init__", "__main__", "main", "process", "errors"}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
RELATIVES = "What|Who|Whose|Whoever|Whatever|Which|Where|When|Whether|While|Why|How|However|Those"
PREPOSITIONS = (
    "About|After|Along|As|At|Before|Behind|Beside|By|For|From|In|Into|Of|On|Once|Over|Since|To"
    "|Under|Unless|Until|Up|With|Within|Without"
)
BEGINS_WRONGLY = re.compile(rf"({RELATIVES}|{PREPOSITIONS}|And|Or|But|It|They|There|This|These)\b")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

HOUSE = """Tidings: an event comes in, a run moves on, a message goes out.

The rooms, top to bottom; no import points back up. Printed from the import contract in
pyproject.toml and from the first line of each room, by tests/test_house.py.

{lines}
"""
API = """The whole API on one page, path by path: who may call it, and from which plan on.

Printed by tests/test_house.py. ROUTES is the table that serves it, in the order of its matching.

{lines}
"""


def first_line(layer: str) -> str:
    path = ROOT / layer.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n")[0]


def house() -> str:
    lines = (f"{layer.removeprefix('app.'):<12}  {first_line(layer)}" for layer in LAYERS)
    return HOUSE.format(lines="\n".join(lines))


def api() -> str:
    endpoints = [(endpoint, "") for endpoint in ROUTES]
    endpoints += [(endpoint, "sandbox only") for endpoint in SANDBOX_ROUTES]
    endpoints += [(endpoint, "unless CONSOLE=off") for endpoint in CONSOLE_ROUTES]
    endpoints.sort(key=lambda each: (each[0].path, METHODS.index(each[0].method)))
    lines = (
        f"{one.method:<6} {one.path:<50} {one.can:<22} {where or one.plan or ''}".rstrip()
        for one, where in endpoints
    )
    return API.format(lines="\n".join(lines))


def test_app_shows_its_rooms_as_the_import_contract_has_them() -> None:
    assert app.__doc__ == house(), "paste this:\n" + house()


def test_routes_shows_method_path_and_permission_of_every_endpoint() -> None:
    assert routes.__doc__ == api(), "paste this:\n" + api()


def test_every_room_is_one_layer_of_one_contract() -> None:
    rooms = {path.parent.name for path in (ROOT / "app").glob("*/__init__.py")}
    loose = {path.stem for path in (ROOT / "app").glob("*.py")}
    assert len(CONTRACTS) == 1
    assert sorted(LAYERS) == sorted({*LAYERS})
    assert not [layer for layer in LAYERS if re.search(r"[|:() ]", layer)]
    assert loose == LOOSE
    assert {f"app.{name}" for name in rooms | loose - {"__init__"}} | {"workers"} == {*LAYERS}
    assert len(rooms) <= 26


def test_identifiers_are_plain_words() -> None:
    assert figures.banned(ROOT) == []
    assert figures.spoken(ROOT) == []


@pytest.mark.parametrize(
    "line",
    [
        *("told = 1", "told: int", "for told in x: pass", "x.told()", "x.told if y else z"),
        *("import a as told", "def told(): pass", "def f(told): pass", "f(told=1)", "(x\n.told\n)"),
    ],
)
def test_an_identifier_that_is_no_plain_word_is_found(tmp_path: Path, line: str) -> None:
    """Though the modules in which sentences alone have such words are not parsed."""
    (tmp_path / "app").mkdir()
    module = tmp_path / "app/it.py"
    module.write_text(f"# Whoever is told that it was said.\n{line}\n")
    assert len(figures.banned(tmp_path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        *("def tell(): pass", "async def _hear_end(): pass", "class Says: pass", "SAID = 1"),
        *("def f(say): pass", "x.tells_all = 1", "import a as tell"),
    ],
)
def test_a_name_for_what_only_people_do_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/it.py").write_text(f"{line}\nit.tell()\nf(say=1)\n")
    assert len(figures.spoken(tmp_path)) == 1


def test_a_docstring_begins_with_a_verb_or_with_what_it_names() -> None:
    """That of a test is left out: it goes on with the sentence of the test's name."""
    found = []
    wrongly = rf'"""[\s\\]*{BEGINS_WRONGLY.pattern}'
    code = figures.trees(ROOT, "app", "workers", "lab", "tests", holding=wrongly)
    for name, tree in code.items():
        for node in ast.walk(tree):
            if not isinstance(node, DOCUMENTED) or getattr(node, "name", "").startswith("test_"):
                continue
            if BEGINS_WRONGLY.match(ast.get_docstring(node) or ""):
                found.append(f"{name}:{node.body[0].lineno}")
    assert found == []


def test_no_row_is_read_by_the_name_of_a_column() -> None:
    """Decision 0001: the type checker sees every column."""
    code = figures.trees(ROOT, "app", "workers", holding=r"\brow\b\s*\[")
    found = [name for name, tree in code.items() if any(map(figures.is_row, ast.walk(tree)))]
    assert found == []


@pytest.mark.parametrize("path", [*ROOT.glob("*/decisions/*.md")], ids=lambda path: path.name[:4])
def test_a_decision_begins_with_its_number_and_its_title_which_name_its_file(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    words = re.findall(r"[a-z0-9]+", re.sub("[',]", "", first).lower())
    assert re.match(r"# \d{4} ", first)
    assert "-".join(words) == path.stem


def test_make_shows_no_more_than_twelve_targets() -> None:
    shown = re.findall(r"^[a-z-]+:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(shown) <= 12


def test_the_walks_of_the_architecture_are_as_long_as_they_say() -> None:
    walks = figures.walks(ROOT)
    assert len(walks) == 7
    assert [walk.title for walk in walks if walk.length != walk.stated] == []


def test_on_the_way_of_a_message_each_definition_names_the_next() -> None:
    """By a call, or in a table of its module; no more than three by what no editor follows."""
    ways = [walk.way for walk in figures.walks(ROOT)[:3]]
    module, last, unnamed, jumps = "", "", [], 0
    met: set[str] = set()  # what has been named on the way: from where it goes on after a return
    for arrow, step in re.findall(r"(\S*)\s`([^`]+)`", " ".join(f"from {way}" for way in ways)):
        into = step.partition(".")[0] if "/" in step else module
        name = step.rpartition(".")[2]
        named = names_from(module, last) if last else set()
        met |= named
        jumps += arrow == "⇢"
        if (arrow == "→" and name not in named) or (arrow == "then" and name not in met):
            unnamed.append(f"{module}.{last} {arrow} {into}.{name}")
        module, last = into, name
    assert unnamed == []
    assert jumps <= 3


def test_in_the_other_walks_each_definition_is_named_by_one_before_it() -> None:
    """But where a claim leads."""
    unnamed = []
    for walk in figures.walks(ROOT)[3:]:
        module, met = "", set[str]()
        for arrow, step in re.findall(r"(\S*)\s`([^`]+)`", f"⇢ {walk.way}"):
            module = step.partition(".")[0] if "/" in step else module
            name = step.rpartition(".")[2]
            if arrow != "⇢" and name not in met:
                unnamed.append(f"{arrow} {module}.{name}")
            met |= names_from(module, name)
    assert unnamed == []


@pytest.mark.parametrize(
    ("lists", "length", "sentence"),
    [
        (2, 20, "that is twenty from the webhook"),
        (3, 31, "with the next list thirty-one until the message is SENT"),
    ],
)
def test_the_way_of_a_message_is_as_long_as_the_architecture_says(
    lists: int, length: int, sentence: str
) -> None:
    text = (ROOT / "docs/architecture.md").read_text().partition("## Walks")[2]
    module, way = "", set()
    for step in re.findall(r"`([^`]+)`", " ".join(one.way for one in figures.walks(ROOT)[:lists])):
        module = step.partition(".")[0] if "/" in step else module
        way.add((module, step.rpartition(".")[2]))
    assert len(way) == length
    assert sentence in " ".join(text.split())


def names_from(module: str, function: str) -> set[str]:
    """The names in a function's body, and in the tables of its module that it names."""
    found = {name for node in functions(module) if node.name == function for name in names_in(node)}
    tables = (node for node in tree_of(module).body if isinstance(node, ast.AnnAssign))
    return found.union(*(names_in(table) for table in tables if names_in(table.target) & found))


@cache
def tree_of(module: str) -> ast.Module:
    """Parse a module that the walks name, by the name that they have for it."""
    top = ROOT if module.startswith("workers/") else ROOT / "app"
    return ast.parse((top / f"{module}.py").read_text())


@cache
def functions(module: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    nodes = ast.walk(tree_of(module))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def names_in(tree: ast.AST) -> set[str]:
    names = (getattr(node, "attr", getattr(node, "id", None)) for node in ast.walk(tree))
    return {name for name in names if name is not None}


def test_the_walks_of_the_architecture_name_what_there_is() -> None:
    """Each name after a module, or by itself, is defined in the module that was named last."""
    text = (ROOT / "docs/architecture.md").read_text()
    text = text.partition("## Walks")[2].partition("\n## ")[0]
    module, missing = "", []
    for step in re.findall(r"`([a-z_]+/[a-z_/]+\.[\w.]+|[A-Za-z_]\w*(?:\.\w+)?)`", text):
        if "/" in step:
            module = step.partition(".")[0]
        defined = (node.name for node in functions(module))
        if step.rpartition(".")[2] not in defined:
            missing.append(f"{module}.{step}")
    assert missing == []
