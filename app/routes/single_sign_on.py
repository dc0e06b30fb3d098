"""Single sign-on: out to the provider, and back with a session."""

from __future__ import annotations

import re
from functools import wraps
from html import escape
from urllib.parse import urlencode, urlsplit

from starlette.responses import RedirectResponse, Response

from app.accounts import single_sign_on
from app.accounts.single_sign_on import PLACES, Answer
from app.config.settings import Settings
from app.errors import Problem
from app.routes import session_cookie
from app.routes.sessions import Registered, sign_in_resource, user_resource
from app.web import reply
from app.web.page import page
from app.web.routing import PUBLIC, Call, Handler, get
from app.web.throttle import AUTH

COOKIE_SECONDS = int(single_sign_on.LIFETIME.total_seconds())


LANDED = "/auth/oidc/done"
OPEN = '<b><a href="login?returnTo=/console/">Open the console</a></b>'  # by the provider again
CONSOLE = re.compile(r"/console(?:/[A-Za-z0-9_-]+)*/?(?:\?[A-Za-z0-9_.=&%+-]*)?")
# What browsers say of a request that a page of somebody else began (Fetch Metadata §2.3).
ELSEWHERE = frozenset({"cross-site", "same-site"})


def in_words(handler: Handler) -> Handler:
    """Answer a browser with a page where a program gets a problem."""

    @wraps(handler)
    async def answer(call: Call) -> Response:
        try:
            return await handler(call)
        except Problem as problem:
            if "text/html" not in _accept(call):
                raise
            call.process.metrics.count("tidings_refusals", code=problem.code)
            login = escape(f"{call.process.settings.base_url}/auth/oidc/login")
            again = f'<a href="{login}">Begin again</a>, or close this page.'
            ways = () if call.process.single_sign_on is None else (again,)
            response = page("You are not signed in", escape(problem.detail), *ways)
            response.status_code = problem.status
            response.headers.update(problem.headers)
            return response

    return answer


def _accept(call: Call) -> str:
    return ",".join(call.request.headers.getlist("accept")).lower()


async def begin_single_sign_on(call: Call) -> Response:
    """Unknown query parameters are ignored, because whoever links here may append their own. The
    console says with `returnTo` which of its pages to come back to, signed in. A browser that the
    page of another site has led here is first shown a page that asks, and names the workspace if
    the link is that of a mail of ours, which says so with `mail`."""
    single_sign_on.provider(call.process)
    await call.throttle.check(AUTH, call.client)
    workspace_id = call.request.query_params.get("workspaceId")
    kept = call.request.cookies
    taken = {one for one in PLACES if _cookie(call.process.settings, one) in kept}
    # A page of the console to come back to, and of nobody else: it may be the link of a stranger.
    wanted, back_to = call.request.query_params.get("returnTo"), None
    if wanted is not None and call.process.settings.console:
        session_cookie.require_safe(call.process.settings)
        back_to = wanted if CONSOLE.fullmatch(wanted) else "/console/"
    # Who is led to a workspace types into it: the link may be a stranger's. One that names both a
    # workspace and a page is the console's own; in a mail, it is a copy. Programs say no site.
    site = call.request.headers.get("sec-fetch-site")
    is_copied = site == "none" and workspace_id is not None and back_to is not None
    if site in ELSEWHERE or is_copied:
        return await asking(call, workspace_id, back_to)
    departure = await single_sign_on.depart(call.process, workspace_id, taken, back_to)
    response = RedirectResponse(departure.url, 302, {"Referrer-Policy": "no-referrer"})
    cookie = _cookie(call.process.settings, departure.place)
    _keep(call.process.settings, response, cookie, departure.kept, COOKIE_SECONDS)
    return response


