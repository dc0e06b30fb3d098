"""Statements about contacts that take too long, as of those who have done thousands of things."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from app.database.db import Handle
from app.errors import Contended
from app.store import broadcast_audiences, segment_fills, segments
from app.store.broadcast_audiences import Window
from app.store.segment_fills import Stretch
from app.store.segments import Fitting


def cut_off(monkeypatch: pytest.MonkeyPatch, *, least: int, seconds: float = 0.0) -> None:
    """Let statements that judge so many contacts, or more, take too long, which is this long."""
    for module, name, count in STATEMENTS:
        asked = getattr(module, name)
        monkeypatch.setattr(module, name, partial(_limited, asked, count, least, seconds))


async def _limited(
    asked: Any, count: Any, least: int, seconds: float, *given: Any, **named: Any
) -> Any:
    if await count(*given, **named) >= least:
        await asyncio.sleep(seconds)
        raise Contended("canceling statement due to statement timeout")
    return await asked(*given, **named)


async def _between(
    db: Handle, fits: Fitting, *, since: str | None, before: str | None, **_: Any
) -> int:
    return await _counted(db, fits, "id >= :a AND id < :b", a=since or "", b=before or "z")


async def _in_window(db: Handle, fits: Fitting, *given: Any, **_: Any) -> int:
    window = next(one for one in given if isinstance(one, Window))
    return await _counted(db, fits, "id > :a AND id <= :b", a=window.after, b=window.until)


async def _counted(db: Handle, fits: Fitting, which: str, **ids: str) -> int:
    if fits.sql in {"c.id = :alone", "FALSE"}:  # the machine has judged
        return 0
    return int(await db.fetch_value(f"SELECT count(*) FROM contacts WHERE {which}", **ids))


async def _filled(
    db: Handle, _asked: Any, _flip: Any, stretch: Stretch, *, workspace_id: str, **_: Any
) -> int:
    return len(await segment_fills.ids_of(db, stretch, workspace_id=workspace_id))


async def _changed(*_: Any, contact_ids: Sequence[str], **__: Any) -> int:
    return len(contact_ids)


# And how many contacts each of them judges.
STATEMENTS: Sequence[tuple[ModuleType, str, Callable[..., Awaitable[int]]]] = [
    (segments, "count", _between),
    (segments, "members", _between),
    (broadcast_audiences, "count", _in_window),
    (broadcast_audiences, "freeze", _in_window),
    (segment_fills, "fill", _filled),
    (segment_fills, "changes", _changed),
]
