"""The plans as data, the least first: what each costs, how much it allows, what it includes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CURRENCY = "USD"
AUDIT_LOGS = "audit_logs"


@dataclass(frozen=True, slots=True)
class Plan:
    """`price` is that of a month, in minor units. A limit that is None is none."""

    name: str
    price: int
    contacts: int | None
    messages_per_month: int | None
    members: int | None
    features: tuple[str, ...] = ()


PLANS: Mapping[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan("starter", 0, 100_000, 100_000, 10),
        Plan("growth", 4_900, 1_000_000, 1_000_000, 50, (AUDIT_LOGS,)),
        Plan("scale", 19_900, 10_000_000, 10_000_000, 250, (AUDIT_LOGS,)),
        Plan("enterprise", 99_900, None, None, None, (AUDIT_LOGS,)),
    )
}
NAMES = tuple(PLANS)
FREE = NAMES[0]


def rank(name: str) -> int:
    return NAMES.index(name)


def higher(one: str, other: str) -> str:
    """The higher of the plan that a workspace pays for and the one that the operator gives to
    all."""
    return max(one, other, key=rank)


def least_with(feature: str) -> str:
    return next(name for name, plan in PLANS.items() if feature in plan.features)
