"""A file of contacts: in batches, tried again, cut short; told in lines."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from app.audience import membership, subscriptions, upserts
from app.database.db import Database, Deadlines, Handle
from app.errors import Problem, Unavailable
from app.files import imports, sheets
from app.files.imports import Columns, CsvFormat, Format, JsonLinesFormat
from app.machine import segment_changes
from app.process import Process
from app.store import contacts, segment_members, segments, suppressions
from app.store.dry_run import DryRunContacts
from app.store.suppressions import Reason
from tests.cast import suppress
from tests.consent.test_consent import ADA
from tests.tables import each_row

PEOPLE = 123


@pytest.fixture
def batch(monkeypatch: pytest.MonkeyPatch) -> int:
    """A batch of so many rows: some hundred are several batches."""
    monkeypatch.setattr(imports, "BATCH", 50)
    return 50


def sheet(*rows: str, header: str = "email") -> bytes:
    return "\n".join([header, *rows, ""]).encode()


def people(count: int) -> bytes:
    return sheet(*(f"p{i}@x.test" for i in range(count)))


async def pieces(
    data: bytes, size: int = 4_096, fails: Exception | None = None
) -> AsyncIterator[bytes]:
    for first in range(0, len(data), size):
        yield data[first : first + size]
    if fails is not None:
        raise fails


async def allowed() -> None:
    """Allow whoever imports to go on."""


async def run(
    process: Process,
    workspace_id: str,
    data: bytes | AsyncIterator[bytes],
    format: Format | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    lines = imports.run(
        process,
        workspace_id,
        format or CsvFormat(),
        pieces(data) if isinstance(data, bytes) else data,
        # No progress is told meanwhile, however slow the machine is.
        **{"dry_run": False, "recheck": allowed, "progress_seconds": 3_600, **options},
    )
    return [json.loads(line) async for line in lines]


def totals(
    created: int = 0, updated: int = 0, unchanged: int = 0, failed: int = 0, **rest: Any
) -> dict[str, Any]:
    counts = {"created": created, "updated": updated, "unchanged": unchanged, "failed": failed}
    return {"type": "totals", **counts, "dryRun": False, **rest}


async def count(database: Database) -> int:
    async with database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM contacts"))


async def test_a_file_of_several_batches_is_stored_and_safe_to_send_again(
    process: Process, acme: str, batch: int
) -> None:
    assert 2 * batch < PEOPLE
    *_, first = await run(process, acme, people(PEOPLE))
    assert first == totals(created=PEOPLE)
    assert await count(process.database) == PEOPLE
    *_, again = await run(process, acme, people(PEOPLE))
    assert again == totals(unchanged=PEOPLE)
    lines = b"".join(b'{"email":"P%d@x.test"}\n' % i for i in range(PEOPLE))
    *_, changed = await run(process, acme, lines, JsonLinesFormat())
    assert changed == totals(updated=PEOPLE)
    assert await count(process.database) == PEOPLE


async def test_a_file_whose_rows_many_segments_name_is_stored_fewer_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, upsert = [], upserts.upsert

    async def counted(*given: Any, **more: Any) -> Any:
        sizes.append(len(given[2]))
        return await upsert(*given, **more)

    async with process.database.write() as db:
        for id in ("seg_1", "seg_2"):
            of = {"workspace_id": acme, "id": id, "name": "S", "kind": "live"}
            vip = '{"path":"contact.tags","op":"contains","value":"vip"}'
            await segments.insert(db, **of, filter=vip, starts=False, fill_to="")
            names = [segment_changes.CREATED]
            await segment_members.set_names(db, workspace_id=acme, segment_id=id, names=names)
    monkeypatch.setattr(upserts, "upsert", counted)
    monkeypatch.setattr(membership, "MOST_AT_ONCE", 8)
    monkeypatch.setattr(imports, "BATCH", 10)
    *_, last = await run(process, acme, people(14))
    assert last == totals(created=14)
    assert sizes == [10, 4, 4, 2, 4]


@pytest.mark.parametrize(("length", "at_once"), [(100, 10), (3_000, 4), (12_000, 1)])
async def test_a_file_whose_rows_are_long_is_stored_fewer_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, length: int, at_once: int
) -> None:
    """Five hundred of the longest would be hundreds of megabytes of one request."""
    sizes, upsert = [], upserts.upsert

    async def counted(*given: Any, **more: Any) -> Any:
        sizes.append(len(given[2]))
        return await upsert(*given, **more)

    monkeypatch.setattr(upserts, "upsert", counted)
    monkeypatch.setattr(imports, "BATCH", 10)
    monkeypatch.setattr(imports, "BATCH_BYTES", 10_000)
    metadata = {f"n{number}": "x" * 290 for number in range(length // 300)}
    people = [{"email": f"p{number}@x.test", "metadata": metadata} for number in range(20)]
    *_, last = await run(process, acme, sheets.json_lines(people), JsonLinesFormat())
    assert last == totals(created=20)
    assert at_once - 1 <= max(sizes) <= at_once + 1
    assert len(sizes) >= 20 // (at_once + 1)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_file_about_heavy_contacts_is_stored_fewer_at_a_time(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """However short its rows are, what they change is read: five hundred of 188 KB."""
    heavy = [{"email": f"p{number}@x.test", "metadata": {"n": "x" * 300}} for number in range(8)]
    *_, made = await run(process, acme, sheets.json_lines(heavy), JsonLinesFormat())
    assert made == totals(created=8)
    monkeypatch.setattr(upserts, "LIGHT", 1)
    monkeypatch.setattr(upserts, "MOST_BYTES", 1_000)  # three of them
    held, read = list[int](), contacts.tags_of

    async def counted(*given: Any, **of: Any) -> Any:
        held.append(len(of["contact_ids"]))
        return await read(*given, **of)

    monkeypatch.setattr(contacts, "tags_of", counted)
    named = sheet(*(f"p{i}@x.test,Ada" for i in range(10)), header="email,firstName")
    *_, last = await run(process, acme, named, dry_run=dry_run)
    assert last == {**totals(created=2, updated=8), "dryRun": dry_run}
    assert max(held) <= 3
    assert sum(held) == 8


async def test_a_dry_run_holds_few_of_the_heavy_contacts_that_it_would_have_made(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserts, "LIGHT", 1)
    monkeypatch.setattr(upserts, "MOST_BYTES", 3_000)
    monkeypatch.setattr(imports, "BATCH", 8)
    held, find = list[int](), DryRunContacts.find

    def counted(kept: DryRunContacts, **asked: Any) -> Any:
        found = find(kept, **asked)
        held.append(len(found))
        return found

    monkeypatch.setattr(DryRunContacts, "find", counted)
    made = [{"email": f"p{i}@x.test", "metadata": dict.fromkeys("ab", "x" * 400)} for i in range(8)]
    named = [{"email": f"p{i}@x.test", "firstName": "Ada"} for i in range(8)]
    file = sheets.json_lines([*made, *named])
    *_, last = await run(process, acme, file, JsonLinesFormat(), dry_run=True)
    assert last == {**totals(created=8, updated=8), "dryRun": True}
    assert 1 <= max(held) <= 4
    assert sum(held) == 8


async def test_a_dry_run_tells_the_same_and_writes_nothing(process: Process, acme: str) -> None:
    data = sheet("a@x.test,A", "bad,B", "b@x.test,", header="email,firstName")
    await run(process, acme, sheet("b@x.test"))
    found = await run(process, acme, data, dry_run=True)
    assert await count(process.database) == 1
    assert found[-1] == {**totals(created=1, unchanged=1, failed=1), "dryRun": True}
    assert await run(process, acme, data) == [*found[:-1], totals(created=1, unchanged=1, failed=1)]


SEVERAL = """
    {"email": "a@x.test", "phone": "+14155550100", "tags": ["t"], "metadata": {"n": 1}}
    {"email": "b@x.test", "firstName": "B"}
    {"email": "A@x.test"}
    {"email": "a@x.test", "firstName": "A"}
    {"email": "a@x.test", "firstName": "A", "tags": ["t"], "metadata": {"n": "1"}}
    {"email": "c@x.test", "phone": "+14155550100"}
    {"email": "a@x.test"}
    {"email": "b@x.test", "phone": "+14155550100"}
    {"email": "c@x.test", "metadata": {"n": null, "yes": true, "half": 0.5}}
    {"phone": "+14155550100", "metadata": {"yes": true, "half": 0.5}, "tags": ["t", "u"]}
    {"email": "old@x.test", "phone": "+14155550101"}
    {"email": "new@x.test", "phone": "+14155550101"}
    {"email": "old@x.test"}
    {"id": "con_nobody", "firstName": "X"}
    {"email": "c@x.test", "tags": TAGS}
    {"email": "c@x.test", "tags": ["one too many"]}
    {"email": "c@x.test", "subscriptions": {"email": "unsubscribed"}}
    {"email": "c@x.test", "subscriptions": {"email": "unsubscribed"}}
    """.replace("TAGS", json.dumps([f"t{i}" for i in range(198)])).encode()


@pytest.mark.parametrize("batch", [1, 2, 3, 500])
async def test_a_dry_run_sees_what_the_batches_before_would_have_made(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    await run(process, acme, sheet("old@x.test", "older@x.test"))
    monkeypatch.setattr(imports, "BATCH", batch)
    *errors, last = await run(process, acme, SEVERAL, JsonLinesFormat(), dry_run=True)
    assert await count(process.database) == 2
    assert last["failed"] == len(errors) == 3
    *found, done = await run(process, acme, SEVERAL, JsonLinesFormat())
    assert done == {**last, "dryRun": False}
    places = [[(one["row"], one["pointer"]) for one in lines] for lines in (errors, found)]
    assert places[0] == places[1]  # the sentences name whom the run has made


OUT = {"subscriptions": {"email": "unsubscribed"}}


@pytest.mark.parametrize("reason", ["bounced", "complained"])
async def test_an_opt_out_of_whose_address_bounced_or_complained_is_taken_once(
    process: Process, acme: str, reason: Reason
) -> None:
    await run(process, acme, sheet(ADA))
    await suppress(process, acme, reason)
    data = sheet(f"{ADA},unsubscribed", header="email,subscriptions.email")
    lasts = [
        (await run(process, acme, data, dry_run=dry_run))[-1]
        for dry_run in (True, False, True, False, False)
    ]
    assert [one["updated"] for one in lasts] == [1, 1, 0, 0, 0]
    assert [one["unchanged"] for one in lasts] == [0, 0, 1, 1, 1]
    hashed = subscriptions.hashed(process.vault, acme, "email", ADA)
    async with process.database.read() as db:
        row = await contacts.by_email(db, workspace_id=acme, email_key=ADA)
        reasons = await suppressions.of_address(db, workspace_id=acme, address_hash=hashed)
    assert row is not None
    assert (row.subscriptions, row.revision) == ({"email": reason}, 3)
    assert set(reasons) == {reason, "unsubscribed"}


OPT_OUTS: list[dict[str, Any]] = [
    {"email": ADA, **OUT},
    {"email": ADA, **OUT},
    {"email": ADA, "firstName": "Ada"},
    {"email": ADA, **OUT},
    {"email": "listed@example.com"},  # made as somebody who is not to be written to
    {"email": "listed@example.com", **OUT},
    {"phone": "+14155550101", "email": "eve@new.example"},
    {"phone": "+14155550101", **OUT},
    {"email": "eve@new.example", **OUT},
    {"phone": "+14155550102", "email": "dan@new.example", **OUT},
    {"phone": "+14155550102", **OUT},
    {"phone": "+14155550103", "email": "listed@new.example"},
    {"phone": "+14155550103", **OUT},
]


@pytest.mark.parametrize("batch", [1, 2, 500])
async def test_a_dry_run_counts_opt_outs_as_the_run_does(
    process: Process, acme: str, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    held = (f"{ADA},", *(f"{n}@old.example,+1415555010{n}" for n in (1, 2, 3)))
    await run(process, acme, sheet(*held, header="email,phone"))
    await suppress(process, acme, "bounced")
    for address in ("listed@example.com", "listed@new.example"):
        await suppress(process, acme, "manual", address)
    for n in (1, 2):
        await suppress(process, acme, "unsubscribed", f"{n}@old.example")
        await suppress(process, acme, "bounced", f"{n}@old.example")
    monkeypatch.setattr(imports, "BATCH", batch)
    data = b"".join(json.dumps(one).encode() + b"\n" for one in OPT_OUTS)
    *_, foreseen = await run(process, acme, data, JsonLinesFormat(), dry_run=True)
    *_, done = await run(process, acme, data, JsonLinesFormat())
    assert done == {**foreseen, "dryRun": False}
    *_, again = await run(process, acme, data, JsonLinesFormat())
    assert again["updated"] == 0
    async with process.database.read() as db:
        rows = [
            await contacts.by_email(db, workspace_id=acme, email_key=f"{name}@new.example")
            for name in ("eve", "dan", "listed")
        ]
    assert [row and row.subscriptions["email"] for row in rows] == ["unsubscribed"] * 3


async def test_a_new_address_from_a_file_does_not_undo_an_opt_out(
    process: Process, acme: str
) -> None:
    """The old one has bounced since, which is all that the contact shows."""
    await run(process, acme, sheet(f"{ADA},+14155550101", header="email,phone"))
    for reason in ("unsubscribed", "bounced"):
        await suppress(process, acme, reason)
    await run(process, acme, sheet("+14155550101,new@example.com", header="phone,email"))
    async with process.database.read() as db:
        row = await contacts.by_email(db, workspace_id=acme, email_key="new@example.com")
    assert row is not None
    assert row.subscriptions == {"email": "unsubscribed"}


async def test_a_dry_run_counts_who_comes_again_much_later_once(
    process: Process, acme: str, batch: int
) -> None:
    data = people(PEOPLE) + people(PEOPLE)[6:] + b"p0@x.test\n"
    *_, last = await run(process, acme, data, dry_run=True)
    assert last == {**totals(created=PEOPLE, unchanged=PEOPLE + 1), "dryRun": True}


async def test_every_column_lands_where_it_belongs(process: Process, acme: str) -> None:
    header = (
        "email,phone,firstName,lastName,timezone,locale,tags,metadata.plan,metadata.n,createdAt"
    )
    data = sheet(
        'a@x.test,\'+14155550100,Ada,"Love, lace",Europe/London,en,vip; lead;;vip,pro,3,2020',
        "b@x.test",
        header=header,
    )
    assert await run(process, acme, data) == [totals(created=2)]
    async with process.database.read() as db:
        row = await contacts.by_email(db, workspace_id=acme, email_key="a@x.test")
        assert row is not None
        tags = await contacts.tags_of(db, workspace_id=acme, contact_ids=[row.id])
    assert (row.phone, row.first_name, row.last_name) == (
        "+14155550100",
        "Ada",
        "Love, lace",
    )
    assert (row.timezone, row.locale) == ("Europe/London", "en")
    assert (row.metadata, tags[row.id]) == ({"plan": "pro", "n": "3"}, ["lead", "vip"])
    assert row.created_at.year > 2020


async def test_a_national_number_is_read_with_the_workspace_s_country(
    process: Process, acme: str
) -> None:
    data = sheet("(415) 555-0100", header="phone")
    assert (await run(process, acme, data))[-1] == totals(failed=1)
    async with process.database.write() as db:
        await db.execute("UPDATE workspaces SET country = 'US'")
    assert await run(process, acme, data) == [totals(created=1)]


async def test_what_is_wrong_with_a_row_is_told_by_its_number(process: Process, acme: str) -> None:
    rows = (
        "a@x.test,",
        "nobody,Mars/Olympus",
        '"b"x,',
        ",",
        "c@x.test,,,",
        "d@x.test,,more",
        "\xff",
    )
    lines = await run(
        process, acme, sheet(*rows, header="email,timezone").replace(b"\xc3\xbf", b"\xff")
    )
    listed = [(one["row"], one["pointer"]) for one in lines[:-1]]
    assert listed == [(3, "/email"), (3, "/timezone"), (4, ""), (5, ""), (7, ""), (8, "")]
    assert all(one["type"] == "error" and one["message"] for one in lines[:-1])
    assert lines[-1] == totals(created=2, failed=5)


BAD_IDS = (
    ["\0", "con_\ud800", "con_\n", "x" * 201, 5, ["con_1"]],
    JsonLinesFormat,
    lambda ids: b"".join(
        json.dumps({"email": f"a{n}@x.test", "id": id}).encode() + b"\n" for n, id in enumerate(ids)
    ),
)
BAD_CELLS = (
    ["\0", "con_\x07", "x" * 201],
    CsvFormat,
    lambda ids: sheet(*(f"a{n}@x.test,{id}" for n, id in enumerate(ids)), header="email,id"),
)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(("ids", "format", "written"), [BAD_IDS, BAD_CELLS])
async def test_an_id_that_nobody_can_have_fails_its_row_alone(
    process: Process,
    acme: str,
    ids: list[Any],
    format: Callable[[], Format],
    written: Callable[[list[Any]], bytes],
    dry_run: bool,
) -> None:
    data = written([*ids, "con_nobody"])
    *errors, last = await run(process, acme, data, format(), dry_run=dry_run)
    assert [error["pointer"] for error in errors] == ["/id"] * len(ids)
    assert last == {**totals(created=1, failed=len(ids)), "dryRun": dry_run}


async def test_a_quotation_mark_in_a_tag_fails_no_row(process: Process, acme: str) -> None:
    data = sheet('a@x.test,"""vip;lead"', 'b@x.test,"""a;b"";c"', header="email,tags")
    assert await run(process, acme, data) == [totals(created=2)]


