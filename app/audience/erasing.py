"""A contact's end: what is under way for it stops, and nothing that it left can be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from app.audience import addresses, lookups, subscriptions
from app.audience.pii_search import Search
from app.audience.workspace_context import WorkspaceContext
from app.database.db import Handle, new_id
from app.machine.reasons import Reason
from app.outbound import events
from app.store import (
    contacts,
    erasure,
    held_messages,
    runs,
    segment_members,
    suppressions,
)
from app.store.contacts import Addresses, Contact
from app.store.row_keys import ContactKey

# Of one transaction: a second or so of SQLite's one writer.
FORGOTTEN_PAGES = 5
FORGOTTEN_ROWS = 500
CANCELLED_AT_ONCE = 1_000

Erasure: TypeAlias = Literal["done", "unknown", "more"]


async def erase(
    db: Handle,
    workspace: WorkspaceContext,
    contact_id: str,
    match: Callable[[int], None] | None = None,
    search: Search | None = None,
) -> Erasure:
    """Its unfinished runs end before anything else is sent; what they and its messages held is
    forgotten, and the contact is gone. When its history is long, or there are many refused requests
    to look through, that is "more": again, in another transaction, with the same `search`.

    `match` is given its revision, and may raise: then nothing has happened.
    """
    search = search or Search()
    # Jobs of messages, the contact, its runs: in another order a worker and this could wait for
    # each other.
    await held_messages.hold_unsent(db, workspace_id=workspace.id, contact_id=contact_id)
    row = await contacts.locked(db, workspace_id=workspace.id, id=contact_id)
    if row is None:
        return "unknown"
    if match is not None:
        match(row.revision)
    cancelled = await runs.cancel_some(
        db,
        workspace_id=workspace.id,
        of="contact",
        id=contact_id,
        reason_code=Reason.CONTACT_ERASED,
        limit=CANCELLED_AT_ONCE,
    )
    if cancelled == CANCELLED_AT_ONCE:
        return "more"
    former = await contacts.former_addresses(db, workspace_id=workspace.id, id=contact_id)
    # The addresses as databases write them in lower case: some leave letters beyond ASCII alone.
    written = {
        address
        for one in (row, *former)
        for address in (one.email_key, addresses.ascii_lower(one.email or ""), one.phone)
        if address
    }
    for _ in range(FORGOTTEN_PAGES):
        if not await erasure.forget_some(
            db,
            workspace_id=workspace.id,
            contact_id=contact_id,
            addresses=sorted(written),
            limit=FORGOTTEN_ROWS,
        ):
            if await search.goes_on(db, workspace.id, row, former):
                return "more"
            await erasure.delete_requests_about(
                db,
                workspace_id=workspace.id,
                looked_up=lookups.hashes(workspace.vault, workspace.id, row, former),
            )
            shown = [contact_id, *await _suppress_erased(db, workspace, row, former)]
            await erasure.forget_answers(db, workspace_id=workspace.id, about=shown)
            whose: ContactKey = {"workspace_id": workspace.id, "contact_id": contact_id}
            await segment_members.forget_contact(db, **whose)
            await contacts.delete(db, workspace_id=workspace.id, id=contact_id)
            await events.record(db, workspace.id, "contact.deleted", {"contactId": contact_id})
            return "done"
    return "more"


async def _suppress_erased(
    db: Handle, workspace: WorkspaceContext, row: Contact, former: Sequence[Addresses]
) -> list[str]:
    """Suppress an erased person, though nobody can read any longer who it was.
    What they left before they may have left to others: only what was recorded of it stays.
    The ids of all suppressions that told of them."""
    known = subscriptions.hashes(workspace.vault, workspace.id, row)
    left = [subscriptions.hashes(workspace.vault, workspace.id, one) for one in former]
    hashes = sorted({*known.values(), *(hash for one in left for hash in one.values())})
    if not hashes:
        return []
    await suppressions.lock(db, *hashes)
    await suppressions.insert_many(
        db,
        workspace_id=workspace.id,
        rows=[
            {
                "id": new_id("sup"),
                "channel": channel,
                "address_hash": address_hash,
                "address": None,
                "reason": "erased",
                "source": "erasure",
            }
            for channel, address_hash in known.items()
        ],
    )
    return await suppressions.forget(db, workspace_id=workspace.id, address_hashes=hashes)
