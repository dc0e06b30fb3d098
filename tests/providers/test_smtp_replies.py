"""Each reply of a mail server, and whose trouble it is."""

from __future__ import annotations

import pytest

from app.providers import smtp_replies
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
from app.providers.smtp_replies import Stage, verdict

AT_RCPT: list[tuple[str, Verdict]] = [
    ("421 4.7.0 Too many connections", THROTTLED),
    ("421 4.2.1 Closing", THROTTLED),
    ("450 4.2.0 Greylisted", DEFERRED),
    ("450 4.2.1 The user receives mail too quickly", DEFERRED),
    ("452 4.2.2 Mailbox full", DEFERRED),
    ("450 4.1.1 Unverified address", DEFERRED),
    ("450 4.1.2 Domain not found", DEFERRED),
    ("450 4.1.8 Sender's domain not found", THROTTLED),
    ("450 4.7.1 Greylisted", PUT_OFF),
    ("451 4.7.1 Greylisting in action, come back later", PUT_OFF),
    ("450 4.7.1 Rate limit exceeded", PUT_OFF),
    ("421 4.7.1 Rate limit exceeded", THROTTLED),
    ("450 4.7.28 Rate limit exceeded", THROTTLED),
    ("451 4.7.500 Server busy", THROTTLED),
    ("450 4.7.25 Client host rejected", THROTTLED),
    ("452 4.3.1 Insufficient system storage", THROTTLED),
    ("452 4.5.3 Too many recipients", THROTTLED),
    ("451 4.4.1 No answer from host", DEFERRED),
    ("451 4.4.5 System congestion", THROTTLED),
    ("450 mailbox busy", DEFERRED),
    ("451 local error", THROTTLED),
    ("452 storage", THROTTLED),
    ("550 5.1.1 No such user", DEAD),
    ("550-5.1.1 The account\n5.1.1 does not exist", DEAD),
    ("550 5.1.10 Null MX", DEAD),
    ("550 5.1.2 No such host", DEAD),
    ("550 5.2.1 Mailbox disabled", DEAD),
    ("552 5.2.2 Mailbox full", BOUNCED),
    ("550 No such user", DEAD),
    ("550 <ada@example.com>: Recipient address rejected: User unknown", DEAD),
    ("550 Unknown local part ada in <ada@example.com>", DEAD),
    ("551 The email address does not exist", DEAD),
    ("553 sorry, no mailbox here by that name", DEAD),
    ("550 User unknown; blocked, see https://blocked.example", REJECTED),
    ("550 Sender address rejected: user unknown", REJECTED),
    ("550 Mailbox unavailable", REJECTED),
    ("550 Requested action not taken: mailbox unavailable", REJECTED),
    ("550 Blocked by our policy", REJECTED),
    ("550 No", REJECTED),
    ("551 User not local", REJECTED),
    ("553 Mailbox name", REJECTED),
    ("554 No such user", REJECTED),
    ("550 5.7.1 No such user", REJECTED),
    ("550 5.1.0 Address rejected", REJECTED),
    ("553 5.1.8 Sender's domain", REJECTED),
    ("550 5.4.1 Access denied", REJECTED),
    ("550 5.7.1 Blocked", REJECTED),
    ("552 5.3.4 Too big", REJECTED),
    ("554 5.6.0 Bad content", REJECTED),
    ("554 No", REJECTED),
    ("530 5.7.0 Authentication required", MISCONFIGURED),
    ("535 5.7.8 Bad credentials", MISCONFIGURED),
    # What contradicts the code, or is no status, does not count.
    ("450 5.1.1 No such user", DEFERRED),
    ("550 4.2.2 Mailbox full", REJECTED),
    ("554 2.0.0 Fine", REJECTED),
    ("554 5.1.1.1 version", REJECTED),
    ("554 See 5.1.1", REJECTED),
    ("554 5.1.1000 x", REJECTED),
    ("550 5.01.001 No such user", DEAD),
]


def of(reply: str, stage: Stage) -> Verdict | None:
    return verdict(int(reply[:3]), reply[4:], stage)


@pytest.mark.parametrize(("reply", "expected"), AT_RCPT)
def test_what_is_said_to_rcpt(reply: str, expected: Verdict) -> None:
    assert of(reply, "recipient") is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("550 5.1.1 No such user", DEAD),
        ("552 5.2.2 Mailbox full", BOUNCED),
        ("451 4.7.1 Greylisted", PUT_OFF),
        ("550 No such user", REJECTED),
        ("452 4.2.2 Mailbox full", DEFERRED),
        ("450 Later", THROTTLED),
        ("550 Spam", REJECTED),
        ("554 Spam", REJECTED),
        ("554 5.7.1 Spam", REJECTED),
        ("421 4.3.2 Closing", THROTTLED),
    ],
)
def test_what_is_said_to_the_data(reply: str, expected: Verdict) -> None:
    assert of(reply, "data") is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("550 5.1.1 x", REJECTED),
        ("450 4.2.2 x", THROTTLED),
        ("450 4.7.1 Greylisted", THROTTLED),
        ("530 5.7.0 x", MISCONFIGURED),
    ],
)
def test_to_mail_nothing_is_said_of_a_recipient(reply: str, expected: Verdict) -> None:
    assert of(reply, "sender") is expected


def test_what_refuses_nothing_is_no_verdict() -> None:
    assert [of(f"{code} x", "recipient") for code in (100, 250, 354, 399, 600)] == [None] * 5


def test_every_status_has_an_entry() -> None:
    """However new its subject is."""
    for code in (450, 550):
        for subject in (*range(12), 999):
            for detail in (0, 1, 7, 10, 99, 999):
                text = f"{code // 100}.{subject}.{detail} x"
                assert smtp_replies.verdict(code, text, "recipient") is not None
