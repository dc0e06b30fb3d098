"""Workflows: definitions written as a list of steps. There is no DELETE: archive them."""

from __future__ import annotations

from app.routes.definition_shapes import Workflow, WorkflowSummary, WritableWorkflow
from app.routes.definitions import DefinitionKind
from app.routes.drawings import drawn
from app.web.reply import Page

kind = DefinitionKind(
    shape="steps",
    noun="workflow",
    model=WritableWorkflow,
    shown=Workflow,
    listed=Page[WorkflowSummary],
)

routes = [*kind.routes(), drawn(kind)]
