"""A node kind: a visit, its outcome, and the row that describes the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from app.machine.fields import Field, Place, Reader, line, object_schema, quote, read_object
from app.machine.program import Effect, Event, Facts, Json, Node
from app.machine.schema import ACTIVE, Schema


@dataclass(frozen=True, slots=True)
class Visit:
    """A run standing at a node for the `number`-th time."""

    node: Node
    number: int
    facts: Facts

    @property
    def config(self) -> Mapping[str, Json]:
        return self.node.config

    @property
    def noted(self) -> Mapping[str, Json]:
        """The output that this visit left for `{{steps.<id>…}}` when it began to wait."""
        return self.facts["steps"].get(self.node.id) or {}


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """The result of a visit.

    WAITING stays; FAILED ends the run; COMPLETED leaves by `port`, or without one ends the run.
    `output` is for the record; `noted`, when given, is what `{{steps.<id>…}}` reads from now on.
    """

    status: Literal["COMPLETED", "WAITING", "FAILED"]
    port: str | None = None
    effects: tuple[Effect, ...] = ()
    code: str | None = None
    detail: str | None = None
    output: Mapping[str, Json] | None = None
    noted: Mapping[str, Json] | None = None


onward = partial(NodeOutcome, "COMPLETED", port="next")


def missing(paths: Sequence[str]) -> dict[str, Json]:
    """Record the paths that a template printed and that led nowhere."""
    return {"missing": list(paths)} if paths else {}


Config: TypeAlias = dict[str, Json]
Enter: TypeAlias = Callable[[Visit], NodeOutcome]
Resume: TypeAlias = Callable[[Visit, Event], NodeOutcome | None]


def _settled(config: Config, _place: Place) -> Config:
    return config


def _never(_config: Mapping[str, Json]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A row of NODES: how a kind runs, what its configuration may say, and where it leads.

    In steps every port but `next` is written as a list, and without one joins at the step after.
    The API's schemas, docs/steps.md and editors follow from the row (description.py).
    """

    enter: Enter
    about: str  # what it does, in a sentence
    example: Mapping[str, Json]  # of its configuration
    resume: Resume | None = None  # for what the run waits for here
    fields: Mapping[str, Field] = field(default_factory=dict)  # of the configuration
    settle: Callable[[Config, Place], Config] = _settled  # judges members that depend on each other
    ports: tuple[str, ...] = ("next",)  # always there; an unwired one ends the run
    arms: tuple[str, ...] = ()  # ports that count only when they are wired
    given: tuple[str, ...] = ()  # ports that are there when the member of that name is
    ends: tuple[str, ...] = ()  # ports that, unwired, end the run in steps too
    fork: str | None = None  # a list of the configuration, each of whose items has its own port
    waits: Callable[[Mapping[str, Json]], bool] = _never  # whether a run always rests here
    exits: Mapping[str, str] = field(default_factory=dict)  # by port: when a run leaves by it
    rules: tuple[Schema, ...] = ()  # between members, as `settle` judges them
    content: bool = False  # whether a member `content` depends on the `channel`
    output: Mapping[str, Schema] = field(default_factory=dict)  # members of a visit's record

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the configuration."""
        return object_schema(self.fields, *self.rules)

    def read(self, raw: Json, place: Place) -> Config:
        """The configuration, checked and parsed; what is wrong goes to `place`."""
        config = self.settle(read_object(raw, self.fields, place), place)
        taken = {*self.ports, *self.arms}
        for index, item in enumerate(self.forks(config)):
            if item["port"] in taken:
                at = place.at(self.fork or "", index, "port")
                at.hold("doubled_port", f"Another port is called {quote(item['port'])} too.")
            taken.add(item["port"])
        return config

    def forks(self, config: Mapping[str, Json]) -> list[Config]:
        return list(config.get(self.fork, ())) if self.fork else []

    def open_ports(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        """The ports that are there, wired or not."""
        fixed = (port for port in self.ports if port not in self.given or port in config)
        return (*(item["port"] for item in self.forks(config)), *fixed)

    def all_ports(self, config: Mapping[str, Json]) -> tuple[str, ...]:
        return (*self.open_ports(config), *self.arms)


def fork(
    stem: str,
    fields: Mapping[str, Field],
    settle: Callable[[Config, Place], Config] = _settled,
    *,
    rules: Sequence[Schema] = (),
    most: int | None = None,
) -> Reader:
    """A list whose n-th item has the port `<stem>n` unless it names another. `settle` and `rules`
    are of an item; `most` items are counted by whoever reads the list."""
    port = Field(line, about="Names the port by which a run leaves.", default=f"{stem}1, {stem}2 …")
    ported = {"port": port, **fields}

    def read(raw: Json, place: Place) -> list[Config] | None:
        if not isinstance(raw, list):
            place.refuse("wrong_type", "This must be a list.")
            return None
        if not raw:
            place.hold("missing", f"Give at least one {stem}.")
        return [
            {"port": f"{stem}{index + 1}"}
            | settle(read_object(item, ported, place.at(index)), place.at(index))
            for index, item in enumerate(raw)
        ]

    bounds = {} if most is None else {"maxItems": most}
    items = object_schema(ported, *rules)
    return Reader(read, {"type": "array", "items": items, **bounds, ACTIVE: {"minItems": 1}})


def refuse_kind(kind: str | None, known: Iterable[str], place: Place) -> None:
    """Refuse a node without a known type, also in a draft: nothing else of it can be read."""
    wrong = f"There is no kind {quote(kind)}" if kind else "Say which type it is"
    message = f"{wrong}; the kinds are {', '.join(known)}."
    place.at("type").refuse("unknown_kind", message)
