"""What a definition was when it was activated, or changed since: immutable, as runs walked it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from app.definitions import credentials
from app.errors import Problem
from app.machine import document
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind
from app.store import definitions
from app.store.db import Row
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page, Revised
from app.web.routing import Call, Endpoint, get


class VersionSummary(Shape):
    version: int
    trigger_source: str
    created_at: datetime


class AutomationVersion(Revised):
    version: int
    trigger: dict[str, Any]
    graph: dict[str, Any]
    created_at: datetime


class WorkflowVersion(Revised):
    version: int
    trigger: dict[str, Any]
    steps: list[Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Versions:
    """Of automations, or of workflows."""

    kind: DefinitionKind
    shown: type[AutomationVersion] | type[WorkflowVersion]

    async def index(self, call: Call) -> Response:
        query = call.query(Paging)
        rows = await definitions.versions_page(
            call.db,
            workspace_id=call.member.workspace_id,
            definition_id=await self._definition(call),
            filters=query.filters(),
            before=paging.position(call, query),
            limit=query.limit + 1,
        )
        return paging.page(call, query, rows, summary)

    async def show(self, call: Call) -> Response:
        row = await definitions.version(
            call.db,
            workspace_id=call.member.workspace_id,
            definition_id=await self._definition(call),
            version=_number(call.path("version")),
        )
        if row is None:
            raise Problem("not_found", f"This {self.kind.noun} has no such version.")
        return reply.ok(self._resource(row), revision=row["version"])

    async def _definition(self, call: Call) -> str:
        id, workspace_id = call.path("id"), call.member.workspace_id
        row = await definitions.by_id(
            call.db, workspace_id=workspace_id, shape=self.kind.shape, id=id
        )
        if row is None:
            raise self.kind.unknown()
        return id

    def _resource(self, row: Row) -> dict[str, Any]:
        return {
            "version": row["version"],
            "trigger": row["trigger_config"],
            self.kind.shape: credentials.masked(document.parse(row["body"].encode())),
            "createdAt": row["created_at"],
        }

    def routes(self) -> list[Endpoint]:
        path, can = f"{self.kind.path}/{{id}}/versions", f"{self.kind.noun}s:read"
        return [
            get(path, self.index, can=can, query=Paging, gives={200: Page[VersionSummary]}),
            get(f"{path}/{{version}}", self.show, can=can, gives={200: self.shown}),
        ]


def _number(text: str) -> int:
    """0, which no version has, for what is no number."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,8}", text) else 0


def summary(row: Row) -> dict[str, Any]:
    return {
        "version": row["version"],
        "triggerSource": row["trigger_config"]["source"],
        "createdAt": row["created_at"],
    }


routes = [
    *Versions(automations.kind, AutomationVersion).routes(),
    *Versions(workflows.kind, WorkflowVersion).routes(),
]
