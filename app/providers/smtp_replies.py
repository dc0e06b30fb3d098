"""Verdicts on a mail server's refusals, in one table: whose trouble it is, and whether it lasts.

RFC 3463's enhanced code decides where the server gives one, the more exact entry first; else, at
RCPT, the reply's own code does (RFC 5321 §4.2.3), and of a 550 its words. A message has one
recipient, so what is said of an address after the end of the data is said of that one too.

    THROTTLED       the server has too much to do, or is in trouble: its queue slows down
    DEFERRED        this recipient cannot be reached for now: the message is tried again alone
    PUT_OFF         likewise; but when most are, the server throttles (messages/refusals.py)
    DEAD            there is no such recipient: bounced, and the address is suppressed
    BOUNCED         this recipient is refused, perhaps for good: the fifth time in a row is once
                    too often
    REJECTED        the policy or the content: the message has failed, and the address is not judged
    MISCONFIGURED   nobody has signed in: messages wait until that is mended
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from app.providers.api import (
    BOUNCED,
    DEAD,
    DEFERRED,
    MISCONFIGURED,
    PUT_OFF,
    REJECTED,
    THROTTLED,
    Verdict,
)

Stage: TypeAlias = Literal["sender", "recipient", "data"]

NOT_SIGNED_IN = frozenset({530, 534, 535, 538})  # RFC 4954 §6
CLOSING = 421  # whatever else it says, it is said of the connection

BY_ENHANCED: Mapping[str, Verdict] = {
    # The address: only its own domain's servers know better.
    "4.1": DEFERRED,
    **dict.fromkeys(("4.1.7", "4.1.8", "4.1.9"), THROTTLED),  # the sender's
    **dict.fromkeys(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"), DEAD),
    # The mailbox: full, disabled or over its own limit.
    "4.2": DEFERRED,
    "5.2.1": DEAD,
    "5.2.2": BOUNCED,
    # The way to the recipient's server, which a relay may ask before it answers.
    **dict.fromkeys(("4.4.1", "4.4.3", "4.4.4", "4.4.6", "4.4.7"), DEFERRED),
    # Policy: the first two are how servers put strangers off for some minutes (RFC 6647 §5), and
    # how some ask for less.
    **dict.fromkeys(("4.7.0", "4.7.1"), PUT_OFF),
    # Mail system, route, protocol, content and the rest of policy.
    "4": THROTTLED,
    "5": REJECTED,
}
BY_BASIC: Mapping[int, Verdict] = {450: DEFERRED}
# "Mailbox unavailable": no such user, no access or a policy. It is the message's failure, unless
# the words leave no doubt that the recipient does not exist.
MAY_BE_DEAD = frozenset({550, 551, 553})
DEAD_WORDS = re.compile(
    r"\b(?:user|recipient|mailbox|account|(?:e-?mail )?address) (?:is )?(?:unknown|not found"
    r"|does(?:n't| not) exist|no longer exists)\b"
    r"|\bunknown (?:local )?(?:user|recipient|mailbox|account|local[ -]part)\b"
    r"|\bno such (?:local )?(?:user|recipient|mailbox|account|person|(?:e-?mail )?address)\b"
    r"|\bno mailbox (?:here )?by that name\b",
    re.IGNORECASE,
)
# Said with it, it is a policy, or of somebody else.
DOUBTFUL_WORDS = re.compile(
    r"polic|spam|block|listed|denied|reputation|relay|sender|https?:", re.IGNORECASE
)
_ENHANCED = re.compile(r"([245])\.([0-9]{1,3})\.([0-9]{1,3})(?![0-9.])")


def verdict(code: int, message: str, stage: Stage) -> Verdict | None:
    """None for a reply that refuses nothing."""
    if code in NOT_SIGNED_IN:
        return MISCONFIGURED
    if not 400 <= code < 600:
        return None
    if stage == "sender" or code == CLOSING:
        return BY_ENHANCED[str(code // 100)]
    status = enhanced(code, message)
    if status is None:
        known = BY_ENHANCED[str(code // 100)]
        if stage != "recipient":
            return known
        may_be_dead = code in MAY_BE_DEAD and DEAD_WORDS.search(message)
        is_dead = may_be_dead and not DOUBTFUL_WORDS.search(message)
        return DEAD if is_dead else BY_BASIC.get(code, known)
    subject = status.rpartition(".")[0]
    return BY_ENHANCED.get(status) or BY_ENHANCED.get(subject) or BY_ENHANCED[status[0]]


def enhanced(code: int, message: str) -> str | None:
    """The status at the beginning of the text; none that contradicts the code."""
    found = _ENHANCED.match(message.lstrip())
    if found is None or found[1] != str(code // 100):
        return None
    return f"{found[1]}.{int(found[2])}.{int(found[3])}"
