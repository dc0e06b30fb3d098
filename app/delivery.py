"""3. A message goes out: render → record the intent → call the channel → record the outcome.

The intent is committed before the provider is called and the outcome after, each fenced by the
message's lease. Whoever finds an intent without an outcome when its lease has run out cannot tell
whether the provider has the message: where the provider honours its key the call is made again,
else it is UNKNOWN, and only a person or the definition's own `onUnknown` sends it again. What was
surely not accepted is tried again under the same key.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from app import quotas
from app.channels.base import Channel, Message, Receipt, SendError
from app.contacts import consent
from app.errors import CommitUnknown
from app.machine import document
from app.machine.reasons import Reason
from app.messages import circuit_breaker, composing, parking, providers, settling
from app.messages.composing import Prepared, TooSlow
from app.messages.settling import Transition
from app.process import Process
from app.runtime import leases, slow_workspaces
from app.runtime.batching import BatchKind
from app.runtime.leases import Lease
from app.store import jobs, messages, pipelining, workspaces
from app.store.db import Handle, Row

log = logging.getLogger(__name__)

MARGIN = timedelta(hours=1)  # before a key's life ends: a call may take its time

claim = partial(leases.claim, "messages")


async def deliver(process: Process, claimed: Row) -> None:
    """Send the claimed message, or settle what its last sender left behind."""
    lease = Lease(process, "messages", claimed)
    sending = await _intend_surely(process, claimed, lease)
    if sending is not None:
        result = await _call(sending, lease)
        told = (sending, result)
        await leases.surely(lambda: process.batches.submit(OUTCOMES, process, told), claimed["id"])


@dataclass(frozen=True, slots=True)
class Sending:
    """A committed intent."""

    row: Row
    message: Message
    channel: Channel
    tries: int  # of the attempt, with this one
    is_second: bool = False  # of a call that may have been made already, under the same key

    @property
    def provider(self) -> str:
        return self.channel.provider

    @property
    def is_probe(self) -> bool:
        """Whether the provider's circuit is half-open."""
        return self.row["trouble_provider"] == self.provider and self.row["ask_at"] is not None


async def _intend_surely(process: Process, claimed: Row, lease: Lease) -> Sending | None:
    async def intend() -> Sending | None:
        if not slow_workspaces.is_slow(claimed["workspace_id"]):
            with suppress(TooSlow):  # the workspace is marked as slow by then
                return await process.batches.submit(INTENTS, process, claimed)
        async with lease.kept():
            return await process.batches.submit(ISOLATED, process, claimed)

    return await lease.until_known(intend)


async def _intend_some(
    process: Process, claimed: Sequence[Row], *, isolated: bool = False
) -> Sequence[Sending | TooSlow | CommitUnknown | None]:
    """None when there is nothing to call a provider for.

    A workspace's pause waits for them, so they say that they send before they wait for anything
    else. All are judged before the first checks its provider's circuit breaker: many lock the same
    breaker, and whoever holds one must not wait for a contact.
    """
    judges = [partial(_judge_one, process, row, isolated) for row in claimed]
    try:
        async with process.database.write() as db:
            await workspaces.share_sending(db, ids={row["workspace_id"] for row in claimed})
            judged = await pipelining.run_all(db, judges)
            return await pipelining.run_all(db, [partial(_intend, process, one) for one in judged])
    except CommitUnknown as error:
        return [error for _ in claimed]


INTENTS = BatchKind(_intend_some, max_items=32, concurrency=2)
ISOLATED = BatchKind(partial(_intend_some, isolated=True), max_items=1)  # of slow workspaces


@dataclass(frozen=True, slots=True)
class Judged:
    """A message that may be sent, and is locked."""

    row: Row
    prepared: Prepared


Judgement: TypeAlias = Judged | Sending | TooSlow | None


async def _judge_one(process: Process, claimed: Row, isolated: bool, db: Handle) -> Judgement:
    try:
        return await _judge(process, claimed, db, isolated=isolated)
    except TooSlow as error:  # told to who asked; raised here, it would end the others too
        return error


