"""The intake: POST /v1/webhooks/in/<token> (specification §4.2)."""

from __future__ import annotations

from starlette.responses import Response

from app import intake
from app.web import reply
from app.web.body import require_media_type
from app.web.routing import PUBLIC, Call, post
from app.web.throttle import INTAKE


async def receive(call: Call) -> Response:
    """Counted before anything is judged, and judged before anything is looked up."""
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
        signatures=call.request.headers.getlist("x-service-signature"),
        body=body,
    )
    return reply.accepted({"runId": accepted.run_id, "contactId": accepted.contact_id})


routes = [
    # Any path below: one that holds more than a token is counted, and is no token.
    post("/v1/webhooks/in/{token:path}", receive, can=PUBLIC, tx=None),
]
