"""Segments that name one another."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from app.audience import segments
from app.machine import document
from app.machine.segment_filter import Filter
from tests.audience.test_dates import WATCH


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
