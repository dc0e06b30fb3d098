"""The link to the console that `make run` prints: it signs the demo's owner in, on this machine."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Literal

from starlette.responses import Response

from app.accounts import sign_in_links
from app.errors import Problem
from app.routes import session_cookie
from app.routes.sessions import AT_THE_DOOR, SignedIn, Token, sign_in_resource
from app.web import reply
from app.web.body import Query, Shape
from app.web.routing import PUBLIC, Call, post
from app.web.throttle import AUTH


class SignInLink(Shape):
    """`token` is that of the link."""

    token: Token
    session: Literal["cookie"]


async def create(call: Call) -> Response:
    """Sign in the owner of the demo, once for each link, from this machine alone."""
    await call.throttle.check(AUTH, call.client)
    await call.receive_body()
    given = call.read(SignInLink)
    session_cookie.wanted(call, given.session)
    try:
        is_here = ip_address(call.client.partition("%")[0]).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise Problem("forbidden", "This link works on the machine that the service runs on.")
    signed = await sign_in_links.sign_in(call.process, call.where, given.token)
    return session_cookie.kept(call, reply.ok(sign_in_resource(signed)), signed)


routes = [
    post(
        "/sandbox/sign-ins",
        create,
        can=PUBLIC,
        tx=None,
        query=Query,
        takes=SignInLink,
        gives={200: SignedIn},
        raises=(*AT_THE_DOOR, "forbidden"),
    )
]