async def test_so_many_errors_are_listed_and_all_are_counted(process: Process, acme: str) -> None:
    lines = await run(process, acme, sheet(*["nobody"] * 3_000))
    assert len(lines) == imports.ERRORS + 1
    assert lines[-1] == totals(failed=3_000)


HEADERS: list[tuple[bytes, list[str]]] = [
    (b"", [""]),
    (b"\n\n", [""]),
    (b"firstName,tags\nA,b\n", [""]),
    (b"email,emial,plan\n", ["/emial", "/plan"]),
    (b"email,email\n", ["/email"]),
    (b"email,metadata,metadata.\n", ["/metadata", "/metadata."]),
    (b"emial;plan\n", ["/emial", "/plan"]),
    (b"email|firstName\n", ["/email|firstName"]),
    (b"E-Mail,email\n", ["/email"]),
    (b"email,\n", ["/"]),
]


@each_row(("data", "pointers"), HEADERS)
async def test_a_wrong_header_is_refused_with_all_that_is_wrong(
    process: Process, acme: str, data: bytes, pointers: list[str]
) -> None:
    with pytest.raises(Problem) as raised:
        await run(process, acme, data)
    assert raised.value.code == "invalid"
    assert [error.pointer for error in raised.value.errors] == pointers


async def test_a_refused_column_lists_those_that_exist(process: Process, acme: str) -> None:
    with pytest.raises(Problem) as raised:
        await run(process, acme, b"email,Plan\n")
    [error] = raised.value.errors
    for column in ("email", "firstName", "tags", "subscriptions.sms", "metadata.<name>"):
        assert column in error.message
    for way_out in ("?columns[", "?unknown=skip", "?unknown=metadata"):
        assert way_out in error.message


