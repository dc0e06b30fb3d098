"""POST /contacts/import and GET /contacts/export, straight in and over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import httpx2
import pytest

from app.audience import upserts
from app.database.db import Handle
from app.files import exports
from app.identity import access_tokens, identity
from app.main import web
from app.process import Process
from app.routes import audit_logs as trail
from app.store import audit_logs, consent_events, searches
from app.store.suppressions import Reason
from app.web import call
from tests.cast import PASSWORD, Cast, Person, suppress
from tests.files.test_imports import allowed
from tests.tables import each_row
from tests.web import wire
from tests.web.wire import Connection, Served, head

IMPORT, EXPORT = "/contacts/import", "/contacts/export"
CSV, LINES = "text/csv", "application/x-ndjson"
SUBSCRIBED = dict.fromkeys(("email", "sms", "whatsapp"), "subscribed")
SHEET = b"email,firstName,tags,metadata.plan\nada@x.test,Ada,vip;lead,pro\nbob@x.test,Bob,,\n"


async def imported(
    person: Person, body: bytes, media_type: str = CSV, query: str = ""
) -> list[dict[str, Any]]:
    response = await sent(person, body, media_type, query)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == LINES
    return [json.loads(line) for line in response.text.splitlines()]


async def sent(
    person: Person, body: bytes, media_type: str = CSV, query: str = ""
) -> httpx2.Response:
    headers = {"Content-Type": media_type}
    return await person.call("POST", IMPORT + query, content=body, headers=headers)


def totals(
    created: int = 0, updated: int = 0, unchanged: int = 0, failed: int = 0, **rest: Any
) -> dict[str, Any]:
    counts = {"created": created, "updated": updated, "unchanged": unchanged, "failed": failed}
    return {"type": "totals", **counts, "dryRun": False, **rest}


# --- in -------------------------------------------------------------------------------------------


async def test_a_sheet_becomes_contacts(cast: Cast) -> None:
    assert await imported(cast.ed, SHEET, query="?dryRun=true") == [totals(created=2, dryRun=True)]
    assert (await cast.vic.read("/contacts"))["data"] == []
    assert await imported(cast.ed, SHEET) == [totals(created=2)]
    [ada] = (await cast.vic.read("/contacts?email=ada@x.test"))["data"]
    assert (ada["firstName"], ada["tags"], ada["metadata"]) == (
        "Ada",
        ["lead", "vip"],
        {"plan": "pro"},
    )
    assert await imported(cast.ed, SHEET) == [totals(unchanged=2)]
    assert (await cast.mallory.read("/contacts"))["data"] == []


NASTY_NAMES = ["x", "x ", " x", "a;b", "a,b", '"q"', "'q", "=1+1", "a.b", "ä", "1"]
NASTY_TAGS = ["a;b", ";", '"', 'say "hi"', '"a;b"', "'=1", "=1", "a,b", "-", "+1", "@x", "ä ö", "'"]


@pytest.mark.parametrize("format", [CSV, LINES])
async def test_what_goes_out_comes_back(cast: Cast, format: str) -> None:
    values = ["v", "=1", "'=1", "a;b", '"', "a\nb", "a\r\nb", " v "]
    people = [
        {"email": "all@x.test", "tags": NASTY_TAGS, "metadata": dict.fromkeys(NASTY_NAMES, "v")},
        {"email": "each@x.test", "metadata": {f"v{n}": one for n, one in enumerate(values)}},
        *({"email": f"t{n}@x.test", "tags": [tag]} for n, tag in enumerate(NASTY_TAGS)),
        {"metadata": {"only": "here"}},
    ]
    for one in people:
        await cast.ed.made("/contacts", one)
    file = (await cast.vic.get(f"{EXPORT}?format={'csv' if format == CSV else 'ndjson'}")).content
    assert await imported(cast.ed, file, format) == [totals(unchanged=len(people))]
    *errors, last = await imported(cast.mallory, file, format)
    assert [one["pointer"] for one in errors] == ["/id"]  # without an address it stays here
    assert last == totals(created=len(people) - 1, failed=1)
    theirs, ours = [(await one.read("/contacts"))["data"] for one in (cast.mallory, cast.vic)]
    own = {"id", "createdAt", "updatedAt"}
    assert sorted(
        ({k: v for k, v in one.items() if k not in own} for one in theirs),
        key=lambda one: one["email"],
    ) == sorted(
        ({k: v for k, v in one.items() if k not in own} for one in ours if one["email"]),
        key=lambda one: one["email"],
    )


async def test_another_workspace_s_id_finds_nothing(cast: Cast) -> None:
    [ada] = [await cast.ed.made("/contacts", {"email": "ada@x.test"})]
    line = json.dumps({"id": ada["id"], "firstName": "Eve"}).encode()
    error, last = await imported(cast.mallory, line, LINES)
    assert (error["row"], error["pointer"], last) == (1, "/id", totals(failed=1))
    assert await cast.ed.read(f"/contacts/{ada['id']}") == ada


async def test_lines_of_json_say_which_field_is_wrong(cast: Cast) -> None:
    body = b'{"email":"ada@x.test","tags":["a"]}\n{"email":5,"plan":"pro"}\n{"metadata":{"a":[]}}\n'
    *errors, last = await imported(cast.ed, body, "application/x-ndjson; charset=utf-8")
    assert [(one["row"], one["pointer"]) for one in errors] == [
        (2, "/plan"),
        (2, "/email"),
        (3, "/metadata/a"),
    ]
    assert last == totals(created=1, failed=2)


REFUSED: list[tuple[bytes, str, str, int, str]] = [
    (SHEET, "application/json", "", 415, "unsupported_media_type"),
    (SHEET, "text/csv; charset=latin-1", "", 415, "unsupported_media_type"),
    (SHEET, "multipart/form-data", "", 400, "malformed_request"),
    (SHEET, "multipart/form-data; boundary=x", "", 400, "malformed_request"),
    (SHEET, f"multipart/form-data; boundary={'x' * 300}", "", 400, "malformed_request"),
    (SHEET, CSV, "?unknown=drop", 422, "invalid"),
    (SHEET, CSV, "?columns[email]=mail", 422, "invalid"),
    (SHEET, CSV, "?dryRun=maybe", 422, "invalid"),
    (SHEET, CSV, "?dry=true", 422, "invalid"),
    (b"", CSV, "", 422, "invalid"),
    (b"name\nAda\n", CSV, "", 422, "invalid"),
]


@each_row(("body", "media_type", "query", "status", "code"), REFUSED)
async def test_what_is_no_file_of_contacts_is_refused(
    cast: Cast, body: bytes, media_type: str, query: str, status: int, code: str
) -> None:
    response = await sent(cast.ed, body, media_type, query)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert (await cast.vic.read("/contacts"))["data"] == []


def form(*parts: tuple[str, bytes], end: bytes = b"--x--\r\n") -> bytes:
    return (
        b"".join(
            b"--x\r\nContent-Disposition: form-data; name=file%b\r\n\r\n%b\r\n"
            % (rest.encode(), data)
            for rest, data in parts
        )
        + end
    )


FORM = "multipart/form-data; boundary=x"
FILES: list[tuple[str, bytes]] = [
    ("; filename=contacts.csv", SHEET),
    ('; filename="my contacts.CSV"\r\nContent-Type: application/vnd.ms-excel', SHEET),
    ("; filename=contacts\r\nContent-Type: text/csv", SHEET),
    ("; filename=c.jsonl", b'{"email":"ada@x.test"}\n{"email":"bob@x.test"}\n'),
]


@pytest.mark.parametrize(("rest", "data"), FILES)
async def test_the_file_of_a_form_is_read(cast: Cast, rest: str, data: bytes) -> None:
    assert await imported(cast.ed, form((rest, data)), FORM) == [totals(created=2)]


FORMS: list[tuple[bytes, int, str]] = [
    (form(("; filename=c.xlsx", SHEET)), 422, "invalid"),
    (form(("", SHEET)), 422, "invalid"),
    (form(("; filename=a.csv", SHEET), ("; filename=b.csv", SHEET)), 422, "invalid"),
    (form(("; filename=a.csv", SHEET), end=b""), 400, "malformed_request"),
    (form(("; filename=a.csv\r\n" + "X: y\r\n" * 99, SHEET)), 400, "malformed_request"),
    (form(("; filename=" + "a" * 100_000, SHEET)), 400, "malformed_request"),
    (b"--x--\r\n", 422, "invalid"),
    (b"no form", 400, "malformed_request"),
]


@pytest.mark.parametrize(("body", "status", "code"), FORMS)
async def test_a_form_without_one_file_is_refused(
    cast: Cast, body: bytes, status: int, code: str
) -> None:
    response = await sent(cast.ed, body, FORM)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert (await cast.vic.read("/contacts"))["data"] == []


async def test_columns_of_another_tool_are_mapped_by_the_query(cast: Cast) -> None:
    sheet = b"Mail;Full Name;Plan\nada@x.test;Ada;pro\n"
    query = "?columns[Mail]=email&columns[Full%20Name]=firstName&unknown=metadata"
    assert await imported(cast.ed, sheet, query=query) == [totals(created=1)]
    [ada] = (await cast.vic.read("/contacts?email=ada@x.test"))["data"]
    assert (ada["firstName"], ada["metadata"]) == ("Ada", {"Plan": "pro"})


async def test_a_viewer_may_export_and_not_import(cast: Cast) -> None:
    assert (await sent(cast.vic, SHEET)).status_code == 403
    assert (await cast.vic.get(EXPORT)).status_code == 200


# --- over a socket --------------------------------------------------------------------------------


@pytest.fixture
async def served(process: Process) -> AsyncIterator[Served]:
    async with wire.serving(web(process)) as served:
        yield served


async def begun(connection: Connection, person: Person, *headers: str) -> None:
    bearer = f"Authorization: Bearer {person.key}"
    await connection.send(head("POST", IMPORT, bearer, f"Content-Type: {CSV}", *headers))


async def chunk(connection: Connection, data: bytes) -> None:
    await connection.send(b"%x\r\n%b\r\n" % (len(data), data))


async def test_a_file_may_be_larger_than_other_bodies(
    cast: Cast, served: Served, process: Process
) -> None:
    rows = process.settings.max_body_bytes // 4_096 + 50

    async def file() -> AsyncIterator[bytes]:
        yield b"email,createdAt\n"  # which is read, and counts nothing
        for i in range(rows):
            yield b"p%d@x.test,%s\n" % (i, b"x" * 4_096)

    async with served.client() as client:
        response = await client.post(
            IMPORT,
            content=file(),
            headers={"Authorization": f"Bearer {cast.ed.key}", "Content-Type": CSV},
            timeout=60,
        )
    assert response.status_code == 200
    assert json.loads(response.text.splitlines()[-1]) == totals(created=rows)


@pytest.mark.parametrize("media_type", ["csv", "ndjson"])
@pytest.mark.parametrize("reason", ["complained", "bounced"])
async def test_who_complained_here_is_not_subscribed_where_the_file_is_brought(
    cast: Cast, process: Process, media_type: str, reason: Reason
) -> None:
    """Nor is an address that is dead written to there."""
    ada = {"email": "ada@x.test", "phone": "+14155550132"}
    await cast.ed.made("/contacts", ada)
    await suppress(process, cast.ed.workspace_id, reason, ada["email"])
    file = (await cast.vic.get(f"/contacts/export?format={media_type}")).content
    type = {"csv": CSV, "ndjson": LINES}[media_type]
    for person, outcomes in (
        (cast.ed, [totals(unchanged=1)] * 2),
        (cast.mallory, [totals(created=1), totals(unchanged=1)]),
    ):
        for outcome in outcomes:
            assert (await imported(person, file, type))[-1] == outcome
        [shown] = (await person.read("/contacts"))["data"]
        assert shown["subscriptions"] == {**SUBSCRIBED, "email": reason}
    [there] = (await cast.mallory.read(f"/contacts/{shown['id']}"))["suppressions"]
    assert there["reason"] == reason
    activity = (await cast.mallory.read(f"/contacts/{shown['id']}/activity"))["data"]
    [left] = [one["consent"] for one in activity if one["type"] == "consent"]
    assert (left["change"], left["reason"], left["source"]) == ("opted_out", reason, "import")


async def test_what_a_file_says_of_an_address_is_graver_than_what_its_contact_chose(
    cast: Cast,
) -> None:
    left = {"subscriptions": {"email": "unsubscribed"}}
    for name in ("ada", "bob", "eve"):
        await cast.ed.made(
            "/contacts", {"email": f"{name}@x.test", **(left if name == "eve" else {})}
        )
    rows = (("ada", "bounced"), ("ada", "complained"), ("ada", "bounced"), ("eve", "complained"))
    sheet = "\n".join(
        ["email,subscriptions.email", *(f"{name}@x.test,{status}" for name, status in rows)]
    )
    assert await imported(cast.ed, sheet.encode(), query="?dryRun=true") == [
        totals(updated=3, unchanged=1, dryRun=True)
    ]
    assert await imported(cast.ed, sheet.encode()) == [totals(updated=3, unchanged=1)]
    assert await imported(cast.ed, sheet.encode()) == [totals(unchanged=4)]
    people = (await cast.vic.read("/contacts"))["data"]
    assert {one["email"][:3]: one["subscriptions"]["email"] for one in people} == {
        "ada": "complained",
        "bob": "subscribed",
        "eve": "complained",
    }


async def test_who_left_and_moved_is_out_at_the_new_address_also_when_that_has_bounced(
    cast: Cast,
) -> None:
    ada = {"email": "ada@x.test", "phone": "+14155550132"}
    left = {"subscriptions": {"email": "unsubscribed"}}
    id = (await cast.ed.made("/contacts", {**ada, **left}))["id"]
    moved = {"phone": ada["phone"], "email": "lovelace@x.test"}
    row = json.dumps({**moved, "subscriptions": {"email": "bounced"}}).encode()
    for dry, outcome in (("?dryRun=true", {"updated": 1, "dryRun": True}), ("", {"updated": 1})):
        assert await imported(cast.ed, row, LINES, dry) == [totals(**outcome)]
    assert await imported(cast.ed, row, LINES) == [totals(unchanged=1)]
    shown = await cast.vic.read(f"/contacts/{id}")
    assert shown["subscriptions"]["email"] == "bounced"
    held = {one["reason"]: one["id"] for one in shown["suppressions"]}
    assert held.keys() == {"bounced", "unsubscribed"}
    await cast.adam.delete(f"/suppressions/{held['bounced']}")
    shown = await cast.vic.read(f"/contacts/{id}")
    assert shown["subscriptions"]["email"] == "unsubscribed"


async def test_a_file_over_the_cap_is_refused_unread(cast: Cast, served: Served) -> None:
    async with served.connection() as connection:
        await begun(connection, cast.ed, f"Content-Length: {2**31}", "Expect: 100-continue")
        assert (await connection.answer()).status == 413


async def stored(process: Process) -> int:
    async with process.database.read() as db:
        return int(await db.fetch_value("SELECT count(*) FROM contacts"))


async def test_a_client_that_goes_away_stops_it(
    cast: Cast, served: Served, process: Process
) -> None:
    async with served.connection() as connection:
        await begun(connection, cast.ed, "Transfer-Encoding: chunked")
        await chunk(connection, b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(600)))
        while not await stored(process):
            await asyncio.sleep(0.01)
    # The batch that was whole is there; and whoever is next is served.
    assert await stored(process) == 500
    assert await imported(cast.ed, SHEET) == [totals(created=2)]


LOST: dict[str, tuple[str, str]] = {
    "key revoked": ("UPDATE api_keys SET revoked_at = :now", "unauthenticated"),
    "key expired": ("UPDATE api_keys SET expires_at = :now", "unauthenticated"),
    "member removed": ("DELETE FROM memberships", "unauthenticated"),
    "workspace suspended": ("UPDATE workspaces SET suspended = TRUE", "workspace_suspended"),
    "workspace deleted": ("UPDATE workspaces SET deleted_at = :now", "unauthenticated"),
}
LOWERED = ("UPDATE memberships SET role = 'viewer'", "forbidden")


async def execute(process: Process, sql: str) -> None:
    async with process.database.write() as db:
        await db.execute(sql)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up each time who may go on."""
    monkeypatch.setattr(call, "RECHECK_SECONDS", 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", [*LOST, "role lowered"])
@pytest.mark.parametrize("query", ["", "?dryRun=true"])
async def test_an_import_ends_with_the_right_to_it(
    cast: Cast,
    served: Served,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    query: str,
) -> None:
    sql, code = {**LOST, "role lowered": LOWERED}[what]
    header = {"Authorization": f"Bearer {cast.ed.key}", "Content-Type": CSV}
    upsert, has_begun = upserts.upsert, asyncio.Event()

    async def beginning(*given: Any, **options: Any) -> list[upserts.Outcome]:
        has_begun.set()
        return await upsert(*given, **options)

    monkeypatch.setattr(upserts, "upsert", beginning)

    async def file() -> AsyncIterator[bytes]:
        yield b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(500))
        await has_begun.wait()
        while not query and not await stored(process):
            await asyncio.sleep(0.01)
        await execute(process, sql)
        yield b"".join(b"q%d@x.test\n" % i for i in range(500))

    async with served.client() as client:
        response = await client.post(IMPORT + query, content=file(), headers=header)
    answer = json.loads(response.text.splitlines()[-1])
    assert answer["code"] == code
    assert "totals" not in response.text
    assert await stored(process) == (0 if query else 500)


