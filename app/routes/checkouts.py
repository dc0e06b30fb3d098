"""The sandbox's own checkout page: a page with two buttons, for whoever has its link."""

from __future__ import annotations

from html import escape

from starlette.responses import RedirectResponse, Response

from app.billing import paying
from app.billing.paying import Button
from app.config.plans import CURRENCY, PLANS
from app.web.page import HEADERS, page
from app.web.routing import PUBLIC, Call, get, post

# The buttons lead on to wherever the workspace wants: browsers hold redirects to this as well.
POLICY = HEADERS["Content-Security-Policy"].replace(
    "form-action 'none'", "form-action http: https:"
)


async def show(call: Call) -> Response:
    """Nothing is paid here: this page stands where a payment provider's would."""
    token = call.path("token")
    row = await paying.at_till(call.db, token)
    plan = PLANS[row.plan]
    price = f"{plan.price / 100:,.2f} {CURRENCY}"
    answer = page(
        f"Plan {plan.name}",
        f"{price} a month for <b>{escape(row.name)}</b>. This is a sandbox: no money moves.",
        below=_button(token, "complete", "Pay") + _button(token, "cancel", "Cancel"),
    )
    answer.headers["Content-Security-Policy"] = POLICY
    return answer


def _button(token: str, button: Button, label: str) -> str:
    """Its address is relative, for BASE_URL may have a path."""
    return f'<form method="post" action="{escape(token)}/{button}"><button>{label}</button></form>'


async def complete(call: Call) -> Response:
    return await _pressed(call, "complete")


async def cancel(call: Call) -> Response:
    return await _pressed(call, "cancel")


async def _pressed(call: Call, button: Button) -> Response:
    token = call.path("token")
    url = await paying.press(call.process, call.db, token, button, call.request_id)
    return RedirectResponse(url, 303)


PLACE = "/sandbox/checkouts/{token}"
routes = [
    get(PLACE, show, can=PUBLIC, gives={200: ("text/html",)}),
    post(f"{PLACE}/complete", complete, can=PUBLIC, gives={303: None}, raises=("conflict",)),
    post(f"{PLACE}/cancel", cancel, can=PUBLIC, gives={303: None}, raises=("conflict",)),
]
