"""POST /v1/callbacks/<provider>/<token>: what providers report, by their own signatures."""

from __future__ import annotations

from functools import wraps

from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from app.messages import callbacks
from app.providers import PROVIDERS
from app.providers.callbacks import Callback
from app.providers.kinds import Callbacks
from app.web import reply
from app.web.endpoints import Endpoint
from app.web.routing import PUBLIC, STRANGERS_BYTES, Call, post


class ProviderEvent(BaseModel):
    """An event as the provider sends it, this one as Resend does; only its type and its subject are
    read."""

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


async def receive(call: Call, provider: str) -> Response:
    """The provider's delivery reports, verified by its signature, and what people write back where
    they can. Duplicate and late ones are handled. Replies to a person are in the answer."""
    token = call.path("token")
    callbacks.refuse_strange(call.process, provider, token)
    bearer = f"{provider}/{token}"  # a token is its own provider's
    # Before the body is read, which then takes no room from strangers, nor they from it; and which
    # nobody of the same address waits for.
    account, _ = await call.bearers.judged(
        call.client, bearer, lambda: callbacks.account_of(call.process, provider, token)
    )
    most = min(STRANGERS_BYTES, call.process.settings.max_body_bytes)
    call.expect_body(account.workspace_id or provider, most)
    scope, headers = call.request.scope, call.request.headers
    query = scope["query_string"].decode("latin-1")
    path = scope["raw_path"].decode("latin-1").partition("?")[0]
    received = Callback(
        provider=provider,
        token=token,
        url=f"{call.process.settings.base_url}{path}{f'?{query}' if query else ''}",
        headers={name: headers.getlist(name) for name in headers},
        body=await call.receive_body(),
    )
    reply_to = await call.bearers.judged(
        call.client, f"signed/{bearer}", lambda: callbacks.receive(call.process, received)
    )
    answer = callbacks.answer(provider, reply_to)
    if answer is None:
        return reply.no_content()
    return Response(answer.content, media_type=answer.media_type)


def _route(provider: str, how: Callbacks) -> Endpoint:
    @wraps(receive)
    async def receive_from(call: Call) -> Response:
        return await receive(call, provider)

    receive_from.__name__ = f"receive_{provider}"  # the operation's
    answer = how.answer(None) if how.answer is not None else None
    return post(
        f"/v1/callbacks/{provider}/{{token}}",
        receive_from,
        can=PUBLIC,
        tx=None,
        takes=("application/x-www-form-urlencoded",) if how.takes_form else ProviderEvent,
        gives={200: (answer.media_type,)} if answer is not None else {204: None},
        raises=("invalid_signature", "not_found", "rate_limited"),
    )


routes = [
    _route(name, kind.callbacks) for name, kind in PROVIDERS.items() if kind.callbacks is not None
]
