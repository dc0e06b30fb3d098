"""A web process while it starts: it listens, and answers 503 until its database answers."""

from __future__ import annotations

import asyncio
import logging

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from app.config.settings import Settings
from app.errors import Unavailable
from app.main import FOR_EVER, open_process, web
from app.runtime import tasks
from app.runtime.metrics import Metrics
from app.web import reply
from app.web.edge import Edge

log = logging.getLogger(__name__)

LATE_SECONDS = 5.0  # a healthy database has answered by then


class StartupGate:
    """An ASGI application that answers 503 until the process is open, then as the API."""

    def __init__(self, settings: Settings) -> None:
        self.metrics = Metrics()
        self._unready = self._current = Edge(Router(default=_not_yet), settings, self.metrics)
        self.ready = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The application's own lifespan is begun and ended by `open`.
        app = self._unready if scope["type"] == "lifespan" else self._current
        await app(scope, receive, send)

    async def wait_until_ready(self, stop: asyncio.Event) -> None:
        """Return once the process is open, after LATE_SECONDS, or when `stop` is set. Until then it
        should not listen: a refused client tries another process, or again, instead of getting a
        503."""
        events = [asyncio.create_task(event.wait()) for event in (self.ready, stop)]
        await asyncio.wait(events, timeout=LATE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        await tasks.end(*events)

    async def open(self, settings: Settings, served: asyncio.Event) -> None:
        """Keep the process open until `served` is set."""
        async with open_process(settings, FOR_EVER, self.metrics) as process:
            edge = web(process)
            assert isinstance(edge.app, Router)  # noqa: S101 - web made it so
            async with edge.app.lifespan_context(edge.app):
                self._current = edge
                self.ready.set()
                log.info("web process is ready")
                await served.wait()


async def _not_yet(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] != "/healthz":
        raise Unavailable("This process has just started and is waiting for the database.")
    await reply.ok({"status": "ok"})(scope, receive, send)
