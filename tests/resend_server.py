"""A Resend on a port of its own, as far as we use it: it keeps what it accepts, honours its keys,
refuses what Resend refuses by its names, signs its events, and misbehaves when told to."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.listener import Asked, Listener, says

API_KEY, DOMAIN = "re_of_this_server", "acme.test"
WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"a secret of this endpoint").decode()
DROP, DROP_ACCEPTED, STALL = "drop", "accept, then drop", "stall"


def refusal(status: int, name: str, message: str = "No.", **headers: str) -> dict[str, Any]:
    """Make an error as Resend lays it out."""
    body = {"statusCode": status, "message": message, "name": name}
    return {"status": status, "body": body, "headers": headers}


def event(kind: str, accepted: Mapping[str, Any], **more: Any) -> bytes:
    """Make an event as Resend lays it out: tags come back as an object."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    data = {
        "created_at": now,
        "email_id": accepted["id"],
        "from": accepted["from"],
        "to": accepted["to"],
        "subject": accepted["subject"],
        "tags": {tag["name"]: tag["value"] for tag in accepted["tags"]},
        **more,
    }
    return json.dumps({"type": kind, "created_at": now, "data": data}).encode()


def signed(
    body: bytes,
    *,
    secret: str = WEBHOOK_SECRET,
    id: str | None = None,
    at: int | None = None,
) -> dict[str, str]:
    """Svix's headers (docs.svix.com, Standard Webhooks)."""
    id = id or f"msg_{secrets.token_hex(8)}"
    moment = str(int(time.time()) if at is None else at)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.digest(key, f"{id}.{moment}.".encode() + body, "sha256")
    return {
        "svix-id": id,
        "svix-timestamp": moment,
        "svix-signature": f"v1,{base64.b64encode(mac).decode()}",
        "content-type": "application/json",
    }


@dataclass
class ResendServer:
    """`accepted` is the ledger: mails, by the ids they were given."""

    listener: Listener
    accepted: dict[str, dict[str, Any]] = field(default_factory=dict)
    script: deque[Any] = field(default_factory=deque)
    mood: Any = None  # how all are answered that the script says nothing of
    _kept: dict[str, tuple[bytes, str]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.listener.url

    @property
    def asked(self) -> list[Asked]:
        return self.listener.asked

    async def respond(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        behaviour = self.script.popleft() if self.script else self.mood
        if behaviour == DROP:
            return
        if behaviour == STALL:
            await asyncio.Event().wait()
        answer = behaviour if isinstance(behaviour, dict) else self._answer(asked)
        if behaviour == DROP_ACCEPTED:
            return
        status, headers = answer["status"], answer.get("headers", {})
        respond = says(answer["body"], f"{status} Said", Connection="close", **headers)
        await respond(asked, writer)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        if asked.header("authorization") != f"Bearer {API_KEY}":
            return refusal(403, "invalid_api_key", "API key is invalid")
        if (asked.method, asked.target) == ("GET", "/domains"):
            domain = {"id": "d1", "name": DOMAIN, "status": "verified"}
            return {"status": 200, "body": {"data": [domain]}}
        assert (asked.method, asked.target) == ("POST", "/emails")
        assert asked.header("content-type") == "application/json"
        return self._once(str(asked.header("idempotency-key")), asked.body)

    def _once(self, key: str, body: bytes) -> dict[str, Any]:
        """resend.com/docs/dashboard/emails/idempotency-keys."""
        asked, id = self._kept.get(key, (body, None))
        if asked != body:
            return refusal(409, "invalid_idempotent_request", "Same key, another payload.")
        if id is not None:
            return {"status": 200, "body": {"id": id}}
        mail = json.loads(body)
        if not {"from", "to", "subject"} <= set(mail):
            return refusal(422, "missing_required_field", "Missing field.")
        if not mail["from"].rstrip(">").endswith("@" + DOMAIN):
            return refusal(403, "validation_error", "The domain is not verified.")
        id = f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}"
        self.accepted[id] = {**mail, "id": id}
        self._kept[key] = (body, id)
        return {"status": 200, "body": {"id": id}}


@asynccontextmanager
async def serving() -> AsyncIterator[ResendServer]:
    async with Listener() as listener:
        resend = ResendServer(listener)
        listener.respond = resend.respond
        yield resend
