"""Keywords that people write back: STOP opts out, START opts in again, HELP is answered."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.audience import subscriptions
from app.audience.subscriptions import OptOut
from app.consent import consent, in_flight
from app.consent.consent import Suppression
from app.database.db import Handle
from app.process import Process
from app.store.row_keys import AddressKey
from app.store.suppressions import Reason

log = logging.getLogger(__name__)

Meaning: TypeAlias = Literal["stop", "start", "help", "flagged", "other"]

# These mean nothing else, so they count as the id of a button, too, whose author may ask anything:
# `cancel` may be for an appointment, and a `yes` that lifts an opt-out is to be said in words.
BUTTONS = (
    *("STOP", "STOPALL", "UNSUBSCRIBE", "OPTOUT"),
    "STOPPROMOTIONS",  # the button that WhatsApp puts into templates of marketing
)
KEYWORDS: Mapping[str, Meaning] = {
    **dict.fromkeys((*BUTTONS, "CANCEL", "END", "QUIT", "REVOKE"), "stop"),
    **dict.fromkeys(("START", "UNSTOP", "YES"), "start"),
    **dict.fromkeys(("HELP", "INFO"), "help"),
}
# No keyword, and yet somebody should read it.
WORRYING = re.compile(
    r"\b(stop|unsubscribe|opt(ing)?[ -]?out|remove me|leave me alone|cancel|quit|spam)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Inbound:
    """The meaning of a person's message. `reply` is to be sent back, once, in the provider's
    answer; the `suppressions` are to be waited for (`in_flight.quiet`) before that."""

    meaning: Meaning
    reply: str | None = None
    suppressions: Sequence[Suppression] = ()


def meaning(text: str) -> Meaning:
    """A keyword stands alone, however it is spaced, quoted and ended: only its letters count, and
    digits, for "Yes 2" answers something else."""
    word = _word(text)
    if word in KEYWORDS:
        return KEYWORDS[word]
    return "flagged" if WORRYING.search(text) else "other"


def _word(text: str) -> str:
    return "".join(filter(str.isalnum, text)).upper()


def words_of(text: str, pressed: str | None) -> str:
    """The words of a person who has written, or pressed a button: its id, if that says stop, for
    what is written on it may be in any language; else the text."""
    return pressed if pressed is not None and _word(pressed) in BUTTONS else text


async def apply(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    senders: Sequence[str],
    text: str,
    workspace_name: str,
    channel: str = "sms",
) -> Inbound:
    """Apply what a person, known by their number in E.164, has written to the workspace: STOP and
    its like opt out of the channel, START and its like opt in again, HELP is answered. Each is
    confirmed when it changes something, so that two machines never talk to each other for ever.

    `senders` are the spellings of the one number. An opt-out holds for all of them: no contact need
    have the number that was written to, and one may come to have it in the other spelling. Raises
    addresses.BadAddress for one that is no number, such as a short code.
    """
    keyword = meaning(text)
    numbers: list[AddressKey] = [
        {"workspace_id": workspace_id, "channel": channel, "address": sender} for sender in senders
    ]
    match keyword:
        case "stop":
            out = [
                await consent.suppress(process, db, **one, reason="stopped", source="inbound")
                for one in numbers
            ]
            reply = f"{workspace_name}: you will get no more messages. Reply START to resume."
            return Inbound(keyword, reply if any(one.is_new for one in out) else None, out)
        case "start":
            # What people say; not what providers, members and erasures do.
            reasons: Sequence[Reason] = ("stopped", "unsubscribed")
            lifted = [
                await consent.lift(process, db, **one, reasons=reasons, source="inbound")
                for one in numbers
            ]
            reply = f"{workspace_name}: you will get messages again. Reply STOP to end them."
            return Inbound(keyword, reply if any(lifted) else None)
        case "help":
            return Inbound(keyword, f"{workspace_name}: reply STOP to get no more messages.")
        case "flagged":
            keys = [subscriptions.key(channel, sender) for sender in senders]
            found = [await consent.owner(db, workspace_id, channel, key) for key in keys]
            who = [OptOut(one.id, channel, None, None) for one in found if one is not None]
            if who:
                await subscriptions.record(
                    db, workspace_id, who, kind="flagged", reason=None, source="inbound"
                )
            else:
                whose = {"workspace_id": workspace_id}
                log.warning("possible opt-out by an unknown sender", extra=whose)
            process.metrics.count("tidings_inbound_flagged", channel=channel)
    return Inbound(keyword)


def again(
    process: Process, *, workspace_id: str, senders: Sequence[str], text: str, channel: str
) -> Inbound:
    """A copy of what was said: nothing changes, and nobody is answered once more; but a STOP is
    waited for. Raises addresses.BadAddress."""
    keyword = meaning(text)
    if keyword != "stop":
        return Inbound(keyword)
    known = [in_flight.known(process, workspace_id, channel, one, "stopped") for one in senders]
    return Inbound(keyword, suppressions=known)
