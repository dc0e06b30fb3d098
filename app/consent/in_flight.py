"""Messages in flight when somebody opts out: waited for, and named if they may arrive all the same.

Before an opt-out is answered, for the first time or again, `quiet` waits for the sends that were
intended earlier, and those that have not finished by then are named in the opt-out's record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.audience import subscriptions
from app.consent.consent import Suppression
from app.machine.content import ADDRESS_FIELD
from app.process import Process
from app.store import consent_events, messages, suppressions
from app.store.contacts import Contact
from app.store.row_keys import HashedAddressKey

QUIET_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 0.1


async def quiet(process: Process, suppression: Suppression) -> list[str]:
    """Wait, after the commit and outside of any transaction, until nothing is being sent to the
    address. The ids of messages that may arrive all the same, which the record names from then on.

    Before every answer that says so: who asks again may never have heard the first one, and whoever
    was to wait for that may be dead."""
    where: HashedAddressKey = {
        "workspace_id": suppression.workspace_id,
        "address_hash": suppression.address_hash,
    }
    deadline = time.monotonic() + QUIET_SECONDS
    while True:
        async with process.database.read() as db:
            rows = await messages.in_flight(db, **where)
        sending = any(row.status == "SENDING" for row in rows)
        if not sending or time.monotonic() > deadline:
            break
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    ids, left = sorted(row.id for row in rows), suppression.left
    if not ids:
        return []
    async with process.database.write() as db:
        if left is None:
            reason = suppression.reason
            await suppressions.name_in_flight(db, **where, reason=reason, message_ids=ids)
        else:
            await consent_events.name_in_answer(
                db,
                workspace_id=suppression.workspace_id,
                contact_id=left.contact_id,
                channel=left.channel,
                topic_id=left.topic_id,
                message_ids=ids,
            )
    return ids


def known(
    process: Process, workspace_id: str, channel: str, address: str, reason: suppressions.Reason
) -> Suppression:
    """The suppression that `suppress` made, or would have made. Raises addresses.BadAddress."""
    key = subscriptions.key(channel, address)
    hash = subscriptions.hashed(process.vault, workspace_id, channel, key)
    return Suppression(workspace_id, hash, reason, is_new=False)


def withdrawn(process: Process, workspace_id: str, shown: Mapping[str, Any]) -> list[Suppression]:
    """The channels that a contact, as the API shows it, left: sends on these are waited for."""
    addresses = {channel: shown[field] for channel, field in ADDRESS_FIELD.items()}
    return [
        known(process, workspace_id, channel, addresses[channel], "unsubscribed")
        for channel, status in shown["subscriptions"].items()
        if status != subscriptions.SUBSCRIBED and addresses[channel]
    ]


def erased(process: Process, workspace_id: str, row: Contact) -> list[Suppression]:
    """The suppressions of an erased contact, by the row that it had."""
    hashes = subscriptions.hashes(process.vault, workspace_id, row)
    return [Suppression(workspace_id, hash, "erased") for hash in hashes.values()]


async def all_quiet(process: Process, found: Sequence[Suppression]) -> list[str]:
    """Wait for each, all at once; what may arrive all the same."""
    waited = await asyncio.gather(*(quiet(process, one) for one in found))
    return [id for ids in waited for id in ids]
