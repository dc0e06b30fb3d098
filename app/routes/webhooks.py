"""The intake: POST /v1/webhooks/in/<token> (specification §4.2)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app import intake
from app.intake import Head
from app.routes.ids import ContactId, RunId
from app.web import reply
from app.web.body import Shape, require_media_type
from app.web.routing import PUBLIC, Call, post
from app.web.throttle import INTAKE


class Event(BaseModel):
    """Whatever the sender has to tell, as one JSON object."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"data": {"email": "ada@example.com", "name": "Ada", "plan": "pro"}}]
        },
    )


class Accepted(Shape):
    run_id: RunId
    contact_id: ContactId


async def receive(call: Call) -> Response:
    """Starts one run for the right contact, committed before it is answered. Sign the body with
    `X-Service-Signature: sha256=<hex>` when the trigger has a signing secret."""
    # Counted before anything is judged, and judged before anything is looked up.
    head = Head(call.request.scope["headers"], call.client)
    await call.throttle.check(INTAKE, call.client)
    # Not the route's parameter: a regular expression's end of line forgives a line break.
    token = call.request.scope["path"].removeprefix("/v1/webhooks/in/")
    if intake.TOKEN.fullmatch(token) is None:
        raise intake.unknown_token()
    body = await call.receive_body()
    require_media_type(call.request.headers)
    accepted = await intake.receive(
        call.process,
        token=token,
        body=body,
        signatures=head.values(b"x-service-signature"),
        head=head,
    )
    answer = reply.accepted({"runId": accepted.run_id, "contactId": accepted.contact_id})
    if accepted.replayed:
        answer.headers["Idempotency-Replayed"] = "true"
    return answer


routes = [
    # Any path below: one that holds more than a token is counted, and is no token.
    post(
        "/v1/webhooks/in/{token:path}",
        receive,
        can=PUBLIC,
        tx=None,
        takes=Event,
        gives={202: Accepted},
        raises=("rate_limited", "invalid_signature", "lookup_unresolved", "contact_not_found"),
    ),
]
