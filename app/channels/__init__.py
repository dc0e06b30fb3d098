"""One module per way out; the only place that lists them."""

from __future__ import annotations

from collections.abc import Mapping

from app.channels.base import Channel
from app.channels.email import EmailChannel

CHANNELS: Mapping[str, type[Channel]] = {EmailChannel.name: EmailChannel}