async def test_who_may_is_looked_up_once_in_a_while(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, authenticate = 0, identity.authenticate

    async def counting(*given: Any, **options: Any) -> identity.Member:
        nonlocal looked
        looked += 1
        return await authenticate(*given, **options)

    monkeypatch.setattr(call, "RECHECK_SECONDS", 60)
    monkeypatch.setattr(identity, "authenticate", counting)
    rows = b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(2_000))
    await imported(cast.ed, rows)
    assert looked == 1


@pytest.mark.usefixtures("impatient")
async def test_an_import_goes_on_when_its_access_token_has_expired(
    cast: Cast, served: Served, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"email": cast.ed.email, "password": PASSWORD}
    token = (await cast.client.post("/auth/token", json=given)).json()["accessToken"]
    read = access_tokens.read

    def expired(process: Process, token: str) -> access_tokens.Claims | None:
        claims = read(process, token)
        return claims and claims.model_copy(update={"exp": claims.iat - 1})

    async def file() -> AsyncIterator[bytes]:
        yield b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(500))
        while not await stored(process):
            await asyncio.sleep(0.01)
        monkeypatch.setattr(access_tokens, "read", expired)
        yield b"".join(b"q%d@x.test\n" % i for i in range(500))

    header = {"Authorization": f"Bearer {token}", "Content-Type": CSV}
    async with served.client() as client:
        response = await client.post(IMPORT, content=file(), headers=header)
    assert json.loads(response.text.splitlines()[-1]) == totals(created=1_000)


