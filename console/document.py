"""Prints the OpenAPI document, from which the console's types are generated."""

from __future__ import annotations

import sys

from app.machine import document
from app.routes import ROUTES, SANDBOX_ROUTES
from app.routes.reference import EXAMPLES, VERSION
from app.web import openapi

if __name__ == "__main__":
    found = openapi.document(
        [*ROUTES, *SANDBOX_ROUTES],
        base_url="http://127.0.0.1:8000",
        version=VERSION,
        examples=EXAMPLES,
    )
    sys.stdout.buffer.write(document.dumps(found))
