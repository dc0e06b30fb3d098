"""Definitions as pictures, with how many runs stand where."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.responses import Response

from app import drawing
from app.drawing import Caption, Count
from app.machine import check, document
from app.routes.definitions import DefinitionKind
from app.store import definitions, runs, templates
from app.store.db import Handle, Row
from app.web import conditions
from app.web.routing import Call, Endpoint, get

MOST_RUNS = 10_000  # that are counted: the newest say what goes on now

SVG = "image/svg+xml"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "Cache-Control": "private, no-cache",  # kept, but asked for again: the counts live
}


def drawn(kind: DefinitionKind) -> Endpoint:
    """The route to a picture of one definition of that kind."""

    async def draw(call: Call) -> Response:
        async with call.process.database.read() as db:
            row = await definitions.by_id(
                db, workspace_id=call.member.workspace_id, shape=kind.shape, id=call.path("id")
            )
            if row is None:
                raise kind.unknown()
            names = await _names(db, call.member.workspace_id, row)
            counts = await _counts(db, call.member.workspace_id, row)
        svg = await asyncio.to_thread(_svg, row, _caption(kind, row), names, counts)
        return Response(svg, media_type=SVG, headers={**HEADERS, "ETag": conditions.digest(svg)})

    path, can = f"{kind.path}/{{id}}/graph.svg", f"{kind.noun}s:read"
    return get(path, draw, can=can, tx=None, gives={200: (SVG,)})


def _caption(kind: DefinitionKind, row: Row) -> Caption:
    empty = f"Nothing is in this {kind.noun} yet."
    if not row["version"]:
        return Caption(row["name"], row["state"], empty=empty)
    counted = f"Counted over the newest {MOST_RUNS:,} runs."
    return Caption(row["name"], f"{row['state']} · version {row['version']}", counted, empty)


def _svg(
    row: Row, caption: Caption, names: Mapping[str, str], counts: Mapping[str, Count]
) -> bytes:
    sketch = drawing.SHAPES[row["shape"]]
    body = document.parse(row["body"].encode())
    return drawing.write(sketch(body, row["trigger_config"], names), caption, counts).encode()


async def _names(db: Handle, workspace_id: str, row: Row) -> dict[str, str]:
    """What the templates that it sends are called."""
    compiled = check.compile(row["shape"], document.parse(row["body"].encode()))
    ids = sorted({reference.id for reference in compiled.templates})
    named = await templates.named(db, workspace_id=workspace_id, ids=ids)
    return {id: template["name"] for id, template in named.items()}


async def _counts(db: Handle, workspace_id: str, row: Row) -> dict[str, Count]:
    """Of every visited node; before the first activation there is nothing to count."""
    counted = await runs.counts(
        db, workspace_id=workspace_id, definition_id=row["id"], most=MOST_RUNS
    )
    return {each["node_id"]: Count(int(each["here"]), int(each["passed"])) for each in counted}