OTHER_TOOLS = "\n".join(
    ['E-Mail Address;First Name;Plan;Notes;;"last;name"', "a@x.test;Ada;pro;hm;;Lovelace", ""]
)
MAPPING = {"E-Mail Address": "email", "Notes": "", "last;name": "lastName"}


@pytest.mark.parametrize(("unknown", "metadata"), [("skip", {}), ("metadata", {"Plan": "pro"})])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [";", ",", "\t"])
async def test_a_file_of_another_tool_is_read_by_a_mapping(
    process: Process,
    acme: str,
    unknown: imports.Unknown,
    metadata: dict[str, str],
    encoding: str,
    delimiter: str,
) -> None:
    data = OTHER_TOOLS.replace(";", delimiter).encode(encoding)
    mapping = {name.replace(";", delimiter): column for name, column in MAPPING.items()}
    format = CsvFormat(Columns(mapping, unknown))
    assert await run(process, acme, data, format) == [totals(created=1)]
    async with process.database.read() as db:
        row = await contacts.by_email(db, workspace_id=acme, email_key="a@x.test")
    assert row is not None
    assert (row.first_name, row.last_name) == ("Ada", "Lovelace")
    assert row.metadata == metadata


WRONG_MAPPINGS: list[tuple[dict[str, str], list[str]]] = [
    ({"Address": "email"}, ["?columns[Address]"]),
    ({"email": "e-mail"}, ["?columns[email]"]),
    ({"email": "phone", "phone": "phone"}, ["?columns[phone]"]),
    ({"email": ""}, [""]),
]


