"""The pace of a broadcast, in all and to each domain."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from app.broadcasts import pacing
from app.store.broadcast_recipients import DueRecipient

NOW = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def made(per_minute: int, minutes: int) -> list[int]:
    """Messages of each minute, by a worker who looks twice a second."""
    now, paced_at, counts = NOW, None, [0] * minutes
    while now < NOW + timedelta(minutes=minutes):
        allowed = pacing.allowance(per_minute, NOW, paced_at, now)
        counts[int((now - NOW).total_seconds() // 60)] += allowed.messages
        paced_at = allowed.next_at - allowed.interval
        now += SECOND / 2
    return counts


def test_the_pace_rises_in_five_minutes_and_is_kept() -> None:
    counts = made(600, 8)
    for count, share in zip(counts, (1, 2, 3, 4, 5, 5, 5, 5), strict=True):
        assert abs(count - 120 * share) <= 2


def test_the_first_message_leaves_at_once_and_a_slow_pace_is_no_faster() -> None:
    assert pacing.allowance(1, NOW, None, NOW).messages == 1
    assert max(made(1, 30)) == 1


def looked(
    pace: pacing.Allowance, *, under_way: bool = False, awaited: bool = False, pending: float | None
) -> float:
    """Compute in how many seconds it is looked again, when somebody is due in so many."""
    pending_at = None if pending is None else NOW + pending * SECOND
    at = pacing.next_look(
        NOW, pace, is_under_way=under_way, is_awaited=awaited, pending_at=pending_at
    )
    return (at - NOW).total_seconds()


def test_it_is_looked_again_when_something_can_have_changed() -> None:
    free = pacing.Allowance(5, NOW + SECOND, SECOND)
    none_yet = pacing.Allowance(0, NOW + 3 * SECOND, SECOND)
    assert looked(free, under_way=True, pending=3_600) == 0.5
    assert looked(free, pending=3_600) == 3_600  # nothing can come between
    assert looked(free, awaited=True, pending=3_600) == 10  # a mailbox may have room again
    assert looked(free, awaited=True, pending=2) == 2
    assert looked(free, awaited=True, pending=None) == 10
    assert looked(none_yet, pending=-1) == 3  # is due, and the pace lets nobody go yet
    assert looked(free, pending=-1) == 0


def test_what_a_late_worker_missed_is_not_made_up_for() -> None:
    late = pacing.allowance(6_000, NOW - timedelta(hours=1), NOW, NOW + timedelta(minutes=10))
    assert late.messages == 200  # two seconds' worth


def people(domain: str, count: int, *, has_turn: bool = False) -> list[DueRecipient]:
    return [
        DueRecipient(
            f"con_{domain}_{n}",
            is_there=True,
            address=f"{n}@{domain}",
            timezone=None,
            has_turn=has_turn,
        )
        for n in range(count)
    ]


def test_a_domain_gets_no_more_than_its_pace_and_others_go_on() -> None:
    large, small = people("large.test", 100), people("small.test", 3)
    found = pacing.spread([*large, *small], {}, 600, NOW)
    gone = [one.address for one in found.now if one.address]
    assert sum(address.endswith("large.test") for address in gone) == 11  # a second's worth
    assert sum(address.endswith("small.test") for address in gone) == 3
    turns = sorted(found.later.values())
    assert len(turns) == 89
    assert {after - before for before, after in pairwise(turns)} == {SECOND / 10}
    assert found.slots["large.test"] == turns[-1] + SECOND / 10


def test_who_comes_later_stands_behind_those_who_wait_and_a_turn_is_kept() -> None:
    slots = {"large.test": NOW + 60 * SECOND, "old.test": NOW - SECOND}
    found = pacing.spread(
        [*people("large.test", 2, has_turn=True), *people("large.test", 1)], slots, 600, NOW
    )
    assert [one.has_turn for one in found.now] == [True, True]
    assert list(found.later.values()) == [NOW + 60 * SECOND]
    assert found.slots == {"large.test": NOW + 60 * SECOND + SECOND / 10}


def test_turns_that_come_all_at_once_are_spread_again() -> None:
    found = pacing.spread(people("large.test", 50, has_turn=True), {}, 600, NOW)
    assert len(found.now) == 10
    assert len(found.later) == 40


def test_the_domains_that_are_remembered_are_bounded() -> None:
    due = [one for n in range(1_500) for one in people(f"d{n}.test", 1)]
    found = pacing.spread(due, {}, 60, NOW)
    assert len(found.slots) <= pacing.MOST_DOMAINS + 1
