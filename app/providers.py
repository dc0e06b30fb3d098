"""By whom a workspace's messages go out: its own provider, else the operator's.

The choice is made anew for every message, in the transaction of its intent: there is nothing to
forget when a workspace changes its mind. In the sandbox every message is captured, whatever a
workspace has set up.
"""

from __future__ import annotations

import secrets
import string
from typing import Any, cast

from app.channels.base import Channel, Provider
from app.channels.own import Name
from app.machine import document
from app.process import Process
from app.store import channel_settings
from app.store.db import Handle, Row

SEALED = "channel credentials"  # the purpose that the vault encrypts for
TOKEN_LENGTH = 30
ALPHABET = string.ascii_letters + string.digits


async def of(process: Process, db: Handle, workspace_id: str, channel: str) -> Channel | None:
    """None when nobody has set the channel up."""
    if process.settings.production:
        row = await channel_settings.get(db, workspace_id=workspace_id, channel=channel)
        if row is not None:
            return opened(process, row)
    return process.channels.get(channel)


async def names(process: Process, db: Handle, workspace_id: str) -> set[str]:
    """The channels by which the workspace can send."""
    own = await channel_settings.names(db, workspace_id=workspace_id)
    return {*process.channels, *own}


def opened(process: Process, row: Row) -> Provider:
    def open() -> Provider:
        given = credentials(process, row)
        url = callback_url(process, given["provider"], row["token"])
        return process.own.open(cast(Name, row["channel"]), given, url)

    return process.own.kept(row["sealed"], open)


def credentials(process: Process, row: Row) -> dict[str, Any]:
    sealed = process.vault.decrypt(SEALED, row["sealed"], row["workspace_id"], row["channel"])
    return cast(dict[str, Any], document.parse(sealed))


async def keep(
    process: Process, db: Handle, workspace_id: str, channel: str, given: dict[str, Any]
) -> Row:
    sealed = process.vault.encrypt(SEALED, document.dumps(given), workspace_id, channel)
    return await channel_settings.put(
        db, workspace_id=workspace_id, channel=channel, sealed=sealed, token=_new_token()
    )


def callback_url(process: Process, provider: str, token: str) -> str:
    """Where the provider is to tell what became of messages."""
    return f"{process.settings.base_url}/v1/callbacks/{provider}/{token}"


def _new_token() -> str:
    """178 bits."""
    return "".join(secrets.choice(ALPHABET) for _ in range(TOKEN_LENGTH))
