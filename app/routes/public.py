"""What anybody may see: the front door, and whether this process is well."""

from __future__ import annotations

from starlette.responses import Response

from app.errors import Unavailable
from app.process import SCHEMA
from app.store.db import outstanding
from app.web import reply
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

WHAT = (
    "Customer messaging and automation: a webhook comes in, one run starts for the right contact,"
    " and a message goes out."
)
SANDBOX = "This is a sandbox: every message is captured. <a href='/sandbox'>See the messages</a>."
PRODUCTION = "The API answers here; the README tells the rest."


async def home(call: Call) -> Response:
    return page("Tidings", WHAT, PRODUCTION if call.process.settings.production else SANDBOX)


async def alive(_call: Call) -> Response:
    """The process serves. Says nothing about what it depends on."""
    return reply.ok({"status": "ok"})


async def ready(call: Call) -> Response:
    """Database and schema. Not Redis: without it hints are late and limits are per process."""
    async with call.process.database.read() as db:
        left = await outstanding(db, SCHEMA)
    if left:
        raise Unavailable(f"The schema lacks section {left[0]}: run python -m app migrate.")
    return reply.ok({"status": "ok"})


routes = [
    get("/", home, can=PUBLIC, tx=None),
    get("/healthz", alive, can=PUBLIC, tx=None),
    get("/readyz", ready, can=PUBLIC, tx=None),
]
