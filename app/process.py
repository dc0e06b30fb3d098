"""State of one process, open from boot to shutdown; verbs and handlers take it first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

from app.config.settings import Settings
from app.database.db import Database, Handle
from app.database.visits import Rounds
from app.jobs import leases
from app.jobs.hints import Hints, Pair
from app.jobs.leases import Lease
from app.machine.kept import Kept
from app.net.egress import Egress
from app.providers.base import Channel
from app.providers.oidc import IdentityProvider
from app.providers.own import Own
from app.providers.payments import PaymentProvider
from app.providers.stripe import Stripe
from app.runtime.batching import Batches
from app.runtime.compute import Compute
from app.runtime.metrics import Metrics
from app.runtime.sharing import Shared, SharedByKey
from app.runtime.turns import WAIT_SECONDS, Turns
from app.store import claims, jobs
from app.store.claims import Apart, Begin, FairShare, Reach, Together
from app.store.directory import Place
from app.store.jobs import Job, Kind
from app.store.shards import Shards
from app.vault.vault import Vault

TARGETS_BYTES = 16 * 1024 * 1024
PLACES_BYTES = 8 * 1024 * 1024
EVALUATIONS = 2  # of the five connections that a pool has by default
PROGRESS_SECONDS = 5.0  # that the progress of a large broadcast is shown
SCHEMA = (Path(__file__).parent.parent / "schema.sql").read_text()


# What maintenance goes through a page at a time.
Backlog: TypeAlias = Literal[
    "circuits to probe", "closed circuits", "suppressions to undo", "deleted topics"
]


@dataclass(frozen=True, slots=True)
class Process:
    settings: Settings
    database: Database
    vault: Vault
    hints: Hints
    channels: Mapping[str, Channel]  # by channel name; the operator's
    workspace_channels: Own
    egress: Egress
    metrics: Metrics = field(default_factory=Metrics)
    single_sign_on: IdentityProvider | None = None  # None where it is not set up
    batches: Batches = field(default_factory=Batches)
    compute: Compute = field(default_factory=Compute)  # what takes longer than a few milliseconds
    billing: PaymentProvider | None = (
        None  # takes the payments for plans; None where nobody can pay
    )
    stripe: Stripe | None = None  # sends us events about payments; None where it is not set up
    exposition: Shared[bytes] = field(default_factory=Shared)  # of /metrics
    schema_fault: Shared[str | None] = field(default_factory=Shared)  # what /readyz answers
    # Of the workspaces whose sandbox somebody watches: its newest message.
    newest_captured: MutableMapping[str, Shared[str | None]] = field(
        default_factory=WeakValueDictionary
    )
    # Of large broadcasts that somebody watches: how many recipients are in which status.
    progress: SharedByKey[Mapping[str, int]] = field(
        default_factory=partial(SharedByKey[Mapping[str, int]], PROGRESS_SECONDS)
    )
    # Remembered of the webhooks that are open to events, by token: app/intake/webhooks.py.
    targets: Kept[str, Any] = field(default_factory=partial(Kept, TARGETS_BYTES))
    # And of which flow each is, which weighs little: no heavy trigger of one pushes out another.
    places: Kept[str, Place] = field(default_factory=partial(Kept, PLACES_BYTES))
    shards: Shards = field(default_factory=Shards)  # what they have due, where there are any
    # At looks through the contacts of a workspace, while somebody waits.
    evaluations: Turns = field(default_factory=partial(Turns, EVALUATIONS))
    # Requests that wait for what is new in a sandbox, by workspace.
    sandbox_waits: Counter[str] = field(default_factory=Counter)
    # How far maintenance has come in each.
    rounds: defaultdict[Backlog, Rounds] = field(default_factory=lambda: defaultdict(Rounds))

    @asynccontextmanager
    async def evaluating(
        self, workspace_id: str, within: float = WAIT_SECONDS
    ) -> AsyncIterator[Handle]:
        """A connection for one step of a look through the contacts of a workspace. However many
        somebody asks for, the intake and other workspaces find connections: these have one at a
        time, and all of them EVALUATIONS. Raises NoTurn where that takes more seconds."""
        turn = self.evaluations.turn(workspace_id, within=within)
        async with turn, self.database.read() as db:
            yield db

    async def claim(
        self,
        kind: Kind,
        hinted: Sequence[Pair],
        limit: int,
        fair_share: FairShare | None = None,
    ) -> list[Job]:
        """Take what is due, the hinted jobs first. Without `fair_share` nothing is remembered of
        the claim before it; with it suspects are put off, and what a sharded database has committed
        begins before all is claimed (store/claims.py)."""
        begin = fair_share.begin if fair_share else None
        async with self._reach(self.shards if fair_share else Shards(), begin) as reach:
            return await claims.claim(
                reach,
                kind,
                hinted=hinted,
                limit=limit,
                lease_seconds=self.settings.lease_seconds,
                fair_share=fair_share,
            )

    async def claim_named(self, kind: Kind, named: Sequence[Pair]) -> list[Job]:
        """Take these jobs alone, as far as they are due."""
        lease_seconds = self.settings.lease_seconds
        async with self._reach(self.shards) as reach:
            return await claims.claim_named(reach, kind, named, lease_seconds=lease_seconds)

    @asynccontextmanager
    async def _reach(self, shards: Shards, begin: Begin | None = None) -> AsyncIterator[Reach]:
        if self.database.is_sharded:
            yield Apart(self.database, shards, begin)
            return
        asked_at = jobs.elapsed()
        async with self.database.write(follow_indexes=True) as db:
            yield Together(db, asked_at)

    def lease(self, job: Job) -> AbstractAsyncContextManager[Lease]:
        """The claim, renewed for as long as the block takes."""
        return leases.lease(self.database, self.batches, job, self.settings.lease_seconds)
