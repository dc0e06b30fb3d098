"""The workspace's own providers: credentials that are taken, tried, and never shown again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model
from starlette.responses import Response

from app.errors import FieldError, Problem
from app.machine.content import CHANNELS, ChannelName
from app.messages import providers, senders
from app.providers import PROVIDERS, ProviderName, of_channel
from app.providers.base import Fault
from app.providers.kinds import Field as ProviderField
from app.providers.kinds import ProviderKind
from app.routes import partly
from app.store import channel_settings, workspaces
from app.web import reply
from app.web.body import Shape, Writable
from app.web.reply import Page, Revised
from app.web.routing import Call, delete, get, post, put
from app.web.throttle import Rule

VERIFY = Rule("channel-verify", 30, 3_600)  # of one workspace: each knocks at a stranger's door
VERIFY_SECONDS = 30.0

# --- shapes ---------------------------------------------------------------------------------------

Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1_000)]


class _NewChannel(Writable):
    provider: ProviderName


class _Channel(Revised):
    """Channel without secrets: the password is removed from `url`."""

    channel: ChannelName
    provider: ProviderName
    callback_url: str | None
    created_at: datetime
    updated_at: datetime


def _credentials(which: Callable[[ProviderField], bool]) -> list[str]:
    """Names of credentials of all providers, each once."""
    fields = [one for kind in PROVIDERS.values() for one in kind.fields.items()]
    return list(dict.fromkeys(name for name, field in fields if which(field)))


SHOWN = _credentials(lambda field: field.shown is not None)
SECRETS = _credentials(lambda field: field.shown is None and not field.is_needed)  # shown as …Set


def _described(kind: ProviderKind) -> str:
    needed = [f"`{name}`" for name, field in kind.fields.items() if field.is_needed]
    optional = [f"`{name}`" for name, field in kind.fields.items() if not field.is_needed]
    return ", ".join(needed) + (f"; optional: {', '.join(optional)}" if optional else "")


# What the providers take, and show, is said by their rows.
_text: Any = (Text | None, None)
NewChannel = create_model(
    "NewChannel",
    __base__=_NewChannel,
    __doc__=" ".join(f"{name} takes {_described(kind)}." for name, kind in PROVIDERS.items()),
    **dict.fromkeys(_credentials(lambda _: True), _text),
)
_shown: Any = (str | None, ...)
_is_set: Any = (bool, ...)
Channel = create_model(
    "Channel",
    __base__=_Channel,
    __doc__=_Channel.__doc__,
    **dict.fromkeys(SHOWN, _shown),
    **dict.fromkeys([f"{name}Set" for name in SECRETS], _is_set),
)


class Credential(Shape):
    """A field of a provider's settings. `secret`: it, or a part of it, is never shown again."""

    name: str
    label: str
    needed: bool
    secret: bool


class ProviderChoice(Shape):
    name: ProviderName
    fields: list[Credential]


class Way(Shape):
    """The provider that a channel uses now; in the sandbox messages are captured. Without
    `provider` the channel is not set up, and its messages fail. `honoursKey`: a call in doubt can
    be repeated without sending a second message. `reports`: it reports delivery status.
    `providers`: those that a workspace may set up for the channel, and what each takes."""

    channel: ChannelName
    provider: ProviderName | Literal["sandbox"] | None
    own_settings: bool
    honours_key: bool
    reports: bool
    providers: list[ProviderChoice]


class ChannelFinding(Shape):
    severity: Literal["error", "warning"]
    code: str
    message: str


class Verified(Shape):
    """`ok` means that messages can be sent."""

    ok: bool
    findings: list[ChannelFinding]


# --- what each provider takes ---------------------------------------------------------------------


def _wrong(channel: str, given: Mapping[str, str]) -> Iterator[FieldError]:
    provider, known = given.get("provider", ""), of_channel(channel)
    if provider not in known:
        yield FieldError("/provider", f"Must be {' or '.join(known)} for {channel}.")
        return
    fields = known[provider].fields
    for name in given.keys() - fields.keys() - {"provider"}:
        yield FieldError(f"/{name}", f"{provider} has no such field.")
    for name, field in fields.items():
        if name not in given:
            if field.is_needed:
                yield FieldError(f"/{name}", f"{provider} needs this.")
            continue
        try:
            field.check(given[name])
        except ValueError as error:
            yield FieldError(f"/{name}", f"Must be {error}.")
    yield from known[provider].wrong(channel, given)


# --- handlers -------------------------------------------------------------------------------------


def _channel(call: Call) -> str:
    name = call.path("channel")
    if name not in CHANNELS:
        raise Problem("not_found", f"The channels are {', '.join(CHANNELS)}.")
    return name


def _none(channel: str) -> Problem:
    return Problem("not_found", f"The workspace has no provider of its own for {channel}.")


async def index(call: Call) -> Response:
    """Every channel, whether set up or not."""
    workspace_id = call.member.workspace_id
    own = await channel_settings.names(call.db, workspace_id=workspace_id)
    items = []
    for name in CHANNELS:
        channel = await providers.of(call.process, call.db, workspace_id, name)
        choices = [
            {
                "name": provider,
                "fields": [
                    {
                        "name": credential,
                        "label": field.label,
                        "needed": field.is_needed,
                        "secret": field.has_secret,
                    }
                    for credential, field in kind.fields.items()
                ],
            }
            for provider, kind in of_channel(name).items()
        ]
        items.append(
            {
                "channel": name,
                "provider": channel.provider if channel else None,
                "ownSettings": name in own,
                "honoursKey": bool(channel and channel.capabilities.idempotency_key_ttl_seconds),
                "reports": bool(channel and channel.capabilities.callbacks),
                "providers": choices,
            }
        )
    return reply.page(items, None)


