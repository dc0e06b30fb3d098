"""The contacts go out as a file: page after page, no connection held while somebody reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, TypeAlias

from app.audience import shapes
from app.files import sheets
from app.identity.identity import Recheck
from app.machine import document
from app.machine.content import CHANNELS
from app.machine.program import Json
from app.process import Process
from app.store import consent_events, contacts, searches, topics
from app.store.consent_events import ConsentEvent

PAGE = 500
METADATA_COLUMNS = 500

BEFORE = ("id", "email", "phone", "firstName", "lastName", "timezone", "locale")
AFTER = ("createdAt", "updatedAt")

Resource: TypeAlias = Mapping[str, Json]


async def as_csv(
    process: Process, workspace_id: str, filters: Mapping[str, Any], recheck: Recheck
) -> AsyncGenerator[bytes, None]:
    """The contacts as CSV that `imports` reads. `recheck` is awaited before each page, and raises
    Problem when nothing more may be read. Raises TooManyColumns before the first piece."""
    async with process.database.read() as db:
        names = await contacts.field_names(
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
    async for page in _pages(process, workspace_id, filters, recheck):
        rows = []
        for contact in page:
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


async def as_json_lines(
    process: Process, workspace_id: str, filters: Mapping[str, Any], recheck: Recheck
) -> AsyncGenerator[bytes, None]:
    """A contact a line, with what is known of its consent. `recheck` as above."""
    async for page in _pages(process, workspace_id, filters, recheck):
        ids = [contact["id"] for contact in page]
        async with process.database.read() as db:
            consents = await consent_events.of_contacts(
                db, workspace_id=workspace_id, contact_ids=ids
            )
        yield sheets.json_lines(
            [
                {**contact, "consents": [_consent(one) for one in consents[contact["id"]]]}
                for contact in page
            ]
        )


def _consent(one: ConsentEvent) -> dict[str, Json]:
    return {
        "channel": one.channel,
        "topicId": one.topic_id,
        "change": one.kind,
        "reason": one.reason,
        "source": one.source,
        "evidence": one.evidence,
        "at": one.at,
    }


class TooManyColumns(Exception):
    """A table cannot hold all the metadata there is; its argument is how many names it can."""


async def _pages(
    process: Process, workspace_id: str, filters: Mapping[str, Any], recheck: Recheck
) -> AsyncGenerator[Sequence[Resource], None]:
    before: str | None = None
    while True:
        await recheck()
        async with process.database.read() as db:
            rows, rest = await searches.page(
                db, workspace_id=workspace_id, filters=filters, before=before, limit=PAGE
            )
            ids = [row.id for row in rows]
            tags = await contacts.tags_of(db, workspace_id=workspace_id, contact_ids=ids)
        if rows:
            yield [shapes.resource(row, tags[row.id]) for row in rows]
        before = ids[-1] if len(rows) == PAGE else rest
        if before is None:
            return
