"""The pages that people read in a browser: one look, no script, nothing fetched from anywhere."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import escape

from starlette.responses import HTMLResponse

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{icon}">
<style>
  :root {{ color-scheme: light dark; background: Canvas; color: CanvasText }}
  body {{ font: 1.1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 10vh auto;
    overflow-wrap: anywhere }}
  body {{ padding: 0 1.5rem }}
  h1 {{ font-size: 2.2rem; line-height: 1.2; margin: 0 }}
  body:has(figure) {{ max-width: 58rem }}
  p {{ margin: 1rem 0; max-width: 44rem }}
  button {{ font: inherit; padding: .5rem 1rem }}
  form {{ display: inline-block }}
  figure, pre {{ margin: 1.5rem 0; overflow-x: auto }}
  figure svg {{ display: block; width: 100%; min-width: 44rem }}
  pre {{ font-size: .9rem; padding: .8rem 1rem; border-left: 3px solid #888 }}
</style>
<main>
<h1>{title}</h1>
{body}
</main>
"""
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http:%2F%2Fwww.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect"
    " width='16' height='16' rx='4' fill='%231f5fbf'/%3E%3Cpath d='M4 6h8M4 10h5' stroke='white'"
    " stroke-width='2'/%3E%3C/svg%3E"
)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
ASKING = {
    **HEADERS,
    "Content-Security-Policy": HEADERS["Content-Security-Policy"].replace(
        "form-action 'none'", "form-action 'self'"
    ),
}


def page(title: str, *paragraphs: str, below: str = "", asks: bool = False) -> HTMLResponse:
    """The title is text; the paragraphs, and what no paragraph may hold `below` them, are HTML.
    A page that asks posts its buttons to itself."""
    body = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    if asks:
        body = f'<form method="post">\n{body}\n</form>'
    written = PAGE.format(title=escape(title), icon=ICON, body=f"{body}\n{below}")
    return HTMLResponse(written, headers=ASKING if asks else HEADERS)


def script_digest(html: str) -> str:
    """The digest of the page's one <script>, for its policy: the browser runs this text and no
    other."""
    [script] = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    return b64encode(sha256(script.encode()).digest()).decode()
