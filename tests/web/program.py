"""A web process like the real one, with endpoints that the tests of its life need.

Its arguments are a port and how many processes; says "started" and "serving" aloud.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from app.config.settings import Settings
from app.runtime import logs, processes
from app.runtime.peers import Peers
from app.web import server
from app.web.edge import Edge
from app.web.routing import router
from tests.web import wire


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def process_id(_request: Request) -> Response:
    return PlainTextResponse(str(os.getpid()))


async def slow(request: Request) -> Response:
    say("started")
    await asyncio.sleep(float(request.query_params["seconds"]))
    return PlainTextResponse("done")


async def stuck(_request: Request) -> Response:
    say("started")
    time.sleep(60)  # noqa: ASYNC251 - the loop itself is what gets stuck
    return PlainTextResponse("never")


async def forgotten(_request: Request) -> Response:
    """Leave a thread behind that is held up, as by a name server that is silent."""
    ThreadPoolExecutor(1).submit(time.sleep, 60)
    return PlainTextResponse("done")


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[None]:
    if "BROKEN" in os.environ:
        raise RuntimeError("cannot start")
    say("serving")
    yield
    say("closed")


ROUTES = [
    Route("/pid", process_id),
    Route("/slow", slow),
    Route("/stuck", stuck),
    Route("/forgotten", forgotten),
    Route("/echo", echo, methods=["POST"]),
]


async def main(
    settings: Settings, listener: socket.socket, stop: asyncio.Event, peers: Peers
) -> None:
    app = Edge(router(ROUTES, lifespan), settings)
    await server.serve(app, settings, stop, listener=listener, peers=peers)


def begin() -> int:
    """The exit code."""
    port, count = sys.argv[1:]
    settings = wire.settings(
        DATABASE_URL="postgresql://db/tidings",
        REDIS_URL="redis://db",
        PORT=port,
        WEB_CONCURRENCY=count,
    )
    logs.configure(settings)
    listener = server.bound(settings.host, settings.port)
    return processes.launch(partial(main, settings), listener, settings.web_concurrency)
