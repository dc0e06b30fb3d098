"""Which segments name which, and the past of contacts, as much of it as a filter asks for and
memory holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from app.audience import segments, writing
from app.audience.reactions import ContactEvent, all_happened
from app.audience.segments import Past, Readable
from app.audience.workspace_context import WorkspaceContext
from app.machine import document
from app.machine.program import Json
from app.machine.segment_filter import Filter
from app.process import Process
from app.store import contact_past, contacts
from tests.audience.test_dates import WATCH

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
        return [one async for one in segments.pasts(db, [readable(raw)], now, **given)]


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
    monkeypatch.setattr(segments, "PASTS_AT_ONCE", 2)
    ids = await people(process, acme, 5, "order")
    loaded.clear()
    found = await pasts(process, acme, ids, MATCHED)
    assert sorted(past.id for past in found) == sorted(ids)
    assert [len(past.events) for past in found] == [1] * 5
    assert loaded == [2, 2, 1]


async def test_who_leads_to_a_segment_is_found_in_one_reading_of_all_with_turns_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tagged = {"path": "contact.tags", "op": "contains", "value": "vip"}
    filters = [tagged, *({"not": {"segmentId": f"seg_{number}"}} for number in range(199))]
    texts = {f"seg_{number}": document.dumps(one).decode() for number, one in enumerate(filters)}
    existing = {id: replace(WATCH, id=id, kind="live", filter=text) for id, text in texts.items()}
    turns, read_at, parse = 0, [], segments.parse

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def reading(text: str) -> Filter:
        read_at.append(turns)
        return parse(text)

    monkeypatch.setattr(segments, "parse", reading)
    ticking = asyncio.create_task(tick())
    assert await segments.leading_to("seg_0", existing) == [*existing][1:]
    ticking.cancel()
    assert len(read_at) == 200
    assert max(Counter(read_at).values()) <= segments.TURN
    assert await segments.naming("seg_7", existing) == ["seg_8"]
    assert await segments.naming("seg_199", existing) == []
