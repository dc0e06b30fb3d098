"""The erasure of a contact, which leaves that something happened, and when, but not a word of it.

Whatever table comes to hold a payload, a rendered text or an address of a contact belongs here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.database.db import Handle
from app.store.messages import MAY_ARRIVE, accepting_since
from app.store.row_keys import ContactKey


async def forget_some(
    db: Handle, *, workspace_id: str, contact_id: str, addresses: Sequence[str], limit: int
) -> bool:
    """Forget so many rows of each table of the contact, and of what was sent to its addresses,
    which are in lower case, for nobody's or somebody else's sake. False when nothing was left to
    forget."""
    runs = await _remembering_runs(db, workspace_id, contact_id, limit)
    messages = await _remembering_messages(db, workspace_id, contact_id, limit)
    sent = await _messages_to(db, workspace_id, addresses, limit)
    whose: ContactKey = {"workspace_id": workspace_id, "contact_id": contact_id}
    captured = await delete_rows(db, "captured_messages", **whose, limit=limit)
    captured += await _delete_captured_for(db, workspace_id, addresses, limit)
    events = await delete_rows(db, "contact_events", **whose, limit=limit)
    requests = await delete_rows(db, "webhook_requests", **whose, limit=limit)
    await forget_runs(db, workspace_id=workspace_id, ids=runs)
    await forget_messages(db, workspace_id=workspace_id, ids=[*messages, *sent])
    return bool(runs or messages or sent or captured or events or requests)


async def forget_runs(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> None:
    if not ids:
        return
    await db.execute(
        """
        UPDATE run_steps SET output = NULL, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND run_id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
    )
    await db.execute(
        """
        UPDATE runs SET body = :nothing, state = NULL, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        nothing=b"{}",
    )
    await forget_answers(db, workspace_id=workspace_id, about=ids)


async def forget_answers(db: Handle, *, workspace_id: str, about: Sequence[str]) -> None:
    """Kept for copies of a request; whose key stays used, or a copy would make it all once more."""
    await db.execute(
        """
        UPDATE idempotency_keys SET answer = :nothing
        WHERE workspace_id = :workspace_id AND about = ANY(:about)
        """,
        workspace_id=workspace_id,
        about=list(about),
        nothing=b"",
    )


async def forget_messages(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> None:
    """Forget messages; one that may still arrive keeps its address's hash until it cannot:
    by that the erasure, and every opt-out after it, can tell of it."""
    if not ids:
        return
    await db.execute(
        """
        UPDATE delivery_attempts SET events = :none, reason_detail = NULL
        WHERE workspace_id = :workspace_id AND message_id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        none=[],
    )
    await db.execute(
        f"""
        UPDATE messages SET to_address = NULL, source = '{{}}', content = NULL,
                            reason_detail = NULL,
                            address_hash = CASE WHEN status = 'SENDING' OR {MAY_ARRIVE}
                                                THEN address_hash END
        WHERE workspace_id = :workspace_id AND id = ANY(:ids)
        """,
        workspace_id=workspace_id,
        ids=list(ids),
        accepting_since=await accepting_since(db),
    )


async def forget_message(db: Handle, *, workspace_id: str, id: str) -> None:
    """Forget a message whose reader was erased while it was under way."""
    await forget_messages(db, workspace_id=workspace_id, ids=[id])
    await db.execute(
        """
        DELETE FROM captured_messages
        WHERE workspace_id = :workspace_id AND message_id = :id
        """,
        workspace_id=workspace_id,
        id=id,
    )


async def _remembering_runs(
    db: Handle, workspace_id: str, contact_id: str, limit: int
) -> list[str]:
    return await db.fetch_values(
        """
        SELECT id FROM runs
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND (body <> :nothing OR state IS NOT NULL OR reason_detail IS NOT NULL)
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        nothing=b"{}",
        limit=limit,
    )


async def _remembering_messages(
    db: Handle, workspace_id: str, contact_id: str, limit: int
) -> list[str]:
    return await db.fetch_values(
        """
        SELECT id FROM messages
        WHERE workspace_id = :workspace_id AND contact_id = :contact_id
          AND (source <> '{}' OR content IS NOT NULL OR to_address IS NOT NULL
               OR reason_detail IS NOT NULL)
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=limit,
    )


async def _messages_to(
    db: Handle, workspace_id: str, addresses: Sequence[str], limit: int
) -> list[str]:
    """The messages of no run, for those of one are its contact's. Not mail about accounts: that is
    for people who sign in here, whatever the workspace knows of them."""
    return await db.fetch_values(
        """
        SELECT id FROM messages
        WHERE workspace_id = :workspace_id AND lower(to_address) = ANY(:addresses)
          AND run_id IS NULL AND account_mail IS NULL
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        addresses=list(addresses),
        limit=limit,
    )


async def _delete_captured_for(
    db: Handle, workspace_id: str, addresses: Sequence[str], limit: int
) -> int:
    # COALESCE keeps SQLite from going through all that no run has sent.
    gone = await db.fetch_all(
        """
        DELETE FROM captured_messages
        WHERE workspace_id = :workspace_id AND id IN (
            SELECT id FROM captured_messages
            WHERE workspace_id = :workspace_id AND lower(to_address) = ANY(:addresses)
              AND COALESCE(run_id, '') = '' AND account_mail IS NULL
            LIMIT :limit)
        RETURNING id
        """,
        workspace_id=workspace_id,
        addresses=list(addresses),
        limit=limit,
    )
    return len(gone)


async def delete_rows(
    db: Handle,
    table: Literal["captured_messages", "contact_events", "webhook_requests"],
    *,
    workspace_id: str,
    contact_id: str,
    limit: int = 1_000,
) -> int:
    """Delete the rows of the contact; how many. Receipts are not among them: they hold ids and
    hashes, and a repeat must not start another run."""
    gone = await db.fetch_all(
        f"""
        DELETE FROM {table}
        WHERE workspace_id = :workspace_id AND id IN (
            SELECT id FROM {table}
            WHERE workspace_id = :workspace_id AND contact_id = :contact_id
            LIMIT :limit)
        RETURNING id
        """,
        workspace_id=workspace_id,
        contact_id=contact_id,
        limit=limit,
    )
    return len(gone)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    id: str
    headers: Mapping[str, str]
    detail: str | None
    body: bytes | None


async def refused_requests(
    db: Handle, *, workspace_id: str, after: str, limit: int
) -> list[RefusedRequest]:
    """Nothing but their words tells whom they are about; the first page is after ""."""
    return await db.fetch_all_as(
        RefusedRequest,
        """
        SELECT id, headers, detail, body FROM webhook_requests
        WHERE workspace_id = :workspace_id AND id > :after AND outcome = 'REFUSED'
        ORDER BY id
        LIMIT :limit
        """,
        workspace_id=workspace_id,
        after=after,
        limit=limit,
    )


async def delete_requests_about(db: Handle, *, workspace_id: str, looked_up: Sequence[str]) -> None:
    """Delete requests that were refused, and named the contact."""
    await db.execute(
        """
        DELETE FROM webhook_requests
        WHERE workspace_id = :workspace_id AND looked_up = ANY(:looked_up)
        """,
        workspace_id=workspace_id,
        looked_up=list(looked_up),
    )


async def delete_requests(db: Handle, *, workspace_id: str, ids: Sequence[str]) -> None:
    if not ids:
        return
    await db.execute(
        "DELETE FROM webhook_requests WHERE workspace_id = :workspace_id AND id = ANY(:ids)",
        workspace_id=workspace_id,
        ids=list(ids),
    )