@each_row(("mapping", "pointers"), WRONG_MAPPINGS)
async def test_a_wrong_mapping_is_refused(
    process: Process, acme: str, mapping: dict[str, str], pointers: list[str]
) -> None:
    header = b"email,phone\n" if "phone" in mapping else b"email,firstName\n"
    with pytest.raises(Problem) as raised:
        await run(process, acme, header, CsvFormat(Columns(mapping)))
    assert [error.pointer for error in raised.value.errors] == pointers


async def test_a_file_whose_rows_fail_is_given_up_and_says_so(process: Process, acme: str) -> None:
    """One that opens a quotation in its second line, and goes on for ever."""
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        yield b'email\n"a@x.test\n'
        while read < 10_000_000:
            yield b'b@x.test",",\n' * 500
            read += 6_500

    *errors, last = await run(process, acme, endless())
    assert len(errors) == imports.ERRORS
    assert (last["type"], last["code"], last["detail"]) == (
        "problem",
        "invalid",
        imports.NO_CONTACTS,
    )
    assert last["failed"] >= imports.FAILED
    assert read < 1_000_000


async def test_a_file_of_blank_lines_ends_early(process: Process, acme: str) -> None:
    lines = await run(process, acme, pieces(b"email\n" + b"\n" * 4_000_000, 4_000_006))
    assert (lines[-1]["type"], lines[-1]["code"]) == ("problem", "invalid")
    assert imports.FAILED <= lines[-1]["failed"] < imports.FAILED + imports.PART_BYTES


