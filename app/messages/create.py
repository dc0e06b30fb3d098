"""A message is ordered: its row and its first attempt, which workers find and deliver."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.db import Handle, new_id
from app.machine import document
from app.machine.categories import TRANSACTIONAL
from app.machine.program import Json
from app.messages import composing
from app.process import Process
from app.store import broadcast_recipients, delivery_attempts, messages
from app.store.messages import RequeuedMessage


@dataclass(frozen=True, slots=True)
class Order:
    """A message to be made. Without `to` it goes to the contact's own address.

    `data` is the trigger root of a message that no run sends.
    """

    workspace_id: str
    channel: str
    contact_id: str | None
    to: str | None
    template_id: str | None
    content: Mapping[str, Json] | None
    category: str = TRANSACTIONAL  # a template's own wins
    topic_id: str | None = None  # in place of the template's or the content's
    data: Json = None
    send_at: datetime | None = None  # not before
    run_id: str | None = None
    node_id: str | None = None
    visit: int | None = None
    broadcast_id: str | None = None
    account_mail: str | None = None  # its kind: it holds a secret, and is not for all to read
    addressee_id: str | None = None  # the user who alone may read such a mail


@dataclass(frozen=True, slots=True)
class Made:
    message_id: str
    attempt_id: str


async def create(process: Process, db: Handle, order: Order) -> Made:
    """The message and its first attempt, QUEUED; workers are told once the transaction commits."""
    message_id = new_id("msg")
    source = document.dumps({"content": order.content, "data": order.data})
    secret = order.account_mail is not None
    await messages.insert(
        db,
        workspace_id=order.workspace_id,
        id=message_id,
        run_id=order.run_id,
        node_id=order.node_id,
        visit=order.visit,
        broadcast_id=order.broadcast_id,
        contact_id=order.contact_id,
        template_id=order.template_id,
        channel=order.channel,
        category=order.category,
        topic_id=order.topic_id,
        send_at=order.send_at,
        to_address=order.to,
        source="{}" if secret else source.decode(),
        account_mail=order.account_mail,
        addressee_id=order.addressee_id,
        sealed=process.vault.encrypt(composing.SEALED, source, order.workspace_id, message_id)
        if secret
        else None,
    )
    key = _key(_origin(order, message_id), order.node_id, order.visit, order.channel, 1)
    return Made(
        message_id, await _attempt(process, db, order.workspace_id, message_id, number=1, key=key)
    )


async def resend(
    process: Process,
    db: Handle,
    workspace_id: str,
    message_id: str,
    ended: Sequence[str] = ("UNKNOWN",),
    *,
    unsent: Sequence[str] = (),
) -> str | None:
    """A new attempt, under a new key, of a message that has `ended` like this, or was suppressed
    for one of the reasons `unsent`; its id, or None."""
    row = await messages.requeue(
        db, workspace_id=workspace_id, id=message_id, ended=ended, unsent=unsent
    )
    if row is None:
        return None
    number = 1 + len(
        await delivery_attempts.of_message(db, workspace_id=workspace_id, message_id=message_id)
    )
    if row.broadcast_id is not None and row.contact_id is not None:
        await broadcast_recipients.queue(
            db,
            workspace_id=workspace_id,
            broadcast_id=row.broadcast_id,
            contact_id=row.contact_id,
            message_id=message_id,
        )
    key = _key(_origin(row, message_id), row.node_id, row.visit, row.channel, number)
    return await _attempt(process, db, workspace_id, message_id, number=number, key=key)


async def _attempt(
    process: Process, db: Handle, workspace_id: str, message_id: str, *, number: int, key: str
) -> str:
    """The id of a new attempt, which workers hear of once the transaction commits."""
    id = new_id("att")
    await delivery_attempts.insert(
        db,
        workspace_id=workspace_id,
        id=id,
        message_id=message_id,
        number=number,
        message_key=key,
    )
    process.hints.due(db, "message", workspace_id, message_id)
    return id


def _origin(made: Order | RequeuedMessage, message_id: str) -> str:
    """The run, or the contact of a broadcast, or nothing but itself."""
    if made.broadcast_id is not None:
        return f"{made.broadcast_id}|{made.contact_id}"
    return made.run_id or message_id


def _key(origin: str, node_id: str | None, visit: int | None, channel: str, number: int) -> str:
    """The same for every try of one attempt, whoever makes it, and for nothing else."""
    parts = ("v1", origin, node_id or "", str(visit or 0), channel, str(number))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:40]
