"""What one process holds open from boot to shutdown; verbs and handlers take it first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.accounts.oidc import Provider
from app.billing.base import Provider as Payments
from app.billing.stripe import Stripe
from app.channels.base import Channel
from app.channels.own import Own
from app.config import Settings
from app.egress import Egress
from app.queue import Queue
from app.runtime.batching import Batches
from app.runtime.metrics import Metrics
from app.store.db import Database
from app.vault import Vault

SCHEMA = (Path(__file__).parent.parent / "schema.sql").read_text()


@dataclass(frozen=True, slots=True)
class Process:
    settings: Settings
    database: Database
    vault: Vault
    queue: Queue
    channels: Mapping[str, Channel]  # by channel name; the operator's
    own: Own  # those of workspaces
    egress: Egress
    metrics: Metrics = field(default_factory=Metrics)
    provider: Provider | None = None  # of single sign-on
    batches: Batches = field(default_factory=Batches)
    billing: Payments | None = None  # through whom plans are paid for; None where nobody can
    stripe: Stripe | None = None  # whose events are heard
