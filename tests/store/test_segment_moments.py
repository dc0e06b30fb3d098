"""SQL and the machine know the same moment at which time may change an answer."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.audience import segment_contacts
from app.audience.segments import Readable
from app.database.db import Database, Handle
from app.database.engine import Engine
from app.machine import compare, document, segment_changes
from app.store import contacts, segment_moments
from tests.examples import examples
from tests.store.test_segment_sql import (
    BEYOND,
    HOSTILE,
    MOMENTS,
    Undone,
    ago,
    length,
    moved_in,
    names,
    nobody,
    people,
    peopled,
    plan,
    read,
)

__all__ = ["peopled"]


def lately(path: str) -> Any:
    return length.map(lambda value: {"path": path, "op": "within_last", "value": value})


def at(root: str) -> Any:
    return names.flatmap(lambda name: lately(f"{root}[{document.dumps(name).decode()}]"))


in_event = st.one_of(
    at("event.properties"),
    st.builds(lambda one: {"not": one}, at("event.properties")),
    st.builds(lambda *parts: {"any": [*parts]}, at("event.properties"), at("event.properties")),
    st.just({"path": "event.properties.plan", "op": "exists"}),
)
happened = st.fixed_dictionaries(
    {"event": st.sampled_from(["order", "visit"])},
    optional={"within": length, "match": in_event},
)
dated = st.one_of(
    at("contact.metadata"),
    lately("contact.firstName"),
    lately("contact.subscriptions.email"),
    lately("contact.topics.top_1.sms"),
)
got = st.fixed_dictionaries({"message": st.sampled_from(["sent", "bounced"]), "within": length})
young = length.map(lambda value: {"path": "contact.createdAt", "op": "within_last", "value": value})
untimed = st.sampled_from(
    [{"event": "visit"}, {"path": "contact.metadata.plan", "op": "eq", "value": "pro"}]
)
filters = st.recursive(
    st.one_of(happened, got, young, dated, untimed, st.just({"segmentId": "seg_1"})),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=4,
)
others = st.one_of(happened, young, dated, untimed)


# Times as people have them, some of whose windows are open, have still to come, or are over.
NEAR = tuple(
    (datetime.now(UTC) + timedelta(days=days, hours=hours)).isoformat()
    for days in (-36_600, -40, -29, -1, 0, 1, 400)
    for hours in (-1, 1)
)
moments = st.sampled_from([*NEAR, *MOMENTS, *BEYOND])


@st.composite
def timely(draw: st.DrawFn) -> dict[str, Any]:
    """One of the people, with times in its texts."""
    person = draw(people)
    person["columns"]["metadata"] = draw(st.dictionaries(names, moments, max_size=2))
    if draw(st.booleans()):
        person["columns"]["first_name"] = draw(moments)
    person["events"] = [
        (name, draw(st.dictionaries(names, moments, max_size=2)), gone, more)
        for name, _, gone, more in person["events"]
    ]
    return person


async def known(
    peopled: tuple[Database, str], readable: Readable, given: list[dict[str, Any]]
) -> tuple[list[datetime | None], list[datetime | None]]:
    """The next moment of each of the people, as SQL and as the machine has it."""
    database, workspace_id = peopled
    in_sql, judged = [], []
    conditions = {id: other.condition for id, other in readable.others.items()}
    asked = readable.filter.condition
    with suppress(Undone):
        async with database.write() as db:
            flip = segment_moments.next_flip(
                db.engine, await db.now(), segment_changes.timed(asked, conditions)
            )
            for person in given:
                id = await moved_in(db, workspace_id, person)
                in_sql.append(
                    await db.fetch_value(
                        f"""
                        SELECT CAST({flip.sql} AS TIMESTAMPTZ) AS next_at FROM contacts c
                        WHERE c.workspace_id = :workspace_id AND c.id = :id
                        """,
                        workspace_id=workspace_id,
                        id=id,
                        **flip.values,
                    )
                )
                judged.append(await machines(db, workspace_id, id, readable))
            raise Undone
    return in_sql, judged


async def machines(
    db: Handle, workspace_id: str, contact_id: str, readable: Readable
) -> datetime | None:
    row = await contacts.by_id(db, workspace_id=workspace_id, id=contact_id)
    assert row is not None
    past = await segment_contacts.past(db, readable, workspace_id=workspace_id, contact=row)
    conditions = {id: other.condition for id, other in readable.others.items()}
    facts = segment_contacts.facts(past, conditions)
    return segment_changes.next_flip(readable.filter.condition, conditions, facts)


@settings(examples(100), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(filters, others, st.lists(timely(), min_size=3, max_size=3))
async def test_sql_knows_the_moment_that_the_machine_knows(
    peopled: tuple[Database, str], raw: Any, other: Any, given: list[dict[str, Any]]
) -> None:
    in_sql, judged = await known(peopled, Readable(read(raw), {"seg_1": read(other)}), given)
    assert in_sql == judged, (raw, other)


@given(ago, st.integers(-1, 1))
# These are all that there are.
@settings(examples(18), suppress_health_check=list(HealthCheck))
async def test_an_event_of_any_age_moves_an_answer_when_it_leaves_its_window_or_enters_it(
    peopled: tuple[Database, str], gone: str, more: int
) -> None:
    raw = {"event": "order", "within": "P30D", "count": {"op": "gte", "value": 2}}
    person = nobody(events=[("order", {}, gone, more)])
    in_sql, judged = await known(peopled, Readable(read(raw)), [person])
    assert in_sql == judged
    assert (judged == [None]) is (gone == "P31D")


BERLIN = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+05:00", None),
        ("9999-12-31", timedelta(0)),
        ("2026-02-30", None),
        ((datetime.now(BERLIN) + timedelta(days=1)).isoformat(), timedelta(0)),
        ((datetime.now(UTC) - timedelta(days=29)).isoformat(), timedelta(days=30)),
        ((datetime.now(UTC) - timedelta(days=31)).isoformat(), None),
        # Past the midnight after next: the tests may be read before one, and run after it.
        (f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}", timedelta(0)),
    ],
    ids=["late", "early", "last", "none", "to come", "lately", "over", "day"],
)
async def test_a_date_of_a_contact_moves_an_answer_when_it_comes_and_when_it_is_long_ago(
    peopled: tuple[Database, str], text: str, offset: timedelta | None
) -> None:
    raw = {"path": "contact.metadata.plan", "op": "within_last", "value": "P30D"}
    in_sql, judged = await known(peopled, Readable(read(raw)), [plan(text)])
    assert in_sql == judged
    expected = None
    if offset is not None:
        tick = segment_changes.TICK if offset else timedelta(0)
        moment = compare.time(text)
        assert moment is not None
        expected = moment + offset + tick
    assert judged == [expected]


@pytest.mark.parametrize("engine", ["postgresql", "sqlite"])
def test_no_word_of_a_filter_stands_in_the_sql(engine: Engine) -> None:
    parts = segment_changes.timed(read({"event": HOSTILE, "within": "P1D"}).condition, {})
    flip = segment_moments.next_flip(engine, datetime.now(UTC), parts)
    assert "zq" not in flip.sql
    assert HOSTILE in flip.values.values()
