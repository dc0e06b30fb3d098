"""Keywords that people write back: STOP opts out, START opts in again, HELP is answered."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.audience import subscriptions
from app.audience.subscriptions import OptOut
from app.consent import consent
from app.consent.consent import Suppression
from app.database.db import Handle
from app.process import Process

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
    answer; a `suppression` is to be waited for (`consent.quiet`) before that."""

    meaning: Meaning
    reply: str | None = None
    suppression: Suppression | None = None


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


async def obey(
    process: Process,
    db: Handle,
    *,
    workspace_id: str,
    sender: str,
    text: str,
    workspace_name: str,
    channel: str = "sms",
) -> Inbound:
    """A person, known by their number in E.164, has written to the workspace: STOP and its like opt
    out of the channel, START and its like opt in again, HELP is answered. Each is confirmed when it
    changes something, so that two machines never talk to each other for ever.

    Raises addresses.BadAddress for a `sender` that is no number, such as a short code.
    """
    keyword = meaning(text)
    match keyword:
        case "stop":
            out = await consent.suppress(
                process,
                db,
                workspace_id=workspace_id,
                channel=channel,
                address=sender,
                reason="stopped",
                source="inbound",
            )
            reply = f"{workspace_name}: you will get no more messages. Reply START to resume."
            return Inbound(keyword, reply if out.is_new else None, out)
        case "start":
            again = await consent.lift(
                process,
                db,
                workspace_id=workspace_id,
                channel=channel,
                address=sender,
                # What people say; not what providers, members and erasures do.
                reasons=["stopped", "unsubscribed"],
                source="inbound",
            )
            reply = f"{workspace_name}: you will get messages again. Reply STOP to end them."
            return Inbound(keyword, reply if again else None)
        case "help":
            return Inbound(keyword, f"{workspace_name}: reply STOP to get no more messages.")
        case "flagged":
            await _flag(db, workspace_id, channel, sender)
            process.metrics.count("tidings_inbound_flagged", channel=channel)
    return Inbound(keyword)


def again(process: Process, *, workspace_id: str, sender: str, text: str, channel: str) -> Inbound:
    """A copy of what was said: nothing changes, and nobody is answered once more; but a STOP is
    waited for. Raises addresses.BadAddress."""
    keyword = meaning(text)
    if keyword != "stop":
        return Inbound(keyword)
    out = consent.known(process, workspace_id, channel, sender, "stopped")
    return Inbound(keyword, suppression=out)


async def _flag(db: Handle, workspace_id: str, channel: str, sender: str) -> None:
    contact = await consent.owner(db, workspace_id, channel, subscriptions.key(channel, sender))
    if contact is None:
        log.warning("possible opt-out by an unknown sender", extra={"workspace_id": workspace_id})
        return
    who = OptOut(contact.id, channel, None, None)
    await subscriptions.tell(db, workspace_id, [who], kind="flagged", reason=None, source="inbound")
