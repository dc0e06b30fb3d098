"""The whole API on one page: every group's list, one after the other."""

from __future__ import annotations

from app.routes import (
    automations,
    contacts,
    messages,
    public,
    runs,
    sandbox,
    sessions,
    settings,
    templates,
    webhooks,
    workflows,
)

ROUTES = [
    *public.routes,
    *webhooks.routes,
    *sessions.routes,
    *contacts.routes,
    *templates.routes,
    *automations.routes,
    *workflows.routes,
    *runs.routes,
    *messages.routes,
    *settings.routes,
]
SANDBOX_ROUTES = sandbox.routes  # in production they do not exist, signed in or not
