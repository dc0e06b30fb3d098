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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from app.billing import quotas
from app.consent import consent, gate
from app.database import pipelining
from app.database.db import Handle
from app.errors import CommitUnknown
from app.jobs import leases
from app.machine import document
from app.machine.reasons import Reason
from app.messages import (
    capturing,
    circuit_breaker,
    composing,
    parking,
    providers,
    refusals,
    reports,
    settling,
)
from app.messages.composing import Prepared
from app.messages.settling import Transition
from app.process import Process
from app.providers.base import Channel, Message, Receipt, SendError
from app.runtime.batching import batched
from app.runtime.compute import Heavy
from app.store import held_messages, jobs, messages, workspaces
from app.store.held_messages import CalledMessage, HeldMessage
from app.store.jobs import Job
from app.store.row_keys import AddressKey, RowKey

log = logging.getLogger(__name__)

MARGIN = timedelta(hours=1)  # before a key's life ends: a call may take its time


async def deliver(process: Process, job: Job) -> None:
    """Send the claimed message, or settle what its last sender left behind."""
    async with process.lease(job) as lease:
        sending = await lease.until_known(partial(_intent_of, process, job))
        if sending is None:
            return
        result: Receipt | SendError = OVERSLEPT
        if lease.is_held:
            # The lease is kept while the provider takes its time, at the end of data perhaps ten
            # minutes; should it be lost, the call is cut off, and the channel knows how far it was.
            result = await lease.over(_send(sending.channel, sending.message)) or CUT_OFF
        if sending.is_second and isinstance(result, SendError) and result.outcome == "not_accepted":
            # Which says nothing about the first call.
            detail = f"{LOST} Asked again: {result.detail}"
            result = SendError("unknown", Reason.WORKER_LOST, detail)
        outcome = (sending, result)
        await leases.until_recorded(lambda: process.batches.run(record_some, process, outcome), job)


@dataclass(frozen=True, slots=True)
class Sending:
    """A committed intent."""

    job: Job
    row: HeldMessage
    message: Message
    channel: Channel
    tries: int  # of the attempt, with this one
    is_second: bool = False  # of a call that may have been made already, under the same key

    @property
    def provider(self) -> str:
        return self.channel.provider

    @property
    def in_circuit(self) -> bool:
        """True where the message waits for the workspace's circuit. Mail about accounts does not:
        it is the operator's, and what a workspace sends, to whatever list, must not hold it up."""
        return self.row.account_mail is None

    @property
    def is_probe(self) -> bool:
        """True where the provider's circuit is half-open."""
        return self.row.trouble_provider == self.provider and self.row.ask_at is not None


async def _intent_of(process: Process, job: Job) -> Sending | None:
    """The intent of a message, made together with others, or alone where its workspace is heavy."""
    if not process.compute.is_heavy(job.workspace_id):
        with suppress(Heavy):  # it is tried again, alone
            return await process.batches.run(intend_some, process, job)
    process.compute.refuse_full(job.workspace_id)  # then it is tried again later
    return await process.compute.within(lambda: process.batches.run(intend_alone, process, job))


@batched(max_items=32, concurrency=2, whose=lambda job: job.workspace_id)
async def intend_some(
    process: Process, claimed: Sequence[Job]
) -> Sequence[Sending | Heavy | CommitUnknown | None]:
    """None when there is nothing to call a provider for.

    A workspace's pause waits for them, so they say that they send before they wait for anything
    else. All are judged before the first checks its provider's circuit breaker: many lock the same
    breaker, and whoever holds one must not wait for a contact.
    """
    try:
        async with process.database.write() as db:
            await workspaces.share_sending(db, ids={job.workspace_id for job in claimed})
            held = await jobs.lock(db, claimed)
            judges = [partial(_judge_one, process, job, job in held) for job in claimed]
            judged = await pipelining.run_all(db, judges)
            return await pipelining.run_all(db, [partial(_intend, process, one) for one in judged])
    except CommitUnknown as error:
        return [error for _ in claimed]


