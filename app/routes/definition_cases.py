"""Cases of definitions: what must come of each input, and what comes of it now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from app.definitions import case_results, findings
from app.errors import Problem
from app.machine import document
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind
from app.simulation import proofs
from app.simulation.expected import Expected
from app.simulation.proofs import CaseName, WritableCase
from app.simulation.scenes import Given
from app.store import definition_cases, definitions
from app.store.definition_cases import DefinitionCase
from app.store.row_keys import DefinitionKey, RowKey
from app.web import reply
from app.web.body import Shape
from app.web.reply import Page, Revised
from app.web.routing import Call, Endpoint, delete, get, post, put


class Case(Revised):
    """`given` happens to a run, and `expect` is a part of its trace."""

    name: CaseName
    given: Given
    expect: Expected
    created_at: datetime
    updated_at: datetime


class CaseResult(Shape):
    """`actual` is the part of the trace that stands where `expected` says something, or null if the
    case cannot be run; `difference` is a sentence about the first place where they differ."""

    name: str
    passes: bool
    difference: str | None
    expected: dict[str, Any]
    actual: dict[str, Any] | None


class CaseResults(Shape):
    """Results of the cases, in the order of their names."""

    passes: bool
    cases: list[CaseResult]


@dataclass(frozen=True, slots=True)
class Cases:
    """The routes of automations, or of workflows."""

    kind: DefinitionKind

    async def index(self, call: Call) -> Response:
        """List the cases, at most twenty, in the order of their names."""
        found = await definition_cases.of_definition(call.db, **await self._whose(call))
        return reply.page([resource(one) for one in found], None)

    async def show(self, call: Call) -> Response:
        found = await self._found(call)
        return reply.ok(resource(found), revision=found.revision)

    async def put(self, call: Call) -> Response:
        """A new case, or another content of the one with this name. It is run when the definition
        is checked, at the latest when it is activated."""
        call.read(WritableCase)
        try:
            name = TypeAdapter(CaseName).validate_python(call.path("name"))
        except ValidationError:
            raise Problem("invalid", NAMES) from None
        of = await self._locked(call)
        before = await definition_cases.by_name(call.db, **of, name=name)
        call.match(before.revision if before else None)
        case = document.parse(call.body)
        texts = proofs.texts(case["given"], case["expect"])
        await keep_case(call, of["definition_id"], name, texts)
        after = await self._found(call)
        if before is not None:
            return reply.ok(resource(after), revision=after.revision)
        at = f"{self.kind.path}/{of['definition_id']}/cases/{quote(name)}"
        return reply.created(at, resource(after), revision=after.revision)

    async def remove(self, call: Call) -> Response:
        of = await self._locked(call)
        before = await self._found(call)
        call.match(before.revision)
        await delete_case(call, of["definition_id"], before)
        return reply.no_content()

    async def run(self, call: Call) -> Response:
        """Run each case now; nothing is written or sent."""
        await call.receive_body()

        async def look() -> list[dict[str, Any]]:
            async with call.process.database.read() as db:
                row = await self.kind.named(call, db, call.path("id"))
                assert row is not None  # noqa: S101 - an id was given
                subject = findings.subject_of(call.process, call.member.workspace_id, row)
                return case_results.listed(await proofs.run(call.process, db, subject))

        results = await call.process.compute.within(look)
        return reply.ok({"passes": all(one["passes"] for one in results), "cases": results})

    # --- pieces ---

    async def _whose(self, call: Call) -> dict[str, str]:
        await self.kind.named(call, call.db, call.path("id"))
        return {"workspace_id": call.member.workspace_id, "definition_id": call.path("id")}

    async def _locked(self, call: Call) -> dict[str, str]:
        of: RowKey = {"workspace_id": call.member.workspace_id, "id": call.path("id")}
        reply.found(await definitions.locked(call.db, **of, shape=self.kind.shape), self.kind.noun)
        return await self._whose(call)

    async def _found(self, call: Call) -> DefinitionCase:
        of, name = await self._whose(call), call.path("name")
        case = await definition_cases.by_name(call.db, **of, name=name)
        if case is None:
            raise Problem("not_found", f"This {self.kind.noun} has no case with this name.")
        return case

    def routes(self) -> list[Endpoint]:
        path = f"{self.kind.path}/{{id}}/cases"
        read, write = f"{self.kind.noun}s:read", f"{self.kind.noun}s:write"
        return [
            get(path, self.index, can=read, gives={200: Page[Case]}),
            post(f"{path}/run", self.run, can=read, tx=None, gives={200: CaseResults}),
            get(f"{path}/{{name}}", self.show, can=read, gives={200: Case}),
            put(
                f"{path}/{{name}}",
                self.put,
                can=write,
                takes=WritableCase,
                gives={200: Case, 201: Case},
                raises=("conflict",),
            ),
            delete(f"{path}/{{name}}", self.remove, can=write, gives={204: None}),
        ]


NAMES = (
    "The name of a case has at most 100 letters of ASCII, digits, spaces, dots, dashes and"
    " underscores, begins and ends with a letter or digit, and is neither run nor expected."
)


async def keep_case(call: Call, definition_id: str, name: str, texts: tuple[str, str]) -> None:
    """A new case of the locked definition, or another content of the one of that name. Raises
    Problem for too many."""
    of: DefinitionKey = {"workspace_id": call.member.workspace_id, "definition_id": definition_id}
    before = await definition_cases.by_name(call.db, **of, name=name)
    await proofs.put(call.db, call.member.workspace_id, definition_id, name, texts)
    act = f"{_noun(definition_id)}.case_{'updated' if before else 'created'}"
    was = _noted(name, before.given, before.expect) if before else None
    await call.note(act, definition_id, was, _noted(name, *texts))


async def delete_case(call: Call, definition_id: str, case: DefinitionCase) -> None:
    of: DefinitionKey = {"workspace_id": call.member.workspace_id, "definition_id": definition_id}
    await definition_cases.delete(call.db, **of, name=case.name)
    before = _noted(case.name, case.given, case.expect)
    await call.note(f"{_noun(definition_id)}.case_deleted", definition_id, before=before)


def _noun(definition_id: str) -> str:
    return "automation" if definition_id.startswith("aut_") else "workflow"


def resource(case: DefinitionCase) -> dict[str, Any]:
    return Case.of(case, **proofs.written(case))


def _noted(name: str, given: str, expect: str) -> dict[str, str]:
    """Hash a case for the audit trail. An erasure does not look there for somebody who is in a
    case."""
    hashes = {
        member: sha256(text.encode()).hexdigest()
        for member, text in (("given", given), ("expect", expect))
    }
    return {"name": name, **hashes}


routes = [*Cases(automations.kind).routes(), *Cases(workflows.kind).routes()]
