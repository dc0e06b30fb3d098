"""The messages that the sandbox captured instead of sending them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from app.database.db import Handle, new_id
from app.database.sql import named_values
from app.store import keyset
from app.store.messages import VISIBLE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class Captured(DataclassInstance, Protocol):
        @property
        def workspace_id(self) -> str: ...
        @property
        def message_id(self) -> str: ...


OF_NONE = dict.fromkeys(("category", "account_mail", "addressee_id"))


@dataclass(frozen=True, slots=True)
class CapturedMessage:
    id: str
    message_id: str
    attempt_id: str
    run_id: str | None
    contact_id: str | None
    channel: str
    category: str | None
    to_address: str | None  # taken out where the reader may not see it
    from_address: str | None
    subject: str | None
    text: str | None  # None only within `page`: a row that it did not read, and drops
    html: str | None
    headers: Mapping[str, Any]
    captured_at: datetime


MOST_BYTES = 4 * 1024 * 1024  # of the texts and the HTML of a page
_BYTES = "octet_length(newest.text) + octet_length(COALESCE(newest.html, ''))"
_FITS = f"SUM({_BYTES}) OVER (ORDER BY newest.id DESC) - ({_BYTES}) < :most_bytes"
_READ = ", ".join(
    f"CASE WHEN {_FITS} THEN newest.{one.name} END AS {one.name}"
    if one.name in ("text", "html")
    else f"newest.{one.name}"
    for one in fields(CapturedMessage)
)


async def insert(db: Handle, captured: Captured) -> None:
    """`captured` is providers.inbox.Captured, field for column; of two with one key the first.
    Who may read it is as of its message."""
    of_message = await db.fetch_one(
        """
        SELECT category, account_mail, addressee_id FROM messages
        WHERE workspace_id = :workspace_id AND id = :message_id
        """,
        workspace_id=captured.workspace_id,
        message_id=captured.message_id,
    )
    await db.execute_many(
        """
        INSERT INTO captured_messages (workspace_id, id, message_key, message_id, attempt_id,
                                       run_id, contact_id, channel, to_address, from_address,
                                       subject, text, html, headers, captured_at,
                                       category, account_mail, addressee_id)
        VALUES (:workspace_id, :id, :message_key, :message_id, :attempt_id,
                :run_id, :contact_id, :channel, :to_address, :from_address,
                :subject, :text, :html, :headers, :now,
                :category, :account_mail, :addressee_id)
        ON CONFLICT (workspace_id, message_key) DO NOTHING
        """,
        [{"id": new_id("cap"), **named_values(captured), **(of_message or OF_NONE)}],
    )


async def newest(db: Handle, *, workspace_id: str) -> str | None:
    """The id of what was captured last."""
    id: str | None = await db.fetch_value(
        "SELECT max(id) FROM captured_messages WHERE workspace_id = :workspace_id",
        workspace_id=workspace_id,
    )
    return id


async def page(
    db: Handle,
    *,
    workspace_id: str,
    filters: Mapping[str, object],
    before: str | None,
    limit: int,
    mails: Sequence[str] = (),
    reader: str | None = None,
) -> tuple[list[CapturedMessage], str | None]:
    """A page of captured messages, the newest first. `mails`, `reader`: see messages.VISIBLE. It
    ends early with the message that fills its MOST_BYTES; the second value is then the id below
    which the next page begins, and None otherwise."""
    narrowed, values = keyset.narrowed(CLAUSES, filters, before)
    rows = await db.fetch_all_as(
        CapturedMessage,
        f"""
        SELECT {_READ}
        FROM (SELECT * FROM captured_messages m
              WHERE workspace_id = :workspace_id AND {VISIBLE} {narrowed}
              ORDER BY id DESC
              LIMIT :limit) newest
        ORDER BY newest.id DESC
        """,
        workspace_id=workspace_id,
        limit=limit,
        mails=mails,
        reader=reader,
        most_bytes=MOST_BYTES,
        **values,
    )
    whole = [row for row in rows if row.text is not None]
    return whole, whole[-1].id if len(whole) < len(rows) else None


CLAUSES = {
    "to": "lower(to_address) = lower(:to)",
    "channel": "channel = :channel",
    "contact_id": "contact_id = :contact_id",
    "run_id": "run_id = :run_id",
    "message_id": "message_id = :message_id",
    "created_after": "captured_at > :created_after",
    "created_before": "captured_at < :created_before",
}
