"""Provider callbacks: delivery reports and incoming messages.

The token in the URL determines whose credentials must have signed. Callbacks may be repeated, late
or out of order: each counts once, and moves an attempt as reports.py says.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from app.audience import addresses
from app.consent import consent, in_flight, keywords
from app.database.db import Handle
from app.errors import Problem
from app.machine import document
from app.messages import providers, reports
from app.messages.providers import Account
from app.process import Process
from app.providers import kind_of
from app.providers.callbacks import Became, Callback, Inbound, Report, Unsigned
from app.providers.inbox import Captured, Inbox
from app.providers.kinds import CallbackReply, Callbacks
from app.store import callbacks, delivery_reports, workspaces
from app.store.row_keys import AddressKey
from app.vault import tokens

log = logging.getLogger(__name__)

REMEMBERED = timedelta(days=400)  # Twilio's signatures never grow old, so a copy may be as old
SHARING = 200  # workspaces read at once that one number's STOP is carried to
PAGES = 1_000  # of these


async def receive(process: Process, request: Callback) -> str | None:
    """The reply to the person who has written, if any. Answered when nothing more is on its
    way to who opted out. Raises Problem `not_found`, `invalid_signature`, `malformed_json`."""
    account, now = await account_of(process, request.provider, request.token)
    try:
        notice = _callbacks_of(account.provider).read(account.secret, request, now)
    except Unsigned:
        raise Problem(
            "invalid_signature",
            "The provider's signature is missing, too old, or not made with this channel's secret"
            " over exactly this.",
        ) from None
    except document.MalformedJson as error:
        raise Problem("malformed_json", str(error)) from None
    if isinstance(notice, Report):
        await report(process, account, notice)
    elif isinstance(notice, Inbound):
        return await _receive_message(process, account, notice)
    return None


def refuse_strange(process: Process, provider: str, token: str) -> None:
    """Refuse what cannot be a token without asking the database. Raises Problem `not_found`."""
    is_operators = providers.is_operators_token(process.vault, provider, token)
    if not is_operators and tokens.workspace_of(token) is None:
        raise _unknown()


async def account_of(process: Process, provider: str, token: str) -> tuple[Account, datetime]:
    """The account that the token's callbacks are for, and the time. Raises Problem `not_found`."""
    async with process.database.read() as db:
        account = await providers.account(process, db, provider, token)
        if account is None:
            raise _unknown()
        return account, await db.now()


def _unknown() -> Problem:
    return Problem("not_found", "Nothing exists at this path.")


async def captured(process: Process, one: Captured, became: Became) -> None:
    """The sandbox's own provider tells what became of what it captured. Nobody signs that: it comes
    from within."""
    account = Account(Inbox.provider, one.workspace_id, "")
    id, words = f"{became.status}|{one.message_key}", "The sandbox was told to report this."
    notice = Report(id, one.workspace_id, one.attempt_id, None, became, words)
    await report(process, account, notice)


def answer(provider: str, reply: str | None) -> CallbackReply | None:
    """The body by which the provider is answered, and has a person told; None needs none."""
    make = _callbacks_of(provider).answer
    return make(reply) if make is not None else None


def _callbacks_of(provider: str) -> Callbacks:
    kind = kind_of(provider)
    assert kind is not None and kind.callbacks is not None  # noqa: S101, PT018  it has an account
    return kind.callbacks


# --- what became of a message ---------------------------------------------------------------------


async def report(process: Process, account: Account, notice: Report) -> None:
    """Record a report of the account's provider, once its signature holds."""
    workspace_id = account.workspace_id or notice.workspace_id
    async with process.database.write() as db:
        row = await delivery_reports.locked(
            db, workspace_id=workspace_id, attempt_id=notice.attempt_id
        )
        if row is None or row.provider not in (None, account.provider):
            return  # pruned, or of an installation that shares the account
        if not await _once(process, db, workspace_id, account.provider, notice.id):
            log.info(
                "callback was received before",
                extra={"workspace_id": workspace_id, "message_id": row.id},
            )
            return
        became, detail = notice.became, notice.detail
        await reports.remember(db, row, became, detail, notice.provider_message_id)
        if not reports.rises(row, became):
            return
        # The contact before the run, as everywhere. To an erased address nobody writes anyway.
        if row.to_address is not None:
            where: AddressKey = {
                "workspace_id": row.workspace_id,
                "channel": row.channel,
                "address": row.to_address,
            }
            # Whom a mail about an account went to is not for every reader of the list.
            is_shown = row.account_mail is None
            await consent.apply_report(process, db, became.code, **where, is_shown=is_shown)
            if became.status == "DELIVERED":
                await consent.delivered(process, db, **where)
        await reports.move(process, db, row, became, detail)


async def _once(process: Process, db: Handle, workspace_id: str, provider: str, id: str) -> bool:
    name = process.vault.keyed_hash("callback", f"{provider}|{id}".encode()).hex()
    expires_at = await db.now() + REMEMBERED
    return await callbacks.record(db, workspace_id=workspace_id, id=name, expires_at=expires_at)


# --- what people write ----------------------------------------------------------------------------


async def _receive_message(process: Process, account: Account, inbound: Inbound) -> str | None:
    """The reply. A message to a workspace's own number is for the workspace; one to the operator's,
    for every workspace that has written to this person from there. What it means holds for the
    number in each of its spellings."""
    senders = []
    for sender in inbound.senders:
        with suppress(addresses.BadAddress):  # a spelling that nobody can be stored with
            senders.append(addresses.phone(sender, None))
    if not senders:  # a short code or a name, which nobody has written to
        return None
    if account.workspace_id is not None:
        asked = [account.workspace_id]
    else:
        asked = await _writers(process, inbound.channel, senders)
    found = [
        await _receive_in(process, account, workspace_id, senders, inbound)
        for workspace_id in asked
    ]
    meanings = [one for one in found if one is not None]
    await in_flight.all_quiet(process, [out for one in meanings for out in one.suppressions])
    replies = [one.reply for one in meanings if one.reply is not None]
    return replies[-1] if replies and not inbound.answered else None


async def _writers(process: Process, channel: str, senders: Sequence[str]) -> list[str]:
    """The workspaces that have written to this person, the last one last."""
    wrote: dict[str, datetime] = {}
    async with process.database.read() as db:
        for sender in senders:
            hash, after = providers.shared_hash(process, channel, sender), callbacks.BEGINNING
            for _ in range(PAGES):
                rows = await callbacks.writers(db, address_hash=hash, after=after, limit=SHARING)
                for at, workspace_id in rows:
                    wrote[workspace_id] = max(at, wrote.get(workspace_id, at))
                if len(rows) < SHARING:
                    break
                after = rows[-1]
    return sorted(wrote, key=lambda workspace_id: (wrote[workspace_id], workspace_id))


async def _receive_in(
    process: Process,
    account: Account,
    workspace_id: str,
    senders: Sequence[str],
    inbound: Inbound,
) -> keywords.Inbound | None:
    """The meaning of the message in one workspace, which is done; None when that is gone."""
    async with process.database.write() as db:
        workspace = await workspaces.by_id(db, id=workspace_id)
        if workspace is None:
            return None
        text, channel = keywords.words_of(inbound.text, inbound.pressed), inbound.channel
        if not await _once(process, db, workspace_id, account.provider, inbound.id):
            return keywords.again(
                process, workspace_id=workspace_id, senders=senders, text=text, channel=channel
            )
        return await keywords.apply(
            process,
            db,
            workspace_id=workspace_id,
            senders=senders,
            text=text,
            workspace_name=workspace.name,
            channel=channel,
        )