intend_alone = intend_some.one_by_one()  # of heavy workspaces


@dataclass(frozen=True, slots=True)
class Judged:
    """A message that may be sent, and is locked."""

    job: Job
    row: HeldMessage
    prepared: Prepared


Judgement: TypeAlias = Judged | Sending | Heavy | None


async def _judge_one(process: Process, job: Job, is_held: bool, db: Handle) -> Judgement:
    try:
        return await _judge(process, job, db) if is_held else None
    except Heavy as error:  # told to who asked; raised here, it would end the others too
        return error


async def _judge(process: Process, job: Job, db: Handle) -> Judgement:
    """An intent that was made under another claim is an orphan. One that was made under this is our
    own, and nobody has been called for it."""
    row = await held_messages.locked(db, workspace_id=job.workspace_id, id=job.id)
    if row is None:
        await jobs.delete(db, "message", workspace_id=job.workspace_id, ids=[job.id])
        return None
    if row.status == "SENDING" and row.intended_by != job.lease_token:
        return await _resolve(process, db, job, row)
    if await reports.has_arrived(process, db, row):  # as was reported while nothing waited
        return None
    if job.claims > jobs.MAX_CLAIMS:
        broke = "Preparing the message crashed the worker several times."
        await settling.settle(process, db, row, Transition("FAILED", Reason.POISONED, broke))
        return None
    if row.broadcast_state == "CANCELLED":
        cancelled = Transition("SUPPRESSED", Reason.BROADCAST_CANCELLED)
        await settling.settle(process, db, row, cancelled)
        return None
    if row.sending_paused and await parking.park(db, row):
        return None
    if row.broadcast_state == "PAUSED" and await parking.park_broadcast(db, row):
        return None
    prepared = await composing.prepare(process, db, row)
    if isinstance(prepared, Transition):
        await settling.settle(process, db, row, prepared)
        return None
    if row.status == "SENDING":
        return Sending(job, row, prepared.message, prepared.channel, row.tries)
    return Judged(job, row, prepared)


async def _intend(process: Process, judged: Judgement, db: Handle) -> Sending | Heavy | None:
    """The intent to call the provider, if that may be called and the plan has room. None when
    nobody is to be called: it is captured, or has come to an end."""
    if not isinstance(judged, Judged):
        return judged
    job, row, prepared = judged.job, judged.row, judged.prepared
    sending = Sending(job, row, prepared.message, prepared.channel, row.tries + 1)
    circuit = await circuit_breaker.check(db, row, sending.provider) if sending.in_circuit else None
    if circuit is not None:
        await settling.settle(process, db, row, settling.held_back(circuit, row, await db.now()))
        return None
    if await _is_capped(process, db, judged) or await _is_refused(process, db, sending):
        return None
    await messages.intend(
        db,
        workspace_id=job.workspace_id,
        id=job.id,
        lease_token=job.lease_token,
        to_address=prepared.message.to,
        address_hash=prepared.address_hash,
        category=prepared.category,
        topic_id=prepared.topic_id,
        template_version=prepared.template_version,
        content=document.dumps(composing.kept(row, prepared.message.content)).decode(),
    )
    if providers.is_shared(process, sending.channel):
        await providers.record_writer(
            process, db, row.workspace_id, row.channel, sending.message.to
        )
    trying = Transition(
        "SENDING", failing=circuit_breaker.failing_with(row), missing=prepared.missing
    )
    receipt = await capturing.capture_at_once(db, row, sending.channel, sending.message)
    if receipt is None:
        await settling.note(db, row, trying, channel=sending.channel, tries=sending.tries)
        return sending
    now = await db.now()
    row = replace(row, tries=sending.tries, events=settling.noted(row, trying, now))
    sent = settling.transition_of(receipt, row, now)
    await settling.settle(process, db, row, sent, sending.channel)
    return None


