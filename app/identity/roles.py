"""The four roles, and what each may: one table, pinned by a test."""

from __future__ import annotations

from collections.abc import Mapping

ROLES = ("viewer", "editor", "admin", "owner")  # each may what those before it may

_VIEWER = frozenset(
    {
        "automations:read",
        "billing:read",
        "broadcasts:read",
        "contacts:read",
        "event_endpoints:read",
        "memberships:read",  # without addresses: those need memberships:write
        "messages:read",
        "runs:read",
        "settings:read",
        "suppressions:read",
        "templates:read",
        "workflows:read",
    }
)
_EDITOR = _VIEWER | {
    "automations:write",
    "broadcasts:write",
    "contacts:write",
    "messages:write",
    "runs:write",
    "templates:write",
    "workflows:write",
}
_ADMIN = _EDITOR | {
    "api_keys:read",
    "api_keys:write",
    "audit_logs:read",
    "broadcasts:send",
    "event_endpoints:write",
    "memberships:write",
    "settings:write",
    "suppressions:write",
}
_OWNER = _ADMIN | {
    "billing:write",
    "workspaces:write",
}
PERMISSIONS: Mapping[str, frozenset[str]] = {
    "viewer": _VIEWER,
    "editor": _EDITOR,
    "admin": _ADMIN,
    "owner": _OWNER,
}


def permissions(role: str, *, sends_broadcasts: bool) -> frozenset[str]:
    """The permissions of a member of this role. Who may write broadcasts may be allowed to send
    them, too."""
    own = PERMISSIONS[role]
    if sends_broadcasts and "broadcasts:write" in own:
        return own | {"broadcasts:send"}
    return own


def lower(role: str, other: str) -> str:
    return min(role, other, key=ROLES.index)


def grantable(own: str, role: str) -> bool:
    """Nobody grants more than they hold."""
    return ROLES.index(role) <= ROLES.index(own)
