"""What anybody may see: the front door, and whether this process is well."""

from __future__ import annotations

from starlette.responses import HTMLResponse, Response

from app.errors import Unavailable
from app.process import SCHEMA
from app.store.db import outstanding
from app.web import reply
from app.web.routing import PUBLIC, Call, get

FRONT_DOOR = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tidings</title>
<style>
  :root { color-scheme: light dark }
  body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto }
  body { padding: 0 1.5rem }
  h1 { font-size: 2.2rem; margin: 0 }
  p { margin: 1rem 0 }
</style>
<h1>Tidings</h1>
<p>Customer messaging and automation: a webhook comes in, one run starts for the right contact,
and a message goes out.</p>
<p>%s</p>
"""

WHERE = {
    "sandbox": "A sandbox: messages are captured. <a href='/sandbox'>See them here</a>.",
    "production": "The API answers here; the README tells the rest.",
}


async def home(call: Call) -> Response:
    sandbox = (
        "This is a sandbox: every message is captured. <a href='/sandbox'>See the messages</a>."
    )
    production = "The API answers here; the README tells the rest."
    return HTMLResponse(FRONT_DOOR % (production if call.process.settings.production else sandbox))


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
