"""/metrics: the figures that matter to people who run this, as Prometheus reads them."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from app.errors import Problem
from app.runtime import metrics
from app.store import circuit_breakers, counters, health
from app.web.routing import PUBLIC, Call, get


async def show(call: Call) -> Response:
    """Protected by METRICS_TOKEN if it is set."""
    _require_token(call)
    await metrics.add_up(call.process.database, call.process.metrics)
    async with call.process.database.read() as db:
        figures = await counters.every(db)
        due = {table: await health.due(db, table) for table in health.TABLES}
        unknown = await health.unknown_deliveries(db)
        waited_for = await circuit_breakers.count_open(db)

    def gauges() -> Iterator[tuple[str, Mapping[str, str], float]]:
        for kind, row in due.items():
            late = (row["now"] - row["oldest_at"]).total_seconds() if row["oldest_at"] else 0.0
            yield "tidings_due", {"kind": kind}, row["count"]
            yield "tidings_oldest_due_seconds", {"kind": kind}, late
        yield "tidings_deliveries_unknown", {}, unknown
        for row in waited_for:
            yield (
                "tidings_providers_waited_for",
                {"channel": row["channel"], "code": row["code"]},
                row["count"],
            )
        for state, count in call.process.database.connections().items():
            yield "tidings_database_connections", {"state": state}, count

    shown = metrics.exposition(figures, gauges())
    return Response(shown, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _require_token(call: Call) -> None:
    token = call.process.settings.metrics_token
    given = call.request.headers.get("authorization", "")
    if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise Problem(
            "unauthenticated",
            "Send `Authorization: Bearer` with the METRICS_TOKEN of this installation.",
            headers={"WWW-Authenticate": "Bearer"},
        )


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