async def _judge(process: Process, claimed: Row, db: Handle, *, isolated: bool) -> Judgement:
    """An intent that was there when the message was claimed is an orphan. One that came since,
    under our lease, is our own, and nobody has been called for it."""
    row = await messages.held(db, **jobs.fenced_key(claimed))
    if row is None:
        return None
    if claimed["status"] == "SENDING":
        return await _resolve(process, db, row, claimed["claims"], isolated=isolated)
    if claimed["claims"] > jobs.MAX_CLAIMS:
        broke = "Preparing the message crashed the worker several times."
        await settling.settle(process, db, row, Transition("FAILED", Reason.POISONED, broke))
        return None
    if row["sending_paused"] and await parking.park(db, row):
        return None
    prepared = await composing.prepare(process, db, row, isolated=isolated)
    if isinstance(prepared, Transition):
        await settling.settle(process, db, row, prepared)
        return None
    if row["status"] == "SENDING":
        return Sending(row, prepared.message, prepared.channel, row["tries"])
    return Judged(row, prepared)


async def _intend(process: Process, judged: Judgement, db: Handle) -> Sending | TooSlow | None:
    """The intent to call the provider, if that may be called and the plan has room."""
    if not isinstance(judged, Judged):
        return judged
    row, prepared = judged.row, judged.prepared
    sending = Sending(row, prepared.message, prepared.channel, row["tries"] + 1)
    circuit = await circuit_breaker.check(db, row, sending.provider)
    if circuit is not None:
        await settling.settle(process, db, row, settling.held_back(circuit, row, await db.now()))
        return None
    if not await quotas.take_message(process, db, row):
        await settling.settle(process, db, row, Transition("SUPPRESSED", Reason.SUPPRESSED_QUOTA))
        return None
    lease = timedelta(seconds=process.settings.lease_seconds)
    await messages.intend(
        db,
        **jobs.fenced_key(row),
        to_address=prepared.message.to,
        address_hash=prepared.address_hash,
        category=prepared.category,
        template_version=prepared.template_version,
        content=document.dumps(composing.kept(row, prepared.message.content)).decode(),
        wake_at=await db.now() + lease,
    )
    if providers.is_shared(process, sending.channel):
        await providers.wrote(process, db, row["workspace_id"], row["channel"], sending.message.to)
    trying = Transition(
        "SENDING", failing=circuit_breaker.failing_with(row), missing=prepared.missing
    )
    await settling.note(db, row, trying, channel=sending.channel, tries=sending.tries)
    return sending


async def _resolve(
    process: Process, db: Handle, row: Row, claims: int, *, isolated: bool
) -> Sending | None:
    """What a lost worker left behind is asked about, or UNKNOWN."""
    sending = await _ask_again(process, db, row, claims, isolated=isolated)
    if sending is None:
        await settling.settle(process, db, row, Transition("UNKNOWN", Reason.WORKER_LOST, LOST))
    return sending


async def _ask_again(
    process: Process, db: Handle, row: Row, claims: int, *, isolated: bool
) -> Sending | None:
    """The call that a lost worker has made, or not: once more, where the provider takes the second
    for the first. None where nobody promises that.

    It is judged like any other, for the first may never have arrived; and who may not be written to
    any more is not asked about.
    """
    if row["account"] is None or claims > jobs.MAX_CLAIMS or row["sending_paused"]:
        return None
    prepared = await composing.prepare(process, db, row, isolated=isolated, again=True)
    if isinstance(prepared, Transition) or prepared.channel.account != row["account"]:
        return None
    honoured = prepared.channel.capabilities.idempotency_key_ttl_seconds or 0
    asked_at = await _asked_at(db, row)
    if await db.now() - asked_at > timedelta(seconds=honoured) - MARGIN:
        return None
    detail = f"{LOST} Asked again, under the same key."
    asking = Transition("SENDING", Reason.WORKER_LOST, detail, missing=prepared.missing)
    tries = row["tries"] + 1
    await settling.note(db, row, asking, channel=prepared.channel, tries=tries)
    return Sending(row, prepared.message, prepared.channel, tries, is_second=True)


async def _asked_at(db: Handle, row: Row) -> datetime:
    """When the call in doubt was intended; what was tried before it had surely not arrived."""
    asked = await db.now()
    for event in reversed(row["events"]):
        if event["status"] != "SENDING":
            break
        asked = datetime.fromisoformat(event["at"])
    return asked


async def _call(sending: Sending, lease: Lease) -> Receipt | SendError:
    """The provider's answer. The lease is kept while it takes its time, at the end of data perhaps
    ten minutes; should it be lost, the call is cut off, and the channel knows how far it was."""
    if lease.held:
        result = await lease.over(_send(sending.channel, sending.message)) or CUT_OFF
    else:
        result = OVERSLEPT
    if sending.is_second and isinstance(result, SendError) and result.outcome == "not_accepted":
        # Which says nothing about the first call.
        return SendError("unknown", Reason.WORKER_LOST, f"{LOST} Asked again: {result.detail}")
    return result


