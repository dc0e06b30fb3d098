"""Every code has its sentence."""

from __future__ import annotations

import pytest

from app.machine.reasons import SENTENCES, Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_one_sentence(reason):
    sentence = SENTENCES[reason]
    assert sentence.endswith(".")
    assert ". " not in sentence


@pytest.mark.parametrize("reason", Reason)
def test_a_code_is_its_name_in_lower_case(reason):
    assert reason.value == reason.name.lower()
