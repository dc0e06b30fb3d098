"""The page that the links in mails about accounts open; it posts what they ask for."""

from __future__ import annotations

from importlib.resources import files

from starlette.responses import HTMLResponse, Response

from app.web.page import script_digest
from app.web.routing import PUBLIC, Call, get

PAGE = (files("app.routes") / "account.html").read_text("utf-8")

HEADERS = {
    # The browser runs this script and no other, and it talks to nobody else.
    "Content-Security-Policy": f"default-src 'none'; script-src 'sha256-{script_digest(PAGE)}';"
    " style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


LINK = '<a href="console/">Open the console</a>'


async def page(call: Call) -> Response:
    shown = PAGE if call.process.settings.console else PAGE.replace(LINK, "")
    return HTMLResponse(shown, headers=HEADERS)


routes = [get("/account", page, can=PUBLIC, tx=None, gives={200: ("text/html",)})]
