"""The web console: one page, which asks the API for everything else."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, Response

from app.errors import Problem
from app.web import console_files
from app.web.console_files import Files
from app.web.packing import packed, takes_gzip
from app.web.page import page
from app.web.routing import PUBLIC, Call, get

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept by the browser, and asked for again: it names the newest
}
FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
UNBUILT = (
    "The console is not built here: it needs Node.js 20 or newer, or the Python package index, and"
    " the npm registry, once.",
    "Run <code>make console</code> where they can be reached; it says what is missing. Everything"
    " else works without it: see the <a href='{prefix}/docs'>API reference</a>.",
)


async def show(call: Call) -> Response:
    """The page, whatever the path below it: the page itself knows its screens."""
    built = _built(call)
    if not built.page:
        prefix = urlsplit(call.process.settings.base_url).path
        answer = page("Console", *(one.format(prefix=prefix) for one in UNBUILT))
        answer.status_code = 503
        return answer
    has = {  # what the page shows only where it is
        "sandbox": not call.process.settings.production,
        "sign-on": call.process.single_sign_on is not None,
        "registration": call.process.settings.registration == "open",
    }
    features = " ".join(name for name, is_there in has.items() if is_there)
    shown = built.page.replace("{features}", features)
    return packed(call.request.headers, HTMLResponse(shown, headers=HEADERS))


async def show_asset(call: Call) -> Response:
    """A script or a style sheet, which never changes under its name."""
    asset = _built(call).assets.get(call.path("name"))
    if asset is None:
        raise Problem("not_found", "This file is not of this version; load the page again.")
    if takes_gzip(call.request.headers):
        headers = {**FOR_EVER, "Vary": "Accept-Encoding", "Content-Encoding": "gzip"}
        return Response(asset.packed, headers=headers, media_type=asset.media_type)
    headers = {**FOR_EVER, "Vary": "Accept-Encoding"}
    return Response(asset.body, headers=headers, media_type=asset.media_type)


def _built(call: Call) -> Files:
    return console_files.load(urlsplit(call.process.settings.base_url).path)


PAGE = {200: ("text/html",), 503: ("text/html",)}

routes = [
    get("/console", show, can=PUBLIC, tx=None, gives=PAGE),
    get(
        "/console/assets/{name}",
        show_asset,
        can=PUBLIC,
        tx=None,
        gives={200: tuple(console_files.MEDIA_TYPES.values())},
        raises=["not_found"],
    ),
    get("/console/{screen:path}", show, can=PUBLIC, tx=None, gives=PAGE),
]
