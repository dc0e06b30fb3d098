"""The codes of findings, read from the code that finds."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import app

APP = Path(app.__file__).parent
MACHINE = sorted((APP / "machine").rglob("*.py"))
# What only the database can tell.
NAMES = ("case_results.py", "findings.py", "inspection.py", "starts.py")
BEYOND = [APP / "definitions" / name for name in NAMES]
FINDERS = frozenset({"Finding", "refuse", "hold", "warn", "warning"})


def written(paths: Iterable[Path]) -> set[str]:
    return {code for path in paths for code in _codes(path)}


def _codes(path: Path) -> Iterator[str]:
    for call in ast.walk(ast.parse(path.read_text())):
        if isinstance(call, ast.Call) and call.args and _name(call.func) in FINDERS:
            match call.args[0]:
                case ast.Constant(value=str(code)):
                    yield code
                case ast.Name(id="code"):  # a finder's own parameter, handed on
                    continue
                case other:
                    raise AssertionError(f"{path}:{other.lineno}: a code must be spelled out")


def _name(called: ast.expr) -> str | None:
    match called:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
