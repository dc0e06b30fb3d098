"""Definitions as files: their shape, and the export of one with its templates and its cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, WithJsonSchema
from starlette.responses import Response

from app.definitions import filing, portable
from app.machine.program import Json
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind
from app.simulation import cases as case_files
from app.simulation import proofs
from app.simulation.expected import Expected
from app.simulation.proofs import NamedCase
from app.simulation.scenes import Given
from app.store import definition_cases
from app.store.definitions import Definition
from app.store.row_keys import DefinitionKey
from app.web import reply
from app.web.body import Name, Shape
from app.web.routing import Call, Endpoint, get

MOST_TEMPLATES = 100  # of one file

Key = Annotated[str, Field(pattern=portable.KEY, examples=["welcome-series"])]
# As the name of a member: readers of schemas do not know patternProperties.
KeyName = Annotated[str, Field(pattern=portable.KEY), WithJsonSchema({"type": "string"})]


class DefinitionFile(Shape):
    """A definition with its templates, by names instead of IDs. `key` is its name among files;
    without, it is made of its name. `templates` are by their keys, which the definition names as
    `templateId`. `signed` in its trigger stands for a signing secret, which is in no file.
    `expected` is what must come of `input` in that `workspace`: a case of the definition, called
    `expected`. Without `cases` or `casesGate`, those that are there stay."""

    editors_schema: str | None = Field(None, alias="$schema")
    key: Key | None = None
    name: Name
    about: str | None = None
    definition: case_files.Definition
    templates: Annotated[
        dict[KeyName, case_files.FileTemplate], Field(max_length=MOST_TEMPLATES)
    ] = Field(default_factory=dict)
    workspace: case_files.FileWorkspace | None = None
    input: Given | None = None
    expected: Expected | None = None
    cases: Annotated[list[NamedCase], Field(max_length=proofs.MOST)] | None = None
    cases_gate: bool | None = None


@dataclass(frozen=True, slots=True)
class Exporting:
    """The export of an automation or of a workflow."""

    kind: DefinitionKind

    async def show(self, call: Call) -> Response:
        row = await self.kind.named(call, call.db, call.path("id"))
        assert row is not None  # noqa: S101 - an id was given
        return reply.ok(await exported(call, row))

    def routes(self) -> list[Endpoint]:
        path, read = f"{self.kind.path}/{{id}}/export", f"{self.kind.noun}s:read"
        gives = {200: DefinitionFile}
        return [get(path, self.show, can=read, gives=gives, raises=("conflict",))]


async def exported(call: Call, row: Definition) -> dict[str, Json]:
    """Export the definition with its cases."""
    workspace_id = call.member.workspace_id
    file = await filing.exported(call.db, workspace_id, row)
    of: DefinitionKey = {"workspace_id": workspace_id, "definition_id": row.id}
    cases = [proofs.written(one) for one in await definition_cases.of_definition(call.db, **of)]
    if cases:
        called = await filing.audience(call.db, workspace_id)
        cases = [{**one, "given": portable.given(one["given"], called.key_of)} for one in cases]
    gate = {"casesGate": True} if row.cases_gate else {}
    return {**file, **({"cases": cases} if cases else {}), **gate}


routes = [*Exporting(automations.kind).routes(), *Exporting(workflows.kind).routes()]
