"""A pipeline as most teams write it: Starlette takes the webhook, a row is made, arq sends mail.

python -m lab.chaos.rivals.pipeline migrate|web|worker

arq's settings are its own, the row is committed after its job was enqueued, keys of senders are
unique in the table, and a mail server in trouble is asked again as arq's documentation shows it.
Nothing here is meant to be bad. It is what lab/chaos/rivals/contest.py compares Tidings with.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.message import EmailMessage
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aiosmtplib
import asyncpg
from arq import Retry, create_pool, run_worker
from arq.connections import RedisSettings
from hypercorn.asyncio import serve
from hypercorn.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lab.chaos.senders import SECRET

PATH = "/hooks/orders"
TABLE = """
    CREATE TABLE events (
        id         TEXT PRIMARY KEY,
        key        TEXT UNIQUE,
        body       TEXT NOT NULL,
        created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
        sent_at    TIMESTAMPTZ
    )
    """


def database_url() -> str:
    return os.environ["DATABASE_URL"]


def redis_settings() -> RedisSettings:
    return RedisSettings.from_dsn(os.environ["REDIS_URL"])


# --- the web process ------------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.redis = await create_pool(redis_settings())
    async with asyncpg.create_pool(database_url()) as app.state.database:
        yield


async def receive(request: Request) -> Response:
    body = await request.body()
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    if not hmac.compare_digest(request.headers.get("x-service-signature", ""), signature):
        return JSONResponse({"error": "signature"}, 401)
    try:
        json.loads(body)
    except ValueError:
        return JSONResponse({"error": "body"}, 400)
    key, state = request.headers.get("idempotency-key"), request.app.state
    async with state.database.acquire() as db, db.transaction():
        id = await db.fetchval("SELECT id FROM events WHERE key = $1", key)
        if id is None:
            id = uuid4().hex
            insert = "INSERT INTO events (id, key, body) VALUES ($1, $2, $3)"
            await db.execute(insert, id, key, body.decode())
            await state.redis.enqueue_job("deliver", id)
    return JSONResponse({"runId": id}, 202)


async def broken(_request: Request, _error: Exception) -> Response:
    return JSONResponse({"error": "internal"}, 500)


async def ready(_request: Request) -> Response:
    return JSONResponse({})


def web() -> None:
    routes = [Route(PATH, receive, methods=["POST"]), Route("/readyz", ready)]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={Exception: broken})
    config = Config()
    config.bind = [f"{os.environ['HOST']}:{os.environ['PORT']}"]
    asyncio.run(serve(app, config))  # type: ignore[arg-type]  # Starlette names the scope a mapping


# --- the worker -----------------------------------------------------------------------------------


async def startup(ctx: dict[str, Any]) -> None:
    ctx["database"] = await asyncpg.create_pool(database_url())
    print("worker started", flush=True)  # what the harness waits for before it kills


async def deliver(ctx: Mapping[str, Any], id: str) -> None:
    row = await ctx["database"].fetchrow("SELECT body FROM events WHERE id = $1", id)
    event = json.loads(row["body"])
    message = EmailMessage()
    message["From"] = "hello@acme.test"
    message["To"] = event["email"]
    message["Subject"] = event["name"]
    message.set_content(event["price"])
    server = urlsplit(os.environ["SMTP_URL"])
    try:
        await aiosmtplib.send(message, hostname=server.hostname, port=server.port)
    except (OSError, aiosmtplib.SMTPException) as error:
        raise Retry(defer=ctx["job_try"] * 5) from error
    await ctx["database"].execute("UPDATE events SET sent_at = now() WHERE id = $1", id)


class Settings:
    """arq's own, but for what it must know."""

    functions = (deliver,)
    on_startup = startup


def worker() -> None:
    settings: Any = Settings  # it asks for less than its type says
    run_worker(settings, redis_settings=redis_settings())


def migrate() -> None:
    async def create() -> None:
        connection = await asyncpg.connect(database_url())
        await connection.execute(TABLE)
        await connection.close()

    asyncio.run(create())


if __name__ == "__main__":
    {"web": web, "worker": worker, "migrate": migrate}[sys.argv[1]]()
