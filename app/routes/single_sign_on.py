"""Single sign-on: out to the provider, and back with a session."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from app.accounts import single_sign_on
from app.accounts.single_sign_on import PLACES, Answer
from app.config import Settings
from app.routes.sessions import Registered, sign_in_resource, user_resource
from app.web import reply
from app.web.routing import PUBLIC, Call, get
from app.web.throttle import AUTH

COOKIE_SECONDS = int(single_sign_on.LIFETIME.total_seconds())


async def begin_single_sign_on(call: Call) -> Response:
    """Unknown query parameters are ignored, because whoever links here may append their own."""
    single_sign_on.provider(call.process)
    await call.throttle.check(AUTH, call.client)
    workspace_id = call.request.query_params.get("workspaceId")
    kept = call.request.cookies
    taken = {one for one in PLACES if _cookie(call.process.settings, one) in kept}
    departure = await single_sign_on.depart(call.process, workspace_id, taken)
    response = RedirectResponse(departure.url, 302, {"Referrer-Policy": "no-referrer"})
    cookie = _cookie(call.process.settings, departure.place)
    _keep(call.process.settings, response, cookie, departure.kept, COOKIE_SECONDS)
    return response


async def finish_single_sign_on(call: Call) -> Response:
    """The same response as POST /auth/token, with the user. Removes the sign-in cookie."""
    single_sign_on.provider(call.process)
    await call.throttle.check(AUTH, call.client)
    given = call.request.query_params
    answer = Answer(given.get("state"), given.get("code"), given.get("error"), given.get("iss"))
    cookie = _cookie(call.process.settings, single_sign_on.place(answer.state))
    kept = call.request.cookies.get(cookie)
    user, signed = await single_sign_on.arrive(call.process, call.where, answer, kept)
    response = reply.ok({"user": user_resource(user), **sign_in_resource(signed)})
    response.headers["Referrer-Policy"] = "no-referrer"
    _keep(call.process.settings, response, cookie, "", 0)
    return response


def _cookie(settings: Settings, place: str) -> str:
    """No subdomain and no plain http can set what begins with __Secure- (RFC 6265bis §4.1.3)."""
    return f"{'__Secure-' if _secure(settings) else ''}tidings-sign-in-{place}"


def _secure(settings: Settings) -> bool:
    return settings.base_url.startswith("https:")


def _keep(settings: Settings, response: Response, cookie: str, value: str, seconds: int) -> None:
    """In this browser, for the way back, and for another way out to see which are kept. The way
    back comes by a link, hence `lax`."""
    response.set_cookie(
        cookie,
        value,
        max_age=seconds,
        path=f"{urlsplit(settings.base_url).path}/auth/oidc",
        secure=_secure(settings),
        httponly=True,
        samesite="lax",
    )


routes = [
    get(
        "/auth/oidc/login",
        begin_single_sign_on,
        can=PUBLIC,
        tx=None,
        gives={302: None},
        raises=("rate_limited", "not_found"),
    ),
    get(
        "/auth/oidc/callback",
        finish_single_sign_on,
        can=PUBLIC,
        tx=None,
        gives={200: Registered},
        raises=(
            "rate_limited",
            "unauthenticated",
            "forbidden",
            "not_found",
            "conflict",
            "quota_exceeded",
        ),
    ),
]