async def test_a_header_of_very_many_columns_is_refused_at_once(
    process: Process, acme: str
) -> None:
    """Every other request to this process waits meanwhile."""
    began = time.thread_time()
    with pytest.raises(Problem) as raised:
        await run(process, acme, b"," * (sheets.ROW_BYTES - 1))
    assert time.thread_time() - began < 1
    assert [error.pointer for error in raised.value.errors] == [""]


async def test_a_header_has_at_most_so_many_columns(process: Process, acme: str) -> None:
    columns = ["email", *(f"metadata.n{i}" for i in range(sheets.COLUMNS - 1))]
    assert await run(process, acme, sheet("a@x.test", header=",".join(columns))) == [
        totals(created=1)
    ]
    with pytest.raises(Problem) as raised:
        await run(process, acme, sheet("a@x.test", header=",".join([*columns, "phone"])))
    assert [error.message for error in raised.value.errors] == ["At most 1000 columns."]


async def test_rows_that_take_long_to_check_leave_turns_to_others(
    process: Process, acme: str
) -> None:
    """However few they are: each is as long as a row may be."""
    turns = while_checked = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def file() -> AsyncIterator[bytes]:
        nonlocal while_checked
        yield b"email\n"
        before = turns
        yield b"".join([b"x," * (sheets.ROW_BYTES // 2 - 1) + b"\n"] * 9)
        while_checked = turns - before

    task = asyncio.create_task(others())
    *_, last = await run(process, acme, file())
    task.cancel()
    assert last == totals(failed=9)
    assert while_checked >= 8


UNREADABLE: list[bytes] = [
    "email,first\ud800Name\na@x.test,A\n".encode("utf-16-le", "surrogatepass"),
    "email,firstName\na@x.test,A\n".encode("utf-32-le"),
    "email,metadata.größe\na@x.test,1\nb@x.test,2\n".encode("latin-1"),
    b"email,firstName\ra@x.test,A\r",
    b"email,firstName\r" + b"a@x.test,A\r" * 30_000,
    b'email,"firstName\na@x.test,A\n',
    b'email,"first"Name\na@x.test,A\n',
]


@each_row("data", UNREADABLE)
async def test_a_header_that_cannot_be_read_is_not_looked_for_further_down(
    process: Process, acme: str, data: bytes
) -> None:
    with pytest.raises(Problem) as raised:
        await run(process, acme, data)
    assert (raised.value.code, raised.value.detail) == ("invalid", imports.UNREADABLE)
    assert "UTF-8" in imports.UNREADABLE
    [error] = raised.value.errors
    assert error.message
    assert await count(process.database) == 0


async def test_what_cuts_it_short_before_a_line_is_raised_and_after_one_is_the_last_line(
    process: Process, acme: str
) -> None:
    problem = Problem("request_timeout", "Send more.")
    data = b"email\n" + people(600)[6:] + b"nobody\n" * 2
    with pytest.raises(Problem) as raised:
        await run(process, acme, pieces(data, fails=problem))
    assert raised.value is problem
    assert await count(process.database) == 500  # a batch is kept
    *found, last = await run(process, acme, pieces(data, fails=problem), progress_seconds=0)
    assert {line["type"] for line in found} == {"progress", "error"}
    assert last == {
        **totals(unchanged=500, failed=2),
        "type": "problem",
        "code": "request_timeout",
        "detail": "Send more.",
    }


@pytest.mark.parametrize("dry_run", [True, False])
async def test_each_batch_asks_whether_it_may(
    process: Process, acme: str, batch: int, dry_run: bool
) -> None:
    asked = 0

    async def twice() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise Problem("unauthenticated", "Not any more.")

    *_, last = await run(
        process, acme, people(PEOPLE), dry_run=dry_run, recheck=twice, progress_seconds=0
    )
    assert asked == 3
    assert last == {
        **totals(created=2 * batch),
        "type": "problem",
        "dryRun": dry_run,
        "code": "unauthenticated",
        "detail": "Not any more.",
    }
    assert await count(process.database) == (0 if dry_run else 2 * batch)


async def test_what_is_told_early_fits_into_the_buffers_on_the_way(
    process: Process, acme: str
) -> None:
    """A client that sends all before it reads must not be waited for."""
    lines = imports.run(
        process,
        acme,
        CsvFormat(),
        pieces(people(3_000), size=16),
        dry_run=True,
        recheck=allowed,
        progress_seconds=0,
    )
    early = b"".join([line async for line in lines if b'"progress"' in line])
    assert imports.EARLY_BYTES < len(early) < imports.EARLY_BYTES + 200


async def test_a_batch_that_meets_a_lock_is_tried_again(
    process: Process,
    acme: str,
    connect: Callable[..., Awaitable[Database]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite's writer waits in turn")
    await run(process, acme, sheet("a@x.test,A", header="email,firstName"))
    hasty = await connect(deadlines=Deadlines(lock_ms=50))
    data = sheet("a@x.test,B", header="email,firstName")
    write, begun, twice = hasty.write, itertools.count(1), asyncio.Event()

    def counted() -> AbstractAsyncContextManager[Handle]:
        if next(begun) == 2:
            twice.set()
        return write()

    monkeypatch.setattr(hasty, "write", counted)
    async with process.database.write() as db:
        locked = "SELECT id FROM contacts WHERE workspace_id = :workspace_id FOR UPDATE"
        await db.execute(locked, workspace_id=acme)
        running = asyncio.create_task(run(replace(process, database=hasty), acme, data))
        await twice.wait()
    assert await running == [totals(updated=1)]


async def test_an_exchange_of_addresses_within_a_batch_is_made_one_by_one(
    process: Process, acme: str
) -> None:
    header = "email,phone"
    await run(process, acme, sheet("a@x.test,+14155550100", "b@x.test,+14155550101", header=header))
    exchange = ("a@x.test,+14155550102", "b@x.test,+14155550100", "a@x.test,+14155550101")
    assert await run(process, acme, sheet(*exchange, header=header)) == [totals(updated=3)]


async def test_a_database_that_is_away_is_told_as_that(
    process: Process,
    acme: str,
    connect: Callable[..., Awaitable[Database]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(imports, "PAUSES", (0.01, 0.01))
    busy = await connect(pool_size=1, deadlines=Deadlines(acquire_ms=100, writer_ms=100))
    lines = imports.run(
        replace(process, database=busy),
        acme,
        CsvFormat(),
        pieces(people(1)),
        dry_run=False,
        recheck=allowed,
    )

    async def first() -> bytes:
        return await anext(lines)

    async with busy.write():  # the only connection, or SQLite's writer
        with pytest.raises(Unavailable):
            await asyncio.create_task(first())


async def test_whoever_stops_reading_stops_it(process: Process, acme: str) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b"email\n"
        while True:
            sent += 1
            yield b"p%d@x.test\n" % sent

    lines = imports.run(
        process,
        acme,
        CsvFormat(),
        endless(),
        dry_run=False,
        recheck=allowed,
        progress_seconds=0,
    )
    await anext(lines)
    await lines.aclose()
    stopped_at = sent
    await asyncio.sleep(0)
    assert sent == stopped_at
