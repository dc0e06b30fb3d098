"""A time of day that is none is refused by one sentence, wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cast import Cast

NINE = "9 o'clock"
AT_NINE = {"type": "wait", "time": NINE}
ON_A_DATE = {"source": "date", "field": "metadata.renewsAt", "time": NINE}


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        (
            "PATCH",
            "/settings/workspace",
            {"quietHours": {"from": NINE, "to": "08:00"}},
            "/quietHours/from",
        ),
        (
            "POST",
            "/broadcasts",
            {"name": "N", "tag": "vip", "templateId": "tpl_0", "localTime": NINE},
            "/localTime",
        ),
        ("POST", "/workflows", {"name": "N", "trigger": ON_A_DATE}, "/trigger/time"),
        (
            "POST",
            "/workflows",
            {"name": "N", "state": "ACTIVE", "steps": [AT_NINE]},
            "/steps/0/time",
        ),
    ],
)
async def test_a_time_of_day_is_refused_by_the_same_sentence(
    cast: Cast, method: str, path: str, body: dict[str, Any], pointer: str
) -> None:
    answer = await cast.adam.call(method, path, json=body)
    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert error == {
        "pointer": pointer,
        "message": "Must be a time of day, such as 09:00 or 17:30.",
    }
