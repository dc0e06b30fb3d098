"""Requests to a webhook URL and what became of them; refused ones can be retried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from app.audience.workspace_context import context_of
from app.database.db import Handle
from app.intake import path_picker, retrying
from app.routes import automations, workflows
from app.routes.definitions import DefinitionKind
from app.routes.ids import ContactId, RequestId, RunId
from app.routes.webhooks import Accepted
from app.store import definitions, webhook_requests
from app.store.webhook_requests import Outcome
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, Endpoint, get, post

# Which of its reasons a 401 had; its sender is told none.
CAUSES: Mapping[str | None, str] = {
    "missing": "It had no X-Service-Signature header.",
    "malformed": "Its X-Service-Signature was not one header of sha256= and 64 hexadecimal digits.",
    "wrong": "Its signature was made with another secret, or for another body.",
    "reserialised": (
        "Its signature is right for the same JSON written in another way: sign the very bytes that"
        " are sent."
    ),
}


class Filters(Paging):
    outcome: Outcome | None = Field(None, description="Its status.")
    code: str | None = Field(None, description="Why it was refused: the code of the error.")


class WebhookRequestSummary(Shape):
    """`code` and `detail` say why it was refused; secrets in headers are masked."""

    id: RequestId
    outcome: Outcome
    status: int
    code: str | None
    detail: str | None
    headers: dict[str, str]
    ip: str
    duration_ms: int
    run_id: RunId | None
    contact_id: ContactId | None
    created_at: datetime


class WebhookRequest(WebhookRequestSummary):
    """`body` as it was received; for a refused request, its first 64 KiB. `definitionId` is that of
    the automation or the workflow whose webhook it came to."""

    definition_id: str
    body: str | None


class SchemaPath(Shape):
    """A path in the bodies; `presence` is the share of bodies that have it."""

    path: str
    types: list[Literal["array", "boolean", "null", "number", "object", "string"]]
    presence: float
    example: Any


class SchemaLookup(Shape):
    """A trigger lookup that finds a contact in `share` of the bodies."""

    contact_lookup: Literal["email", "phone", "contact_id"]
    contact_path: str
    metadata_field: str | None
    share: float


class WebhookSchema(Shape):
    """Paths that the newest bodies have, and those that would find a contact, best first."""

    paths: list[SchemaPath]
    lookups: list[SchemaLookup]


# --- of one definition ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Webhook:
    """The webhook of an automation or of a workflow."""

    kind: DefinitionKind

    async def index(self, call: Call) -> Response:
        query = call.query(Filters)
        rows = await webhook_requests.page(
            call.db,
            workspace_id=call.member.workspace_id,
            definition_id=await self._known(call),
            filters=query.filters(),
            before=paging.position(call, query),
            limit=query.limit + 1,
        )
        return paging.page(call, query, rows, summary)

    async def show_schema(self, call: Call) -> Response:
        workspace = await context_of(call.process, call.db, call.member.workspace_id)
        definition_id = await self._known(call)
        places, lookups = await path_picker.look(call.process, call.db, workspace, definition_id)
        paths = [
            {
                "path": place.path,
                "types": place.types,
                "presence": place.presence,
                "example": place.example,
            }
            for place in places
        ]
        proposals = [
            {
                "contactLookup": proposal.lookup,
                "contactPath": str(proposal.path),
                "metadataField": proposal.field,
                "share": proposal.share,
            }
            for proposal in lookups
        ]
        return reply.ok({"paths": paths, "lookups": proposals})

    async def _known(self, call: Call) -> str:
        """The definition's id. Raises Problem `not_found`."""
        id = call.path("id")
        row = await definitions.by_id(
            call.db, workspace_id=call.member.workspace_id, shape=self.kind.shape, id=id
        )
        reply.found(row, self.kind.noun)
        return id

    def routes(self) -> list[Endpoint]:
        path, read = f"{self.kind.path}/{{id}}", f"{self.kind.noun}s:read"
        requests = Page[WebhookRequestSummary]
        return [
            get(
                f"{path}/webhook-requests",
                self.index,
                can=read,
                query=Filters,
                gives={200: requests},
            ),
            get(f"{path}/webhook-schema", self.show_schema, can=read, gives={200: WebhookSchema}),
        ]


# --- one request ----------------------------------------------------------------------------------


async def show(call: Call) -> Response:
    row = await webhook_requests.whole(
        call.db, workspace_id=call.member.workspace_id, id=call.path("id")
    )
    return reply.ok(resource(reply.found(row, "webhook request")))


async def retry(call: Call) -> Response:
    """The run is committed before this is recorded; a retry gets the same run."""
    workspace_id, id = call.member.workspace_id, call.path("id")
    accepted = await retrying.retry(call.process, workspace_id, id)
    ids = {"runId": accepted.run_id, "contactId": accepted.contact_id}

    async def record(db: Handle) -> Response:
        noted = await webhook_requests.accept(
            db,
            workspace_id=workspace_id,
            id=id,
            run_id=accepted.run_id,
            contact_id=accepted.contact_id,
            detail=f"It was refused at first, and retried by {call.member.name}.",
        )
        if noted:
            await call.note("webhook_request.retried", id, after=ids, db=db)
        return reply.accepted(ids)

    return await call.conclude(record)


def summary(row: webhook_requests.WebhookRequest) -> dict[str, Any]:
    return WebhookRequestSummary.of(row, detail=_detail(row))


def resource(row: webhook_requests.WebhookRequest) -> dict[str, Any]:
    body = None if row.body is None else row.body.decode("utf-8", "replace")
    return WebhookRequest.of(row, detail=_detail(row), body=body)


def _detail(row: webhook_requests.WebhookRequest) -> str | None:
    return row.detail if row.cause is None else CAUSES.get(row.cause, row.detail)


routes = [
    *Webhook(automations.kind).routes(),
    *Webhook(workflows.kind).routes(),
    get("/webhook-requests/{id}", show, can="runs:read", gives={200: WebhookRequest}),
    post(
        "/webhook-requests/{id}/retry",
        retry,
        can="runs:write",
        tx=None,
        concludes=True,
        gives={202: Accepted},
        raises=("conflict", "malformed_json", "invalid", "lookup_unresolved", "contact_not_found"),
    ),
]
