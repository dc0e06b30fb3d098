"""A definition as a file: names instead of ids, its templates with it, and no secrets."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
FORKS = ("conditions", "cases")  # of a node, each with a condition
CONDITIONS = ("when", "match")
COMBINED = ("all", "any", "not")
# Of a file beside the definition, in this order.
BEFORE = ("$schema",)
BESIDE = ("about", "workspace", "input", "expected")
DEFAULTS = ("firstName", "lastName", "timezone", "locale", "metadata", "tags")

_NO_KEY = re.compile(r"[^a-z0-9]+")
# The path of an answer about a topic.
_ANSWER = re.compile(
    r'contact\.topics(?:\.|\[")(?P<id>[^.\[\]\s"\\]+)(?:"\])?(?:\.(?P<channel>\w+))?'
)


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
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    for one in named:
        if one.key is None:
            key = stem = key_of(one.name)
            while key in taken:
                key = f"{stem}-{next(numbers[stem])}"
            keys[one.id] = key
            taken.add(key)
    return keys


# --- what a body refers to ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mention:
    """The place where a definition names something, the member that does, and the ID, or in a file
    the key. Of a topic also the channel that is about."""

    member: str
    id: str
    pointer: str
    channel: Json = None


Rename: TypeAlias = Callable[[Mention], str]


def renamed(shape: str, body: Json, rename: Rename) -> Json:
    """The body with other ids in it; what is not as it should be stays as it is."""
    if shape == "steps":
        return _steps(body, "/steps", rename)
    nodes = body.get("nodes") if isinstance(body, dict) else None
    if not isinstance(nodes, list):
        return body
    drawn: list[Json] = []
    for place, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("data"), dict):
            drawn.append(node)
            continue
        at = f"/graph/nodes/{place}/data"
        data = {  # its cases, or what it waits for, are a list
            name: [
                _named(each, f"{at}/{name}/{index}", rename) if isinstance(each, dict) else each
                for index, each in enumerate(one)
            ]
            if name in FORKS and isinstance(one, list)
            else one
            for name, one in _named(node["data"], at, rename).items()
        }
        drawn.append({**node, "data": data})
    return {**body, "nodes": drawn}


def _named(config: Mapping[str, Json], at: str, rename: Rename) -> dict[str, Json]:
    """Rename what a configuration refers to, also in its content's topic and its conditions."""

    def named(name: str, one: Json) -> Json:
        place = at + document.pointer(name)
        if name in REFERENCES and isinstance(one, str):
            return rename(Mention(name, one, place))
        if name == "content" and isinstance(one, dict) and isinstance(one.get(TOPIC), str):
            about = Mention(TOPIC, one[TOPIC], f"{place}/{TOPIC}", config.get("channel"))
            return {part: rename(about) if part == TOPIC else text for part, text in one.items()}
        return _condition(one, place, rename) if name in CONDITIONS else one

    return {name: named(name, one) for name, one in config.items()}


