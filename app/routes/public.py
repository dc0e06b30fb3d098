"""Routes for anybody: the front door, and whether this process is well."""

from __future__ import annotations

from functools import partial
from html import escape
from importlib.resources import files
from typing import Literal

from starlette.responses import Response

from app.database.db import RequestTimeouts, outstanding
from app.database.migrations import MigrationError
from app.errors import DiskFull, Unavailable
from app.process import SCHEMA, Process
from app.web import reply
from app.web.body import Shape
from app.web.packing import packed
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

WHAT = (
    "Customer messaging and automation: a webhook comes in, one run starts for the right contact,"
    " and a message goes out."
)
SANDBOX = "This is a sandbox: every message is captured. <a href='sandbox'>See the messages</a>."
CONSOLE = "<b><a href='console/'>Open the console</a></b>"
PRODUCTION = "This is the API."
REFERENCE = (
    "See the <a href='docs'>API reference</a>, or for programs:"
    " <a href='openapi.json'>openapi.json</a>."
)
PICTURE = (files("app.routes") / "path.svg").read_text("utf-8")
BELOW = """<figure tabindex="0">{picture}</figure>
<p>{instructions}</p>
<pre tabindex="0">{curl}</pre>
"""
REGISTER = (
    "The first request creates an account with a workspace. Its response has an"
    " <code>accessToken</code>; use it to create an API key with POST"
    " <code>/settings/api-keys</code>:",
    """curl -sS {at}/auth/register -H 'Content-Type: application/json' -d '{{
  "email": "olivia@example.com", "password": "correct horse battery",
  "name": "Olivia Owner", "workspaceName": "Acme"}}'""",
)
KEY = (
    "Accounts here are by invitation. With an API key of your workspace, start with:",
    'curl -sS {at}/contacts -H "Authorization: Bearer $KEY"',
)


class Health(Shape):
    status: Literal["ok"]


async def home(call: Call) -> Response:
    settings = call.process.settings
    where = PRODUCTION if settings.production else SANDBOX
    instructions, curl = REGISTER if settings.registration == "open" else KEY
    below = BELOW.format(
        picture=PICTURE,
        instructions=instructions,
        curl=escape(curl.format(at=settings.base_url), quote=False),
    )
    ways = [WHAT, CONSOLE] if settings.console else [WHAT]
    found = page("Tidings", *ways, f"{where} {REFERENCE}", below=below)
    return packed(call.request.headers, found)


async def check_health(_call: Call) -> Response:
    """The process is alive. Does not check its dependencies."""
    return reply.ok({"status": "ok"})


async def check_readiness(call: Call) -> Response:
    """Checks the database and its schema, at most once a second, and whether its disk was found
    full within the last 15 seconds. Not Redis: without it, hints are late and limits are per
    process."""
    if call.process.database.disk.is_full:
        raise DiskFull
    fault = await call.process.schema_fault.get(partial(_schema_fault, call.process))
    if fault is not None:
        raise Unavailable(fault)
    return reply.ok({"status": "ok"})


async def _schema_fault(process: Process) -> str | None:
    """A sentence on what is wrong with the schema, and what to do."""
    async with process.database.read(RequestTimeouts()) as db:
        try:
            missing = await outstanding(db, SCHEMA)
        except MigrationError as error:
            return str(error)
    return f"The schema lacks section {missing[0]}: run python -m app migrate." if missing else None


routes = [
    get("/", home, can=PUBLIC, tx=None, gives={200: ("text/html",)}),
    get("/healthz", check_health, can=PUBLIC, tx=None, gives={200: Health}),
    get("/readyz", check_readiness, can=PUBLIC, tx=None, gives={200: Health}),
]
