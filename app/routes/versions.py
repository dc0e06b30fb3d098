"""Versions of a definition, one for each activation or later change: immutable, as runs walked
it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from starlette.responses import Response

from app.definitions import credentials, version_diff
from app.errors import Problem
from app.machine import document
from app.routes import automations, workflows
from app.routes.definition_shapes import Graph, Steps
from app.routes.definitions import DefinitionKind
from app.runtime.compute import Computation
from app.store import definition_versions, runs
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page, Revised
from app.web.routing import Call, Endpoint, get

MOST_RUNS = 1_000  # that are counted
SECONDS = 2.0  # of CPU time for a comparison
LARGE = 8 * 1024  # characters of both that are not compared on the event loop


class VersionSummary(Shape):
    """`runs` are the unfinished ones that walk it, among the newest thousand."""

    version: int
    trigger_source: str
    runs: int
    created_at: datetime


class AutomationVersion(Revised):
    version: int
    trigger: dict[str, Any]
    graph: Graph
    created_at: datetime


class WorkflowVersion(Revised):
    version: int
    trigger: dict[str, Any]
    steps: Steps
    created_at: datetime


class NodeName(Shape):
    id: str
    type: str


class NodeChange(NodeName):
    """`members` has before and after of each that differs."""

    members: dict[str, list[Any]]


class NodeDifference(Shape):
    added: list[NodeName]
    removed: list[NodeName]
    changed: list[NodeChange]


class EdgeName(Shape):
    """Edge from `trigger` to the first node, or from a node by a port to the next one."""

    source: str
    port: str
    target: str


class EdgeDifference(Shape):
    added: list[EdgeName]
    removed: list[EdgeName]


class VersionDifference(Shape):
    """The changes from one version to another. `runs` are the unfinished ones on each, among the
    newest thousand. Another credential is a difference, and is shown masked."""

    before: int
    after: int
    trigger: dict[str, list[Any]]
    nodes: NodeDifference
    edges: EdgeDifference
    runs: dict[str, int]


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of automations, or of workflows."""

    kind: DefinitionKind
    shown: type[AutomationVersion] | type[WorkflowVersion]

    async def index(self, call: Call) -> Response:
        query = call.query(Paging)
        of = await self._of(call)
        rows = await definition_versions.page(
            call.db,
            **of,
            filters=query.filters(),
            before=paging.position(call, query),
            limit=query.limit + 1,
        )
        walked = await runs.unfinished_by_version(call.db, **of, most=MOST_RUNS)
        return paging.page(call, query, rows, partial(_summary, walked=walked))

    async def show(self, call: Call) -> Response:
        number = _number(call.path("version"))
        row = await definition_versions.by_number(call.db, **await self._of(call), version=number)
        if row is None:
            raise Problem("not_found", f"This {self.kind.noun} has no such version.")
        body = {self.kind.shape: credentials.masked(document.parse(row.body.encode()))}
        shown = self.shown.of(row, trigger=row.trigger_config, **body)
        return reply.ok(shown, revision=row.version)

    async def diff(self, call: Call) -> Response:
        """Nodes, members and edges that two versions do not have in common, and how many runs still
        walk each."""
        numbers = _number(call.path("version")), _number(call.path("other"))
        of = await self._of(call)
        rows = [await definition_versions.by_number(call.db, **of, version=one) for one in numbers]
        sides = [(row.trigger_config, row.body) for row in rows if row is not None]
        if len(sides) < len(rows):
            raise Problem("not_found", f"This {self.kind.noun} has no such version.")
        computation = Computation(
            of["workspace_id"], version_diff.of, (self.kind.shape, *sides), seconds=SECONDS
        )
        is_large = sum(len(body) for _, body in sides) > LARGE
        difference = call.process.compute.here(computation, large=is_large)
        walked = await runs.unfinished_by_version(call.db, **of, most=MOST_RUNS)
        on_each = {str(one): walked.get(one, 0) for one in numbers}
        named = {"before": numbers[0], "after": numbers[1]}
        return reply.ok({**named, **difference, "runs": on_each})

    async def _of(self, call: Call) -> dict[str, str]:
        """Raises Problem `not_found`."""
        await self.kind.named(call, call.db, call.path("id"))
        return {"workspace_id": call.member.workspace_id, "definition_id": call.path("id")}

    def routes(self) -> list[Endpoint]:
        path, can = f"{self.kind.path}/{{id}}/versions", f"{self.kind.noun}s:read"
        return [
            get(path, self.index, can=can, query=Paging, gives={200: Page[VersionSummary]}),
            get(f"{path}/{{version}}", self.show, can=can, gives={200: self.shown}),
            get(
                f"{path}/{{version}}/diff/{{other}}",
                self.diff,
                can=can,
                gives={200: VersionDifference},
            ),
        ]


def _number(text: str) -> int:
    """0, which no version has, for what is no number."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else 0


def _summary(row: definition_versions.VersionSummary, walked: Mapping[int, int]) -> dict[str, Any]:
    return VersionSummary.of(row, runs=walked.get(row.version, 0))


routes = [
    *Versions(automations.kind, AutomationVersion).routes(),
    *Versions(workflows.kind, WorkflowVersion).routes(),
]