def _condition(value: Json, at: str, rename: Rename) -> Json:
    if isinstance(value, list):
        return [_condition(one, f"{at}/{index}", rename) for index, one in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {
        name: _path(one, f"{at}/path", rename)
        if name == "path"
        else _condition(one, f"{at}/{name}", rename)
        if name in COMBINED
        else one
        for name, one in value.items()
    }


def _path(text: Json, at: str, rename: Rename) -> Json:
    """A path, which stays spelled as it is but for the topic that it may name."""
    found = _ANSWER.match(text) if isinstance(text, str) else None
    if found is None:
        return text
    begin, end = found.span("id")
    return text[:begin] + rename(Mention(TOPIC, found["id"], at, found["channel"])) + text[end:]


def _steps(value: Json, at: str, rename: Rename) -> Json:
    """Steps, and those in their arms; whatever else a step holds is data."""
    if not isinstance(value, list):
        return value
    steps: list[Json] = []
    for index, step in enumerate(value):
        if not isinstance(step, dict):
            steps.append(step)
            continue
        place = f"{at}/{index}"
        steps.append(
            {
                name: one if name == "body" else _steps(one, place + document.pointer(name), rename)
                for name, one in _named(step, place, rename).items()
            }
        )
    return steps


def mentions(shape: str, body: Json) -> list[Mention]:
    """All that the body names."""
    found: list[Mention] = []

    def note(one: Mention) -> str:
        found.append(one)
        return one.id

    renamed(shape, body, note)
    return found


def references(shape: str, body: Json) -> dict[str, list[str]]:
    """The ids that the body names, by the member that names them, each once."""
    found: dict[str, dict[str, None]] = {name: {} for name in REFERENCES}
    for one in mentions(shape, body):
        found[one.member][one.id] = None
    return {name: [*ids] for name, ids in found.items()}


def given(case: Json, rename: Rename) -> Json:
    """The input of a case with other ids of the topics that the contact has answered about, and of
    segments."""
    if not isinstance(case, dict):
        return case
    case_renamed = {**case}
    if "contact" in case:
        case_renamed["contact"] = _answers(case["contact"], rename)
    if isinstance(case.get("events"), list):
        case_renamed["events"] = [_event(event, rename) for event in case["events"]]
    return case_renamed


def _event(event: Json, rename: Rename) -> Json:
    if not isinstance(event, dict):
        return event
    return {
        name: _answers(one, rename)
        if name == "contact"
        else rename(Mention(name, one, ""))
        if name in SEGMENTS and isinstance(one, str)
        else one
        for name, one in event.items()
    }


def _answers(contact: Json, rename: Rename) -> Json:
    topics = contact.get("topics") if isinstance(contact, dict) else None
    if not isinstance(topics, dict):
        return contact
    renamed = {rename(Mention(TOPIC, id, "")): states for id, states in topics.items()}
    return {name: renamed if name == "topics" else one for name, one in contact.items()}


def traced(trace: Mapping[str, Json], rename: Rename) -> dict[str, Json]:
    """A trace with other names of the topics about which its conditions asked and its contact has
    answered, which are met in this order."""
    renamed = {
        "steps": _asked(trace.get("steps"), rename),
        "contact": _answers(trace.get("contact"), rename),
    }
    return {name: renamed.get(name, one) for name, one in trace.items()}


def _asked(part: Json, rename: Rename) -> Json:
    match part:
        case {"path": str(), "op": _}:
            return {
                name: _path(one, "", rename) if name == "path" else one
                for name, one in part.items()
            }
        case Mapping():
            return {name: _asked(one, rename) for name, one in part.items()}
        case list() | tuple():
            return [_asked(one, rename) for one in part]
    return part


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

    def rename(one: Mention) -> str:
        return names.get(one.id, one.id)

    graph_or_steps = renamed(shape, credentials.masked(document.parse(body.encode())), rename)
    trigger = {
        name: names.get(one, one) if name in SEGMENTS else one for name, one in trigger.items()
    }
    beside = beside_of(beside, rename)
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
    """Write a trigger as a file has it, without what an absent member means."""
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


def beside_of(file: Mapping[str, Json], rename: Rename) -> dict[str, Json]:
    """The rest of the file, with other ids in what its case is given. What is expected has none
    (traces.py)."""
    renamed = {"input": given, "workspace": _place}
    return {
        name: renamed[name](file[name], rename) if name in renamed else file[name]
        for name in (*BEFORE, *BESIDE)
        if file.get(name) is not None
    }


def _place(workspace: Json, rename: Rename) -> Json:
    """Its default topic, and the definitions that may be started."""
    match workspace:
        case {"defaultTopicId": str(id)}:
            workspace = {**workspace, "defaultTopicId": rename(Mention(TOPIC, id, ""))}
    match workspace:
        case {"startable": list(ids)}:
            started = [rename(Mention(DEFINITIONS[0], id, "")) for id in ids]
            workspace = {**workspace, "startable": started}
    return workspace