# --- out ------------------------------------------------------------------------------------------


async def test_an_export_is_a_sheet_without_formulas_that_may_come_back(cast: Cast) -> None:
    ada = {
        "email": "ada@x.test",
        "phone": "+14155550100",
        "firstName": '=HYPERLINK("http://evil")',
        "lastName": "'=x",
        "timezone": "Europe/London",
        "locale": "en",
        "metadata": {"plan": "@SUM(1)", "n": -1.5, "yes": True},
        "tags": ["lead", "vip"],
    }
    made = await cast.ed.made("/contacts", ada)
    await cast.ed.made("/contacts", {"metadata": {"note": 'two\r\nlines, and "more"'}})
    response = await cast.vic.get(EXPORT)
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert response.headers["Content-Disposition"] == 'attachment; filename="contacts.csv"'
    header, *rows = response.text.split("\r\n")
    assert header == (
        "id,email,phone,firstName,lastName,timezone,locale,tags,"
        "subscriptions.email,subscriptions.sms,subscriptions.whatsapp,"
        "metadata.n,metadata.note,metadata.plan,metadata.yes,createdAt,updatedAt"
    )
    assert rows[-2] == (
        f'{made["id"]},ada@x.test,\'+14155550100,"\'=HYPERLINK(""http://evil"")",\'\'=x,'
        f"Europe/London,en,lead;vip,{'subscribed,' * 3}'-1.5,,'@SUM(1),true,"
        f"{made['createdAt']},{made['updatedAt']}"
    )
    assert await imported(cast.ed, response.content) == [totals(unchanged=2)]
    assert await cast.ed.read(f"/contacts/{made['id']}") == made
    assert await imported(cast.mallory, response.content) == [
        {
            "type": "error",
            "row": 2,
            "pointer": "/id",
            "message": "There is no such contact; to create one, give an email or a phone.",
        },
        totals(created=1, failed=1),
    ]


