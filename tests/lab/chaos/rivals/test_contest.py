"""The judge of the contest, which must see every kind of loss; the rest is `make -C lab
chaos-rival`."""

from __future__ import annotations

import json

from lab.chaos.evidence import Struck
from lab.chaos.rivals.contest import judge
from lab.chaos.senders import AWAY, Sent, Try
from tests.receivers import Received


def event(name: str, *statuses: int | None, kind: str = "once") -> Sent:
    sent = Sent(name, kind, "orders", json.dumps({"name": name}).encode())
    sent.tries = [Try(10, 10.5, status, {}, None if status else AWAY) for status in statuses]
    return sent


def mail(name: str, at: float = 11) -> Received:
    raw = f"Subject: {name}\r\n\r\n1.10\r\n".encode()
    return Received(at, "hello@acme.test", (f"{name}@customer.example",), False, 1, raw)


def test_what_was_accepted_and_never_arrives_is_lost_in_silence_unless_it_is_admitted() -> None:
    silent, found = event("silent", 202), event("told", 202)
    judged = judge([silent, found, event("sent", 202)], [mail("sent")], [], {found.body})
    assert judged["events accepted"] == 3
    assert judged["lost in silence"] == 1
    assert judged["missing, and said so"] == 1


def test_what_was_not_accepted_cannot_be_lost() -> None:
    judged = judge([event("a", 500), event("b", 503, None), event("c", 401)], [], [], set())
    assert judged["lost in silence"] == judged["events accepted"] == 0
    assert (judged["answers 500"], judged["answers 503"]) == (1, 1)
    assert judged[f"no answer: {AWAY}"] == 1


def test_more_messages_than_tries_are_doubled_and_one_key_is_one_message() -> None:
    ledger = [event("once", 202), event("again", 500, 202), event("keyed", 500, 202, kind="keyed")]
    judged = judge(ledger, [mail(sent.name) for sent in ledger for _ in range(2)], [], set())
    assert judged["doubled"] == 2  # the first try of "again" may have been one, its sender knows


def test_recovery_counts_what_was_accepted_before_a_kill_and_sent_after_it() -> None:
    ledger = [event("open", 202), event("sent", 202)]
    mails = [mail("open", at=42), mail("sent", at=11)]
    judged = judge(ledger, mails, [Struck("kill -9 a worker", 12, 12)], set())
    assert judged["after a kill"] == "1 events, p50 30.0 s, p99 30.0 s"
