"""A session of a browser: its refresh token is in a cookie that no script reads.

Only what refreshes or ends the session looks at the cookie; everything else is asked with the
access token that the page holds in memory, so no other site can have a browser act here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from starlette.responses import Response

from app.accounts.signing_in import SignIn
from app.config.settings import LOOPBACK, Settings
from app.errors import FieldError, Problem
from app.web.routing import Call

InCookie: TypeAlias = Literal["cookie"] | None  # the field `session` of a body


def wanted(call: Call, session: InCookie) -> bool:
    """Return whether the session is to be in a cookie. Raises Problem `invalid` where it would not
    be safe, `forbidden` for the page of another site."""
    if session is not None:
        require_safe(call.process.settings)
        require_own_page(call)
    return session is not None


def require_safe(settings: Settings) -> None:
    """Plain http would show the cookie to the network. Raises Problem `invalid`."""
    if not (settings.is_https or _is_local(settings)):
        raise Problem(
            "invalid",
            "A session in a cookie needs https: the operator sets BASE_URL to an https address.",
            errors=[FieldError("/session", "This service is reached by plain http.")],
        )


def require_own_page(call: Call) -> None:
    """Require a page of ours, as browsers say with every POST (Fetch Standard §3.1). Raises Problem
    `forbidden`."""
    if call.request.headers.getlist("origin") not in [
        [own] for own in origins(call.process.settings)
    ]:
        raise Problem("forbidden", "Sessions in a cookie are for the pages of this service alone.")


def origins(settings: Settings) -> list[str]:
    """The origins of our own pages. This machine has three names."""
    url = urlsplit(settings.base_url)
    if not _is_local(settings):
        return [f"{url.scheme}://{url.netloc}"]
    port = f":{url.port}" if url.port else ""
    return [f"http://{'[::1]' if name == '::1' else name}{port}" for name in LOOPBACK]


def read(call: Call) -> str:
    """The refresh token, or "" without one."""
    return call.request.cookies.get(_name(call.process.settings), "")


def kept(call: Call, response: Response, signed: SignIn) -> Response:
    """The same answer, which has the browser keep the session if it is to be in a cookie."""
    if signed.in_cookie:
        _set(call, response, signed.refresh_token, int(signed.lasts.total_seconds()))
    return response


def forgotten(call: Call, response: Response) -> Response:
    """The same answer, which has the browser drop the session."""
    _set(call, response, "", 0)
    return response


def _set(call: Call, response: Response, value: str, seconds: int) -> None:
    settings = call.process.settings
    response.set_cookie(
        _name(settings),
        value,
        max_age=seconds,
        path="/",
        secure=settings.is_https,
        httponly=True,
        samesite="strict",
    )


def _name(settings: Settings) -> str:
    """No subdomain and no plain http can set what begins with __Host- (RFC 6265bis §4.1.3). Cookies
    know no ports, so each service of one machine has a name of its own."""
    if settings.is_https:
        return "__Host-tidings-session"
    return f"tidings-session-{urlsplit(settings.base_url).port or 80}"


def _is_local(settings: Settings) -> bool:
    url = urlsplit(settings.base_url)
    return url.scheme == "http" and url.hostname in LOOPBACK
