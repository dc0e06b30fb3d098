"""The label of each port: a branch's condition, an event, a share, a time."""

from __future__ import annotations

from collections.abc import Mapping

from app.machine import compare, document
from app.machine.nodes import NODES
from app.machine.program import Json

SIGNS: Mapping[str, str] = {"eq": "=", "ne": "≠", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤"}
LONGEST, MOST = 60, 20  # of a value, and of a list; there is no room for more
JOINED: Mapping[str, str] = {"all": "and", "any": "or"}


def labels(kind: str, config: Json) -> dict[str, str]:
    """Write the labels of a node's ports, by port; of any configuration, valid or not."""
    if kind not in NODES or not isinstance(config, Mapping):
        return {}
    labels_by_port: dict[str, str] = {}
    after = config.get("after") or config.get("timeout")
    if isinstance(after, str):
        labels_by_port["timeout"] = after
    fork = NODES[kind].fork or ""
    items = config.get(fork)
    for number, item in enumerate(items if isinstance(items, list) else (), start=1):
        if isinstance(item, Mapping):
            port = item.get("port") or f"{fork.removesuffix('s')}{number}"
            labels_by_port[str(port)] = _label(item, items)
    return labels_by_port


def _label(item: Mapping[str, Json], items: Json) -> str:
    if "weight" in item:
        given = [one.get("weight") for one in items if isinstance(one, Mapping)]
        weights = [compare.number(weight) or 0 for weight in given]
        mine = compare.number(item["weight"])
        if mine is None or not all(0 <= one < 10**9 for one in weights) or not sum(weights):
            return ""
        return f"{round(100 * float(mine / sum(weights)), 1):g} %"
    event, match = item.get("event"), _condition(item.get("match"))
    if not isinstance(event, str) or not event:
        return _condition(item.get("when"))
    return f"{event}, {match}" if match else event


def _condition(raw: Json) -> str:
    """The first comparison, and how many there are beside it."""
    match raw:
        case {"not": inner}:
            return f"not {_condition(inner)}"
        case {"all": list(parts)} | {"any": list(parts)} if parts:
            join = JOINED["all" if "all" in raw else "any"]
            return _condition(parts[0]) + (f" {join} {len(parts) - 1} more" if parts[1:] else "")
        case {"path": str(path), "op": str(op)}:
            name = path.rpartition(".")[2]  # the box has the whole of it
            return (
                f"{name} {SIGNS.get(op, op.replace('_', ' '))} {_value(raw.get('value'))}".rstrip()
            )
        case _:
            return ""


def _value(raw: Json) -> str:
    if raw is None:
        return ""
    if isinstance(raw, list):
        return ", ".join(_value(one) for one in raw[:MOST])
    return document.text(raw)[:LONGEST]
