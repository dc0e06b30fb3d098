"""The table of environment variables."""

from __future__ import annotations

import pytest

from app.config.variables import VARIABLES, Variable


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_every_variable_explains_itself(variable: Variable) -> None:
    assert variable.help.endswith(".")
    assert variable.default_in_words or isinstance(variable.default, str)
