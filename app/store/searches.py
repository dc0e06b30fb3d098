"""Contacts by how what they are known by begins, and by when they were changed; newest first.

However many are found, a page costs the same. When they are few, they are found by the indexes of
what they begin with or of the times, and sorted. When they are many, they are met soon on the way
through all that there are; a page on which they are not met within so many ends there, and the next
goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from app.database.db import Handle
from app.store import contact_lists, contacts, keyset
from app.store.contact_lists import EMAIL, LAST_NAME, LEADS, NAME, PHONE
from app.store.contacts import Contact

FEW = 1_000  # that are looked at one by one
# That are walked by for a page, when more than those are found: most pages are full by the first.
WALKS = (2_000, 100_000)
# That were changed since, and are sorted when they are not met by the first walk: a tenth of what
# the second costs.
SOME = 20_000


async def page(
    db: Handle, *, workspace_id: str, filters: Mapping[str, Any], before: str | None, limit: int
) -> tuple[list[Contact], str | None]:
    """Read a page like contact_lists.page, perhaps with `q` and `q_phone`, or of `ids` alone. `q`
    is what an email or a name begins with, `q_phone` what a phone number does. A page that is
    shorter than `limit` may not be the last: then the second is the id below which the next one
    goes on."""
    if filters.keys().isdisjoint({"q", "updated_after", "ids"}):
        return await contact_lists.page(
            db, workspace_id=workspace_id, filters=filters, before=before, limit=limit
        )
    q = _values(filters["q"], filters.get("q_phone")) if "q" in filters else {}
    others = {name: value for name, value in filters.items() if name not in ("q", "q_phone")}
    others = contact_lists.numbered(await keyset.by_time(db, "con", others))
    if "ids" in others:  # which are few, whatever else is asked of them
        return await contact_lists.page_by_sorting(db, workspace_id, {**others, **q}, before, limit)
    ids = await _few(db, workspace_id, q) if q else []
    if q and len(ids) <= FEW:
        return await contact_lists.page_by_sorting(
            db, workspace_id, {**others, "ids": ids}, before, limit
        )
    for walk, most in zip(WALKS, (FEW, SOME), strict=True):
        if not q and not await _more_changed(db, workspace_id, others["updated_after"], most):
            return await contact_lists.page_by_sorting(db, workspace_id, others, before, limit)
        # First: what goes meanwhile must not move it behind what was not looked at.
        reached = await _reached(db, workspace_id, others, before, walk)
        met = {**others, **q} if reached is None else {**others, **q, "id_from": reached}
        rows, rest = await contact_lists.page_by_walking(db, workspace_id, met, before, limit)
        if rest is not None or reached is None or len(rows) == limit:
            return rows, rest
    return rows, reached


def _values(q: str, q_phone: str | None) -> dict[str, str | None]:
    """The range of values: what follows a text comes before U+10FFFF, what follows a number, before
    a letter."""
    name, email = contacts.search_key(q), q.lower()  # as `addresses` makes the key of an email
    return {
        "q_email": email,
        "q_email_end": email + "\U0010ffff",
        "q_name": name,
        "q_name_end": name + "\U0010ffff",
        "q_phone": q_phone,
        "q_phone_end": q_phone and q_phone + "a",
    }


async def _few(db: Handle, workspace_id: str, q: Mapping[str, str | None]) -> list[str]:
    """The ids of those that begin so; more than FEW when there are more, and then not all."""
    # In the order of its index: a planner that hopes to meet some soon would walk the whole table.
    return await db.fetch_values(
        f"""
        SELECT by_email.id FROM (
            SELECT c.id FROM contacts c WHERE c.workspace_id = :workspace_id AND {EMAIL}
            ORDER BY c.email_key USING ~<~ LIMIT :most
        ) by_email
        UNION ALL
        SELECT by_name.id FROM (
            SELECT c.id FROM contacts c WHERE c.workspace_id = :workspace_id AND {NAME}
            ORDER BY c.name_key USING ~<~ LIMIT :most
        ) by_name
        UNION ALL
        SELECT by_last_name.id FROM (
            SELECT c.id FROM contacts c WHERE c.workspace_id = :workspace_id AND {LAST_NAME}
            ORDER BY c.last_name_key USING ~<~ LIMIT :most
        ) by_last_name
        UNION ALL
        SELECT by_phone.id FROM (
            SELECT c.id FROM contacts c WHERE c.workspace_id = :workspace_id AND {PHONE}
            ORDER BY c.phone LIMIT :most
        ) by_phone
        """,
        workspace_id=workspace_id,
        most=FEW + 1,
        **q,
    )


async def _more_changed(db: Handle, workspace_id: str, updated_after: datetime, most: int) -> bool:
    """Return whether more than that many contacts were changed since."""
    beyond = await db.fetch_value(
        """
        SELECT c.id FROM contacts c
        WHERE c.workspace_id = :workspace_id AND c.updated_at > :updated_after
        ORDER BY c.updated_at
        LIMIT 1 OFFSET :most
        """,
        workspace_id=workspace_id,
        updated_after=updated_after,
        most=most,
    )
    return beyond is not None


async def _reached(
    db: Handle, workspace_id: str, filters: Mapping[str, Any], before: str | None, walk: int
) -> str | None:
    """Find how far a page looks: the id of the last of so many, or None when there are fewer."""
    lead = next((name for name in LEADS if name in filters), None)
    table, clauses = LEADS[lead] if lead else ("", {})
    along = {name: filters[name] for name in (*clauses, *keyset.BOUNDS) if name in filters}
    if lead is None:
        narrowed, values = keyset.narrowed(clauses, along, before, "c.id")
        sql = f"""
            SELECT c.id FROM contacts c
            WHERE c.workspace_id = :workspace_id {narrowed}
            ORDER BY c.id DESC
            LIMIT 1 OFFSET :others
            """
    else:
        narrowed, values = keyset.narrowed(clauses, along, before, "l.contact_id")
        sql = f"""
            SELECT l.contact_id FROM {table} l
            WHERE l.workspace_id = :workspace_id {narrowed}
            ORDER BY l.contact_id DESC
            LIMIT 1 OFFSET :others
            """
    reached: str | None = await db.fetch_value(
        sql, workspace_id=workspace_id, others=walk - 1, **values
    )
    return reached