async def test_an_export_of_json_lines_has_every_page_and_its_filters(cast: Cast) -> None:
    count = exports.PAGE * 2 + 3
    rows = b"".join(b"p%d@x.test,%s\n" % (i, (b"even", b"odd")[i % 2]) for i in range(count))
    await imported(cast.ed, b"email,tags\n" + rows)
    await imported(cast.mallory, SHEET)
    response = await cast.vic.get(EXPORT + "?format=ndjson")
    assert response.headers["Content-Type"] == LINES
    emails = [json.loads(line)["email"] for line in response.text.splitlines()]
    assert sorted(emails) == sorted(f"p{i}@x.test" for i in range(count))
    odd = await cast.vic.get(EXPORT + "?format=ndjson&tag=odd")
    assert len(odd.text.splitlines()) == count // 2
    narrow = await cast.vic.get(EXPORT + "?format=ndjson&q=p400@")
    assert [json.loads(line)["email"] for line in narrow.text.splitlines()] == ["p400@x.test"]
    *_, last = await imported(cast.ed, response.content, LINES)  # a slow machine tells of progress
    assert last == totals(unchanged=count)


async def test_a_wrong_export_is_refused_before_it_begins(cast: Cast) -> None:
    for query, pointer in (
        ("?format=xlsx", "?format"),
        ("?limit=5", "?limit"),
        ("?email=ada", "?email"),
    ):
        response = await cast.vic.get(EXPORT + query)
        assert response.status_code == 422, query
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