async def _send(channel: Channel, message: Message) -> Receipt | SendError:
    try:
        return await channel.send(message)
    except SendError as error:
        return error
    except Exception as error:
        log.exception("channel failed unexpectedly", extra={"message_id": message.message_id})
        return SendError("unknown", Reason.OUTCOME_UNKNOWN, f"Unexpected error: {error!r}.")


LOST = "The worker was lost after it recorded the intent and before it recorded the outcome."
OVERSLEPT = SendError(
    "not_accepted",
    Reason.WORKER_LOST,
    "The worker was paused for too long before the call; nothing was sent.",
)
CUT_OFF = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The call was cut off.")


async def _record_some(
    process: Process, told: Sequence[tuple[Sending, Receipt | SendError]]
) -> Sequence[CommitUnknown | None]:
    """Circuit breakers come last, and always in one order, for many results concern the same."""
    ordered = sorted(told, key=lambda one: (one[0].row["workspace_id"], one[0].row["channel"]))
    try:
        async with process.database.write() as db:
            called = await pipelining.run_all(
                db, [partial(_record, process, *one) for one in ordered]
            )
            await pipelining.run_all(
                db,
                [
                    partial(_record_result, process, row, sending, result)
                    for row, (sending, result) in zip(called, ordered, strict=True)
                ],
            )
    except CommitUnknown as error:
        return [error for _ in told]
    return [None for _ in told]


OUTCOMES = BatchKind(_record_some, max_items=32, concurrency=2)


async def _record(
    process: Process, sending: Sending, result: Receipt | SendError, db: Handle
) -> Row | None:
    """The message as it was held, when the outcome counts for its provider's circuit breaker."""
    row = await messages.held(db, **jobs.fenced_key(sending.row))
    if row is not None and row["status"] == "SENDING":
        await _heed(process, db, sending.message, result)  # the contact before the run
        transition = settling.transition_of(result, row, await db.now())
        await settling.settle(process, db, row, transition, sending.channel)
        return row
    await _record_late(process, db, sending, result)
    return None


async def _record_result(
    process: Process, row: Row | None, sending: Sending, result: Receipt | SendError, db: Handle
) -> None:
    if row is not None:
        call = circuit_breaker.Call(row, sending.provider, sending.is_probe)
        await circuit_breaker.record_result(process, db, call, result)


async def _heed(
    process: Process, db: Handle, message: Message, result: Receipt | SendError
) -> None:
    """Who opted out at the provider has opted out here."""
    if isinstance(result, SendError) and result.code == Reason.SUPPRESSED_STOPPED:
        await consent.suppress(
            process,
            db,
            workspace_id=message.workspace_id,
            channel=message.channel,
            address=message.to,
            reason="stopped",
            source="provider",
        )


async def _record_late(
    process: Process, db: Handle, sending: Sending, result: Receipt | SendError
) -> None:
    """What is known of a call is true whenever it comes: the attempt that was given up as UNKNOWN
    is SENT, or FAILED, or SUPPRESSED.

    Not when it was recorded by a COMMIT whose answer was lost, nor after a newer attempt; and a run
    that went on meanwhile has gone on, so what was given up is not tried again.
    """
    whose = {"workspace_id": sending.row["workspace_id"], "id": sending.row["id"]}
    row = await messages.of_attempt(db, **whose, attempt_id=sending.row["attempt_id"])
    await _heed(process, db, sending.message, result)  # the contact before the run
    if row is None or not _tells_all(sending, result, row):
        told = {"workspace_id": whose["workspace_id"], "message_id": whose["id"]}
        log.info("a late outcome changed nothing", extra=told)
        return
    transition = settling.transition_of(result, row, await db.now())
    if transition.status == "QUEUED" and row["status"] == "UNKNOWN":
        transition = Transition("FAILED", transition.code, transition.detail)
    await messages.reopen(db, **whose)
    reopened = {**row, "lease_token": row["lease_token"] + 1}
    await settling.settle(process, db, reopened, transition, sending.channel)


def _tells_all(sending: Sending, result: Receipt | SendError, row: Row) -> bool:
    """Whether the attempt has ended as this call has. A receipt is enough, whoever else has called;
    that nothing was accepted is not, if the call was made again since, or was the second."""
    if isinstance(result, Receipt):
        return True
    is_only = row["tries"] == sending.tries and not sending.is_second
    return is_only and result.outcome != "unknown"
