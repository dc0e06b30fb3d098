"""Workflows: definitions written as a list of steps. There is no DELETE: archive them."""

from __future__ import annotations

from app.routes.definitions import Kind, Workflow

kind = Kind(shape="steps", noun="workflow", model=Workflow)

routes = kind.routes()
