"""Definitions that nobody thought of: half of them as they should be, half one mutation away."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from app.machine.condition import OPS
from app.machine.kind import NodeKind
from app.machine.nodes import NODES
from app.machine.steps import ports_written

SID = "HX" + "0" * 32
TEXTS = ["Hello", "Hi {{contact.firstName}}", "{{trigger.a.b | default: 'x'}}", " ", "é\u2028"]
LENGTHS = ["PT1H", "P3D", "P1W2DT3H", "PT0,25S", "P1.5D", "PT0S"]
ANYTHING: list[Any] = [None, "", 0, 1, -1, 1.5, 10_001, True, [], {}, "x", "a\nb", "y" * 201]
ANYTHING += [["x"], {"x": 1}, [None], "P1M", "09:00", "mon", "email", "{{", "{{nobody.x}}"]

VALUES: dict[str, list[Any]] = {
    "eq": ["a", 1, 1.5, True, None],
    "ne": ["a", 0, False, None],
    **{op: [1, 1.10, "7", "2026-11-02T09:00:00Z"] for op in ("gt", "gte", "lt", "lte")},
    "in": [["a"], ["a", 1, None]],
    "contains": ["a", 1, True],
    **{op: ["a", ""] for op in ("starts_with", "ends_with")},
    "exists": [True, False, None],
    **{op: ["2026-11-02T09:00:00Z"] for op in ("before", "after")},
    "within_last": LENGTHS,
}
assert VALUES.keys() == OPS.keys()

comparison = st.sampled_from([(op, value) for op in OPS for value in VALUES[op]]).map(
    lambda pair: {"path": "contact.metadata.plan", "op": pair[0], "value": pair[1]}
)
condition = st.recursive(
    comparison,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"all": parts}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"any": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=3,
)
text, length = st.sampled_from(TEXTS), st.sampled_from(LENGTHS)
name = st.sampled_from(["a", "b", "c d", "trial_ended"])
port = st.fixed_dictionaries({}, optional={"port": name})


def listed(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, min_size=1, max_size=2)


def members(needed: dict[str, Any], **optional: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(needed, optional=optional)


def joined(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*parts).map(lambda found: {k: v for part in found for k, v in part.items()})


category = st.sampled_from(["transactional", "marketing"])
CONTENTS = {
    "email": members(
        {"subject": text},
        html=text,
        text=text,
        preheader=text,
        fromName=text,
        replyTo=st.sampled_from(["help@acme.example", "{{contact.email}}"]),
        category=category,
    ),
    "sms": members({"text": text}, category=category),
    "whatsapp": st.one_of(
        members({"text": text}, category=category),
        members({"contentSid": st.just(SID)}, variables=st.dictionaries(name, text, max_size=2)),
    ),
}
message = st.one_of(
    [
        joined(
            st.just({"channel": channel}),
            st.one_of(
                st.fixed_dictionaries({"content": content}), st.just({"templateId": "tpl_1"})
            ),
        )
        for channel, content in CONTENTS.items()
    ]
)
policies = members(
    {},
    to=text,
    onFailure=st.sampled_from(["continue", "stop"]),
    onUnknown=st.sampled_from(["continue", "stop", "resend"]),
)
CONFIGURATIONS: dict[str, st.SearchStrategy[Any]] = {
    "send_message": joined(message, policies),
    "wait": st.one_of(
        members({"duration": length}),
        members({"until": text}, timezone=st.sampled_from(["contact", "Europe/Berlin"])),
        members(
            {"time": st.sampled_from(["09:00", "23:59"])},
            days=st.lists(st.sampled_from(["mon", "sun"]), min_size=1),
            timezone=st.just("workspace"),
        ),
    ),
    "wait_for": members(
        {
            "conditions": listed(
                joined(
                    port,
                    st.one_of(
                        members({"event": name}, match=condition),
                        members({"when": condition}),
                        members({"segmentEntered": name}),
                        members({"segmentLeft": name}),
                    ),
                )
            )
        },
        timeout=length,
    ),
    "branch": members({"cases": listed(joined(port, members({"when": condition})))}),
    "split": members(
        {"variants": listed(joined(port, members({"weight": st.sampled_from([1, 50, 0.5])})))}
    ),
    "update_contact": members(
        {
            "set": st.dictionaries(
                st.sampled_from(["firstName", "email", "metadata.plan", "metadata.x y"]),
                st.one_of(text, st.sampled_from([None, 1, 1.5, True])),
                min_size=1,
                max_size=2,
            )
        }
    ),
    "add_tag": members({"tag": text}),
    "remove_tag": members({"tag": text}),
    "http_request": st.one_of(
        members(
            {
                "method": st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
                "url": st.sampled_from(["https://crm.example/x", " HTTP://a", "{{trigger.url}}"]),
            },
            headers=st.dictionaries(st.sampled_from(["X-A", "authorization"]), text, max_size=2),
            body=st.one_of(
                text, st.dictionaries(name, text, max_size=2), st.just([1, ["{{now}}"]])
            ),
            timeoutMs=st.sampled_from([100, 15_000]),
        ),
        members({"method": st.just("GET"), "url": st.just("https://crm.example")}),
    ),
    "start_workflow": st.one_of(
        members({"workflowId": name}, data=st.just({"a": ["{{now}}", {"b": 1}]})),
        members({"automationId": name}),
    ),
    "throttle": members(
        {"limit": st.sampled_from([1, 1_000]), "window": st.sampled_from(LENGTHS[:3])}, key=text
    ),
    "exit": members({}, reason=text),
}
assert CONFIGURATIONS.keys() == NODES.keys()

configured = st.sampled_from([*NODES]).flatmap(
    lambda kind: CONFIGURATIONS[kind].map(lambda config: (kind, config))
)


# --- steps and graphs -----------------------------------------------------------------------------


@st.composite
def step(draw: st.DrawFn, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    name, config = draw(configured)
    kind, made = NODES[name], {"type": name, **config}
    for port in ports_written(kind):
        if draw(st.booleans()):
            _put_arm(made, kind, port, draw(inner))
    for item in made.get(kind.fork or "", ()):
        if draw(st.booleans()):
            item["steps"] = draw(inner)
    return made


def _put_arm(step: dict[str, Any], kind: NodeKind, port: str, arm: list[Any]) -> None:
    if port in kind.fields and port in step:
        step["after"] = step[port]
    if port not in kind.given or "after" in step:
        step[port] = arm


arms: st.SearchStrategy[list[Any]] = st.recursive(
    st.just([]),
    lambda inner: st.lists(step(inner), max_size=2),
    max_leaves=3,
)
arrays = st.lists(step(arms), max_size=3)


MORE_OF_A_NODE: tuple[dict[str, Any], ...] = (
    {},
    {"position": {"x": 0, "y": 1.5}},
    {"selected": None},
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [{"id": "start", "type": "trigger", "data": {}}]
    for index, (kind, config) in enumerate(draw(st.lists(configured, max_size=3))):
        more = draw(st.sampled_from(MORE_OF_A_NODE))
        nodes.append({"id": f"n{index}", "type": kind, "data": config, **more})
    edges = [
        {"source": one["id"], "target": other["id"], **_leaving(one)}
        for one, other in pairwise(nodes)
        if one["type"] != "exit"
    ]
    return {"nodes": nodes, "edges": edges, **draw(st.sampled_from([{}, {"viewport": 1}]))}


def _leaving(node: dict[str, Any]) -> dict[str, Any]:
    """Leave the node by its first port."""
    if node["type"] == "trigger":
        return {}
    kind = NODES[node["type"]]
    return {"sourceHandle": kind.all_ports({"timeout": 1, **_ported(node["data"], kind)})[0]}


def _ported(config: dict[str, Any], kind: NodeKind) -> dict[str, Any]:
    if kind.fork is None:
        return config
    stem = kind.fork.removesuffix("s")
    items = [{"port": f"{stem}{n + 1}", **item} for n, item in enumerate(config[kind.fork])]
    return {**config, kind.fork: items}


# --- triggers -------------------------------------------------------------------------------------

PATHS = st.sampled_from(["id", "data.object.id", 'a["b c"][0]'])
DEFAULTS = members(
    {},
    firstName=st.sampled_from(["Friend", "{{trigger.name}}"]) | st.none(),
    timezone=st.just("Europe/Berlin"),
    metadata=st.sampled_from([{}, {"plan": "{{trigger.plan}}", "seats": 3, "deep": {"a": [1]}}]),
    tags=st.lists(name, max_size=2),
)
REENTRY = st.sampled_from(["always", "once", "not_while_running", {"after": "P7D"}, None])
_OF_OTHERS: dict[str, Any] = {
    "reentry": REENTRY,
    "createContact": st.booleans(),
    "tag": st.none() | name,
    "repeat": st.sampled_from(["yearly", None]),
}
_WEBHOOK: dict[str, Any] = {
    "reentry": REENTRY,
    "contactPath": PATHS,
    "createContact": st.booleans(),
    "contactDefaults": DEFAULTS | st.none(),
    "dedupePath": PATHS | st.none(),
    "signingSecret": st.sampled_from(["", "a shared secret of good length"]),
    "signed": st.booleans(),
}
triggers = st.one_of(
    members(
        {
            "source": st.just("inbound_webhook"),
            "contactLookup": st.sampled_from(["email", "phone", "contact_id"]),
        },
        **_WEBHOOK,
    ),
    members(
        {
            "source": st.just("inbound_webhook"),
            "contactLookup": st.just("contact_id"),
            "metadataField": name,
        },
        **_WEBHOOK,
    ),
    members({}, source=st.just("manual"), **_OF_OTHERS),
    members({"source": st.just("contact_created")}, **_OF_OTHERS),
    members({"source": st.just("tag_added"), "tag": name}, createContact=st.booleans()),
    members({"source": st.just("event"), "name": name}, **_OF_OTHERS),
)


# --- one mutation away ----------------------------------------------------------------------------


def places(value: Any, *where: Any) -> Iterator[tuple[Any, ...]]:
    """List the places of every member and item."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*where, key)
        if isinstance(inner, dict | list):
            yield from places(inner, *where, key)


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[Any]) -> Any:
    """Draw a value as it should be, or with one member replaced, taken out, doubled or renamed."""
    value = copy.deepcopy(draw(valid))
    found = list(places(value))
    if not found or draw(st.booleans()):
        return value
    *where, key = draw(st.sampled_from(found))
    holder = value
    for one in where:
        holder = holder[one]
    match draw(st.sampled_from(["replace", "replace", "remove", "add", "rename"])):
        case "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(ANYTHING)))
        case "remove":
            del holder[key]
        case "add" if isinstance(holder, dict):
            holder[draw(st.sampled_from(["colour", "port", "timeout", "after", "content"]))] = (
                copy.deepcopy(draw(st.sampled_from(ANYTHING)))
            )
        case "rename" if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case _:
            holder.insert(0, copy.deepcopy(holder[0])) if isinstance(holder, list) else None
    return value
