"""3. A message goes out: render → record the intent → call the channel → record the outcome.

The intent is committed before the provider is called and the outcome after, each fenced by the
message's lease. Whoever finds an intent without an outcome when its lease has run out cannot tell
whether the provider has the message: where the provider honours its key the call is made again,
else it is UNKNOWN, and only a person or the definition's own `onUnknown` sends it again. What was
surely not accepted is tried again under the same key.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from app import (
    composing,
    consent,
    events,
    heavy,
    leases,
    pacing,
    providers,
    quotas,
)
from app.batching import Kind
from app.channels.base import Channel, Message, Receipt, SendError
from app.composing import Ending, Prepared, TooHeavy
from app.errors import CommitUnknown, Unavailable
from app.leases import Lease
from app.machine import document, kind
from app.machine.program import Json
from app.machine.reasons import SENTENCES, Reason
from app.process import Process
from app.store import company, erasure, messages, runs, workspaces
from app.store.db import Handle, Row, new_id

log = logging.getLogger(__name__)

# What a waiting run waits for, and what it is to the run, which asked only that it be sent.
ENDED: Mapping[str, Literal["SENT", "FAILED", "SUPPRESSED", "UNKNOWN"]] = {
    "SENT": "SENT",
    "DELIVERED": "SENT",
    "COMPLAINED": "SENT",
    "BOUNCED": "FAILED",
    "FAILED": "FAILED",
    "SUPPRESSED": "SUPPRESSED",
    "UNKNOWN": "UNKNOWN",
}
MARGIN = timedelta(hours=1)  # before a key's life ends: a call may take its time
CLAIMS = 5  # without an intent or an outcome; then the message is set aside
RETRY_SECONDS = (5, 30, 120, 600, 1_800, 3_600)  # the last one repeats
KEPT_EVENTS = 100  # of an attempt, the newest
WOKEN_AT_ONCE = 5_000  # rows of one transaction


@dataclass(frozen=True, slots=True)
class Order:
    """A message to be made. Without `to` it goes to the contact's own address.

    `data` is the trigger root of a message that no run sends.
    """

    workspace_id: str
    channel: str
    contact_id: str | None
    to: str | None
    template_id: str | None
    content: Mapping[str, Json] | None
    category: str = "transactional"  # a template's own wins
    data: Json = None
    run_id: str | None = None
    node_id: str | None = None
    visit: int | None = None
    account_mail: str | None = None  # its kind: it holds a secret, and is not for all to read
    addressee_id: str | None = None  # the user who alone may read such a mail


@dataclass(frozen=True, slots=True)
class Made:
    message_id: str
    attempt_id: str


async def create(process: Process, db: Handle, order: Order) -> Made:
    """The message and its first attempt, QUEUED; workers are told once the transaction commits."""
    made = Made(new_id("msg"), new_id("att"))
    source = document.dumps({"content": order.content, "data": order.data})
    secret = order.account_mail is not None
    await messages.insert(
        db,
        workspace_id=order.workspace_id,
        id=made.message_id,
        run_id=order.run_id,
        node_id=order.node_id,
        visit=order.visit,
        contact_id=order.contact_id,
        template_id=order.template_id,
        channel=order.channel,
        category=order.category,
        to_address=order.to,
        source="{}" if secret else source.decode(),
        account_mail=order.account_mail,
        addressee_id=order.addressee_id,
        sealed=process.vault.encrypt(composing.SEALED, source, order.workspace_id, made.message_id)
        if secret
        else None,
    )
    origin = (order.run_id or made.message_id, order.node_id, order.visit)
    await messages.insert_attempt(
        db,
        workspace_id=order.workspace_id,
        id=made.attempt_id,
        message_id=made.message_id,
        number=1,
        message_key=_key(*origin, order.channel, 1),
    )
    process.queue.deliver(db, order.workspace_id, made.message_id)
    return made


async def resend(
    process: Process,
    db: Handle,
    workspace_id: str,
    message_id: str,
    ended: Sequence[str] = ("UNKNOWN",),
) -> str | None:
    """A new attempt, under a new key, of a message that has `ended` like this; its id, or None."""
    row = await messages.requeue(db, workspace_id=workspace_id, id=message_id, ended=ended)
    if row is None:
        return None
    number = 1 + len(
        await messages.attempts_of(db, workspace_id=workspace_id, message_id=message_id)
    )
    origin, attempt_id = (row["run_id"] or message_id, row["node_id"], row["visit"]), new_id("att")
    await messages.insert_attempt(
        db,
        workspace_id=workspace_id,
        id=attempt_id,
        message_id=message_id,
        number=number,
        message_key=_key(*origin, row["channel"], number),
    )
    process.queue.deliver(db, workspace_id, message_id)
    return attempt_id


async def suppress(
    process: Process, db: Handle, workspace_id: str, run_id: str, code: Reason
) -> None:
    """What the run is about to send is not sent; what is on its way is left to arrive."""
    for row in await messages.queued_of_run(db, workspace_id=workspace_id, run_id=run_id):
        await _settle(process, db, row, Ending("SUPPRESSED", code))


async def give_up(process: Process, db: Handle, row: Row, code: Reason) -> None:
    """Of a locked message that may have been sent, or not, nobody will ever know."""
    await _settle(process, db, row, Ending("UNKNOWN", code, SENTENCES[code]))


def _key(origin: str, node_id: str | None, visit: int | None, channel: str, number: int) -> str:
    """The same for every try of one attempt, whoever makes it, and for nothing else."""
    parts = ("v1", origin, node_id or "", str(visit or 0), channel, str(number))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:40]


# --- claim, intent, call, outcome ---------------------------------------------------------------


claim = partial(leases.claim, "messages")


async def deliver(process: Process, claimed: Row) -> None:
    """Send the claimed message, or settle what its last sender left behind."""
    lease = Lease(process, "messages", claimed)
    sending = await _intend_surely(process, claimed, lease)
    if sending is not None:
        result = await _call(sending, lease)
        told = (sending, result)
        await leases.surely(lambda: process.batches.ask(OUTCOMES, process, told), claimed["id"])


@dataclass(frozen=True, slots=True)
class Sending:
    """A committed intent."""

    row: Row
    message: Message
    way: Channel
    is_second: bool = False  # of a call that may have been made already, under the same key

    @property
    def provider(self) -> str:
        return self.way.provider

    @property
    def asks(self) -> bool:
        """Whether a provider in trouble is asked with it."""
        return self.row["trouble_provider"] == self.provider and self.row["ask_at"] is not None


async def _intend_surely(process: Process, claimed: Row, lease: Lease) -> Sending | None:
    """Find out what became of a COMMIT whose answer was lost, as long as the lease is held."""
    lost: CommitUnknown | None = None
    while True:
        try:
            if heavy.known(claimed["workspace_id"]):
                async with lease.kept():
                    return await process.batches.ask(APART, process, claimed)
            return await process.batches.ask(INTENTS, process, claimed)
        except TooHeavy:
            continue
        except CommitUnknown as error:
            lost = error
        except Unavailable:
            if lost is None:
                raise
        if not lease.held:
            raise lost
        await asyncio.sleep(leases.ASK_AGAIN_SECONDS)


async def _intend_some(
    process: Process, claimed: Sequence[Row], *, apart: bool = False
) -> Sequence[Sending | TooHeavy | CommitUnknown | None]:
    """None when there is nothing to call a provider for.

    All are judged before the first asks whether its provider may be called: what is known of a
    provider many want to lock, and nobody may want a contact who has it.
    """
    judges = [partial(_judge_one, process, row, apart) for row in claimed]
    try:
        async with process.database.write() as db:
            judged = await company.together(db, judges)
            return await company.together(db, [partial(_intend, process, one) for one in judged])
    except CommitUnknown as error:
        return [error for _ in claimed]


INTENTS = Kind(_intend_some, most=32, abreast=2)
APART = Kind(partial(_intend_some, apart=True), most=1)  # what takes long to render; see heavy.py


@dataclass(frozen=True, slots=True)
class Judged:
    """A message that may be sent, and is locked."""

    row: Row
    prepared: Prepared


Judgement: TypeAlias = Judged | Sending | TooHeavy | None


async def _judge_one(process: Process, claimed: Row, apart: bool, db: Handle) -> Judgement:
    try:
        return await _judge(process, claimed, db, apart=apart)
    except TooHeavy as error:  # told to who asked; raised here, it would end the others too
        return error


async def _judge(process: Process, claimed: Row, db: Handle, *, apart: bool) -> Judgement:
    """An intent that was there when the message was claimed is an orphan. One that came since,
    under our lease, is our own, and nobody has been called for it."""
    row = await messages.held(
        db,
        workspace_id=claimed["workspace_id"],
        id=claimed["id"],
        lease_token=claimed["lease_token"],
    )
    if row is None:
        return None
    if claimed["status"] == "SENDING":
        return await _resolve(process, db, row, claimed["claims"], apart=apart)
    if claimed["claims"] > CLAIMS:
        broke = "Preparing the message broke the worker several times."
        await _settle(process, db, row, Ending("FAILED", Reason.POISONED, broke))
        return None
    if row["sending_paused"] and await _park(db, row):
        return None
    prepared = await composing.prepare(process, db, row, apart=apart)
    if isinstance(prepared, Ending):
        await _settle(process, db, row, prepared)
        return None
    if row["status"] == "SENDING":
        return Sending(row, prepared.message, prepared.way)
    return Judged(row, prepared)


async def _intend(process: Process, judged: Judgement, db: Handle) -> Sending | TooHeavy | None:
    """The intent to call the provider, if that may be called and the plan has room."""
    if not isinstance(judged, Judged):
        return judged
    row, prepared = judged.row, judged.prepared
    sending = Sending(row, prepared.message, prepared.way)
    trouble = await pacing.may_call(db, row, sending.provider)
    if trouble is not None:
        await _settle(process, db, row, _held_back(trouble, row, await db.now()))
        return None
    if not await quotas.take_message(process, db, row):
        await _settle(process, db, row, Ending("SUPPRESSED", Reason.SUPPRESSED_QUOTA))
        return None
    lease = timedelta(seconds=process.settings.lease_seconds)
    await messages.intend(
        db,
        workspace_id=row["workspace_id"],
        id=row["id"],
        lease_token=row["lease_token"],
        to_address=prepared.message.to,
        address_hash=prepared.address_hash,
        category=prepared.category,
        template_version=prepared.template_version,
        content=document.dumps(composing.kept(row, prepared.message.content)).decode(),
        wake_at=await db.now() + lease,
    )
    if providers.is_shared(process, sending.way):
        await providers.wrote(process, db, row["workspace_id"], row["channel"], sending.message.to)
    trying = Ending("SENDING", trouble=pacing.trouble_of(row), missing=prepared.missing)
    await _note(db, row, trying, way=sending.way, tries=row["tries"] + 1)
    return sending


async def _resolve(
    process: Process, db: Handle, row: Row, claims: int, *, apart: bool
) -> Sending | None:
    """What a lost worker left behind is asked about, or UNKNOWN."""
    sending = await _ask_again(process, db, row, claims, apart=apart)
    if sending is None:
        await _settle(process, db, row, Ending("UNKNOWN", Reason.WORKER_LOST, LOST))
    return sending


async def _ask_again(
    process: Process, db: Handle, row: Row, claims: int, *, apart: bool
) -> Sending | None:
    """The call that a lost worker has made, or not: once more, where the provider takes the second
    for the first. None where nobody promises that.

    It is judged like any other, for the first may never have arrived; and who may not be written to
    any more is not asked about.
    """
    if row["account"] is None or claims > CLAIMS or row["sending_paused"]:
        return None
    prepared = await composing.prepare(process, db, row, apart=apart, again=True)
    if isinstance(prepared, Ending) or prepared.way.account != row["account"]:
        return None
    honoured = prepared.way.capabilities.idempotency_key_ttl_seconds or 0
    asked_at = await _asked_at(db, row)
    if await db.now() - asked_at > timedelta(seconds=honoured) - MARGIN:
        return None
    detail = f"{LOST} Asked again, under the same key."
    asking = Ending("SENDING", Reason.WORKER_LOST, detail, missing=prepared.missing)
    await _note(db, row, asking, way=prepared.way, tries=row["tries"] + 1)
    return Sending(row, prepared.message, prepared.way, is_second=True)


async def _asked_at(db: Handle, row: Row) -> datetime:
    """When the call in doubt was intended; what was tried before it had surely not arrived."""
    asked = await db.now()
    for event in reversed(row["events"]):
        if event["status"] != "SENDING":
            break
        asked = datetime.fromisoformat(event["at"])
    return asked


async def _park(db: Handle, row: Row) -> bool:
    """Have the message wait while its workspace sends nothing; mail about accounts is not its own.

    Asked again under a lock: parked after the workspace had sent again, it would wait for ever.
    """
    workspace_id = row["workspace_id"]
    if row["account_mail"] is not None or not await workspaces.sending_paused(db, id=workspace_id):
        return False
    await messages.park(db, workspace_id=workspace_id, id=row["id"], lease_token=row["lease_token"])
    return True


async def resume(db: Handle, workspace_id: str) -> bool:
    """What waited while the workspace sent nothing is due, much of it at once; whether there is
    more. The workers' heartbeat finds it."""
    woken = await messages.wake_parked(db, workspace_id=workspace_id, limit=WOKEN_AT_ONCE)
    return woken == WOKEN_AT_ONCE


