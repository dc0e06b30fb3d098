"""Domains of email addresses whose people join the workspace by single sign-on."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from starlette.responses import Response

from app.accounts import sign_in_domains as domains
from app.errors import Problem
from app.routes.ids import UserId
from app.store import sign_in_domains
from app.web import reply
from app.web.body import Shape
from app.web.reply import Page
from app.web.routing import Call, delete, get, put


class NewSignInDomain(Shape):
    """`role`: of the members who come from there."""

    role: Literal["viewer", "editor"]


class SignInDomain(Shape):
    domain: str
    role: Literal["viewer", "editor"]
    claimed_by: UserId
    created_at: datetime


async def index(call: Call) -> Response:
    rows = await sign_in_domains.page(call.db, workspace_id=call.member.workspace_id)
    return reply.page([SignInDomain.of(row) for row in rows], None)


async def put_domain(call: Call) -> Response:
    """Have newcomers by single sign-on, with a verified address of this domain, join the workspace
    in this role instead of getting one of their own; also where registration is by invitation. Only
    an owner with a verified address of the domain can claim it."""
    new = call.read(NewSignInDomain)
    await call.lock_role()
    before, row = await domains.claim(call.db, call.member, call.path("domain"), new.role)
    after = SignInDomain.of(row)
    await call.note(
        "sign_in_domain.claimed",
        row.domain,
        None if before is None else SignInDomain.of(before),
        after,
    )
    return reply.ok(after)


async def remove_domain(call: Call) -> Response:
    """Members who came from there stay."""
    domain, workspace_id = domains.normal(call.path("domain")), call.member.workspace_id
    row = await sign_in_domains.get(call.db, workspace_id=workspace_id, domain=domain)
    if row is None:
        raise Problem("not_found", "The workspace has not claimed this domain.")
    await sign_in_domains.delete(call.db, workspace_id=workspace_id, domain=domain)
    await call.note("sign_in_domain.released", domain, before=SignInDomain.of(row))
    return reply.no_content()


routes = [
    get(
        "/settings/sign-in-domains",
        index,
        can="settings:read",
        gives={200: Page[SignInDomain]},
    ),
    put(
        "/settings/sign-in-domains/{domain}",
        put_domain,
        can="workspaces:write",
        takes=NewSignInDomain,
        gives={200: SignInDomain},
        raises=("conflict",),
    ),
    delete(
        "/settings/sign-in-domains/{domain}",
        remove_domain,
        can="workspaces:write",
        gives={204: None},
    ),
]
