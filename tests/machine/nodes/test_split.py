"""split: by weight over many contacts, and the same way for one of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.machine.visits import FACTS, enter, findings
from tests.present import present


def ports(variants: list[dict[str, object]], definition: str = "wfl_1") -> list[str]:
    return [
        present(
            enter(
                "split",
                {"variants": variants},
                contact={"id": f"con_{n}"},
                run={"definitionId": definition},
            ).port
        )
        for n in range(2_000)
    ]


def test_a_contact_goes_the_same_way_every_time() -> None:
    outcome = enter("split", {"variants": [{"weight": 1}, {"weight": 1}]})
    assert outcome.output == {"variant": outcome.port}
    again = enter("split", {"variants": [{"weight": 1}, {"weight": 1}]}, now=None, trigger={})
    assert again == outcome


def test_each_variant_has_its_share() -> None:
    counts = Counter(ports([{"weight": 70}, {"weight": 0}, {"weight": 29.5}, {"weight": 0.5}]))
    assert counts["variant2"] == 0
    assert 1_300 < counts["variant1"] < 1_500
    assert 500 < counts["variant3"] < 680
    assert counts.total() == 2_000


def test_splits_are_independent_of_each_other() -> None:
    half = [{"weight": 1, "port": "a"}, {"weight": 1, "port": "b"}]
    both = Counter(zip(ports(half), ports(half, "wfl_2"), strict=True))
    assert min(both.values()) > 400  # of about 500 each


def test_a_share_that_grows_keeps_those_it_had() -> None:
    small = ports([{"weight": 10, "port": "new"}, {"weight": 90, "port": "old"}])
    large = ports([{"weight": 30, "port": "new"}, {"weight": 70, "port": "old"}])
    assert all(
        after == "new" for before, after in zip(small, large, strict=True) if before == "new"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, [("missing", "/variants", False)]),
        ({"variants": []}, [("missing", "/variants", False)]),
        ({"variants": [{}]}, [("missing", "/variants/0/weight", False)]),
        ({"variants": [{"weight": "50"}]}, [("wrong_type", "/variants/0/weight", True)]),
        ({"variants": [{"weight": True}]}, [("wrong_type", "/variants/0/weight", True)]),
        ({"variants": [{"weight": -1}]}, [("out_of_range", "/variants/0/weight", False)]),
        ({"variants": [{"weight": 10**7}]}, [("out_of_range", "/variants/0/weight", False)]),
        ({"variants": [{"weight": 1e-9}]}, [("out_of_range", "/variants/0/weight", False)]),
        ({"variants": [{"weight": 0}]}, [("out_of_range", "/variants", False)]),
    ],
)
def test_what_it_may_say(data: dict[str, Any], expected: list[Any]) -> None:
    assert findings("split", data) == expected
    assert FACTS["contact"]["id"] == "con_1"
