"""The drill of broadcasts, a short one; and an oracle that sees what it is there for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.chaos import broadcasts
from lab.chaos.broadcasts import Evidence, Found, Pause, Recipient
from tests.receivers import Received

CONTACTS = 2_000
EVERY = 300  # messages
LEASE_SECONDS = "3"  # what a killed worker had in hand is due again sooner than in 15
QUIET_SECONDS = 6.0  # more than is promised: other drills run beside it


@pytest.mark.drill
@pytest.mark.timeout(300)
def test_killed_workers_and_changing_consent_double_and_miss_nobody(
    tmp_path: Path, fast_servers: dict[str, str]
) -> None:
    found = broadcasts.drill(
        tmp_path, fast_servers, CONTACTS, EVERY, 7, QUIET_SECONDS, LEASE_SECONDS=LEASE_SECONDS
    )
    assert found.faults == []
    assert CONTACTS - found.erased <= found.ends.total() <= CONTACTS
    assert found.ends["SENT"] > CONTACTS / 2
    assert found.changes > 5


CONTACTS_THERE = {"con_1": "a@x.test", "con_2": "b@x.test"}


def arrived(address: str, key: str, at: float = 10.0) -> Received:
    raw = f"Message-ID: <{key}@acme.test>\r\n\r\n".encode()
    return Received(at, "hello@acme.test", (address,), encrypted=False, session=1, raw=raw)


GOOD = Evidence(
    {
        "audience": {"frozen": {"total": 2}},
        "progress": {"total": 2, "sent": 1, "suppressed": 1, "unknown": 0},
    },
    [
        Recipient("con_1", "SENT", None, "msg_1", "key1"),
        Recipient("con_2", "SUPPRESSED", "unsubscribed", None, None),
    ],
    [arrived("a@x.test", "key1")],
    set(),
)


FAILED = Recipient("con_1", "FAILED", "template_error", "msg_1", "key1")


def test_what_is_true_has_no_faults() -> None:
    assert broadcasts.judge(GOOD, CONTACTS_THERE, {"con_2": 5.0}) == []


@pytest.mark.parametrize(
    ("evidence", "opted_out", "fault"),
    [
        (replace(GOOD, received=[*GOOD.received] * 2), {}, "a@x.test got it 2 times"),
        (replace(GOOD, received=[]), {}, "con_1 is SENT, and got 0"),
        (
            replace(GOOD, received=[*GOOD.received, arrived("b@x.test", "key2")]),
            {},
            "con_2 is SUPPRESSED, and got 1",
        ),
        (replace(GOOD, recipients=GOOD.recipients[:1]), {"con_2": 5.0}, "con_2 was missed"),
        (GOOD, {}, "con_2 is SUPPRESSED (unsubscribed), and had not opted out"),
        (
            replace(GOOD, shown={**GOOD.shown, "progress": {"total": 2, "sent": 1}}),
            {},
            "frozen 2, 2 rows, ends {'sent': 1}",
        ),
        (GOOD, {"con_1": 8.0}, "a@x.test got it 2.00 s after the answer"),
        (
            replace(GOOD, recipients=[FAILED, GOOD.recipients[1]], received=[]),
            {},
            "con_1 is FAILED, and got 0",
        ),
    ],
)
def test_the_oracle_finds(evidence: Evidence, opted_out: dict[str, float], fault: str) -> None:
    assert fault in broadcasts.judge(evidence, CONTACTS_THERE, opted_out)


def test_what_killed_workers_had_in_hand_time_and_again_may_be_set_aside_but_not_arrive() -> None:
    aside = [replace(FAILED, reason="poisoned"), GOOD.recipients[1]]
    left = replace(GOOD, recipients=aside, received=[])
    assert broadcasts.judge(left, CONTACTS_THERE, {"con_2": 5.0}) == []
    came = replace(left, received=GOOD.received)
    found = broadcasts.judge(came, CONTACTS_THERE, {"con_2": 5.0})
    assert found == ["con_1 is FAILED, and got 1"]


def test_only_who_was_erased_may_be_absent() -> None:
    gone = replace(
        GOOD,
        recipients=GOOD.recipients[:1],
        shown={"audience": {"frozen": {"total": 1}}, "progress": {"total": 1, "sent": 1}},
    )
    assert broadcasts.judge(gone, CONTACTS_THERE, {"con_2": 5.0}, {"con_2"}) == []


def test_a_message_that_an_answer_named_may_arrive_after_it() -> None:
    named = replace(GOOD, named={"msg_1"})
    assert broadcasts.judge(named, CONTACTS_THERE, {"con_1": 8.0, "con_2": 5.0}) == []


@pytest.mark.parametrize(
    ("pause", "faults"),
    [
        (Pause(0.3, []), []),
        (Pause(0.3, [0.4, 1.9]), []),
        (Pause(2.5, []), ["a pause took effect after 2.5 s, 0 messages arrived too late"]),
        (
            Pause(0.3, [0.4, 2.1, 2.6]),
            ["a pause took effect after 2.6 s, 2 messages arrived too late"],
        ),
    ],
)
def test_a_pause_has_taken_effect_two_seconds_after_it_was_asked_for(
    pause: Pause, faults: list[str]
) -> None:
    assert pause.faults(2.0) == faults
    assert pause.faults(3.0) == []


def test_a_drill_that_struck_too_late_has_a_fault_of_its_own() -> None:
    tried = Found(while_freezing=1, while_sending=1, pause=Pause(0.1, []))
    assert tried.untried() == []
    faults = {
        "no worker was killed while the audience was being frozen": replace(
            tried, while_freezing=0
        ),
        "no worker was killed after it was frozen": replace(tried, while_sending=0),
        "it was over before it could be paused": replace(tried, pause=None),
    }
    for fault, found in faults.items():
        assert found.untried() == [fault]
