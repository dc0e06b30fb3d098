"""Callbacks of Twilio: the status of a message (StatusCallback), and replies to a number."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from urllib.parse import parse_qs, parse_qsl, urlsplit

from app.providers.base import line
from app.providers.callbacks import (
    DELIVERED,
    FAILED,
    HARD,
    SENT,
    SOFT,
    STOPPED,
    Became,
    Callback,
    Inbound,
    Notice,
    Report,
    Unsigned,
)
from app.providers.kinds import CallbackReply, Callbacks
from app.providers.twilio import SIGNS, WHATSAPP

MOST_FIELDS = 200

STATUSES: Mapping[str, Became] = {
    **dict.fromkeys(("accepted", "scheduled", "queued", "sending", "sent"), SENT),
    **dict.fromkeys(("delivered", "read"), DELIVERED),
    **dict.fromkeys(("undelivered", "failed", "canceled"), FAILED),
}
# Of what was not delivered: why (twilio.com/docs/api/errors).
ERRORS: Mapping[str, Became] = {
    **dict.fromkeys(("21211", "21614", "30005", "30006", "63024"), HARD),
    **dict.fromkeys(("30003", "30008", "63003"), SOFT),
    "21610": STOPPED,
}
# A WhatsApp account keeps the number that it was opened with, whatever the numbering plan has made
# of that since; a contact may be stored either way.
SPELLINGS: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"\+521(\d{10})"), r"+52\1"),  # Mexico: mobiles had a 1 until 2019
    (re.compile(r"\+549([1-3]\d{9})"), r"+54\1"),  # Argentina: mobiles have a 9 from abroad
    (re.compile(r"\+54([1-3]\d{9})"), r"+549\1"),
    (re.compile(r"\+55(\d\d)9([6-9]\d{7})"), r"+55\1\2"),  # Brazil: mobiles got a 9 until 2016
    (re.compile(r"\+55(\d\d)([6-9]\d{7})"), r"+55\g<1>9\2"),
)


def read(token: str, url: str, signatures: Sequence[str], body: bytes) -> Notice:
    """`url` as Twilio was given it, with its query. Raises Unsigned."""
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Unsigned from None
    form = dict(pairs)
    if len(form) != len(pairs) or len(signatures) != 1:
        raise Unsigned
    if not hmac.compare_digest(signature(token, url, form).encode(), signatures[0].encode()):
        raise Unsigned
    if "MessageStatus" in form:
        return _report(url, form)
    return _inbound(form) if "Body" in form and "From" in form else None


def signature(token: str, url: str, form: Mapping[str, str]) -> str:
    """twilio.com/docs/usage/security: the URL, then every field and its value, by name."""
    signed = url + "".join(name + form[name] for name in sorted(form))
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), "sha1")).decode()


def _report(url: str, form: Mapping[str, str]) -> Notice:
    asked = parse_qs(urlsplit(url).query)
    workspace_id, attempt_id = asked.get("workspace"), asked.get("attempt")
    status, sid = form["MessageStatus"], form.get("MessageSid")
    became = STATUSES.get(status)
    if workspace_id is None or attempt_id is None or became is None:
        return None
    code = form.get("ErrorCode", "")
    if became is FAILED:
        became = ERRORS.get(code, FAILED)
    detail = line(form.get("ErrorMessage", ""))
    words = " ".join(part for part in (f"error {code}" if code else "", detail) if part)
    return Report(
        f"{sid} {status}",
        workspace_id[-1],
        attempt_id[-1],
        sid,
        became,
        f"Twilio: {status}{f', {words}' if words else ''}.",
    )


def _inbound(form: Mapping[str, str]) -> Inbound:
    """Read an inbound message. With Advanced Opt-Out Twilio says itself what a keyword means, in
    any language, and has answered already."""
    sender, opted = form["From"], form.get("OptOutType")
    is_whatsapp, number = sender.startswith(WHATSAPP), sender.removeprefix(WHATSAPP)
    spellings: tuple[str, ...] = (number,)
    if is_whatsapp:  # which knows it so; then as the numbering plan has it, or had it
        fits = ((spelling.fullmatch(number), other) for spelling, other in SPELLINGS)
        spellings = (number, *(match.expand(other) for match, other in fits if match))
    return Inbound(
        form.get("MessageSid", ""),
        "whatsapp" if is_whatsapp else "sms",
        spellings,
        opted or form["Body"],
        answered=opted is not None,
        pressed=None if opted else form.get("ButtonPayload"),
    )


def _read(secret: str, request: Callback, _now: datetime) -> Notice:
    """Its signatures never grow old."""
    signatures = request.headers.get("x-twilio-signature", ())
    return read(secret, request.url, signatures, request.body)


def twiml(reply: str | None) -> CallbackReply:
    """Write TwiML that replies to the person who has written; without a reply, an empty answer."""
    message = f"<Message>{escape(reply)}</Message>" if reply is not None else ""
    words = f'<?xml version="1.0" encoding="UTF-8"?><Response>{message}</Response>'
    return CallbackReply(words, "text/xml")


CALLBACKS = Callbacks(SIGNS, _read, takes_form=True, answer=twiml)
