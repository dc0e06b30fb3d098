"""A Twilio on a port of its own, as far as we use it: it keeps what it accepts, refuses what Twilio
refuses in Twilio's words, signs its callbacks, and misbehaves when it is told to."""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.listener import Asked, Listener, says

SID, TOKEN = "AC" + "5" * 32, "an-auth-token-of-this-server"
NUMBER, SERVICE = "+15005550006", "MG" + "a" * 32
MESSAGES = f"/2010-04-01/Accounts/{SID}/Messages.json"

# What the next requests meet, by name; after that all are accepted.
DROP, DROP_ACCEPTED, STALL, HTML = "drop", "accept, then drop", "stall", "html"


def refusal(status: int, code: int, message: str = "No.", **headers: str) -> dict[str, Any]:
    """Make an error as Twilio lays it out."""
    more = f"https://www.twilio.com/docs/errors/{code}"
    body = {"code": code, "message": message, "more_info": more, "status": status}
    return {"status": status, "body": body, "headers": headers}


def signature(url: str, form: Mapping[str, str], token: str = TOKEN) -> str:
    """twilio.com/docs/usage/security: the URL, then every parameter and its value, by name."""
    signed = url + "".join(name + form[name] for name in sorted(form))
    return base64.b64encode(hmac.digest(token.encode(), signed.encode(), "sha1")).decode()


@dataclass
class TwilioServer:
    """`accepted` is the ledger: forms, by the SIDs they were given."""

    listener: Listener
    accepted: dict[str, dict[str, str]] = field(default_factory=dict)
    script: deque[Any] = field(default_factory=deque)
    stalled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return self.listener.url

    @property
    def asked(self) -> list[Asked]:
        return self.listener.asked

    async def respond(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        behaviour = self.script.popleft() if self.script else None
        if behaviour == DROP:
            return
        if behaviour == STALL:
            self.stalled.set()
            await asyncio.Event().wait()
        if isinstance(behaviour, dict):
            await _answer(asked, writer, **behaviour)
            return
        answer = self._answer(asked)
        if behaviour == HTML:
            answer = {"status": 200, "body": b"<html>" + b"x" * 5_000_000}
        if behaviour != DROP_ACCEPTED:
            await _answer(asked, writer, **answer)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        signed_in = base64.b64encode(f"{SID}:{TOKEN}".encode()).decode()
        if asked.header("authorization") != f"Basic {signed_in}":
            return refusal(401, 20003, "Authenticate")
        answer = self.looked_up(asked)
        if answer is not None:
            return answer
        assert (asked.method, asked.target) == ("POST", MESSAGES)
        assert asked.header("content-type") == "application/x-www-form-urlencoded"
        form = {name: one for name, [one] in parse_qs(asked.body.decode()).items()}
        for holds, error in CHECKS:
            if holds(form):
                return error
        sid = f"SM{len(self.accepted):032x}"
        self.accepted[sid] = form
        return {"status": 201, "body": {"sid": sid, "status": "queued", "error_code": None}}

    def looked_up(self, asked: Asked) -> dict[str, Any] | None:
        """Answer what an account says of itself."""
        if asked.target == f"/2010-04-01/Accounts/{SID}.json":
            return {"status": 200, "body": {"sid": SID, "status": "active", "type": "Full"}}
        if asked.target.startswith(f"/2010-04-01/Accounts/{SID}/IncomingPhoneNumbers.json"):
            [number] = parse_qs(asked.target.partition("?")[2])["PhoneNumber"]
            known = [{"phone_number": NUMBER, "capabilities": {"sms": True}}]
            return {
                "status": 200,
                "body": {"incoming_phone_numbers": known if number == NUMBER else []},
            }
        return None


Holds = Callable[[Mapping[str, str]], bool]

CHECKS: list[tuple[Holds, dict[str, Any]]] = [
    (lambda form: "To" not in form, refusal(400, 21604, "A 'To' phone number is required.")),
    (
        lambda form: not ("From" in form) ^ ("MessagingServiceSid" in form),
        refusal(400, 21603, "A 'From' phone number is required."),
    ),
    (
        lambda form: not ("Body" in form) ^ ("ContentSid" in form),
        refusal(400, 21619, "A text message body or media urls must be specified."),
    ),
    (
        lambda form: (
            ("From" in form)
            and form["To"].startswith("whatsapp:") != form["From"].startswith("whatsapp:")
        ),
        refusal(400, 63007, "Twilio could not find a Channel with the specified From address"),
    ),
]


async def _answer(
    asked: Asked,
    writer: asyncio.StreamWriter,
    *,
    status: int,
    body: Any,
    headers: Mapping[str, str] | None = None,
) -> None:
    await says(body, f"{status} Said", Connection="close", **(headers or {}))(asked, writer)


@asynccontextmanager
async def serving() -> AsyncIterator[TwilioServer]:
    async with Listener() as listener:
        twilio = TwilioServer(listener)
        listener.respond = twilio.respond
        yield twilio