async def resume_some(process: Process) -> bool:
    """Of a workspace that sends again and had too much waiting; False when there is none."""
    async with process.database.read() as db:
        workspace_id = await messages.parked_in_vain(db)
    if workspace_id is None:
        return False
    async with process.database.write() as db:
        if not await workspaces.sending_paused(db, id=workspace_id):
            await resume(db, workspace_id)
    return True


async def _call(sending: Sending, lease: Lease) -> Receipt | SendError:
    """The provider's answer. The lease is kept while it takes its time, at the end of data perhaps
    ten minutes; should it be lost, the call is cut off, and the channel knows how far it was."""
    if lease.held:
        result = await lease.over(_send(sending.way, sending.message)) or CUT_OFF
    else:
        result = OVERSLEPT
    if sending.is_second and isinstance(result, SendError) and result.outcome == "not_accepted":
        # Which says nothing about the first call.
        return SendError("unknown", Reason.WORKER_LOST, f"{LOST} Asked again: {result.detail}")
    return result


async def _send(way: Channel, message: Message) -> Receipt | SendError:
    try:
        return await way.send(message)
    except SendError as error:
        return error
    except Exception as error:
        log.exception("a channel broke", extra={"message_id": message.message_id})
        return SendError("unknown", Reason.OUTCOME_UNKNOWN, f"The channel broke: {error!r}.")


