"""Explanation of why a flow did or did not reach a contact."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field
from starlette.responses import Response

from app.errors import FieldError, Problem
from app.routes.ids import (
    AutomationId,
    BroadcastId,
    ContactId,
    EventId,
    MessageId,
    RequestId,
    RunId,
    WorkflowId,
)
from app.runs import explaining, explaining_broadcasts
from app.runs.explaining import Question
from app.runs.explanations import MEANINGS, EvidenceType, Explained, Explanation
from app.store import broadcasts, contacts, definitions
from app.web import reply
from app.web.body import After, Query, Shape
from app.web.routing import Call, get


class About(Query):
    definition_id: str | None = Field(
        None, description="The automation or workflow that it is about."
    )
    broadcast_id: str | None = Field(None, description="The broadcast that it is about.")
    since: After | None = Field(None, description="Without what was before this time.")


class Evidence(Shape):
    """The record that proves it; of a step, `nodeId` names it in its run."""

    type: EvidenceType
    id: AutomationId | WorkflowId | EventId | RequestId | RunId | MessageId | BroadcastId
    node_id: str | None


class Explaining(Shape):
    """Something that is known: its code, a sentence, and the code that the record itself carries,
    of a step, a run or a message a reason, of a request its problem."""

    at: datetime
    code: Explanation
    sentence: str
    reason: str | None
    evidence: Evidence


class Explanations(Shape):
    """Newest first."""

    contact_id: ContactId
    data: list[Explaining]


async def show(call: Call) -> Response:
    """Explain what events, requests, runs and messages of the contact there were.
    It shows what held them back."""
    query = call.query(About)
    workspace_id, contact_id = call.member.workspace_id, call.path("id")
    contact = await contacts.by_id(call.db, workspace_id=workspace_id, id=contact_id)
    contact = reply.found(contact, "contact")
    if query.broadcast_id is not None:
        if query.definition_id is not None:
            message = "Give a definitionId or a broadcastId, not both."
            errors = [FieldError("?broadcastId", message)]
            raise Problem("invalid", "The query is not valid; see errors.", errors=errors)
        broadcast = await broadcasts.by_id(
            call.db, workspace_id=workspace_id, id=query.broadcast_id
        )
        broadcast = reply.found(broadcast, "broadcast")
        found = await explaining_broadcasts.explain(
            call.db, broadcast, contact_id=contact_id, created_at=contact.created_at
        )
        found = [one for one in found if query.since is None or one.at > query.since]
        return reply.ok({"contactId": contact_id, "data": [_shown(one) for one in found]})
    definition = None
    if query.definition_id is not None:
        shape = "steps" if query.definition_id.startswith("wfl_") else "graph"
        definition = await definitions.by_id(
            call.db, workspace_id=workspace_id, shape=shape, id=query.definition_id
        )
        definition = reply.found(definition, "automation or workflow")
    question = Question(workspace_id, contact, definition, query.since)
    found = await explaining.explain(call.process, call.db, question)
    return reply.ok({"contactId": contact_id, "data": [_shown(one) for one in found]})


def _shown(one: Explained) -> dict[str, Any]:
    return {
        "at": one.at,
        "code": one.code.value,
        "sentence": one.sentence,
        "reason": one.reason,
        "evidence": {
            "type": MEANINGS[one.code].evidence,
            "id": one.id,
            "nodeId": one.node_id,
        },
    }


routes = [
    get(
        "/contacts/{id}/explain",
        show,
        can="contacts:read",
        query=About,
        gives={200: Explanations},
    ),
]
