"""Roles, and what each may do and give."""

from __future__ import annotations

from app.identity import roles


def test_what_each_role_adds_to_the_one_before_it() -> None:
    added = {}
    below: frozenset[str] = frozenset()
    for role in roles.ROLES:
        assert below <= roles.PERMISSIONS[role]
        added[role] = sorted(roles.PERMISSIONS[role] - below)
        below = roles.PERMISSIONS[role]
    assert added == {
        "viewer": [
            "automations:read",
            "billing:read",
            "broadcasts:read",
            "contacts:read",
            "event_endpoints:read",
            "memberships:read",
            "messages:read",
            "runs:read",
            "settings:read",
            "suppressions:read",
            "templates:read",
            "workflows:read",
        ],
        "editor": [
            "automations:write",
            "broadcasts:write",
            "contacts:write",
            "messages:write",
            "runs:write",
            "templates:write",
            "workflows:write",
        ],
        "admin": [
            "api_keys:read",
            "api_keys:write",
            "audit_logs:read",
            "broadcasts:send",
            "event_endpoints:write",
            "memberships:write",
            "settings:write",
            "suppressions:write",
        ],
        "owner": ["billing:write", "workspaces:write"],
    }


def test_nobody_grants_more_than_they_hold() -> None:
    grants = {
        role: [granted for granted in roles.ROLES if roles.grantable(role, granted)]
        for role in roles.ROLES
    }
    assert grants == {
        "viewer": ["viewer"],
        "editor": ["viewer", "editor"],
        "admin": ["viewer", "editor", "admin"],
        "owner": ["viewer", "editor", "admin", "owner"],
    }
