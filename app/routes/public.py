"""What anybody may see: the front door, and whether this process is well."""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from app.errors import Unavailable
from app.process import SCHEMA
from app.store.db import outstanding
from app.web import reply
from app.web.body import Shape
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

WHAT = (
    "Customer messaging and automation: a webhook comes in, one run starts for the right contact,"
    " and a message goes out."
)
SANDBOX = "This is a sandbox: every message is captured. <a href='/sandbox'>See the messages</a>."
PRODUCTION = "The API answers here."
REFERENCE = "<a href='/docs'>What it takes and answers</a>."


class Health(Shape):
    status: Literal["ok"]


async def home(call: Call) -> Response:
    where = PRODUCTION if call.process.settings.production else SANDBOX
    return page("Tidings", WHAT, where, REFERENCE)


async def check_health(_call: Call) -> Response:
    """The process serves. Says nothing about what it depends on."""
    return reply.ok({"status": "ok"})


async def check_readiness(call: Call) -> Response:
    """Database and schema. Not Redis: without it hints are late and limits are per process."""
    async with call.process.database.read() as db:
        left = await outstanding(db, SCHEMA)
    if left:
        raise Unavailable(f"The schema lacks section {left[0]}: run python -m app migrate.")
    return reply.ok({"status": "ok"})


routes = [
    get("/", home, can=PUBLIC, tx=None, gives={200: ("text/html",)}),
    get("/healthz", check_health, can=PUBLIC, tx=None, gives={200: Health}),
    get("/readyz", check_readiness, can=PUBLIC, tx=None, gives={200: Health}),
]
