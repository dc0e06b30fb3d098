"""Automations: definitions drawn as a graph."""

from __future__ import annotations

from app.routes.definitions import Automation, Kind
from app.web.routing import delete

kind = Kind(shape="graph", noun="automation", model=Automation)

routes = [
    *kind.routes(),
    delete("/automations/{id}", kind.remove, can="automations:write"),
]
