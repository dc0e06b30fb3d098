"""A definition as a file: names instead of ids, its templates with it, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Protocol, TypeAlias

from app.definitions import credentials
from app.machine import content, document, triggers
from app.machine.program import Json
from app.store.templates import FiledTemplate

KEY = "^[a-z0-9][a-z0-9_-]{0,99}$"
LONGEST_MADE = 90  # of a key, which may get a number behind it
TEMPLATE = "templateId"
DEFINITIONS = ("workflowId", "automationId")
SEGMENTS = ("segmentId", "segmentEntered", "segmentLeft")
TOPIC = "topicId"
REFERENCES = (TEMPLATE, *DEFINITIONS, *SEGMENTS, TOPIC)
# Of a file beside the definition, in this order.
BEFORE = ("$schema",)
BESIDE = ("about", "workspace", "input", "expected")
DEFAULTS = ("firstName", "lastName", "timezone", "locale", "metadata", "tags")

_NO_KEY = re.compile(r"[^a-z0-9]+")


def key_of(name: str) -> str:
    """The key of something that came from no file."""
    return _NO_KEY.sub("-", name.lower()).strip("-")[:LONGEST_MADE].strip("-") or "unnamed"


class Named(Protocol):
    """Something that files name, and its key if it came from one."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> str | None: ...


def keys_of(named: Sequence[Named]) -> dict[str, str]:
    """The key of each by its ID, no two of them alike: its own, or else one made of its name, which
    has a number if an earlier one has that."""
    keys = {one.id: one.key for one in named if one.key is not None}
    taken = {*keys.values()}
    free: dict[str, Iterator[str]] = {}
    for one in named:
        if one.key is None:
            stem = key_of(one.name)
            numbered = free.setdefault(stem, _numbered(stem))
            keys[one.id] = next(key for key in numbered if key not in taken)
            taken.add(keys[one.id])
    return keys


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}-{number}" for number in count(2))


# --- what a body refers to ------------------------------------------------------------------------

Rename: TypeAlias = Callable[[str, str], str]  # the member's name and what it says


def renamed(shape: str, body: Json, rename: Rename) -> Json:
    """The body with other ids in it; what is not as it should be stays as it is."""
    if shape == "steps":
        return _steps(body, rename)
    nodes = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(nodes, list):
        return body
    return {**body, "nodes": [_node(node, rename) for node in nodes]}


def _node(node: Json, rename: Rename) -> Json:
    if not isinstance(node, dict) or not isinstance(node.get("data"), dict):
        return node
    return {name: _data(one, rename) if name == "data" else one for name, one in node.items()}


def _data(config: Mapping[str, Json], rename: Rename) -> dict[str, Json]:
    """The configuration of a node; what it waits for is a list of conditions."""
    return {
        name: [_named(each, rename) if isinstance(each, dict) else each for each in one]
        if name == "conditions" and isinstance(one, list)
        else one
        for name, one in _named(config, rename).items()
    }


def _named(config: Mapping[str, Json], rename: Rename) -> dict[str, Json]:
    """With its content, which may be about a topic."""
    return {
        name: rename(name, one)
        if name in REFERENCES and isinstance(one, str)
        else {part: _about(part, text, rename) for part, text in one.items()}
        if name == "content" and isinstance(one, dict)
        else one
        for name, one in config.items()
    }


def _about(part: str, text: Json, rename: Rename) -> Json:
    return rename(part, text) if part == TOPIC and isinstance(text, str) else text


def _steps(value: Json, rename: Rename) -> Json:
    """Steps, and those in their arms; whatever else a step holds is data."""
    if not isinstance(value, list):
        return value
    return [
        {
            name: one if name == "body" else _steps(one, rename)
            for name, one in _named(step, rename).items()
        }
        if isinstance(step, dict)
        else step
        for step in value
    ]


def references(shape: str, body: Json) -> dict[str, list[str]]:
    """The ids that the body names, by the member that names them, each once."""
    found: dict[str, list[str]] = {name: [] for name in REFERENCES}

    def note(name: str, id: str) -> str:
        if id not in found[name]:
            found[name].append(id)
        return id

    renamed(shape, body, note)
    return found


# --- the file -------------------------------------------------------------------------------------


def file_of(
    *,
    key: str,
    name: str,
    shape: str,
    trigger: Mapping[str, Json],
    is_signed: bool,
    body: str,
    templates: Mapping[str, FiledTemplate],
    names: Mapping[str, str],
    beside: Mapping[str, Json],
) -> dict[str, Json]:
    """The file, its members always in the same order. `templates` are by their keys; `names` are
    the keys of these and of whatever else is named, by ID."""
    graph_or_steps = renamed(
        shape,
        credentials.masked(document.parse(body.encode())),
        lambda _, id: names.get(id, id),
    )
    trigger = {
        name: names.get(one, one) if name in SEGMENTS else one for name, one in trigger.items()
    }
    definition = {"trigger": trigger_of(trigger, is_signed=is_signed), shape: graph_or_steps}
    return {
        **{member: beside[member] for member in BEFORE if member in beside},
        "key": key,
        "name": name,
        **{member: beside[member] for member in BESIDE[:1] if member in beside},
        "definition": definition,
        "templates": {key: _template(one, names) for key, one in templates.items()},
        **{member: beside[member] for member in BESIDE[1:] if member in beside},
    }


def trigger_of(trigger: Mapping[str, Json], *, is_signed: bool) -> dict[str, Json]:
    """Without what an absent member means."""
    known = {**trigger, "signed": is_signed}
    defaults = known.get("contactDefaults")
    if isinstance(defaults, dict):
        known["contactDefaults"] = {
            name: _ordered(defaults[name])
            for name in DEFAULTS
            if defaults.get(name) not in (None, {}, [])
        }
    return {
        name: known[name] for name in triggers.MEMBERS if known.get(name) not in (None, False, {})
    }


def _template(template: FiledTemplate, names: Mapping[str, str]) -> dict[str, Json]:
    parts, topic_id = content.PARTS[template.channel], template.topic_id
    return {
        "name": template.name,
        "channel": template.channel,
        "category": template.category,
        **({} if topic_id is None else {TOPIC: names.get(topic_id, topic_id)}),
        "content": {
            name: _ordered(template.content[name]) for name in parts if name in template.content
        },
    }


def _ordered(value: Json) -> Json:
    """PostgreSQL keeps no order in its JSON."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def beside_of(file: Mapping[str, Json]) -> dict[str, Json]:
    """The rest of the file."""
    return {name: file[name] for name in (*BEFORE, *BESIDE) if file.get(name) is not None}
