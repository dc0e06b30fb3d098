"""POST /v1/callbacks/<provider>/<token>: what providers tell, by their own signatures."""

from __future__ import annotations

from html import escape

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app.messages import callbacks
from app.messages.callbacks import Heard
from app.web import reply
from app.web.routing import PUBLIC, Call, post


class ResendEvent(BaseModel):
    """An event as Resend sends it; only its type and its subject are read."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "email.delivered",
                    "data": {"email_id": "4ef9a417-02e9-4d39-ad75-9611e0fcc33c", "tags": {}},
                }
            ]
        },
    )


async def hear_twilio(call: Call) -> Response:
    """Twilio's status callbacks and incoming messages, verified by `X-Twilio-Signature`. Duplicate
    and late callbacks are handled. Replies to a person are returned as TwiML."""
    reply_text = await _hear(call, "twilio")
    message = f"<Message>{escape(reply_text)}</Message>" if reply_text is not None else ""
    return Response(
        f'<?xml version="1.0" encoding="UTF-8"?><Response>{message}</Response>',
        media_type="text/xml",
    )


async def hear_resend(call: Call) -> Response:
    """Resend's events, verified by `svix-signature`. Duplicate and late events are handled."""
    await _hear(call, "resend")
    return reply.no_content()


async def _hear(call: Call, provider: str) -> str | None:
    await callbacks.whose(call.process, provider, call.path("token"))  # before the body is read
    scope, headers = call.request.scope, call.request.headers
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1").partition("?")[0]
    received = Heard(
        provider=provider,
        token=call.path("token"),
        url=f"{call.process.settings.base_url}{path}{f'?{query}' if query else ''}",
        headers={name.lower(): value for name, value in headers.items()},
        signatures=headers.getlist("x-twilio-signature"),
        body=await call.receive_body(),
    )
    return await callbacks.hear(call.process, received)


routes = [
    post(
        "/v1/callbacks/twilio/{token}",
        hear_twilio,
        can=PUBLIC,
        tx=None,
        takes=("application/x-www-form-urlencoded",),
        gives={200: ("text/xml",)},
        raises=("invalid_signature", "not_found"),
    ),
    post(
        "/v1/callbacks/resend/{token}",
        hear_resend,
        can=PUBLIC,
        tx=None,
        takes=ResendEvent,
        gives={204: None},
        raises=("invalid_signature", "not_found"),
    ),
]