async def _is_capped(process: Process, db: Handle, judged: Judged) -> bool:
    """Return whether the locked contact has got as much as the workspace allows itself."""
    row, cap = judged.row, gate.FrequencyCap.of(judged.row.frequency_cap)
    if cap is None or row.contact_id is None:
        return False
    if not cap.applies(judged.prepared.category, row.channel):
        return False
    taken = await messages.take(
        db,
        workspace_id=row.workspace_id,
        id=row.id,
        contact_id=row.contact_id,
        channel=cap.channel,
        limit=cap.limit,
        since=await db.now() - cap.window,
    )
    if not taken:
        await settling.settle(process, db, row, Transition("SUPPRESSED", Reason.SUPPRESSED_CAPPED))
    return not taken


async def _is_refused(process: Process, db: Handle, sending: Sending) -> bool:
    """Return whether the workspace may not send the message, or no more; else count it."""
    is_operators = providers.is_operators(process, sending.channel)
    to = sending.message.to
    reason = await quotas.take_message(process, db, sending.row, to=to, is_operators=is_operators)
    if reason is not None:
        await settling.settle(process, db, sending.row, Transition("SUPPRESSED", reason))
    return reason is not None


async def _resolve(process: Process, db: Handle, job: Job, row: HeldMessage) -> Sending | None:
    """Ask the provider about what a lost worker left behind, or give it up as UNKNOWN."""
    sending = await _ask_again(process, db, job, row)
    if sending is None:
        await settling.settle(process, db, row, Transition("UNKNOWN", Reason.WORKER_LOST, LOST))
    return sending


async def _ask_again(process: Process, db: Handle, job: Job, row: HeldMessage) -> Sending | None:
    """The call that a lost worker has made, or not: once more, where the provider takes the second
    for the first. None where nobody promises that.

    It is judged like any other, for the first may never have arrived; and who may not be written to
    any more is not asked about.
    """
    is_stopped = row.sending_paused or row.broadcast_state in ("PAUSED", "CANCELLED")
    if row.account is None or job.claims > jobs.MAX_CLAIMS or is_stopped:
        return None
    prepared = await composing.prepare(process, db, row, again=True)
    if isinstance(prepared, Transition) or prepared.channel.account != row.account:
        return None
    honoured = prepared.channel.capabilities.idempotency_key_ttl_seconds or 0
    # When the call in doubt was intended; what was tried before it had surely not arrived.
    now = asked_at = await db.now()
    for event in reversed(row.events):
        if event["status"] != "SENDING":
            break
        asked_at = datetime.fromisoformat(event["at"])
    if now - asked_at > timedelta(seconds=honoured) - MARGIN:
        return None
    detail = f"{LOST} Asked again, under the same key."
    asking = Transition("SENDING", Reason.WORKER_LOST, detail, missing=prepared.missing)
    tries = row.tries + 1
    await settling.note(db, row, asking, channel=prepared.channel, tries=tries)
    return Sending(job, row, prepared.message, prepared.channel, tries, is_second=True)


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


@batched(max_items=32, concurrency=2, whose=lambda one: one[0].row.workspace_id)
async def record_some(
    process: Process, outcomes: Sequence[tuple[Sending, Receipt | SendError]]
) -> Sequence[CommitUnknown | None]:
    """Record outcomes. Circuit breakers are locked after everything else but the counts, in one
    order: many outcomes write the same breaker."""
    called = sorted(outcomes, key=lambda one: (one[0].row.workspace_id, one[0].row.channel))
    try:
        async with process.database.write() as db:
            held = await jobs.lock(db, [one.job for one, _ in called])
            ends = [
                refusals.CallOutcome(
                    _judging(one), result, is_first=one.tries == 1, is_late=one.job not in held
                )
                for one, result in called
            ]
            judged = await refusals.judge(db, ends)
            ordered = [
                (one, result) for (one, _), result in zip(called, judged.results, strict=True)
            ]
            rows = await pipelining.run_all(
                db, [partial(_record, process, *one, one[0].job in held) for one in ordered]
            )
            await pipelining.run_all(
                db,
                [
                    partial(_record_result, process, row, sending, result)
                    for row, (sending, result) in zip(rows, ordered, strict=True)
                ],
            )
            await refusals.count(db, judged)
    except CommitUnknown as error:
        return [error for _ in outcomes]
    return [None for _ in outcomes]


