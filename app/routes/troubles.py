"""Causes for which a workspace's work does not go on and that are in none of its lists, and how
much each of its webhooks refused."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from starlette.responses import Response

from app.machine.content import ChannelName
from app.providers import ProviderName
from app.routes.admin import LATE
from app.routes.ids import AutomationId, SegmentId, WorkflowId
from app.store import circuit_breakers, health, jobs, segments, webhook_requests
from app.web import reply
from app.web.body import Shape
from app.web.routing import Call, get

MOST_GIVEN_UP = 50


class ProviderTrouble(Shape):
    """An open circuit breaker: the channel's messages wait, and the provider is asked again at
    `askAt`."""

    channel: ChannelName
    provider: ProviderName | Literal["sandbox"]
    code: Literal[
        "provider_throttled",
        "provider_unreachable",
        "provider_misconfigured",
        "recipients_refused",
    ]
    ask_at: datetime


class RefusedRequests(Shape):
    """Requests of the last seven days that the webhook of an active definition refused: how many,
    up to 50."""

    definition_id: WorkflowId | AutomationId
    name: str
    count: int


class GivenUp(Shape):
    """A segment, or a definition with dates or a schedule: the work on it ended its worker several
    times, and is not tried again until the segment's filter is saved again, or the definition is
    paused and activated again."""

    id: SegmentId | WorkflowId | AutomationId
    name: str


class Troubles(Shape):
    """`overdue` is how much of each kind of work has been due for five minutes and was not done,
    up to 10000: all zero while workers run. `refused` has at most 50 definitions, the most refused
    first; of what is given up at most 50 are listed."""

    providers: list[ProviderTrouble]
    overdue: dict[jobs.Kind, int]
    refused: list[RefusedRequests]
    given_up: list[GivenUp]


async def show(call: Call) -> Response:
    """All are empty or zero in health."""
    workspace_id = call.member.workspace_id
    late = await call.db.now() - LATE
    open_ones = await circuit_breakers.open_of(call.db, workspace_id=workspace_id)
    overdue = {
        kind: await health.overdue(call.db, kind, workspace_id=workspace_id, late=late)
        for kind in jobs.KINDS
    }
    refused = await webhook_requests.refused(call.db, workspace_id=workspace_id)
    given_up = await segments.given_up(call.db, workspace_id=workspace_id, limit=MOST_GIVEN_UP)
    return reply.ok(
        {
            "providers": [ProviderTrouble.of(one) for one in open_ones],
            "overdue": overdue,
            "refused": [RefusedRequests.of(one) for one in refused],
            "givenUp": [GivenUp.of(one) for one in given_up],
        }
    )


routes = [get("/troubles", show, can="messages:read", gives={200: Troubles})]
