"""Definitions as pictures, with how many runs stand where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import Field
from starlette.responses import Response

from app.database.db import Handle
from app.definitions import drawing, inspection
from app.definitions.drawing import Caption, Count
from app.routes.definitions import DefinitionKind
from app.runtime.compute import Computation
from app.store import definition_versions, definitions, run_steps, runs, templates
from app.store.run_steps import NodeCounts
from app.web import conditions, reply
from app.web.body import Query
from app.web.routing import Call, Endpoint, get

MOST_RUNS = 10_000  # that are counted: the newest say what goes on now
LARGE = 4 * 1024  # characters of a definition that is not drawn on the event loop
SECONDS = 2.0  # of CPU time

SVG = "image/svg+xml"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "Cache-Control": "private, no-cache",  # kept, but asked for again: the counts live
}


class Way(Query):
    run_id: str | None = Field(
        None, description="Draw the way of this run, in the version that it took."
    )


def drawn(kind: DefinitionKind) -> Endpoint:
    """The route to a picture of one definition of that kind."""

    async def draw(call: Call) -> Response:
        workspace_id, compute = call.member.workspace_id, call.process.compute
        run_id = call.query(Way).run_id
        async with call.process.database.read() as db:
            row = await definitions.by_id(
                db, workspace_id=workspace_id, shape=kind.shape, id=call.path("id")
            )
            row = reply.found(row, kind.noun)
            if run_id is not None:
                row, counts = await _walked(db, workspace_id, row, run_id)
            else:
                # None before the first activation.
                counted = await run_steps.counts(
                    db, workspace_id=workspace_id, definition_id=row.id, most=MOST_RUNS
                )
                counts = _by_node(counted)
        is_large = len(row.body) > LARGE
        computation = Computation(
            workspace_id, inspection.templates_of, (row.shape, row.body), SECONDS
        )
        ids = await compute.call(computation, large=is_large)
        async with call.process.database.read() as db:
            named = await templates.named(db, workspace_id=workspace_id, ids=ids)
        names = {id: template.name for id, template in named.items()}
        drawn = (
            row.shape,
            row.body,
            row.trigger_config,
            names,
            _caption(kind, row, is_one_run=run_id is not None),
            counts,
        )
        svg = await compute.call(
            Computation(workspace_id, drawing.svg_of, drawn, SECONDS), large=is_large
        )
        return Response(svg, media_type=SVG, headers={**HEADERS, "ETag": conditions.digest(svg)})

    path, can = f"{kind.path}/{{id}}/graph.svg", f"{kind.noun}s:read"
    return get(path, draw, can=can, tx=None, query=Way, gives={200: (SVG,)})


def _caption(kind: DefinitionKind, row: definitions.Definition, *, is_one_run: bool) -> Caption:
    empty = f"Nothing is in this {kind.noun} yet."
    if not row.version:
        return Caption(row.name, row.state, empty=empty)
    counted = (
        "The way of one run." if is_one_run else f"Counted over the newest {MOST_RUNS:,} runs."
    )
    return Caption(row.name, f"{row.state} · version {row.version}", counted, empty)


def _by_node(counted: Iterable[NodeCounts]) -> dict[str, Count]:
    return {each.node_id: Count(int(each.here), int(each.passed)) for each in counted}


async def _walked(
    db: Handle, workspace_id: str, definition: definitions.Definition, run_id: str
) -> tuple[definitions.Definition, dict[str, Count]]:
    """The definition in the version that the run took, and where it was. Raises Problem
    `not_found`."""
    run = await runs.by_id(db, workspace_id=workspace_id, id=run_id)
    if run is None or run.definition_id != definition.id:
        raise reply.unknown("run of it")
    version = await definition_versions.by_number(
        db, workspace_id=workspace_id, definition_id=run.definition_id, version=run.version
    )
    if version is None:
        raise LookupError("a run took a version that was pinned")
    counted = await run_steps.counts_of_run(db, workspace_id=workspace_id, run_id=run_id)
    walked = replace(
        definition,
        body=version.body,
        trigger_config=version.trigger_config,
        version=run.version,
    )
    return walked, _by_node(counted)