def _judging(sending: Sending) -> refusals.ProviderKey | None:
    """The provider, if it judges recipients one by one."""
    if not sending.channel.capabilities.refuses_recipients:
        return None
    return sending.row.workspace_id, sending.row.channel, sending.provider


async def _record(
    process: Process, sending: Sending, result: Receipt | SendError, is_held: bool, db: Handle
) -> CalledMessage | None:
    """The message as it was held, when the outcome counts for its provider's circuit breaker."""
    whose: RowKey = {"workspace_id": sending.job.workspace_id, "id": sending.job.id}
    row = await held_messages.locked(db, **whose) if is_held else None
    if row is not None and row.status == "SENDING":
        await _apply_result(process, db, sending, result)  # the contact before the run
        transition = settling.transition_of(result, row, await db.now())
        await settling.settle(process, db, row, transition, sending.channel)
        return row
    return await _record_late(process, db, sending, result)


async def _record_result(
    process: Process,
    row: CalledMessage | None,
    sending: Sending,
    result: Receipt | SendError,
    db: Handle,
) -> None:
    if row is not None and sending.in_circuit:
        call = circuit_breaker.Call(row, sending.provider, sending.is_probe)
        await circuit_breaker.record_result(process, db, call, result)


async def _apply_result(
    process: Process, db: Handle, sending: Sending, result: Receipt | SendError
) -> None:
    """Suppress who opted out at the provider, and who is dead there. Where nobody reports what was
    delivered, being accepted ends a row of bounces."""
    message, provider = sending.message, _judging(sending)
    where: AddressKey = {
        "workspace_id": message.workspace_id,
        "channel": message.channel,
        "address": message.to,
    }
    if isinstance(result, SendError):
        is_shown = sending.row.account_mail is None
        out = await consent.apply_report(process, db, result.code, **where, is_shown=is_shown)
        if provider is not None:
            await refusals.remember(db, provider, message.message_id, out)
    elif provider is not None and not sending.channel.capabilities.callbacks:
        await consent.delivered(process, db, **where)


async def _record_late(
    process: Process, db: Handle, sending: Sending, result: Receipt | SendError
) -> CalledMessage | None:
    """Record an outcome that comes late, which is true all the same: an attempt given up as UNKNOWN
    is SENT, or FAILED, or SUPPRESSED, whatever a member has found meanwhile; and it counts for the
    circuit breaker all the same.

    Not when it was recorded by a COMMIT whose answer was lost, nor after a newer attempt; and a run
    that went on meanwhile has gone on, so what was given up is not tried again.
    """
    whose: RowKey = {"workspace_id": sending.row.workspace_id, "id": sending.row.id}
    row = await held_messages.of_attempt(db, **whose, attempt_id=sending.row.attempt_id)
    # A receipt is enough, whoever else has called; that nothing was accepted is not, if the call
    # was made again since, or was the second.
    is_conclusive = isinstance(result, Receipt) or (
        row is not None
        and row.tries == sending.tries
        and not sending.is_second
        and result.outcome != "unknown"
    )
    is_counted = isinstance(result, SendError) and result.code == Reason.BOUNCED_SOFT
    if is_conclusive or not is_counted:  # else it may have been, and five in a row suppress
        await _apply_result(process, db, sending, result)  # the contact before the run
    if row is None or not is_conclusive:
        context = {"workspace_id": whose["workspace_id"], "message_id": whose["id"]}
        log.info("a late outcome changed nothing", extra=context)
        return None
    transition = settling.transition_of(result, row, await db.now())
    if transition.status == "QUEUED" and row.status != "SENDING":
        transition = Transition("FAILED", transition.code, transition.detail)
    await settling.settle(process, db, row, transition, sending.channel)
    return row
