"""Every code has its sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.machine.reasons import SENTENCES, Reason, page


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_one_sentence(reason: Reason) -> None:
    sentence = SENTENCES[reason]
    assert sentence.endswith(".")
    assert ". " not in sentence


@pytest.mark.parametrize("reason", Reason)
def test_a_code_is_its_name_in_lower_case(reason: Reason) -> None:
    assert reason.value == reason.name.lower()


def test_the_page_of_reasons_is_up_to_date() -> None:
    written = Path(__file__).parents[2] / "docs/reasons.md"
    assert written.read_text() == page(), "python -m app reasons > docs/reasons.md"