async def asking(call: Call, workspace_id: str | None, back_to: str | None) -> Response:
    """The page between a stranger's link and the provider. It leads on by a link, which says that
    it is ours: a form could not, for its policy would have to name where the provider is."""
    await call.throttle.forgive(AUTH, call.client)  # the link that leads on is counted
    called, accepted = "your workspace", " An open invitation of yours is accepted by that."
    if workspace_id is not None:
        proof = call.request.query_params.get("mail", "")
        called = escape(await single_sign_on.workspace_called(call.process, workspace_id, proof))
        accepted = " An invitation to it is accepted by that."
    given = {"workspaceId": workspace_id, "returnTo": back_to}
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return page(
        "Sign in here?",
        f"A link has led you here, to sign in to <b>{called}</b> with single sign-on. What you do"
        f" there, its members see.{accepted}",
        f'<b><a href="{escape(f"login?{query}")}">Sign in</a></b>',
        "If you did not expect this, close this page: nothing has happened.",
    )


async def finish_single_sign_on(call: Call) -> Response:
    """Finish a single sign-on. With `Accept: application/json`, it is answered with the response of
    POST /auth/token, with the user. A browser is led back to the page of the console that it began
    on, with its session in a cookie; or, if it began elsewhere, to a page without a session: tokens
    do not belong on a screen. Removes the sign-in cookie."""
    single_sign_on.provider(call.process)
    await call.throttle.check(AUTH, call.client)
    given = call.request.query_params
    answer = Answer(given.get("state"), given.get("code"), given.get("error"), given.get("iss"))
    cookie = _cookie(call.process.settings, single_sign_on.place(answer.state))
    kept = call.request.cookies.get(cookie)
    wanted = _accept(call)
    is_program = "application/json" in wanted and "text/html" not in wanted
    arrival = await single_sign_on.arrive(
        call.process, call.where, answer, kept, begins_session=is_program
    )
    response: Response
    if is_program and arrival.signed is not None:
        user = user_resource(arrival.user)
        response = reply.ok({"user": user, **sign_in_resource(arrival.signed)})
    else:
        landed = f"{call.process.settings.base_url}{arrival.return_to or LANDED}"
        response = RedirectResponse(landed, 303)
        if arrival.signed is not None:
            session_cookie.kept(call, response, arrival.signed)
    response.headers["Referrer-Policy"] = "no-referrer"
    _keep(call.process.settings, response, cookie, "", 0)
    return response


async def show_single_sign_on(call: Call) -> Response:
    """The page on which a browser lands after single sign-on."""
    console = (OPEN,) if call.process.settings.console else ()
    return page(
        "Your account is ready",
        "Your provider has vouched for you, and you are a member of your workspace.",
        *console,
        "This page shows no tokens. A program gets them if it"
        " follows the same redirects and sends <code>Accept: application/json</code> to the last"
        " one.",
        "To use the API by hand, have a link for a password sent to your address with"
        " <code>POST /auth/password/forgot</code>, sign in with <code>POST /auth/token</code>, and"
        " make an API key with <code>POST /settings/api-keys</code>.",
    )


def _cookie(settings: Settings, place: str) -> str:
    """No subdomain and no plain http can set what begins with __Secure- (RFC 6265bis §4.1.3)."""
    return f"{'__Secure-' if settings.is_https else ''}tidings-sign-in-{place}"


def _keep(settings: Settings, response: Response, cookie: str, value: str, seconds: int) -> None:
    """Keep a cookie in this browser, for the way back. Another way out sees by it which are kept.
    The way back comes by a link, hence `lax`."""
    response.set_cookie(
        cookie,
        value,
        max_age=seconds,
        path=f"{urlsplit(settings.base_url).path}/auth/oidc",
        secure=settings.is_https,
        httponly=True,
        samesite="lax",
    )


PAGES = dict.fromkeys((401, 403, 404, 409, 429, 503), ("text/html",))

routes = [
    get(LANDED, show_single_sign_on, can=PUBLIC, tx=None, gives={200: ("text/html",)}),
    get(
        "/auth/oidc/login",
        in_words(begin_single_sign_on),
        can=PUBLIC,
        tx=None,
        gives={200: ("text/html",), 302: None, **PAGES},
        raises=("rate_limited", "not_found"),
    ),
    get(
        "/auth/oidc/callback",
        in_words(finish_single_sign_on),
        can=PUBLIC,
        tx=None,
        gives={200: Registered, 303: None, **PAGES},
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
