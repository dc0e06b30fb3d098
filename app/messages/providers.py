"""Providers by whom a workspace's messages go out: its own, else the operator's.

The choice is made anew for every message, in the transaction of its intent: there is nothing to
forget when a workspace changes its mind. In the sandbox every message is captured, whatever a
workspace has set up.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import Any, cast

from app.config.settings import Settings
from app.database.db import Handle
from app.machine import document
from app.machine.content import ChannelName
from app.process import Process
from app.providers import kind_of
from app.providers.base import Channel, Provider
from app.providers.kinds import Callbacks, ProviderKind
from app.store import callbacks, channel_settings, circuit_breakers
from app.vault import tokens
from app.vault.vault import Vault

SEALED = "channel credentials"  # the purpose that the vault encrypts for
TRIED_AT_ONCE = 1_000


async def of(process: Process, db: Handle, workspace_id: str, channel: str) -> Channel | None:
    """None when nobody has set the channel up."""
    if process.settings.production:
        row = await channel_settings.get(db, workspace_id=workspace_id, channel=channel)
        if row is not None:
            return opened(process, row)
    return process.channels.get(channel)


def is_operators(process: Process, channel: Channel) -> bool:
    return channel is process.channels.get(channel.name)


async def names(process: Process, db: Handle, workspace_id: str) -> set[str]:
    """The channels by which the workspace can send."""
    own = await channel_settings.names(db, workspace_id=workspace_id)
    return {*process.channels, *own}


def opened(process: Process, row: channel_settings.ChannelSettings) -> Provider:
    """The provider of a workspace's own settings, kept open while they stay the same."""

    def open() -> Provider:
        given = credentials(process, row)
        url = callback_url(process.settings.base_url, given["provider"], row.token)
        name, workspace_id = cast(ChannelName, row.channel), row.workspace_id
        return process.workspace_channels.open(name, given, url, workspace_id=workspace_id)

    return process.workspace_channels.kept(row.sealed, open)


def credentials(process: Process, row: channel_settings.ChannelSettings) -> dict[str, Any]:
    """The settings that a member gave for the channel: `provider`, and what that provider needs."""
    sealed = process.vault.decrypt(SEALED, row.sealed, row.workspace_id, row.channel)
    return cast(dict[str, Any], document.parse(sealed))


async def keep(
    process: Process, db: Handle, workspace_id: str, channel: str, given: dict[str, Any]
) -> channel_settings.ChannelSettings:
    """Store the channel's settings; what waited for them is tried at once."""
    await ask_anew(db, workspace_id, channel)
    sealed = process.vault.encrypt(SEALED, document.dumps(given), workspace_id, channel)
    token = tokens.drawn_for(workspace_id)
    return await channel_settings.put(
        db, workspace_id=workspace_id, channel=channel, sealed=sealed, token=token
    )


async def ask_anew(db: Handle, workspace_id: str, channel: str) -> None:
    """Forget what is known of the provider, and try some of the messages that wait for it. Each of
    these that is taken wakes two of the rest."""
    await circuit_breakers.wake_misconfigured(
        db, workspace_id=workspace_id, channel=channel, limit=TRIED_AT_ONCE
    )
    await circuit_breakers.close(db, workspace_id=workspace_id, channel=channel)


def callback_url(base_url: str, provider: str, token: str) -> str:
    """The URL to which the provider reports what became of messages."""
    return f"{base_url}/v1/callbacks/{provider}/{token}"


# --- who tells ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """The account that a token's callbacks are for, and what signs them. Of the operator's account
    the workspace is what the callback says."""

    provider: str
    workspace_id: str | None
    secret: str = field(repr=False)


async def account(process: Process, db: Handle, provider: str, token: str) -> Account | None:
    """None for a token that nobody has, or for which nothing could be verified."""
    kind = kind_of(provider)
    if kind is None or kind.callbacks is None:
        return None
    if is_operators_token(process.vault, provider, token):
        secret = operators_secret(process.settings, kind, kind.callbacks)
        return Account(provider, None, secret) if secret is not None else None
    workspace_id = tokens.workspace_of(token)
    if workspace_id is None:
        return None
    row = await channel_settings.by_token(db, workspace_id=workspace_id, token=token)
    given = credentials(process, row) if row is not None else {}
    secret = given.get(kind.callbacks.secret)
    if secret is None or given["provider"] != provider:
        return None
    return Account(provider, workspace_id, secret)


def operators_secret(settings: Settings, kind: ProviderKind, callbacks: Callbacks) -> str | None:
    """The secret with which the operator's provider signs; None where it does not report."""
    found = (given.get(callbacks.secret) for given in kind.operators(settings).values())
    return next(found, None)


def operators_token(vault: Vault, provider: str) -> str:
    """The same for as long as there is the data key; doctor prints it."""
    seed = vault.keyed_hash("operator's callbacks", provider.encode())
    return tokens.derived(seed, alphabet=tokens.LETTERS_FIRST)


def is_operators_token(vault: Vault, provider: str, token: str) -> bool:
    return tokens.is_well_formed(token) and hmac.compare_digest(
        token, operators_token(vault, provider)
    )


def operators_url(base_url: str, vault: Vault, provider: str) -> str:
    return callback_url(base_url, provider, operators_token(vault, provider))


# --- a sender that many share ---------------------------------------------------------------------


def is_shared(process: Process, channel: Channel) -> bool:
    """Return whether people can write back to the channel, and it is not the workspace's own."""
    kind = kind_of(channel.provider)
    answers = kind is not None and kind.callbacks is not None and kind.callbacks.answer is not None
    return answers and is_operators(process, channel)


async def record_writer(
    process: Process, db: Handle, workspace_id: str, channel: str, to: str
) -> None:
    hash = shared_hash(process, channel, to)
    await callbacks.record_writer(db, workspace_id=workspace_id, address_hash=hash)


def shared_hash(process: Process, channel: str, number: str) -> str:
    return process.vault.keyed_hash("shared recipient", f"{channel}|{number}".encode()).hex()