async def test_more_metadata_than_a_table_holds_is_told(cast: Cast) -> None:
    lines = [
        json.dumps({"email": f"p{i}@x.test", "metadata": {f"m{i}.{k}": k for k in range(50)}})
        for i in range(11)
    ]
    await imported(cast.ed, "\n".join(lines).encode(), LINES)
    response = await cast.vic.get(EXPORT)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    assert (await cast.vic.get(EXPORT + "?format=ndjson")).status_code == 200


async def test_the_head_of_an_export_has_no_body(cast: Cast) -> None:
    await imported(cast.ed, SHEET)
    response = await cast.vic.call("HEAD", EXPORT)
    assert (response.status_code, response.content) == (200, b"")
    assert "content-length" not in response.headers
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", LOST)
@pytest.mark.parametrize("path", [EXPORT, f"{EXPORT}?format=ndjson", "/audit-logs/export"])
async def test_an_export_is_cut_with_the_right_to_it(
    cast: Cast,
    served: Served,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    what: str,
) -> None:
    """The client sees that it does not have all."""
    sql, _ = LOST[what]
    for i in range(3):
        await cast.ed.made("/contacts", {"email": f"p{i}@x.test"})
    monkeypatch.setattr(exports, "PAGE", 1)
    monkeypatch.setattr(trail, "PAGE", 1)
    monkeypatch.setattr(searches, "page", ends_after_two(process, sql, searches.page))
    monkeypatch.setattr(audit_logs, "page", ends_after_two(process, sql, audit_logs.page))
    received, is_cut = b"", False
    async with (
        served.client() as client,
        client.stream("GET", path, headers={"Authorization": f"Bearer {cast.olivia.key}"}) as sent,
    ):
        assert sent.status_code == 200
        try:
            async for piece in sent.aiter_bytes():
                received += piece
        except httpx2.RemoteProtocolError:
            is_cut = True
    assert is_cut
    assert received.count(b"\n") == (3 if path == EXPORT else 2)  # a sheet has a header


