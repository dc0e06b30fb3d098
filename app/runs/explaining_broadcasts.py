"""Explains why a broadcast did or did not reach a contact, from the row of its recipient."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from app.broadcasts import control
from app.database.db import Handle
from app.machine import document
from app.runs.explaining import message
from app.runs.explanations import Explained, Explanation
from app.store import broadcast_recipients, explaining
from app.store.broadcast_recipients import Recipient
from app.store.broadcasts import Broadcast, State

BARRED: Mapping[str, str] = {
    "erased": "The person behind the contact's address had their data erased.",
    "no_address": "The contact had no address on the broadcast's channel.",
    "suppressed": "The contact's address was suppressed: it bounced, complained, sent STOP, or a"
    " member suppressed it.",
    "unsubscribed": "The contact had unsubscribed from the broadcast's channel.",
    "no_consent": "The contact had not agreed to get the broadcast's topic on its channel.",
    "capped": "The contact had got as much marketing as the workspace allows itself.",
}
STATES: Mapping[State, str] = {
    "DRAFT": "a draft",
    "SCHEDULED": "scheduled",
    "SENDING": "being sent",
    "PAUSED": "paused",
    "SENT": "sent",
    "CANCELLED": "cancelled",
}
# What the message of a recipient waits for who is PENDING.
WAITING: Mapping[str, str] = {
    "quiet_hours": "Quiet hours hold the contact's message: it is made when they end",
    broadcast_recipients.BUSY_DOMAIN: "Other messages to the contact's domain come first: its own"
    " is made when its turn comes",
}


async def explain(
    db: Handle, broadcast: Broadcast, *, contact_id: str, created_at: datetime
) -> list[Explained]:
    """All that is known: one thing."""
    recipient = await broadcast_recipients.by_contact(
        db,
        workspace_id=broadcast.workspace_id,
        broadcast_id=broadcast.id,
        contact_id=contact_id,
    )
    if recipient is None:
        return [await _absent(db, broadcast, contact_id, created_at)]
    if recipient.message_id is not None:
        sent = await explaining.message(
            db, workspace_id=broadcast.workspace_id, id=recipient.message_id
        )
        if sent is not None:
            return [message(sent)]
    return [_without_message(broadcast, recipient)]


async def _absent(
    db: Handle, broadcast: Broadcast, contact_id: str, created_at: datetime
) -> Explained:
    detail: str | None = None
    if broadcast.frozen_at is None:
        still = "was never fixed" if broadcast.state == "CANCELLED" else "is not fixed yet"
        detail = f"The broadcast is {STATES[broadcast.state]}: its audience {still}."
        return Explained(broadcast.updated_at, Explanation.NOT_FROZEN, broadcast.id, detail)
    if not broadcast.is_frozen and contact_id > (broadcast.frozen_until or ""):
        return Explained(broadcast.updated_at, Explanation.NOT_FROZEN, broadcast.id)
    if created_at > broadcast.frozen_at:
        detail = "The contact was created after the broadcast's audience was fixed."
    elif broadcast.finished_at is not None and await broadcast_recipients.may_be_pruned(
        db,
        workspace_id=broadcast.workspace_id,
        broadcast_id=broadcast.id,
        contact_id=contact_id,
        frozen=sum(broadcast.frozen.values()),
    ):
        return Explained(broadcast.finished_at, Explanation.RECIPIENT_PRUNED, broadcast.id)
    return Explained(broadcast.frozen_at, Explanation.NOT_IN_AUDIENCE, broadcast.id, detail)


def _without_message(broadcast: Broadcast, recipient: Recipient) -> Explained:
    at = broadcast.frozen_at or broadcast.updated_at
    if recipient.status == "PENDING" and broadcast.state == "PAUSED":
        why = control.sentence(broadcast)
        detail = "The broadcast is paused, so the contact's message waits."
        detail = f"{detail} {why}" if why else detail
        return Explained(at, Explanation.AWAITS_TURN, broadcast.id, detail)
    if recipient.status == "PENDING":
        turn = document.text(recipient.due_at)
        plain = "The contact's message is made when its turn comes"
        detail = f"{WAITING.get(recipient.reason or '', plain)}, not before {turn}."
        return Explained(at, Explanation.AWAITS_TURN, broadcast.id, detail, recipient.reason)
    if recipient.status == "CANCELLED":
        ended = broadcast.finished_at or broadcast.updated_at
        return Explained(ended, Explanation.BROADCAST_CANCELLED, broadcast.id)
    reason = recipient.reason or ""
    if reason in BARRED:
        return Explained(at, Explanation.EXCLUDED, broadcast.id, BARRED[reason], reason)
    return Explained(at, Explanation.MESSAGE_PRUNED, broadcast.id, None, recipient.status.lower())
