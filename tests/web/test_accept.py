"""Accept: who leaves our format out is told so, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from app.web.accept import acceptable


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([], True),
        ([""], True),
        (["*/*"], True),
        (["application/json"], True),
        (["Application/JSON; charset=utf-8"], True),
        (["application/*"], True),
        (["text/html, application/xhtml+xml, */*;q=0.8"], True),
        (["text/html", "application/json"], True),
        (["application/problem+json"], True),
        (["application/json;q=0.001"], True),
        (["nonsense"], True),
        (["text/html"], False),
        (["text/*, image/png"], False),
        (["application/xml"], False),
        (["application/json;q=0"], False),
        (["application/json; q=0.000, */*"], False),  # the closest range decides
        (["application/*;q=0, */*"], False),
        (["*/*;q=0"], False),
        (["text/csv, nonsense"], False),
    ],
)
def test_json_is_wanted_unless_it_is_left_out(lines: list[Any], wanted: bool) -> None:
    headers = Headers(raw=[(b"accept", line.encode()) for line in lines])
    assert acceptable(headers, "application/json") is wanted


def test_other_formats_are_judged_alike() -> None:
    wants_csv = Headers({"accept": "text/csv, application/problem+json"})
    assert acceptable(wants_csv, "text/csv")
    assert not acceptable(wants_csv, "image/svg+xml")
