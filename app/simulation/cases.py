"""Cases in files: a definition with its templates and what it meets, and the trace that must come.

A case is one JSON document (docs/examples/README.md); the trace is in its normal form (traces.py).
It needs no database, so that it can run wherever the definition is kept.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from starlette.datastructures import Headers

from app.config import places
from app.consent.gate_shapes import FrequencyCap, QuietHours, stored
from app.definitions import credentials, inspection, trigger_node
from app.errors import FieldError, Problem
from app.machine import check, content, content_schema, description, document
from app.machine.categories import TRANSACTIONAL, Category
from app.machine.content import ChannelName
from app.machine.fields import Place
from app.machine.program import Finding, Json
from app.machine.schema import ref
from app.simulation import scenes, simulation, traces
from app.simulation.gating import Gate
from app.simulation.scenes import Given
from app.simulation.simulation import NOBODY, Scenario
from app.web import body
from app.web.body import Name, Shape
from app.web.schemas import described, referring


class FileTemplate(
    Shape, json_schema_extra={"allOf": referring(content_schema.by_channel("Content"))}
):
    channel: ChannelName
    content: Annotated[dict[str, Any], described(ref("Content"))]
    category: Category = TRANSACTIONAL
    topic_id: Annotated[
        str | None, Field(description="The key of a topic that is in the workspace.")
    ] = None
    name: Name | None = None


class FileWorkspace(Shape):
    """The workspace in which what is expected comes of the input. `startable` are keys of
    definitions; without, all that are started are ACTIVE."""

    name: str = "Workspace"
    timezone: Annotated[str, AfterValidator(places.check_timezone)] = "UTC"
    country: Annotated[str, AfterValidator(places.check_country)] | None = None
    postal_address: str | None = None
    sender: dict[str, str] = Field(default_factory=dict)
    channels: list[ChannelName] = Field(default_factory=lambda: [*content.CHANNELS])
    startable: list[str] | None = None
    frequency_cap: FrequencyCap | None = None
    quiet_hours: QuietHours | None = None
    default_topic_id: str | None = None

    @property
    def gate(self) -> Gate:
        return Gate(stored(self.frequency_cap), stored(self.quiet_hours), self.default_topic_id)

    @property
    def root(self) -> dict[str, Json]:
        """The workspace as templates and conditions see it."""
        return {
            "id": f"ws_{NOBODY}",
            "name": self.name,
            "timezone": self.timezone,
            "country": self.country,
            "postalAddress": self.postal_address,
        }


class Definition(Shape):
    """An automation's `graph`, or a workflow's `steps`."""

    trigger: Annotated[dict[str, Any], described(ref("WritableTrigger"))] = Field(
        default_factory=lambda: {"source": "manual"}
    )
    graph: Annotated[dict[str, Any], described(ref("Graph"))] | None = None
    steps: Annotated[list[Any], described(description.STEPS)] | None = None

    _moved = model_validator(mode="before")(trigger_node.moved)

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if self.graph is not None and self.steps is not None:
            raise ValueError("Give a graph, or steps; not both.")
        return self

    @property
    def shape(self) -> check.Shape:
        return "steps" if self.graph is None else "graph"

    @property
    def body(self) -> Json:
        return (self.steps or []) if self.graph is None else self.graph


class Case(Shape):
    """A file. `expected` is absent until the trace was recorded; `key` and `cases` are for the
    workspace that it is pushed to."""

    editors_schema: str | None = Field(None, alias="$schema")  # by which an editor checks the file
    key: str | None = None
    name: Name
    about: str | None = None
    definition: Definition
    templates: dict[str, FileTemplate] = Field(default_factory=dict)
    workspace: FileWorkspace = FileWorkspace()
    input: Given
    expected: dict[str, Any] | None = None
    cases: list[dict[str, Any]] | None = None
    cases_gate: bool | None = None


_JSON = Headers({"content-type": "application/json"})


def read(raw: bytes) -> Case:
    """Raises Problem for what is no case."""
    return body.read(Case, _JSON, raw)


def given(raw: bytes) -> Given:
    """Read what happens to a run. Raises Problem."""
    return body.read(Given, _JSON, raw)


def workspace(raw: bytes) -> FileWorkspace:
    """Read where it happens. Raises Problem."""
    return body.read(FileWorkspace, _JSON, raw)


def play(case: Case) -> dict[str, Json]:
    """Simulate it, to be compared. Raises Problem for what cannot run."""
    compiled, templates = _compiled(case), _templates(case)
    trigger = _trigger(case)
    warned = {"findings": noted(found(trigger, compiled, templates, case.input.trigger))}
    if compiled.program is None:
        return warned
    scenario = Scenario(
        workspace=case.workspace.root,
        sender=case.workspace.sender,
        templates=templates,
        channels=case.workspace.channels,
        startable=case.workspace.startable,
        gate=case.workspace.gate,
        **scenes.of(case.input, compiled.program, trigger, case.workspace.country),
    )
    return {**warned, **traces.normal(simulation.simulate(scenario))}


def _templates(case: Case) -> dict[str, dict[str, Json]]:
    wrong: list[Finding] = []
    for id, template in case.templates.items():
        content.read(template.channel, template.content, Place(f"/templates/{id}/content", wrong))
    if wrong:
        raise scenes.invalid([FieldError(one.pointer, one.message) for one in wrong])
    return {id: one.model_dump() for id, one in case.templates.items()}


def found(
    trigger: Mapping[str, Json],
    compiled: check.Compiled,
    templates: Mapping[str, Mapping[str, Json]],
    payload: Json,
) -> list[Finding]:
    """Find what an activation would find, as far as a file can tell."""
    return [*compiled.findings, *inspection.find_static(trigger, compiled, templates, [payload])]


def sentences(problem: Problem) -> list[str]:
    """The places where it is wrong, for people."""
    return [f"{error.pointer or 'the document'}: {error.message}" for error in problem.errors]


def found_in(case: Case) -> list[Finding]:
    """Raises Problem."""
    return found(_trigger(case), _compiled(case), _templates(case), case.input.trigger)


def noted(found: Iterable[Finding]) -> list[Json]:
    """The findings as a case has them: without the sentences, which may be put better one day."""
    return [{"severity": one.severity, "code": one.code, "pointer": one.pointer} for one in found]


def _compiled(case: Case) -> check.Compiled:
    return check.compile(case.definition.shape, credentials.stood_in(case.definition.body))


def _trigger(case: Case) -> dict[str, Json]:
    return {"source": "manual", **case.definition.trigger}


def difference(expected: Mapping[str, Json] | None, came: Mapping[str, Json]) -> str:
    """Line by line, as `diff -u` tells it; nothing when they are the same to the last literal."""
    before, after = (document.pretty(side, sort=True) for side in (expected or {}, came))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "expected", "result", lineterm="", n=4
    )
    return "\n".join(lines)


def recorded(raw: bytes, came: Mapping[str, Json]) -> str:
    """The file with this as what is expected."""
    return document.pretty({**document.parse(raw), "expected": came})
