"""The mutants themselves are run by `make chaos-mutants`; here they are kept fit to be run."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from tests.chaos.mutants import MUTANTS, ROOT, applied


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_still_applies_and_is_python(name: str, tmp_path: Path):
    mutant = MUTANTS[name]
    (tmp_path / mutant.path).parent.mkdir(parents=True)
    shutil.copy(ROOT / mutant.path, tmp_path / mutant.path)
    applied(mutant, tmp_path)
    ast.parse((tmp_path / mutant.path).read_text())