async def show(call: Call) -> Response:
    channel = _channel(call)
    row = await channel_settings.get(
        call.db, workspace_id=call.member.workspace_id, channel=channel
    )
    if row is None:
        raise _none(channel)
    return reply.ok(resource(call, row), revision=row.revision)


async def put_channel(call: Call) -> Response:
    """Save a provider: as soon as this is answered, the workspace's messages use it; in the sandbox
    they are still captured. Secrets must be given in full each time."""
    channel, workspace_id = _channel(call), call.member.workspace_id
    # What is wrong of the shape, and of its fields, is told at once.
    read, errors, _ = partly.read(call, NewChannel, None, without={"provider": "smtp"})
    given = read.model_dump(by_alias=True, exclude_none=True)
    known = {error.pointer for error in errors}
    if "/provider" not in known:  # by which the others are judged
        errors += [error for error in _wrong(channel, given) if error.pointer not in known]
    if errors:
        raise Problem("invalid", "The channel settings are not valid; see errors.", errors=errors)
    # The workspace first: of two that set it up at once, one waits for the other.
    await workspaces.locked(call.db, id=workspace_id)
    before = await channel_settings.locked(call.db, workspace_id=workspace_id, channel=channel)
    call.match(before.revision if before is not None else None)
    row = await providers.keep(call.process, call.db, workspace_id, channel, given)
    await call.note(
        "channel.updated",
        channel,
        _without_token(call, before) if before is not None else None,
        _without_token(call, row),
    )
    return reply.ok(resource(call, row), revision=row.revision)


async def remove(call: Call) -> Response:
    """Delete the provider: as soon as this is answered, messages use the operator's, if there is
    one."""
    channel, workspace_id = _channel(call), call.member.workspace_id
    workspace = await workspaces.locked(call.db, id=workspace_id)
    row = await channel_settings.locked(call.db, workspace_id=workspace_id, channel=channel)
    if row is None:
        raise _none(channel)
    call.match(row.revision)
    sender = workspace.from_email if workspace is not None else None
    foreign = sender is not None and not senders.is_operators(call.process.settings, sender)
    if channel == "email" and foreign:
        raise Problem(
            "conflict",
            f"The workspace sends from {sender}, which requires its own provider: change"
            " sender.fromEmail first.",
        )
    await channel_settings.delete(call.db, workspace_id=workspace_id, channel=channel)
    await providers.ask_anew(call.db, workspace_id, channel)
    await call.note("channel.deleted", channel, before=_without_token(call, row))
    return reply.no_content()


async def verify(call: Call) -> Response:
    """Check that the provider accepts the credentials and the sender. Nothing is sent."""
    channel, workspace_id = _channel(call), call.member.workspace_id
    await call.throttle.check(VERIFY, workspace_id)
    async with call.process.database.read() as db:
        row = await channel_settings.get(db, workspace_id=workspace_id, channel=channel)
    if row is None:
        raise _none(channel)
    try:
        async with asyncio.timeout(VERIFY_SECONDS):
            found = await providers.opened(call.process, row).verify()
    except TimeoutError:
        found = [Fault("error", "unreachable", "The provider took too long to answer.")]
    given = providers.credentials(call.process, row)
    how = PROVIDERS[given["provider"]].callbacks
    if how is not None and how.secret not in given:
        warning = f"Without a {how.secret}, bounces and complaints are not received."
        found = [*found, Fault("warning", "callbacks", warning)]
    ok = all(fault.severity == "warning" for fault in found)
    return reply.ok({"ok": ok, "findings": [asdict(fault) for fault in found]})


def resource(call: Call, row: channel_settings.ChannelSettings) -> dict[str, Any]:
    shown = _without_token(call, row)
    reports = PROVIDERS[shown["provider"]].callbacks is not None
    url = providers.callback_url(call.process.settings.base_url, shown["provider"], row.token)
    return {
        "channel": row.channel,
        **shown,
        "callbackUrl": url if reports else None,
        "createdAt": row.created_at,
        "updatedAt": row.updated_at,
    }


def _without_token(call: Call, row: channel_settings.ChannelSettings) -> dict[str, Any]:
    """Show a channel, for the audit trail too, without the token in its URL."""
    given = providers.credentials(call.process, row)
    fields = PROVIDERS[given["provider"]].fields
    return {
        "provider": given["provider"],
        **dict.fromkeys(SHOWN),
        **{
            name: field.shown(given[name])
            for name, field in fields.items()
            if field.shown is not None and name in given
        },
        **{f"{name}Set": name in given for name in SECRETS},
    }


routes = [
    get("/settings/channels", index, can="settings:read", gives={200: Page[Way]}),
    get("/settings/channels/{channel}", show, can="settings:read", gives={200: Channel}),
    put(
        "/settings/channels/{channel}",
        put_channel,
        can="settings:write",
        takes=NewChannel,
        gives={200: Channel},
    ),
    delete(
        "/settings/channels/{channel}",
        remove,
        can="settings:write",
        gives={204: None},
        raises=("conflict",),
    ),
    post(
        "/settings/channels/{channel}/verify",
        verify,
        can="settings:write",
        tx=None,
        gives={200: Verified},
    ),
]
