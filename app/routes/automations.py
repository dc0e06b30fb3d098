"""Automations: definitions drawn as a graph."""

from __future__ import annotations

from app.routes.definition_shapes import Automation, AutomationSummary, WritableAutomation
from app.routes.definitions import DefinitionKind
from app.routes.drawings import drawn
from app.web.reply import Page
from app.web.routing import delete

kind = DefinitionKind(
    shape="graph",
    noun="automation",
    model=WritableAutomation,
    shown=Automation,
    listed=Page[AutomationSummary],
)

routes = [
    *kind.routes(),
    drawn(kind),
    delete("/automations/{id}", kind.remove, can="automations:write", gives={204: None}),
]