LOST = "The worker was lost between the call and the record of its outcome."
OVERSLEPT = SendError(
    "not_accepted", Reason.WORKER_LOST, "The worker slept too long before the call; nothing left."
)
CUT_OFF = SendError("unknown", Reason.OUTCOME_UNKNOWN, "The call was cut off.")


async def _record_some(
    process: Process, told: Sequence[tuple[Sending, Receipt | SendError]]
) -> Sequence[CommitUnknown | None]:
    """What is learned of providers comes last, and always in one order, for many learn the same."""
    ordered = sorted(told, key=lambda one: (one[0].row["workspace_id"], one[0].row["channel"]))
    try:
        async with process.database.write() as db:
            called = await company.together(
                db, [partial(_record, process, *one) for one in ordered]
            )
            await company.together(
                db,
                [
                    partial(_learn, process, row, sending, result)
                    for row, (sending, result) in zip(called, ordered, strict=True)
                ],
            )
    except CommitUnknown as error:
        return [error for _ in told]
    return [None for _ in told]


OUTCOMES = Kind(_record_some, most=32, abreast=2)


async def _record(
    process: Process, sending: Sending, result: Receipt | SendError, db: Handle
) -> Row | None:
    """The message as it was held, when the outcome is news of its provider."""
    row = await messages.held(
        db,
        workspace_id=sending.row["workspace_id"],
        id=sending.row["id"],
        lease_token=sending.row["lease_token"],
    )
    if row is not None and row["status"] == "SENDING":
        await _heed(process, db, sending.message, result)  # the contact before the run
        await _settle(process, db, row, _ending(result, row, await db.now()), sending.way)
        return row
    if isinstance(result, Receipt):
        await _record_late(process, db, sending, result)
    else:
        whose = {
            "workspace_id": sending.row["workspace_id"],
            "message_id": sending.row["id"],
        }
        log.warning("outcome came after the lease", extra=whose)
    return None


