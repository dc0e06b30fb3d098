"""The table of environment variables."""

from __future__ import annotations

from collections import Counter

import pytest

from app.config.variables import VARIABLES, Variable
from app.providers import PROVIDERS


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_every_variable_explains_itself(variable: Variable) -> None:
    assert variable.help.endswith(".")
    assert variable.default_in_words or isinstance(variable.default, str)


def test_each_provider_s_setting_says_by_which_channel_it_sends() -> None:
    """For of two that are set for one channel both are refused."""
    sent = Counter(variable.sends for variable in VARIABLES if variable.sends is not None)
    assert sent == Counter(channel for kind in PROVIDERS.values() for channel in kind.channels)
