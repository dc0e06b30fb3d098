"""/metrics: the figures that matter to people who run this, as Prometheus reads them."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from app.errors import Problem
from app.process import Process
from app.runtime import metrics
from app.store import circuit_breakers, counters, health, jobs
from app.web.routing import PUBLIC, Call, get

BEARER = {"WWW-Authenticate": "Bearer"}


async def show(call: Call) -> Response:
    """Show the metrics to the bearer METRICS_TOKEN: always in production, elsewhere if it is
    set."""
    settings, token = call.process.settings, call.process.settings.metrics_token
    given = call.request.headers.get("authorization", "").encode()
    if token is None and settings.production:
        sentence = "The operator must set METRICS_TOKEN: in production nobody reads this without."
        raise Problem("unauthenticated", sentence, headers=BEARER)
    if token is not None and not hmac.compare_digest(given, f"Bearer {token}".encode()):
        sentence = "Send `Authorization: Bearer` with the METRICS_TOKEN of this installation."
        raise Problem("unauthenticated", sentence, headers=BEARER)
    shown = await call.process.exposition.get(partial(_exposition, call.process))
    return Response(shown, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _exposition(process: Process) -> bytes:
    await counters.add_up(process.database, process.metrics)
    async with process.database.read() as db:
        figures = await counters.every(db)
        due = {kind: await health.due(db, kind) for kind in jobs.KINDS}
        unknown = await health.unknown_deliveries(db)
        given_up = await health.given_up(db)
        waited_for = await circuit_breakers.count_open(db)

    def gauges() -> Iterator[tuple[str, Mapping[str, str], float]]:
        for kind, row in due.items():
            yield "tidings_due", {"kind": kind}, row.count
            yield "tidings_oldest_due_seconds", {"kind": kind}, row.late_seconds
        yield "tidings_deliveries_unknown", {}, unknown
        yield "tidings_work_given_up", {}, given_up
        for channel, code, count in waited_for:
            yield "tidings_providers_waited_for", {"channel": channel, "code": code}, count
        for state, count in process.database.connections().items():
            yield "tidings_database_connections", {"state": state}, count
        yield from process.metrics.gauges()

    return metrics.exposition(figures, gauges())


routes = [
    get(
        "/metrics",
        show,
        can=PUBLIC,
        tx=None,
        gives={200: ("text/plain",)},
        raises=("unauthenticated",),
    ),
]
