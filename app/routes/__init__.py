"""The whole API on one page: every group's list, one after the other."""

from __future__ import annotations

from app.routes import (
    account,
    activity,
    automations,
    contacts,
    imports,
    memberships,
    messages,
    problems,
    public,
    runs,
    sandbox,
    sessions,
    settings,
    tags,
    templates,
    webhooks,
    workflows,
    workspaces,
)

ROUTES = [
    *public.routes,
    *problems.routes,
    *webhooks.routes,
    *sessions.routes,
    *account.routes,
    *memberships.routes,
    *workspaces.routes,
    *imports.routes,
    *contacts.routes,
    *activity.routes,
    *tags.routes,
    *templates.routes,
    *automations.routes,
    *workflows.routes,
    *runs.routes,
    *messages.routes,
    *settings.routes,
]
SANDBOX_ROUTES = sandbox.routes  # in production they do not exist, signed in or not
