"""split: a share of the contacts to each variant, and a contact to the same one every time."""

from __future__ import annotations

import hashlib
from fractions import Fraction

from app.machine import compare
from app.machine.fields import Field, Place, described_by
from app.machine.kind import Config, NodeKind, NodeOutcome, Visit, fork, onward
from app.machine.program import Json
from app.machine.schema import ACTIVE, Schema

HEAVIEST = 1_000_000


def split(visit: Visit) -> NodeOutcome:
    variants = visit.config["variants"]
    who = (visit.facts["run"]["definitionId"], visit.node.id, visit.facts["contact"]["id"])
    digest = hashlib.sha256("\0".join(who).encode()).digest()
    # From 0 to below 1: the contact's place on the line, another one for every split.
    point = Fraction(int.from_bytes(digest[:8]), 2**64)
    left = point * sum(_weight(variant) for variant in variants)
    for variant in variants:
        left -= _weight(variant)
        if left < 0:
            break
    return onward(port=variant["port"], output={"variant": variant["port"]})


def _weight(variant: Config) -> Fraction:
    return Fraction(compare.number(variant["weight"]) or 0)


# --- its configuration --------------------------------------------------------------------------


@described_by({"type": "number", ACTIVE: {"minimum": 0, "maximum": HEAVIEST}})
def _read_weight(value: Json, place: Place) -> Json | None:
    number = compare.number(value) if compare.is_number(value) else None
    if number is None:
        place.refuse("wrong_type", "A weight must be a number, such as 50.")
    elif not 0 <= number <= HEAVIEST or number.normalize().as_tuple().exponent < -6:  # type: ignore[operator]  # finite
        place.hold(
            "out_of_range",
            f"A weight must be from 0 to {HEAVIEST:,}, with at most six decimal places.",
        )
    else:
        return value
    return None


def _settle(config: Config, place: Place) -> Config:
    weights = [variant["weight"] for variant in config.get("variants", ()) if "weight" in variant]
    if weights and not any(weights):
        place.at("variants").hold("out_of_range", "Give at least one variant a weight above 0.")
    return config


_WEIGHT = Field(
    _read_weight,
    "Say how much goes this way.",
    "Its share, compared with those of the others; at most six decimal places.",
)
_SOME_WEIGHT: Schema = {
    "properties": {"variants": {"contains": {"properties": {"weight": {"exclusiveMinimum": 0}}}}}
}

SPLIT = NodeKind(
    split,
    "Divides contacts between variants. A contact always gets the same variant.",
    {"variants": [{"port": "a", "weight": 50}, {"port": "b", "weight": 50}]},
    fields={
        "variants": Field(
            fork("variant", {"weight": _WEIGHT}),
            "A split needs at least one variant.",
            "The variants; at least one has a weight above 0.",
        )
    },
    settle=_settle,
    ports=(),
    fork="variants",
    rules=(_SOME_WEIGHT,),
    output={"variant": {"type": "string", "description": "The port of the variant."}},
)
