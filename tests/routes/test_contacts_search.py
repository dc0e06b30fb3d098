"""GET /contacts by how a name begins, by metadata and by time; GET /tags."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.database.db import Handle
from app.store import contacts, searches
from app.store.contacts import Contact
from tests.cast import Cast, Person
from tests.tables import each_row

PEOPLE: list[dict[str, Any]] = [
    {"email": "Ada@x.test", "phone": "+442071838750", "firstName": "Ada", "lastName": "Lovelace"},
    {"email": "grace@navy.test", "firstName": "Grace Brewster", "lastName": "Hopper"},
    {"email": "e@x.test", "firstName": "Évariste", "lastName": "Galois", "tags": ["vip"]},
    {"email": "strasse@x.test", "lastName": "Straße", "tags": ["vip", "a;b"]},
    {"phone": "+14155550100", "metadata": {"plan": "pro", "n": 1, "yes": True}},
    {"phone": "+14155550101", "metadata": {"plan": "pro", "n": 2.5}, "tags": ["vip"]},
    {"email": "a_b@x.test", "metadata": {"plan": "free", "a[b]": "c"}},
]
ADA, GRACE, EVARISTE, STRASSE, PRO_1, PRO_2, FREE = range(len(PEOPLE))


async def people(cast: Cast) -> dict[str, int]:
    """Id → place in PEOPLE."""
    made = [(await cast.ed.made("/contacts", one))["id"] for one in PEOPLE]
    await cast.mallory.made("/contacts", PEOPLE[ADA])
    return {id: place for place, id in enumerate(made)}


async def found(person: Person, known: dict[str, int], query: str) -> list[int]:
    shown = (await person.read(f"/contacts?{query}"))["data"]
    return [known[contact["id"]] for contact in shown]


FOUND: list[tuple[str, list[int]]] = [
    ("q=ada", [ADA]),
    ("q=ADA@X", [ADA]),
    ("q=ada%20love", [ADA]),
    ("q=love", [ADA]),
    ("q=lace", []),  # how it begins, not what is in it
    ("q=grace", [GRACE]),
    ("q=grace%20brew", [GRACE]),
    ("q=%20hopper%20", [GRACE]),
    ("q=ÉVARISTE", [EVARISTE]),
    ("q=STRASSE", [STRASSE]),
    ("q=strass", [STRASSE]),
    ("q=%2B4420", [ADA]),
    ("q=%2B44%2020-71", [ADA]),
    ("q=004420", [ADA]),
    ("q=1415555", [PRO_2, PRO_1]),
    ("q=%2B1%20(415)%20555-0100", [PRO_1]),
    ("q=a_", [FREE]),  # no pattern
    ("q=%25%25", []),
    ("q=vip", []),
    ("q=e@&tag=vip", [EVARISTE]),
    ("q=e@&tag=lead", []),
    ("q=141555501&metadata[n]=1", [PRO_1]),
    ("metadata[plan]=pro", [PRO_2, PRO_1]),
    ("metadata[plan]=pro&metadata[n]=2.5", [PRO_2]),
    ("metadata[n]=1&metadata[yes]=true", [PRO_1]),
    ("metadata[plan]=pro&tag=vip", [PRO_2]),
    ("metadata[plan]=PRO", []),
    ("metadata[plan]=", []),
    ("q=%C3%A9variste", [EVARISTE]),
    ("q=e%CC%81variste", [EVARISTE]),
    ("metadata[none]=1", []),
    ("metadata[a[b]]=c", [FREE]),
    ("metadata%5Ba%5Bb%5D%5D=c&metadata[plan]=free", [FREE]),
    ("metadata[a[b]=c", []),
    ("tag=vip&updatedAfter=2020-01-01T00:00:00Z", [PRO_2, STRASSE, EVARISTE]),
    ("tag=vip&createdBefore=2020-01-01T00:00:00Z", []),
    ("q=e@&createdAfter=2020-01-01T00:00:00Z", [EVARISTE]),
    ("metadata[n]=1&updatedAfter=2999-01-01T00:00:00Z", []),
    ("createdAfter=0001-01-01T00:00:00Z&metadata[n]=1", [PRO_1]),
    ("createdBefore=9999-12-31T00:00:00Z&metadata[n]=1", [PRO_1]),
]


async def test_a_search_finds_what_begins_so_and_a_filter_what_has_it(cast: Cast) -> None:
    known = await people(cast)
    for query, expected in FOUND:
        assert await found(cast.vic, known, query) == expected, query
    assert await found(cast.mallory, known, "q=grace") == []


async def test_a_search_sees_a_name_that_has_changed(cast: Cast) -> None:
    made = await cast.ed.made("/contacts", {"email": "a@x.test", "firstName": "Ada"})
    await cast.ed.patch(f"/contacts/{made['id']}", {"firstName": "Augusta", "lastName": "King"})
    for q, count in (("ada", 0), ("augusta%20k", 1), ("king", 1)):
        assert len((await cast.vic.read(f"/contacts?q={q}"))["data"]) == count, q


WRONG = [
    ("q=a", "?q"),
    ("q=%20a%20", "?q"),
    ("q=" + "x" * 201, "?q"),
    ("metadata=pro", "?metadata"),
    ("&".join(f"metadata[m{i}]=1" for i in range(6)), "?metadata"),
    ("updatedAfter=today", "?updatedAfter"),
    ("metadata[a]=1&metadata[a]=2", "?metadata[a]"),
]


@each_row(("query", "pointer"), WRONG)
async def test_a_search_that_cannot_be_is_refused(cast: Cast, query: str, pointer: str) -> None:
    response = await cast.vic.get(f"/contacts?{query}")
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    "query", ["q=pp", "tag=t", "metadata[m]=1", "updatedAfter=2020-01-01T00:00:00Z"]
)
async def test_pages_of_a_search_follow_each_other_newest_first(cast: Cast, query: str) -> None:
    made = []
    for i in range(5):
        one = {"email": f"pp{i}@x.test", "lastName": f"Pp{i}", "tags": ["t"], "metadata": {"m": 1}}
        made.append((await cast.ed.made("/contacts", one))["id"])
    seen, cursor = [], ""
    while cursor is not None:
        page = await cast.vic.read(f"/contacts?{query}&limit=2{cursor and '&cursor=' + cursor}")
        seen += [contact["id"] for contact in page["data"]]
        cursor = page["nextCursor"]
    assert seen == made[::-1]


async def test_a_cursor_holds_whatever_order_the_metadata_is_asked_in(cast: Cast) -> None:
    for i in range(3):
        await cast.ed.made("/contacts", {"email": f"p{i}@x.test", "metadata": {"a": 1, "b": 2}})
    first = await cast.vic.read("/contacts?metadata[a]=1&metadata[b]=2&limit=2")
    after = f"cursor={first['nextCursor']}"
    rest = await cast.vic.read(f"/contacts?metadata[b]=2&metadata[a]=1&{after}")
    assert (len(first["data"]), len(rest["data"])) == (2, 1)
    other = await cast.vic.get(f"/contacts?metadata[b]=1&metadata[a]=2&{after}")
    assert other.status_code == 422


async def walked(who: Person, query: str, limit: int) -> tuple[list[str], int]:
    """The ids on all pages, and how many pages those were."""
    seen: list[str] = []
    pages, cursor = 0, ""
    while cursor is not None:
        page = await who.read(f"/contacts?{query}&limit={limit}{cursor and '&cursor='}{cursor}")
        assert len(page["data"]) <= limit
        seen += [contact["id"] for contact in page["data"]]
        pages, cursor = pages + 1, page["nextCursor"]
    return seen, pages


async def test_a_list_of_many_changes_is_whole_though_its_pages_end_early(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for i in range(12):
        one = {"email": f"p{i}@x.test", "tags": ["odd" if i % 2 else "even"]}
        made.append(await cast.ed.made("/contacts", {**one, "metadata": {"m": i % 2}}))
    last = await cast.ed.made("/contacts", {"email": "last@x.test"})
    since = parsed(last) + timedelta(milliseconds=1)  # to which a time is shown
    await asyncio.sleep(0.002)
    changed = (8, 7, 6, 4, 2, 1, 0)  # the old ones too
    for i in reversed(changed):
        await cast.ed.patch(f"/contacts/{made[i]['id']}", {"firstName": "New"})
    evens, odds = ([i for i in changed if i % 2 == rest] for rest in (0, 1))
    for few, walk, some in ((2, 3, 4), (2, 1, 4), (2, 3, 8), (8, 3, 9)):
        monkeypatch.setattr(searches, "FEW", few)
        monkeypatch.setattr(searches, "WALKS", (1, walk))
        monkeypatch.setattr(searches, "SOME", some)
        for filters, numbers in (("", changed), ("&tag=even", evens), ("&metadata[m]=1", odds)):
            query = f"updatedAfter={since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}{filters}"
            wanted = [made[i]["id"] for i in numbers]
            await found_on_pages(cast, query, wanted, most_pages=14, bounds=(few, walk, some))


async def found_on_pages(
    cast: Cast, query: str, wanted: list[str], *, most_pages: int, bounds: tuple[int, ...]
) -> None:
    """Check what is found on pages, however long a page is, and in the export."""
    for limit in (1, 2, 200):
        seen, pages = await walked(cast.vic, query, limit)
        assert seen == wanted, (query, limit, bounds)
        assert pages <= most_pages, (query, limit, bounds)
    lines = (await cast.vic.get(f"/contacts/export?format=ndjson&{query}")).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == wanted, (query, bounds)


PAGED = {"q=pp": range(8), "q=pp&tag=even": range(0, 8, 2), "q=pp&metadata[m]=1": (0, 3, 6)}


async def test_a_search_of_many_is_whole_though_its_pages_end_early(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for i in range(8):
        one = {"email": f"pp{i}@x.test", "tags": ["odd" if i % 2 else "even"]}
        made.append(
            await cast.ed.made("/contacts", {**one, "metadata": {"m": 1 if i % 3 == 0 else 0}})
        )
        await cast.ed.made("/contacts", {"email": f"other{i}@x.test", "tags": ["even"]})
    for few, walk in ((2, 3), (2, 1), (2, 100), (7, 3), (100, 3)):
        monkeypatch.setattr(searches, "FEW", few)
        monkeypatch.setattr(searches, "WALKS", (1, walk))
        for query, numbers in PAGED.items():
            wanted = [made[i]["id"] for i in reversed(numbers)]
            await found_on_pages(cast, query, wanted, most_pages=17, bounds=(few, walk))


@pytest.mark.parametrize("query", ["q=pp", "updatedAfter=2026-01-01T00:00:00Z"])
async def test_a_list_does_not_end_where_somebody_is_erased_meanwhile(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    made = [(await cast.ed.made("/contacts", {"email": f"pp{i}@x.test"}))["id"] for i in range(9)]
    read = contacts.newest

    async def newest(
        db: Handle, narrowed: str, values: Mapping[str, Any], *, workspace_id: str
    ) -> tuple[list[Contact], str | None]:
        for id in values["ids"][1:2]:
            assert (await cast.ed.delete(f"/contacts/{id}")).status_code == 204
            made.remove(id)
        return await read(db, narrowed, values, workspace_id=workspace_id)

    monkeypatch.setattr(contacts, "newest", newest)
    seen, _ = await walked(cast.vic, query, 2)
    assert seen == made[::-1]
    assert len(seen) < 9


COMPOSED, DECOMPOSED = "M\u00fcller", "Mu\u0308ller"


@pytest.mark.parametrize("typed", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("asked", [COMPOSED, DECOMPOSED])
async def test_what_reads_the_same_is_found_however_it_was_typed(
    cast: Cast, typed: str, asked: str
) -> None:
    values = {"lastName": typed, "tags": [typed, COMPOSED], "metadata": {typed: typed}}
    made = await cast.ed.made("/contacts", values)
    assert (made["lastName"], made["tags"], made["metadata"]) == (
        COMPOSED,
        [COMPOSED],
        {COMPOSED: COMPOSED},
    )
    for query in (f"q={asked.lower()}", f"tag={asked}", f"metadata[{asked}]={asked}"):
        shown = await cast.vic.read(f"/contacts?{query}")
        assert [one["id"] for one in shown["data"]] == [made["id"]], query
    changed = await cast.ed.patch(f"/contacts/{made['id']}", {"metadata": {asked: "new"}})
    assert changed.json()["metadata"] == {COMPOSED: "new"}
    assert (await cast.ed.delete(f"/contacts/{made['id']}/tags/{asked}")).status_code == 204


async def test_an_address_is_found_by_how_it_is_written(cast: Cast) -> None:
    made = await cast.ed.made("/contacts", {"email": "Straße@x.test"})
    for q, ids in (("straße@", [made["id"]]), ("STRAßE", [made["id"]]), ("strasse", [])):
        shown = await cast.vic.read(f"/contacts?q={q}")
        assert [one["id"] for one in shown["data"]] == ids, q


async def test_times_of_creation_hold_exactly_though_pages_begin_by_id(cast: Cast) -> None:
    made = [(await cast.ed.made("/contacts", {"email": f"p{i}@x.test"})) for i in range(4)]
    for place, one in enumerate(made):
        moment = datetime.fromisoformat(one["createdAt"]) + timedelta(milliseconds=1)
        for name, expected in (
            ("createdAfter", [c["id"] for c in made if parsed(c) > moment]),
            ("createdBefore", [c["id"] for c in made if parsed(c) < moment]),
        ):
            at = moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
            shown = (await cast.vic.read(f"/contacts?{name}={at}"))["data"]
            assert {c["id"] for c in shown} >= set(expected), (place, name)
            assert len(shown) <= len(expected) + 1  # created within the millisecond


def parsed(contact: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(contact["createdAt"])


# --- tags -----------------------------------------------------------------------------------------


async def test_every_tag_is_listed_once_by_name(cast: Cast) -> None:
    assert await cast.vic.read("/tags") == {"data": [], "nextCursor": None}
    await people(cast)
    await cast.ed.made("/contacts", {"email": "z@x.test", "tags": ["Zebra", "vip", "ünder"]})
    names = ["Zebra", "a;b", "vip", "ünder"]
    assert await cast.vic.read("/tags") == {
        "data": [{"name": name} for name in names],
        "nextCursor": None,
    }
    seen, cursor = [], ""
    while cursor is not None:
        page = await cast.vic.read(f"/tags?limit=1{cursor and '&cursor=' + cursor}")
        seen += [tag["name"] for tag in page["data"]]
        cursor = page["nextCursor"]
    assert seen == names
    assert (await cast.vic.get("/tags?createdAfter=2020-01-01T00:00:00Z")).status_code == 422
    assert (await cast.mallory.read("/tags"))["data"] == []
