"""The history of a contact, newest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from starlette.responses import Response

from app.machine.content import ChannelName
from app.routes.contact_events import ContactEventSummary
from app.routes.ids import AttemptId, ConsentId, EventId, MessageId, RunId, TopicId
from app.routes.messages import MessageSummary, shown_to
from app.routes.messages import summary as message_summary
from app.routes.runs import RunSummary, summary
from app.store import activity, consent_events, contact_events, contacts
from app.store.messages import MessageStatus
from app.store.suppressions import Reason
from app.web import paging, reply
from app.web.body import Shape
from app.web.paging import Paging
from app.web.reply import Page
from app.web.routing import Call, get


class MessageTry(Shape):
    """A summary of a delivery attempt."""

    id: AttemptId
    number: int
    status: MessageStatus
    sent_at: datetime | None
    finished_at: datetime | None


class TriedMessage(MessageSummary):
    attempts: list[MessageTry]


class Consent(Shape):
    """The contact opted out of a channel, or of a topic on it, opted in, was asked to confirm that
    (`asked`), or wrote something that may mean so (`flagged`). `evidence` is what was said of it
    when it was recorded, `inFlight` what may still have arrived after a topic was left."""

    id: ConsentId
    channel: ChannelName
    topic_id: TopicId | None
    change: Literal["opted_out", "asked", "opted_in", "flagged"]
    reason: Reason | None
    source: str
    evidence: str | None
    in_flight: list[MessageId] | None
    created_at: datetime


class Happening(Shape):
    """An event, a run, a message or a change of consent; `type` says which one is present."""

    id: EventId | RunId | MessageId | ConsentId
    type: Literal["event", "run", "message", "consent"]
    event: ContactEventSummary | None = None
    run: RunSummary | None = None
    message: TriedMessage | None = None
    consent: Consent | None = None
    created_at: datetime


async def index(call: Call) -> Response:
    """Its events, runs, messages and opt-outs in one list, each as its own list shows it."""
    query = call.query(Paging)
    workspace_id, contact_id = call.member.workspace_id, call.path("id")
    reply.found(await contacts.by_id(call.db, workspace_id=workspace_id, id=contact_id), "contact")
    happened = await activity.page(
        call.db,
        workspace_id=workspace_id,
        contact_id=contact_id,
        before=paging.position(call, query),
        limit=query.limit + 1,
        created_after=query.created_after,
        created_before=query.created_before,
    )
    of = defaultdict[str, list[str]](list)
    for kind, id in happened:
        of[kind].append(id)
    events = await contact_events.by_ids(call.db, workspace_id=workspace_id, ids=of["event"])
    runs = await activity.runs(call.db, workspace_id=workspace_id, ids=of["run"])
    consents = await consent_events.by_ids(call.db, workspace_id=workspace_id, ids=of["consent"])
    tries: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    ids = of["message"]
    for one in await activity.attempts(call.db, workspace_id=workspace_id, message_ids=ids):
        tries[one.message_id].append(MessageTry.of(one))
    sent = await activity.messages(call.db, workspace_id=workspace_id, ids=ids)
    items = {
        **{row.id: ContactEventSummary.of(row) for row in events},
        **{row.id: summary(row) for row in runs},
        **{
            row.id: {
                **message_summary(shown_to(call, row)),
                "attempts": tries[row.id],
            }
            for row in sent
        },
        **{row.id: Consent.of(row, change=row.kind, created_at=row.at) for row in consents},
    }
    # What retention has removed since the ids were read is no longer there.
    rows = [{"id": id, "type": kind, kind: items[id]} for kind, id in happened if id in items]
    rest = happened[-1][1] if len(happened) > query.limit else None
    return paging.page(call, query, rows, _item, rest=rest)


def _item(shown: Mapping[str, Any]) -> dict[str, Any]:
    kind = shown["type"]
    return {**shown, "createdAt": shown[kind]["at" if kind == "event" else "createdAt"]}


routes = [
    get(
        "/contacts/{id}/activity",
        index,
        can="contacts:read",
        query=Paging,
        gives={200: Page[Happening]},
    ),
]
