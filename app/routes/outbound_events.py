"""The bodies of outbound events, for the `webhooks` of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from app.machine.content import ChannelName
from app.outbound.events import Type
from app.routes.ids import (
    AttemptId,
    AutomationId,
    BroadcastId,
    ContactId,
    MessageId,
    RunId,
    WorkflowId,
)
from app.store.messages import MessageStatus
from app.web.body import Shape


class ContactFacts(Shape):
    """`depth` and `root` are there if a run made the change: how many runs led to it, and the first
    of them."""

    contact_id: ContactId
    depth: int | None = None
    root: str | None = None


class OptOutFacts(Shape):
    contact_id: ContactId | None
    channel: ChannelName
    reason: str | None
    source: str | None


class RunFacts(Shape):
    """The ID of a workflow or an automation."""

    run_id: RunId
    workflow_id: WorkflowId | None = None
    automation_id: AutomationId | None = None
    contact_id: ContactId | None
    status: Literal["COMPLETED", "FAILED"]
    reason: str | None


class MessageFacts(Shape):
    message_id: MessageId
    delivery_attempt_id: AttemptId | None
    run_id: RunId | None
    broadcast_id: BroadcastId | None
    contact_id: ContactId | None
    channel: ChannelName
    status: MessageStatus
    reason: str | None


class BroadcastFacts(Shape):
    broadcast_id: BroadcastId
    state: Literal["PAUSED", "SENT"]
    reason: str | None


class _Notice(Shape):
    type: Type
    timestamp: datetime


class ContactNotice(_Notice):
    """A contact was created, updated or deleted."""

    data: ContactFacts


class OptOutNotice(_Notice):
    """A contact does not want messages on a channel any more."""

    data: OptOutFacts


class RunNotice(_Notice):
    """A run has ended."""

    data: RunFacts


class MessageNotice(_Notice):
    """A message has a new status."""

    data: MessageFacts


class BroadcastNotice(_Notice):
    """A broadcast has paused by itself, or has been sent."""

    data: BroadcastFacts


EVENTS: Mapping[str, type[BaseModel]] = {
    "contact.created": ContactNotice,
    "contact.updated": ContactNotice,
    "contact.deleted": ContactNotice,
    "contact.unsubscribed": OptOutNotice,
    "run.completed": RunNotice,
    "run.failed": RunNotice,
    "message.sent": MessageNotice,
    "message.delivered": MessageNotice,
    "message.bounced": MessageNotice,
    "message.complained": MessageNotice,
    "message.failed": MessageNotice,
    "message.unknown": MessageNotice,
    "broadcast.paused": BroadcastNotice,
    "broadcast.sent": BroadcastNotice,
}
