"""A filter means the same in SQL, over all contacts, and in the machine, over one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.audience import profile, segment_contacts
from app.audience.segment_contacts import past
from app.audience.segments import Readable
from app.database.db import Database, Handle, new_id
from app.database.engine import Engine
from app.machine import document, segment_filter
from app.machine.fields import Place
from app.store import contact_batches, contact_events, contacts, definition_versions
from app.store import segments as stored
from app.store.segment_sql import Clause
from tests.examples import TIMES, examples
from tests.store import rows
from tests.tables import each_row

PEOPLE = 5
FILTERS = 100  # with five people each: 500 pairs on each engine

# --- what contacts have, and filters compare with -------------------------------------------------

WORDS = ("", "pro", "Pro", "pro%", "it's", "a\\b", "é", "e\u0301", "true", "null", "x y", "😀")
NUMBERS = (
    *("5", "5.0", "05", "-0", "0", "1e2", "100", "83.40", "83.4", " 5", "5\n", "１", "1e999"),
    *("1e-999", "1e1000", "123456789012345678901", "123456789012345678902", "9" * 400),
)
MOMENTS = (
    *("2026-11-02", "2026-11-02T00:00:00Z", "2026-11-02t01:00:00.000+01:00"),
    *("2026-11-02 00:00:00.1234567Z", "2026-11-02T00:00:00.123456-00:00", "2026-11-02\n"),
    *("2024-02-29", "2026-02-29", "1900-02-29", "2000-02-29", "2026-04-31", "0000-01-01"),
    *("0001-01-01", "9999-12-31", "2026-11-02T24:00:00Z", "2026-11-02T10:00:60Z"),
    *("2026-11-02T00:00:00+23:59", "2026-11-02T00:00:00+24:00", "2026-11-02T10:00:00"),
)
# No moment in UTC: a contact may have them, a filter may not.
BEYOND = ("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-12:00")


def mostly(likely: Sequence[Any], others: Any) -> Any:
    """Half of them are these: else a filter would find nobody, or everybody."""
    return st.booleans().flatmap(lambda is_likely: st.sampled_from(likely) if is_likely else others)


text = mostly(
    ["pro", "5", "2026-11-02"],
    st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(NUMBERS),
        st.sampled_from(MOMENTS),
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4),
    ),
)
numbers = mostly(
    [5],
    st.one_of(
        st.sampled_from([5, 5.0, 0, -0.0, 100, 83.4, 1e300, 5e-324, 2**53, 0.1]),
        st.integers(-9, 9),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
)
scalar = st.one_of(text, numbers, st.booleans(), st.none())
held = st.one_of(st.sampled_from(BEYOND), text, numbers, st.booleans())
length = st.sampled_from(["PT0.5S", "PT1H", "P30D", "P36500D"])
names = mostly(["plan"], st.sampled_from(['odd "key".x', "none"]))

# --- filters --------------------------------------------------------------------------------------


def _is_something(value: Any) -> bool:
    return value is not None


def _times(op: str, value: int) -> dict[str, Any]:
    return {"op": op, "value": value}


def _of(path: str, scalars: Any = scalar) -> Any:
    """Comparisons at one path."""
    plain = st.sampled_from(["eq", "ne"])
    of_text = st.sampled_from(["starts_with", "ends_with"])
    ordered = st.sampled_from(["gt", "gte", "lt", "lte"])
    orderable = st.one_of(numbers, st.sampled_from(["5", "1e2", "83.40", *MOMENTS[:5]]))

    def at(op: str, value: Any) -> dict[str, Any]:
        return {"path": path, "op": op, "value": value}

    return st.one_of(
        st.builds(at, plain, scalars),
        st.builds(at, st.just("contains"), scalars.filter(_is_something)),
        st.builds(at, of_text, text),
        st.builds(at, ordered, orderable),
        st.builds(at, st.just("in"), st.lists(scalars, min_size=1, max_size=3)),
        st.builds(at, st.just("exists"), st.booleans()),
        st.builds(at, st.sampled_from(["before", "after"]), st.sampled_from(MOMENTS[:5])),
        st.builds(at, st.just("within_last"), length),
    )


comparison = st.one_of(
    st.sampled_from(["email", "phone", "firstName", "lastName", "locale", "createdAt"]).flatmap(
        lambda name: _of(f"contact.{name}")
    ),
    _of("contact.timezone", st.sampled_from(["Europe/Lisbon", "Europe/Rome", None])),
    names.flatmap(lambda name: _of(f"contact.metadata[{document.dumps(name).decode()}]")),
    st.sampled_from(["email", "sms"]).flatmap(
        lambda name: _of(
            f"contact.subscriptions.{name}", st.sampled_from(["subscribed", "bounced"])
        )
    ),
    st.sampled_from(["email", "sms"]).flatmap(
        lambda name: _of(f"contact.topics.top_1.{name}", st.sampled_from(["subscribed", "pending"]))
    ),
    st.builds(
        lambda value: {"path": "contact.tags", "op": "contains", "value": value},
        scalar.filter(_is_something),
    ),
)
matches = names.flatmap(lambda name: _of(f"event.properties[{document.dumps(name).decode()}]"))
happened = st.fixed_dictionaries(
    {"event": st.sampled_from(["order", "visit"])},
    optional={
        "count": st.one_of(
            st.builds(_times, st.sampled_from(["eq", "gt", "lte"]), st.integers(0, 3)),
            st.builds(_times, st.sampled_from(["gte", "lt"]), st.integers(1, 3)),
        ),
        "within": length,
        "match": st.one_of(matches, st.builds(lambda one: {"not": one}, matches)),
    },
)
got = st.fixed_dictionaries(
    {"message": st.sampled_from(["sent", "bounced"])},
    optional={
        "templateId": st.sampled_from(["tpl_1", "tpl_2"]),
        "broadcastId": st.sampled_from(["bro_1", "bro_2"]),
        "within": length,
    },
)
went = st.fixed_dictionaries(
    {
        "run": st.sampled_from(["entered", "completed", "in"]),
        "definitionId": st.sampled_from(["wfl_1", "wfl_2"]),
    }
)
leaves = st.one_of(comparison, happened, got, went, st.just({"segmentId": "seg_1"}))
filters = leaves | st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)
others = st.one_of(comparison, happened)

# --- people ---------------------------------------------------------------------------------------

FAR = [document.parse(text.encode()) for text in ("1e5000", "-1e-5000", "1E+300", "1.10")]
properties = st.dictionaries(
    names,
    st.sampled_from(FAR) | st.one_of(held, st.none(), st.just([5]), st.just({"plan": 5})),
    max_size=2,
)
ago = st.sampled_from(["PT0S", "PT30M", "PT1H", "P29D", "P30D", "P31D"])
MESSAGES = (
    *("QUEUED", "SENDING", "SENT", "DELIVERED", "BOUNCED", "COMPLAINED"),
    *("FAILED", "UNKNOWN", "SUPPRESSED"),
)
NOT_SENT = ("QUEUED", "SENDING", "SUPPRESSED")
RUNS = ("QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED")
people: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "columns": st.fixed_dictionaries(
            {},
            optional={
                "first_name": text,
                "last_name": text,
                "timezone": st.sampled_from(["Europe/Lisbon"]),
                "locale": st.sampled_from(["en", "de"]),
                "metadata": st.dictionaries(names, held, max_size=2),
                "subscriptions": st.dictionaries(
                    st.sampled_from(["email", "sms"]),
                    st.sampled_from(["bounced", "unsubscribed"]),
                ),
                "topics": st.dictionaries(
                    st.sampled_from(["top_1", "top_2"]),
                    st.dictionaries(
                        st.sampled_from(["email", "sms"]),
                        st.sampled_from(["subscribed", "pending", "unsubscribed"]),
                    ),
                ),
            },
        ),
        "tags": st.lists(text.filter(bool), max_size=2, unique=True),
        "events": st.lists(
            st.tuples(st.sampled_from(["order", "visit"]), properties, ago, st.integers(-1, 1)),
            max_size=4,
        ),
        "messages": st.lists(
            st.tuples(
                st.sampled_from(["SENT", "BOUNCED"]) | st.sampled_from(MESSAGES),
                st.sampled_from(["tpl_1", None]),
                st.sampled_from(["bro_1", None]),
                ago,
            ),
            max_size=2,
            unique_by=lambda message: message[2] or message,  # a broadcast sends one
        ),
        "runs": st.lists(
            st.tuples(
                st.sampled_from(RUNS),
                st.sampled_from(["wfl_1", "wfl_2"]),
                st.sampled_from([None, "run_1"]),  # the run that stood in the way of this one
            ),
            max_size=2,
        ),
    }
)


async def moved_in(db: Handle, workspace_id: str, person: dict[str, Any]) -> str:
    """A contact, and what has become of it."""
    id, now = new_id("con"), await db.now()
    columns = rows.columns(**person["columns"])
    await contact_batches.insert(db, workspace_id=workspace_id, rows=[(id, columns)])
    fields = profile.as_text(columns["metadata"])
    await contacts.add_fields(db, workspace_id=workspace_id, fields=[(id, fields)])
    await contacts.add_tags(db, workspace_id=workspace_id, tags=[(id, person["tags"])])
    await contact_events.insert_many(
        db,
        workspace_id=workspace_id,
        rows=[
            {
                "id": new_id("evt"),
                "contact_id": id,
                "name": name,
                "properties": document.dumps(given).decode(),
                "at": now - rows.length(gone) + timedelta(microseconds=more),
            }
            for name, given, gone, more in person["events"]
        ],
    )
    for status, template_id, broadcast_id, gone in person["messages"]:
        await db.execute(
            """
            INSERT INTO messages (workspace_id, id, contact_id, template_id, broadcast_id, channel,
                                  category, source, status, sent_at, created_at)
            VALUES (:workspace_id, :id, :contact_id, :template_id, :broadcast_id, 'email',
                    'marketing', '{}', :status, :sent_at, :created_at)
            """,
            workspace_id=workspace_id,
            id=new_id("msg"),
            contact_id=id,
            template_id=template_id,
            broadcast_id=broadcast_id,
            status=status,
            sent_at=None if status in NOT_SENT else now - rows.length(gone),
            created_at=now - timedelta(days=99),
        )
    for status, definition_id, blocked_by in person["runs"]:
        await db.execute(
            """
            INSERT INTO runs (workspace_id, id, definition_id, version, contact_id, status,
                              blocked_by, body, created_at)
            VALUES (:workspace_id, :id, :definition_id, 1, :contact_id, :status, :blocked_by, :body,
                    :now)
            """,
            workspace_id=workspace_id,
            id=new_id("run"),
            definition_id=definition_id,
            contact_id=id,
            status=status,
            blocked_by=blocked_by,
            body=b"{}",
        )
    return id


def read(raw: Any) -> segment_filter.Filter:
    findings: list[Any] = []
    found = segment_filter.read(profile.normal(raw), Place("/filter", findings))
    assert found is not None, findings
    return found


@pytest.fixture
async def peopled(database: Database) -> tuple[Database, str]:
    """A database with two definitions that people may have gone through."""
    workspace_id = await rows.workspace(database)
    async with database.write() as db:
        for id in ("wfl_1", "wfl_2"):
            await db.execute(
                """
                INSERT INTO definitions (workspace_id, id, shape, name, state, trigger_config, body,
                                         version, hidden, revision, created_at, updated_at)
                VALUES (:workspace_id, :id, 'steps', 'W', 'PAUSED', :trigger, '[]', 1, FALSE, 1,
                        :now, :now)
                """,
                workspace_id=workspace_id,
                id=id,
                trigger={},
            )
            await definition_versions.pin(
                db,
                workspace_id=workspace_id,
                definition_id=id,
                version=1,
                trigger_config={},
                body="[]",
            )
    return database, workspace_id


class Undone(Exception):
    """Exception that undoes, so that the next people come to an empty workspace."""


async def asked(
    peopled: tuple[Database, str], readable: Readable, given: list[dict[str, Any]]
) -> tuple[list[bool], list[bool]]:
    """Ask whether SQL finds each of the people, and whether the condition holds for each."""
    database, workspace_id = peopled
    in_sql, judged = [], []
    with suppress(Undone):
        async with database.write() as db:
            ids = [await moved_in(db, workspace_id, person) for person in given]
            page = await stored.members(
                db,
                segment_contacts.fitting(db, readable, await db.now()),
                workspace_id=workspace_id,
                filters={},
                since=None,
                before=None,
                limit=100,
                spent=0,
            )
            in_sql = [id in {row.id for row in page.rows} for id in ids]
            for id in ids:
                row = await contacts.by_id(db, workspace_id=workspace_id, id=id)
                assert row is not None
                known = await past(db, readable, workspace_id=workspace_id, contact=row)
                judged.append(segment_contacts.judge(readable, known).holds)
            raise Undone
    return in_sql, judged


@pytest.fixture
def verdicts() -> Iterator[Counter[str]]:
    """Each verdict is that on a tenth of the pairs at the least, and a tenth of the filters finds
    some of the people and not the others. Else the two would agree about little."""
    counted: Counter[str] = Counter()
    yield counted
    pairs = counted["filters"] * PEOPLE
    assert pairs / 10 <= counted["fits"] <= pairs * 9 / 10, counted
    assert counted["divides"] >= counted["filters"] / 10, counted


@settings(
    examples(FILTERS),
    phases=[Phase.generate, *([Phase.shrink] if TIMES > 100 else [])],  # which takes minutes
    suppress_health_check=list(HealthCheck),
)
@given(filters, others, st.lists(people, min_size=PEOPLE, max_size=PEOPLE))
async def test_sql_finds_whom_the_condition_holds_for(
    peopled: tuple[Database, str],
    verdicts: Counter[str],
    raw: Any,
    other: Any,
    given: list[dict[str, Any]],
) -> None:
    in_sql, judged = await asked(peopled, Readable(read(raw), {"seg_1": read(other)}), given)
    assert in_sql == judged, (raw, other)
    assert len(judged) == PEOPLE
    verdicts["filters"] += 1
    verdicts["fits"] += sum(judged)
    verdicts["divides"] += 0 < sum(judged) < PEOPLE


def nobody(**given: Any) -> dict[str, Any]:
    return {"columns": {}, "tags": [], "events": [], "messages": [], "runs": [], **given}


def plan(value: Any) -> dict[str, Any]:
    return nobody(columns={"metadata": {"plan": value}})


def at_plan(op: str, value: Any) -> dict[str, Any]:
    return {"path": "contact.metadata.plan", "op": op, "value": value}


LATELY = {"event": "order", "within": "P30D"}
OF_BROADCAST = {"message": "bounced", "broadcastId": "bro_1"}
SENT = {"message": "sent"}
YEAR = at_plan("before", "2026-11-02")


def went_through(run: str) -> dict[str, Any]:
    return {"run": run, "definitionId": "wfl_1"}


def in_run(status: str, blocked_by: str | None = None) -> dict[str, Any]:
    return nobody(runs=[(status, "wfl_1", blocked_by)])


@each_row(
    ("raw", "person", "held"),
    [
        (LATELY, nobody(events=[("order", {}, "P30D", 0)]), True),
        (LATELY, nobody(events=[("order", {}, "P30D", -1)]), False),
        (LATELY, nobody(events=[("order", {}, "PT0S", 0)]), True),
        (LATELY, nobody(events=[("order", {}, "PT0S", 1)]), False),
        (
            {"message": "sent", "within": "P30D"},
            nobody(messages=[("SENT", None, None, "P30D")]),
            True,
        ),
        (OF_BROADCAST, nobody(messages=[("BOUNCED", "tpl_1", "bro_1", "P1D")]), True),
        (OF_BROADCAST, nobody(messages=[("BOUNCED", "tpl_1", None, "P1D")]), False),
        (OF_BROADCAST, nobody(messages=[("SENT", "tpl_1", "bro_1", "P1D")]), False),
        (SENT, nobody(messages=[("COMPLAINED", None, None, "P1D")]), True),
        (SENT, nobody(messages=[("UNKNOWN", None, None, "P1D")]), False),
        (SENT, nobody(messages=[("SUPPRESSED", None, None, "P1D")]), False),
        (went_through("in"), in_run("QUEUED"), True),
        (went_through("in"), in_run("CANCELLED"), False),
        (went_through("entered"), in_run("CANCELLED"), True),
        (went_through("entered"), in_run("COMPLETED", "run_1"), False),
        (went_through("completed"), in_run("COMPLETED", "run_1"), False),
        (at_plan("gt", 5), plan("1e999"), True),
        (at_plan("gt", 5), plan("1e1000"), False),
        (at_plan("gt", 5), plan("9" * 400), True),
        (at_plan("gte", "123456789012345678901"), plan("123456789012345678900.9"), False),
        (at_plan("eq", 5), plan("5\n"), False),
        (at_plan("eq", 5), plan("5.0"), True),
        (at_plan("eq", "5"), plan("5.0"), False),
        (at_plan("eq", "5"), plan(5.0), True),
        (at_plan("eq", True), plan("true"), False),
        (at_plan("eq", "true"), plan(True), False),
        (YEAR, plan("0001-01-01T00:00:00+05:00"), True),
        (YEAR, plan("0000-01-01"), False),
        (YEAR, plan("2024-02-29"), True),
        (YEAR, plan("2000-02-29"), True),
        (YEAR, plan("1900-02-29"), False),
        (YEAR, plan("2026-02-29"), False),
        (YEAR, plan("2026-04-31"), False),
        (YEAR, plan("2026-11-01\n"), False),
        (YEAR, plan("2026-11-02T00:00:00+00:01"), True),
        (YEAR, plan("2026-11-02T23:58:00+23:59"), True),
        (YEAR, plan("2026-11-01T24:00:00Z"), False),
        (
            at_plan("eq", "2026-11-02T00:00:00.123456Z"),
            plan("2026-11-02t00:00:00.1234569z"),
            True,
        ),
        ({"not": at_plan("ne", "x")}, nobody(), True),
        (at_plan("exists", False), nobody(), True),
    ],
)
async def test_both_agree_at_the_edges(
    peopled: tuple[Database, str], raw: Any, person: dict[str, Any], held: bool
) -> None:
    assert await asked(peopled, Readable(read(raw)), [person]) == ([held], [held])


HOSTILE = "zq'; DROP TABLE contacts; --"


@pytest.mark.parametrize("engine", ["postgresql", "sqlite"])
def test_no_word_of_a_filter_stands_in_the_sql(engine: Engine) -> None:
    name = document.dumps(HOSTILE).decode()
    at = {"op": "eq", "value": HOSTILE}
    raw = {
        "all": [
            {"path": f"contact.metadata[{name}]", **at},
            {"path": "contact.email", **at, "op": "ends_with"},
            {"path": "contact.tags", **at, "op": "contains"},
            {"event": HOSTILE, "match": {"path": f"event.properties[{name}]", **at}},
            {"message": "sent", "templateId": HOSTILE},
            {"run": "in", "definitionId": HOSTILE},
        ]
    }
    fits = Clause(engine, datetime(2026, 11, 2, tzinfo=UTC)).fitting(read(raw).condition)
    assert "zq" not in fits.sql
    assert list(fits.values.values()).count(HOSTILE) >= 8
