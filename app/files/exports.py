"""The contacts go out as a file: page after page, no connection held while somebody reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeAlias

from app.audience import shapes
from app.files import sheets
from app.identity.identity import Recheck
from app.machine import document
from app.machine.content import CHANNELS
from app.machine.program import Json
from app.process import Process
from app.store import consent_events, contact_lists, contacts, searches, topics

PAGE = 200
METADATA_COLUMNS = 500
CELLS = 20_000  # of a piece of CSV, written without a pause: a dozen milliseconds
# Contacts whose consent events are read together: each contact may have a hundred of them, and each
# of these 2,000 characters of evidence.
CONSENTS = 20

BEFORE = ("id", "email", "phone", "firstName", "lastName", "timezone", "locale")
AFTER = ("createdAt", "updatedAt")

Resource: TypeAlias = Mapping[str, Json]


async def as_csv(
    process: Process, workspace_id: str, filters: Mapping[str, object], recheck: Recheck
) -> AsyncGenerator[bytes, None]:
    """The contacts as CSV that `imports` reads. `recheck` is awaited before each page, and raises
    Problem when nothing more may be read. Raises TooManyColumns before the first piece."""
    async with process.database.read() as db:
        names = await contact_lists.field_names(
            db, workspace_id=workspace_id, limit=METADATA_COLUMNS + 1
        )
        known = await topics.of_workspace(db, workspace_id=workspace_id)
    asked = [
        (topic.id, channel)
        for topic in known.values()
        for channel in topic.channels
        if not topic.is_default
    ]
    if len(names) > METADATA_COLUMNS:
        raise TooManyColumns(METADATA_COLUMNS)
    header = [
        *BEFORE,
        "tags",
        *(f"subscriptions.{channel}" for channel in CHANNELS),
        *(f"topics.{id}.{channel}" for id, channel in asked),
        *(f"metadata.{name}" for name in names),
        *AFTER,
    ]
    yield sheets.csv_text([header])
    few = max(1, CELLS // len(header))
    async for some in _pieces(process, workspace_id, filters, recheck, few):
        rows = []
        for contact in some:
            values = [
                *(contact[name] for name in BEFORE),
                sheets.list_text(contact["tags"]),
                *(contact["subscriptions"][channel] for channel in CHANNELS),
                *(contact["topics"].get(id, {}).get(channel) for id, channel in asked),
                *(contact["metadata"].get(name) for name in names),
                *(contact[name] for name in AFTER),
            ]
            rows.append([document.text(value) for value in values])
        yield sheets.csv_text(rows)
        await asyncio.sleep(0)  # other tasks run, however fast the client reads


async def as_json_lines(
    process: Process, workspace_id: str, filters: Mapping[str, object], recheck: Recheck
) -> AsyncGenerator[bytes, None]:
    """A contact a line, with what is known of its consent. `recheck` as above."""
    async for some in _pieces(process, workspace_id, filters, recheck, CONSENTS):
        ids = [contact["id"] for contact in some]
        async with process.database.read() as db:
            consents = await consent_events.of_contacts(
                db, workspace_id=workspace_id, contact_ids=ids
            )
        lines = []
        for contact in some:
            shown = [
                {
                    "channel": one.channel,
                    "topicId": one.topic_id,
                    "change": one.kind,
                    "reason": one.reason,
                    "source": one.source,
                    "evidence": one.evidence,
                    "at": one.at,
                }
                for one in consents[contact["id"]]
            ]
            lines.append({**contact, "consents": shown})
        yield sheets.json_lines(lines)


class TooManyColumns(Exception):
    """A table cannot hold all the metadata there is; its argument is how many names it can."""


async def _pieces(
    process: Process,
    workspace_id: str,
    filters: Mapping[str, object],
    recheck: Recheck,
    length: int,
) -> AsyncGenerator[Sequence[Resource], None]:
    """The contacts, page after page, in pieces of at most `length`."""
    before: str | None = None
    while True:
        await recheck()
        async with process.database.read() as db:
            rows, rest = await searches.page(
                db, workspace_id=workspace_id, filters=filters, before=before, limit=PAGE
            )
            ids = [row.id for row in rows]
            tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids)
        page = [shapes.resource(row, tags[row.id]) for row in rows]
        for start in range(0, len(page), length):
            yield page[start : start + length]
        before = ids[-1] if len(rows) == PAGE else rest
        if before is None:
            return
