"""Print the figures of the house: size, rooms, imports that point up, words, walks, decisions.

python -m lab.house [directory]: of this tree, or of another checkout.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

BANNED = {"told", "said", "heard", "surely", "whoever"}
BEHIND_A_NAME = "and|as|else|for|if|in|is|not|or"  # words of Python
SPOKEN = {"hear", "heard", "hears", "heed", "said", "say", "says", "tell", "tells", "told"}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def trees(root: Path, *tops: str, holding: str = "") -> dict[str, ast.Module]:
    """Module → syntax tree, of those whose text holds this pattern."""
    found = {}
    for path in sorted(path for top in tops for path in (root / top).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text()
        if re.search(holding, text):
            found[name] = ast.parse(text)
    return found


def imported(name: str, nodes: Iterable[ast.AST], known: Container[str]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module or name


def layers(root: Path) -> list[list[str]]:
    """The layers of the first contract, top to bottom; several modules may share a line."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [re.split(r" *\| *", line) for line in contracts["contracts"][0]["layers"]]


def upward(root: Path, code: Mapping[str, Sequence[ast.AST]]) -> int:
    """Imports from a module to one whose line in the contract is above its own."""
    place = {name: n for n, line in enumerate(layers(root)) for name in line}

    def level(module: str) -> int | None:
        parts = module.split(".")
        names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((place[name] for name in names if name in place), None)

    found = 0
    for name, nodes in code.items():
        here = level(name)
        for other in imported(name, nodes, code):
            there = level(other)
            found += here is not None and there is not None and there < here
    return found


def banned(root: Path) -> list[str]:
    """Identifiers that are no plain words, by module and line. A field of the API or a column may
    have such a name; what we name ourselves may not."""
    found = []
    # As identifiers stand: most of the words are of sentences, and to parse those takes seconds.
    holding = rf"\b({'|'.join(BANNED)})\b(?=[^\S\n]*(?:[^\sa-z]|\n|\Z|(?:{BEHIND_A_NAME})\b))"
    for module, tree in trees(root, "app", "workers", "tests", "lab", holding=holding).items():
        for node in ast.walk(tree):
            names = {getattr(node, kind, None) for kind in ("name", "asname", "arg", "attr")}
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            if BANNED & names:
                found.append(f"{module}:{getattr(node, 'lineno', '')}")
    return found


def spoken(root: Path) -> list[str]:
    """Definitions whose name begins with what people do and machines do not, by module and line.
    Tests are about people too, and attacks have names that are sentences."""
    found = []
    # As definitions stand, for the same reason.
    holding = rf"(?i)\b_*({'|'.join(SPOKEN)})(_\w+)?\b(?=\s*[=(:])"
    for module, tree in trees(root, "app", "workers", "lab", holding=holding).items():
        for node in ast.walk(tree):
            if isinstance(node, ast.alias):  # the name is another's
                names = {node.asname}
            else:
                names = {getattr(node, kind, None) for kind in ("name", "arg")}
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    names.add(name)
            words = {name.strip("_").lower().partition("_")[0] for name in names if name}
            if SPOKEN & words and not isinstance(node, ast.keyword):
                found.append(f"{module}:{getattr(node, 'lineno', '')}")
    return found


def name_of(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def called_once(code: Mapping[str, Sequence[ast.AST]]) -> tuple[int, int]:
    """Private functions, and those of them that their module names once, to call them there: not
    those that it hands on, into a table or to what calls them, nor what calls its own name, as an
    overriding method calls its parent's."""
    total = once = 0
    for nodes in code.values():
        named = Counter(map(name_of, nodes))
        called = {name_of(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, FUNCTION) and re.match(r"_[a-z]", node.name):
                total += 1
                calls_itself = node.name in map(name_of, ast.walk(node))
                once += named[node.name] == 1 and node.name in called and not calls_itself
    return total, once


def is_row(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "row"
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )


class Walk(NamedTuple):
    """A walk through the code, as docs/architecture.md describes it."""

    title: str
    stated: int  # its length, as it is written there
    way: str

    @property
    def length(self) -> int:
        """Number of definitions that the walk names."""
        return self.way.count("`") // 2


def walks(root: Path) -> list[Walk]:
    """List those of docs/architecture.md; older checkouts have none."""
    pages = [page.read_text() for page in root.glob("docs/architecture.md")]
    text = "".join(pages).partition("## Walks")[2]
    found = re.findall(r"\*\*([^*]+)\*\*[^(`]*\((\d+)\): (.+?)\.\s", text, re.DOTALL)
    return [Walk(title, int(number), way) for title, number, way in found]


def figures_of_code(root: Path) -> Iterator[tuple[str, object]]:
    code = {name: [*ast.walk(tree)] for name, tree in trees(root, "app", "workers").items()}
    nodes = [node for some in code.values() for node in some]
    files = [path for top in ("app", "workers") for path in (root / top).rglob("*.py")]
    lines = layers(root)
    yield "lines of app and workers", sum(len(path.read_text().splitlines()) for path in files)
    yield "statements", sum(isinstance(node, ast.stmt) for node in nodes)
    yield "rooms", len([*(root / "app").glob("*/__init__.py")])
    yield "loose files in app", len([*(root / "app").glob("*.py")])
    yield "lines of the contract", len(lines)
    yield "names in it", sum(map(len, lines))
    yield "imports that point up", upward(root, code)
    total, once = called_once(code)
    yield "private functions", total
    yield "of these called once", once
    yield 'row["…"]', sum(map(is_row, nodes))
    yield "Any", sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)


def figures(root: Path) -> Iterator[tuple[str, object]]:
    yield from figures_of_code(root)
    for walk in walks(root):
        yield f"walk: {walk.title}", walk.length
    yield "banned identifiers", len(banned(root)) + len(spoken(root))
    yield "decisions in docs", len([*(root / "docs/decisions").glob("*.md")])
    yield "decisions in lab", len([*(root / "lab/decisions").glob("*.md")])
    yield "make targets", len(re.findall(r"^[a-z-]+:.*## ", (root / "Makefile").read_text(), re.M))


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    for name, value in figures(root.resolve()):
        print(f"{name:<35} {value:>7,}" if isinstance(value, int) else f"{name:<35} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
