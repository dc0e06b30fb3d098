"""Callbacks of Resend: events signed as Standard Webhooks are, with Svix's names of headers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from app.machine import document
from app.machine.program import Json
from app.providers.base import line
from app.providers.callbacks import (
    COMPLAINED,
    DELAYED,
    DELIVERED,
    FAILED,
    HARD,
    SENT,
    SOFT,
    Became,
    Callback,
    Notice,
    Report,
    Unsigned,
)
from app.providers.kinds import Callbacks
from app.providers.resend import SIGNS
from app.vault import standard_webhooks

# resend.com/docs/dashboard/webhooks/event-types. Opens and clicks are not looked at.
EVENTS: Mapping[str, Became] = {
    **dict.fromkeys(("email.sent", "email.scheduled"), SENT),
    "email.delivered": DELIVERED,
    "email.delivery_delayed": DELAYED,
    "email.bounced": SOFT,  # unless it says Permanent
    "email.complained": COMPLAINED,
    "email.failed": FAILED,
    "email.suppressed": HARD,  # Resend sends no more to who has bounced or complained there
}
WHY = ("bounce", "failed", "suppressed")  # members of an event's data that say more


def read(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> Notice:
    """Raises Unsigned; document.MalformedJson for what is signed and no JSON."""
    id = standard_webhooks.verify(secret, headers, body, now, prefix="svix")
    if id is None:
        raise Unsigned
    event = document.parse(body)
    kind = event.get("type") if isinstance(event, dict) else None
    data = event.get("data") if isinstance(event, dict) else None
    if not isinstance(kind, str) or not isinstance(data, dict):
        return None
    given = data.get("tags")
    if isinstance(given, list):  # of names and values, in events of former times
        given = {one.get("name"): one.get("value") for one in given if isinstance(one, dict)}
    pairs = given.items() if isinstance(given, dict) else ()
    became, tags = EVENTS.get(kind), {name: one for name, one in pairs if isinstance(one, str)}
    if became is None or not {"workspace", "attempt"} <= tags.keys():
        return None
    why: Mapping[str, Json] = next(
        (data[name] for name in WHY if isinstance(data.get(name), dict)), {}
    )
    if became is SOFT and why.get("type") == "Permanent":
        became = HARD
    detail = next(
        (why[name] for name in ("message", "reason") if isinstance(why.get(name), str)), ""
    )
    words = f": {line(detail)}" if detail else "."
    email_id = data.get("email_id")
    return Report(
        id,
        tags["workspace"],
        tags["attempt"],
        email_id if isinstance(email_id, str) else None,
        became,
        f"Resend: {kind}{words}",
    )


def _read(secret: str, request: Callback, now: datetime) -> Notice:
    headers = {name: values[-1] for name, values in request.headers.items()}
    return read(secret, headers, request.body, now)


CALLBACKS = Callbacks(
    SIGNS,
    _read,
    advice="RESEND_WEBHOOK_SECRET is not set, so bounces are not received: create a webhook to"
    " {url} at Resend, and set its signing secret.",
)
