"""The intake: POST /v1/webhooks/in/<token> (specification §4.2)."""

from __future__ import annotations

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from app.intake import webhooks
from app.intake.webhook_requests import Head
from app.net.networks import subscriber
from app.process import Process
from app.routes.ids import ContactId, RunId
from app.vault import tokens
from app.web.body import Shape, received, require_media_type
from app.web.routing import bare_post
from app.web.throttle import INTAKE, Throttle

SHORT_BYTES = 16 * 1024


class Event(BaseModel):
    """The sender's data, as one JSON object."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"data": {"email": "ada@example.com", "name": "Ada", "plan": "pro"}}]
        },
    )


class Accepted(Shape):
    run_id: RunId
    contact_id: ContactId


async def receive(
    process: Process, throttle: Throttle, scope: Scope, receive: Receive, send: Send
) -> None:
    """Start one run for the right contact, committed before the response. Sign the body with
    `X-Service-Signature: sha256=<hex>` if the trigger has a signing secret."""
    # Counted before anything is answered or written; a short body is read meanwhile.
    head = Head(scope["headers"], scope["client"][0])
    # Not the route's parameter: a regular expression's end of line forgives a line break.
    token = scope["path"].removeprefix("/v1/webhooks/in/")
    known = webhooks.remembered(process, token)
    async with throttle.counting(INTAKE, _sender(head.ip, known)):
        # Whether its body may take longer, and more memory, than to ask for the token first. One
        # that is too long is not read at all; h11 has checked the number.
        length, most = head.values(b"content-length"), process.settings.max_body_bytes
        is_long = not length or SHORT_BYTES < int(length[0]) <= most
        if not tokens.is_well_formed(token):
            raise webhooks.unknown_token()
        body = b"" if is_long else await received(receive)
        require_media_type(Headers(raw=head.headers))
    workspace_id = known or await webhooks.whose(process, token)
    if known is None:
        # It moves to its workspace's count. What is too much there stays among the strangers', and
        # so it is looked up no more often than they are.
        await throttle.check(INTAKE, _sender(head.ip, workspace_id))
        await throttle.forgive(INTAKE, _sender(head.ip, None))
    if is_long:
        scope["state"]["allowance"].hold.belongs_to(workspace_id)
        body = await received(receive)
    accepted = await webhooks.receive(
        process,
        token=token,
        body=body,
        signatures=head.values(b"x-service-signature"),
        head=head,
    )
    content = orjson.dumps({"runId": accepted.run_id, "contactId": accepted.contact_id})
    headers = [
        (b"content-length", b"%d" % len(content)),
        (b"content-type", b"application/json"),
    ]
    if accepted.replayed:
        headers.append((b"idempotency-replayed", b"true"))
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _sender(ip: str, workspace_id: str | None) -> str:
    """The key that a request is counted by: Stripe or Zapier send for many from one address, which
    has its own count in each workspace, and one for all tokens that are not known."""
    return ip if workspace_id is None else f"{subscriber(ip)} {workspace_id}"


routes = [
    # Any path below: one that holds more than a token is counted, and is no token.
    bare_post(
        "/v1/webhooks/in/{token:path}",
        receive,
        takes=Event,
        gives={202: Accepted},
        raises=(
            "rate_limited",
            "invalid_signature",
            "lookup_unresolved",
            "contact_not_found",
            "chain_too_long",
        ),
    ),
]
