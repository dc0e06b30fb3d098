"""A workflow's legacy step array becomes an Outline: the arms of a step join at the step after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from app.machine.fields import Field, Place, line, quote, read_members
from app.machine.kind import NodeKind, refuse_kind
from app.machine.nodes import NODES
from app.machine.program import Json, Node, Outline, Part

MOST_STEPS = 500
DEEPEST = 16

_STEP = {"id": Field(line), "type": Field(line)}


def compile(body: Json, place: Place) -> Outline:
    walk = _Walk(place)
    entry = walk.sequence(body, _Spot("steps", place), None)
    return Outline((entry,) if entry else (), tuple(walk.parts), walk.whole)


@dataclass(frozen=True, slots=True)
class _Spot:
    """The place of the walk: as the JSON path that names a step, as a pointer, and how deep."""

    path: str
    place: Place
    depth: int = 0

    def item(self, index: int) -> _Spot:
        return _Spot(f"{self.path}[{index}]", self.place.at(index), self.depth)

    def arm(self, *keys: str | int) -> _Spot:
        tail = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
        return _Spot(self.path + tail, self.place.at(*keys), self.depth + 1)


@dataclass(slots=True)
class _Walk:
    """One pass over the array. `met` counts all steps; `parts` are those that could be read, and
    `whole` says whether that is all of them."""

    root: Place
    met: int = 0
    whole: bool = True
    names: set[str] = field(default_factory=set)
    parts: list[Part] = field(default_factory=list)

    def sequence(self, raw: Json, spot: _Spot, after: str | None) -> str | None:
        """Lay out a list of steps that goes on at `after`; answers with where to enter it."""
        if not isinstance(raw, list):
            self._refuse(spot, "wrong_type", "This must be a list of steps.")
            return after
        if spot.depth > DEEPEST:
            self._refuse(spot, "too_deep", f"Arms may stand at most {DEEPEST} deep in each other.")
            return after
        had_room = self.met <= MOST_STEPS
        self.met += len(raw)
        if self.met > MOST_STEPS:
            if had_room:
                self.whole = False
                many = f"A workflow may have at most {MOST_STEPS} steps in all."
                self.root.refuse("too_many", many)
            return after
        names = [self._name(step, spot.item(index)) for index, step in enumerate(raw)]
        for index, (step, follow) in enumerate(zip(raw, [*names[1:], after], strict=False)):
            self._step(step, names[index], spot.item(index), follow)
        return names[0] if names else after

    def _refuse(self, spot: _Spot, code: str, message: str) -> None:
        self.whole = False
        spot.place.refuse(code, message)

    def _name(self, raw: Json, spot: _Spot) -> str:
        """Its own; a name that is taken already would weave two steps into one."""
        name = raw.get("id") if isinstance(raw, dict) else None
        if not isinstance(name, str) or not name:
            name = spot.path
        if name in self.names:
            spot.place.at("id").hold("doubled_id", f"Another step is also called {quote(name)}.")
            name = next(f"{name} ({n})" for n in count(2) if f"{name} ({n})" not in self.names)
        self.names.add(name)
        return name

    def _step(self, raw: Json, name: str, spot: _Spot, follow: str | None) -> None:
        if not isinstance(raw, dict):
            self._refuse(spot, "wrong_type", "A step must be an object.")
            return
        members = read_members(raw, _STEP, spot.place)
        kind = NODES.get(members.get("type", ""))
        if kind is None:
            self.whole = False
            if not spot.place.has_findings("type"):
                refuse_kind(members.get("type"), NODES, spot.place)
            return
        # The ports that it writes. A member of the configuration that goes by the name of a port,
        # as a timeout does, is the arm when it is a list.
        written = [
            port
            for port in ports_written(kind)
            if port not in kind.fields or isinstance(raw.get(port), list)
        ]
        # The configuration of a step: it without its name, its kind and its arms.
        given = {key: raw[key] for key in raw.keys() - {"id", "type", *written}}
        if kind.fork and isinstance(given.get(kind.fork), list):
            given[kind.fork] = [without_steps(item) for item in given[kind.fork]]
        config = kind.read(given, spot.place)
        exits: dict[str, str] = {}
        node = Node(name, raw["type"], config, exits)
        self.parts.append(Part(node, spot.place.pointer, spot.place.pointer))
        # Where nothing is written for a port, it goes on at the step after.
        joining = [port for port in kind.open_ports(config) if port not in kind.ends]
        targets: dict[str, str | None] = dict.fromkeys(joining, follow)
        for port, arm, at in _arms(raw, config, kind, written, spot):
            targets[port] = self.sequence(arm, at, follow)
        exits |= {port: target for port, target in targets.items() if target}


def without_steps(item: Json) -> Json:
    """One of the entries of a fork, without its arm."""
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if name != "steps"}


def ports_written(kind: NodeKind) -> list[str]:
    """The ports that a step may write as members of its own."""
    return [port for port in (*kind.ports, *kind.arms) if port != "next"]


def _arms(
    raw: Mapping[str, Json],
    config: Mapping[str, Json],
    kind: NodeKind,
    written: list[str],
    spot: _Spot,
) -> Iterator[tuple[str, Json, _Spot]]:
    """Every arm with something in it: its port, its steps, and where they stand."""
    for port in written:
        if raw.get(port) not in (None, []):
            if port not in kind.all_ports(config):
                spot.place.at(port).hold("unknown_port", f"Nothing leads to {quote(port)} here.")
            yield port, raw[port], spot.arm(port)
    for index, item in enumerate(kind.forks(config)):
        source = raw[kind.fork or ""][index]
        if isinstance(source, dict) and source.get("steps") is not None:
            yield item["port"], source["steps"], spot.arm(kind.fork or "", index, "steps")