async def _learn(
    process: Process, row: Row | None, sending: Sending, result: Receipt | SendError, db: Handle
) -> None:
    if row is not None:
        called = pacing.Called(row, sending.provider, sending.asks)
        await pacing.learn(process, db, called, result)


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


async def _record_late(process: Process, db: Handle, sending: Sending, receipt: Receipt) -> None:
    """A receipt is true whenever it comes: the attempt that was given up as UNKNOWN is SENT.

    Not when it was recorded by a COMMIT whose answer was lost, nor after a newer attempt; and a run
    that went on meanwhile has gone on.
    """
    workspace_id, id = sending.row["workspace_id"], sending.row["id"]
    row = await messages.of_attempt(
        db, workspace_id=workspace_id, id=id, attempt_id=sending.row["attempt_id"]
    )
    if row is None:
        return
    await messages.reopen(db, workspace_id=workspace_id, id=id)
    reopened = {**row, "lease_token": row["lease_token"] + 1}
    sent = Ending("SENT", provider_message_id=receipt.provider_message_id)
    await _settle(process, db, reopened, sent, sending.way)


# --- how it ended -------------------------------------------------------------------------------


def _ending(result: Receipt | SendError, row: Row, now: datetime) -> Ending:
    match result:
        case Receipt(provider_message_id):
            return Ending("SENT", provider_message_id=provider_message_id)
        case SendError(outcome="unknown"):
            return Ending("UNKNOWN", result.code, result.detail)
        case SendError(code=Reason.SUPPRESSED_STOPPED):
            return Ending("SUPPRESSED", result.code, result.detail)
        case SendError(outcome="not_accepted"):
            wait = timedelta(seconds=result.retry_after_seconds or _pause(row["tries"]))
            return _again(row, now, result.code, result.detail, now + wait)
        case SendError():
            return Ending("FAILED", result.code, result.detail)


