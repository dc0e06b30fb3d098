"""The past of contacts, as much of it as a filter asks for and memory holds."""

from __future__ import annotations

from typing import Any

import pytest

from app.audience import segment_contacts, segments, writing
from app.audience.reactions import ContactEvent, all_happened
from app.audience.segment_contacts import Past
from app.audience.segments import Readable
from app.audience.workspace_context import WorkspaceContext
from app.machine import document
from app.machine.program import Json
from app.process import Process
from app.store import contact_past, contacts

LARGE = {"text": "é" * 30_000}  # two bytes each
ORDERED = {"event": "order", "count": {"op": "gte", "value": 3}}
MATCHED = {"event": "order", "match": {"path": "event.properties.n", "op": "exists", "value": True}}


def readable(raw: Json) -> Readable:
    return Readable(segments.parse(document.dumps(raw).decode()))


async def people(process: Process, acme: str, count: int, *events: str) -> list[str]:
    """Contacts with these events, of 60 kB each."""
    context = WorkspaceContext(acme, None, process.vault, hints=process.hints)
    ids = []
    async with process.database.write() as db:
        for number in range(count):
            row = await writing.create(db, context, {"email": f"{number}@x.test"}, [])
            ids.append(row.id)
            now = await db.now()
            happened = [ContactEvent(row.id, name, LARGE, now, reacts=False) for name in events]
            await all_happened(db, context, happened)
    return ids


async def pasts(process: Process, acme: str, ids: list[str], raw: Json) -> list[Past]:
    async with process.database.read() as db:
        rows = await contacts.by_ids(db, workspace_id=acme, ids=ids)
        given: dict[str, Any] = {"workspace_id": acme, "rows": rows}
        now = await db.now()
        return [one async for one in segment_contacts.pasts(db, [readable(raw)], now, **given)]


async def test_properties_are_read_where_a_match_asks_for_them(process: Process, acme: str) -> None:
    ids = await people(process, acme, 1, "order", "visit", "order")
    [past] = await pasts(process, acme, ids, ORDERED)
    assert [(one.name, one.properties) for one in past.events] == [("order", "{}")] * 2
    [past] = await pasts(process, acme, ids, {"all": [MATCHED, {"event": "visit"}]})
    large = document.dumps(LARGE).decode()
    assert [(one.name, one.properties) for one in past.events] == [
        ("order", large),
        ("visit", "{}"),
        ("order", large),
    ]


async def test_of_large_properties_the_newest_are_read(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contact_past, "MOST_PROPERTIES", 150_000)
    ids = await people(process, acme, 1, "order", "visit", "visit", "order", "order")
    [past] = await pasts(process, acme, ids, {"any": [MATCHED, {"event": "visit"}]})
    assert [one.name for one in past.events] == ["order", "order", "visit", "visit"]
    [past] = await pasts(process, acme, ids, ORDERED)
    assert len(past.events) == 3


async def test_the_pasts_of_a_few_are_in_memory_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, loaded = contact_past.events, []

    async def counted(*given: Any, **named: Any) -> Any:
        loaded.append(len(named["contact_ids"]))
        return await read(*given, **named)

    monkeypatch.setattr(contact_past, "events", counted)
    monkeypatch.setattr(segment_contacts, "PASTS_AT_ONCE", 2)
    ids = await people(process, acme, 5, "order")
    loaded.clear()
    found = await pasts(process, acme, ids, MATCHED)
    assert sorted(past.id for past in found) == sorted(ids)
    assert [len(past.events) for past in found] == [1] * 5
    assert loaded == [2, 2, 1]
