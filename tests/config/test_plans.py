"""The plans: a table that rises."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from app.config import plans
from app.config.plans import PLANS, Plan


def limits(plan: Plan) -> list[float]:
    own = (plan.contacts, plan.messages_per_month, plan.members)
    return [math.inf if limit is None else limit for limit in own]


def test_whoever_pays_more_may_more() -> None:
    for lower, upper in pairwise(PLANS.values()):
        assert lower.price < upper.price
        assert all(a < b for a, b in zip(limits(lower), limits(upper), strict=True))
        assert set(lower.features) <= set(upper.features)


def test_the_free_plan_costs_nothing_and_has_no_audit_feed() -> None:
    assert PLANS[plans.FREE].price == 0
    assert plans.least_with(plans.AUDIT_LOGS) == "growth"


@pytest.mark.parametrize(
    ("one", "other", "counts"),
    [
        ("starter", "growth", "growth"),
        ("scale", "growth", "scale"),
        ("starter", "starter", "starter"),
    ],
)
def test_the_higher_of_two_counts(one: str, other: str, counts: str) -> None:
    assert plans.higher(one, other) == plans.higher(other, one) == counts
