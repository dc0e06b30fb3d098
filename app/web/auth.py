"""The Authorization header → Member, and whether that member may."""

from __future__ import annotations

import re

import structlog
from starlette.datastructures import Headers

from app.config import plans
from app.errors import Problem
from app.identity import identity
from app.identity.identity import Member
from app.process import Process

PUBLIC = "PUBLIC"  # anybody may call: the intake, sign-in, health
MEMBER = "MEMBER"  # whoever is signed in, whatever the role
ADMIN = "admin"  # a super-admin's session

BARE = re.compile(r"\s*(?:td_|eyJ)")  # how a key begins, and a token
BEARER = re.compile(r"bearer +([A-Za-z0-9._~+/-]{1,4096}=*)", re.IGNORECASE)  # RFC 6750 §2.1


def bearer_of(headers: Headers) -> str:
    """Raises Problem `unauthenticated`."""
    values = headers.getlist("authorization")
    match = BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if match is None and len(values) == 1 and BARE.match(values[0]):
        raise identity.unauthenticated(
            "The Authorization header holds a key without Bearer: send"
            " `Authorization: Bearer` and then the key, with a space between them."
        )
    if match is None:
        raise identity.unauthenticated(
            "Send exactly one header `Authorization: Bearer` with an access token or an API key."
        )
    return match[1]


async def authenticate(process: Process, headers: Headers, *, ongoing: bool = False) -> Member:
    """Raises Problem `unauthenticated`. `ongoing` as in identity.authenticate."""
    member = await identity.authenticate(process, bearer_of(headers), ongoing=ongoing)
    structlog.contextvars.bind_contextvars(workspace_id=member.workspace_id)
    return member


def permit(member: Member, can: str) -> None:
    """Raises Problem `workspace_suspended` or `forbidden`.

    Suspension bars what is the workspace's, and its keys from everything. A person signed in keeps
    what is theirs, to sign out or go elsewhere, and an operator the way to lift it again.
    """
    theirs = member.via == "session" and can in (MEMBER, ADMIN)
    if member.suspended and not theirs:
        raise Problem("workspace_suspended", "This workspace is suspended; contact the operator.")
    if can == MEMBER or can in member.permissions:
        return
    if can != ADMIN:
        raise Problem("forbidden", f"This needs {can}, which the role {member.role} does not have.")
    if not (member.super_admin and member.via == "session"):
        raise Problem(
            "forbidden", "This requires a super-admin who is signed in; an API key is not enough."
        )


def afford(member: Member, plan: str | None) -> None:
    """Raises Problem `plan_required` below this plan."""
    if plan is not None and plans.rank(member.plan) < plans.rank(plan):
        raise Problem(
            "plan_required",
            f"This requires the plan {plan}, and the workspace has {member.plan}: an owner can"
            " change it with POST /billing/checkout.",
        )