def ends_after_two(
    process: Process, sql: str, page: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """Pages, after the second of which the right to them is lost."""
    pages = 0

    async def counting(*given: Any, **filters: Any) -> Any:
        nonlocal pages
        pages += 1
        rows = await page(*given, **filters)
        if pages == 2:
            await execute(process, sql)
        return rows

    return counting


async def test_no_connection_is_held_while_a_client_reads_slowly(
    cast: Cast, process: Process
) -> None:
    await imported(cast.ed, b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(1_200)))
    acme = cast.ed.workspace_id
    pieces = exports.as_json_lines(process, acme, {}, allowed)
    readers = [exports.as_csv(process, acme, {}, allowed) for _ in range(12)]
    for reader in readers:  # more than the pool has
        await anext(reader)
        await anext(reader)
    assert len([piece async for piece in pieces]) == 1_200 // exports.CONSENTS
    left = 1_200 // exports.PAGE - 1
    assert [len([piece async for piece in reader]) for reader in readers] == [left] * 12


async def test_a_piece_of_a_wide_table_has_few_rows(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that others get their turn between two, whoever reads and however fast."""
    rows = b"".join(b"p%d@x.test,1\n" % i for i in range(7))
    await imported(cast.ed, b"email,metadata.a\n" + rows)
    whole = (await cast.vic.get(EXPORT)).content
    columns = whole.split(b"\r\n")[0].count(b",") + 1
    monkeypatch.setattr(exports, "CELLS", 3 * columns)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    watching = asyncio.create_task(others())
    seen, pieces = list[int](), list[bytes]()
    async for piece in exports.as_csv(process, cast.ed.workspace_id, {}, allowed):
        seen.append(turns)
        pieces.append(piece)
    watching.cancel()
    assert [piece.count(b"\n") for piece in pieces] == [1, 3, 3, 1]
    assert b"".join(pieces) == whole
    assert seen == sorted(set(seen))  # some turns between any two


async def test_the_consent_of_few_contacts_is_held_at_once(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await imported(cast.ed, b"email\n" + b"".join(b"p%d@x.test\n" % i for i in range(7)))
    asked = []
    read = consent_events.of_contacts

    async def counted(db: Handle, *, workspace_id: str, contact_ids: Sequence[str]) -> Any:
        asked.append(len(contact_ids))
        return await read(db, workspace_id=workspace_id, contact_ids=contact_ids)

    monkeypatch.setattr(consent_events, "of_contacts", counted)
    monkeypatch.setattr(exports, "CONSENTS", 3)
    lines = [one async for one in exports.as_json_lines(process, cast.ed.workspace_id, {}, allowed)]
    assert asked == [3, 3, 1]
    assert [piece.count(b"\n") for piece in lines] == asked
