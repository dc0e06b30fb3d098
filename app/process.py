"""What one process holds open from boot to shutdown; verbs and handlers take it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.channels.base import Channel
from app.config import Settings
from app.queue import Queue
from app.store.db import Database
from app.vault import Vault

SCHEMA = (Path(__file__).parent.parent / "schema.sql").read_text()


@dataclass(frozen=True, slots=True)
class Process:
    settings: Settings
    database: Database
    vault: Vault
    queue: Queue
    channels: Mapping[str, Channel]  # by channel name