def _held_back(trouble: Row, row: Row, now: datetime) -> Ending:
    """Of a message that was not tried: its provider is to be left alone."""
    again_at = now + pacing.HELD_BACK
    ending = _again(row, now, trouble["code"], pacing.told(trouble), again_at)
    return replace(ending, held_back=ending.status == "QUEUED")


def _again(row: Row, now: datetime, code: str, detail: str, again_at: datetime) -> Ending:
    """QUEUED, as long as there is patience with this kind of trouble."""
    since = pacing.trouble_since(row, code, now)
    if pacing.is_hopeless(code, since, now):
        return Ending("FAILED", code, detail)
    return Ending("QUEUED", code, detail, again_at, trouble=(code, since))


def _pause(tries: int) -> float:
    """Seconds before the next try; spread, so that a provider's return is not a stampede."""
    return RETRY_SECONDS[min(tries, len(RETRY_SECONDS)) - 1] * random.uniform(0.8, 1.2)  # noqa: S311 - no secret


async def _settle(
    process: Process, db: Handle, row: Row, ending: Ending, way: Channel | None = None
) -> None:
    """Message, attempt and the run that waits for it, in one transaction."""
    settled = await messages.settle(
        db,
        workspace_id=row["workspace_id"],
        id=row["id"],
        lease_token=row["lease_token"],
        status=ending.status,
        reason_code=ending.code,
        reason_detail=ending.detail,
        wake_at=ending.wake_at,
        held_back=ending.held_back,
    )
    if settled is None:
        return
    await _note(db, row, ending, way=way, tries=row["tries"])
    if settled["orphaned"]:
        await erasure.forget_message(
            db, workspace_id=row["workspace_id"], id=row["id"], contact_id=row["contact_id"]
        )
    await tell(db, row, ending)
    seconds = (await db.now() - row["created_at"]).total_seconds()
    db.after_commit(partial(_tell_end, process, row, ending, seconds))
    if row["run_id"] is not None and ending.status in ENDED:
        await runs.wake(
            db, workspace_id=row["workspace_id"], id=row["run_id"], awaited_id=row["id"]
        )
        process.queue.advance(db, row["workspace_id"], row["run_id"])


def _tell_end(process: Process, row: Row, ending: Ending, seconds: float) -> None:
    channel, status = row["channel"], ending.status
    process.metrics.count("tidings_messages_ended", channel=channel, status=status)
    if status == "SENT":
        process.metrics.observe("tidings_acceptance_to_sent_seconds", seconds, channel=channel)
    log.info(
        "message settled",
        extra={
            "workspace_id": row["workspace_id"],
            "message_id": row["id"],
            "run_id": row["run_id"],
            "status": status,
        },
    )


async def tell(db: Handle, row: Row, ending: Ending) -> None:
    """Whoever hears of events. Mail about accounts is none of theirs."""
    type = f"message.{ending.status.lower()}"
    if type not in events.TYPES or row["account_mail"] is not None:
        return
    about = {
        "messageId": row["id"],
        "deliveryAttemptId": row["attempt_id"],
        "runId": row["run_id"],
        "contactId": row["contact_id"],
        "channel": row["channel"],
        "status": ending.status,
        "reason": ending.code,
    }
    await events.tell(db, row["workspace_id"], type, about)


async def _note(db: Handle, row: Row, ending: Ending, *, way: Channel | None, tries: int) -> None:
    """The attempt's own record, with one more entry in its history; `way` when it was called."""
    now = await db.now()
    event = {
        "at": document.text(now),
        "status": ending.status,
        "code": ending.code,
        "detail": ending.detail,
        **kind.missing(ending.missing),
    }
    await messages.update_attempt(
        db,
        workspace_id=row["workspace_id"],
        id=row["attempt_id"],
        status=ending.status,
        provider=way.provider if way else row["provider"],
        account=way.account if way and ending.status == "SENDING" else None,
        reason_code=ending.code,
        reason_detail=ending.detail,
        provider_message_id=ending.provider_message_id,
        tries=tries,
        events=[*row["events"], event][-KEPT_EVENTS:],
        trouble_code=ending.trouble[0] if ending.trouble else None,
        trouble_since=ending.trouble[1] if ending.trouble else None,
        sent_at=now if ending.status == "SENT" else None,
        finished_at=now if ending.status in ENDED else None,
    )
