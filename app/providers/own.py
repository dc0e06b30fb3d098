"""The channels of workspaces with credentials of their own.

What is kept open is known by its sealed credentials, which no two settings share: from the moment
that a workspace changes or deletes its own, nobody finds what was opened by the old ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from app.config.settings import Settings
from app.machine.content import ChannelName
from app.net.egress import Egress
from app.providers import kind_of
from app.providers.api import Client
from app.providers.base import Provider
from app.providers.kinds import Credentials, Surroundings

KEPT = 256  # of a process, the least lately used go first


class Own:
    def __init__(self, settings: Settings, client: Client, egress: Egress) -> None:
        self._settings = settings
        self._client = client
        self._egress = egress
        self._kept: OrderedDict[bytes, Provider] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def kept(self, sealed: bytes, open: Callable[[], Provider]) -> Provider:
        """The one of these sealed credentials, opened when it is not yet."""
        if sealed not in self._kept:
            self._kept[sealed] = open()
            if len(self._kept) > KEPT:
                _, oldest = self._kept.popitem(last=False)
                closing = asyncio.create_task(oldest.close())  # what it is sending ends by itself
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self._kept.move_to_end(sealed)
        return self._kept[sealed]

    def open(
        self, name: ChannelName, given: Credentials, callback_url: str, *, workspace_id: str
    ) -> Provider:
        """Raises ValueError with a sentence when a mail's sender is none."""
        kind = kind_of(given["provider"])
        if kind is None or name not in kind.channels:
            raise ValueError(f"{given['provider']} is not a provider for {name}.")
        # Whoever chose the server is not its operator: it is dialled as any stranger's.
        dial = partial(self._egress.dial_mail, owner=workspace_id)
        around = Surroundings(self._settings, self._client, callback_url, dial)
        return kind.open(around, name, given)

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._kept.values()), *self._closing)
