"""The operator's channels, set by the environment: what a workspace without credentials uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from app.config.settings import Settings
from app.providers import PROVIDERS
from app.providers.api import Client
from app.providers.base import Provider
from app.providers.kinds import Surroundings


def nowhere(_provider: str) -> None:
    """Return no callback URL: for channels that are asked and do not send."""


def channels(
    settings: Settings, client: Client, callback_url: Callable[[str], str | None] = nowhere
) -> Iterator[Provider]:
    """The operator's channels, one of a name at most. `callback_url` is where a provider is to
    report."""
    for name, kind in PROVIDERS.items():
        around = Surroundings(settings, client, callback_url(name))
        for channel, given in kind.operators(settings).items():
            yield kind.open(around, channel, given)
