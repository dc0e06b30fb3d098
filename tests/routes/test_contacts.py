"""The audience over HTTP: what a contact may hold, how it changes, how it is found again."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from app.audience import segment_contacts
from app.machine.program import Json
from app.process import Process
from app.store import bounded_pages
from tests.cast import Cast, Person, hook, settle

CONTACTS = "/contacts"
ADA: dict[str, Any] = {
    "email": "Ada@Example.com",
    "phone": "+1 415-555-0132",
    "firstName": "Ada",
    "lastName": "Lovelace",
    "timezone": "Europe/London",
    "locale": "en-GB",
    "metadata": {"plan": "pro", "seats": 3, "score": 1.5, "trial": False},
    "tags": ["vip", "lead"],
}


def refused(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def pointers(response: httpx2.Response) -> list[str]:
    assert refused(response) == (422, "invalid"), response.text
    return [error["pointer"] for error in response.json()["errors"]]


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


async def ids(person: Person, query: str) -> list[str]:
    return [contact["id"] for contact in (await person.read(CONTACTS + query))["data"]]


# --- create and read ------------------------------------------------------------------------------


async def test_a_new_contact_is_answered_whole_with_where_it_is(cast: Cast) -> None:
    response = await cast.ed.post(CONTACTS, ADA)
    assert response.status_code == 201
    made = response.json()
    assert response.headers["Location"] == f"{CONTACTS}/{made['id']}"
    assert response.headers["ETag"] == '"1"'
    assert made == {
        **ADA,
        "id": made["id"],
        "suppressions": [],
        "email": "Ada@example.com",
        "phone": "+14155550132",
        "tags": ["lead", "vip"],
        "subscriptions": dict.fromkeys(("email", "sms", "whatsapp"), "subscribed"),
        "topics": {},
        "createdAt": made["createdAt"],
        "updatedAt": made["createdAt"],
    }
    shown = await cast.vic.get(response.headers["Location"])
    assert shown.json() == made
    assert shown.headers["ETag"] == '"1"'


async def test_an_email_a_phone_or_one_metadata_field_is_enough(cast: Cast) -> None:
    for values in (
        {"email": "ada@example.com"},
        {"phone": "+14155550132", "email": None},
        {"metadata": {"crmId": "7"}},
    ):
        assert (await cast.ed.post(CONTACTS, values)).status_code == 201, values
    unknown: list[dict[str, Any]] = [{}, {"firstName": "Ada"}, {"metadata": {}}]
    for nobody in (*unknown, {"metadata": {"a": None}}):
        assert pointers(await cast.ed.post(CONTACTS, nobody)) == [""], nobody


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"email": "ada"}, ["/email"]),
    ({"email": ""}, ["/email"]),
    ({"email": 5}, ["/email"]),
    ({"email": ["ada@example.com"]}, ["/email"]),
    ({"email": "ada@example.com\r\nBcc: eve@example.com"}, ["/email"]),
    ({"email": "a" * 300 + "@example.com"}, ["/email"]),
    ({"phone": "12"}, ["/phone"]),
    ({"phone": "(415) 555-0132"}, ["/phone"]),  # national, and Acme has told no country
    ({"phone": 14155550132}, ["/phone"]),
    ({"phone": "+1" + "5" * 100}, ["/phone"]),
    ({"firstName": 5}, ["/firstName"]),
    ({"firstName": "x" * 201}, ["/firstName"]),
    ({"lastName": "Love\nlace"}, ["/lastName"]),
    ({"timezone": "Mars/Olympus"}, ["/timezone"]),
    ({"timezone": "../../etc/passwd"}, ["/timezone"]),
    ({"locale": {"language": "en"}}, ["/locale"]),
    ({"locale": "zz-!!"}, ["/locale"]),
    ({"locale": "en\n"}, ["/locale"]),
    ({"locale": "englishlanguage"}, ["/locale"]),
    ({"tags": [" "]}, ["/tags/0"]),
    ({"metadata": []}, ["/metadata"]),
    ({"metadata": "plan=pro"}, ["/metadata"]),
    ({"metadata": {"list": [1]}}, ["/metadata/list"]),
    ({"metadata": {"object": {"a": 1}}}, ["/metadata/object"]),
    ({"metadata": {"a/b~c": []}}, ["/metadata/a~1b~0c"]),
    ({"metadata": {"": 1}}, ["/metadata/"]),
    ({"metadata": {"x" * 41: 1}}, ["/metadata/" + "x" * 41]),
    ({"metadata": {"long": "x" * 501}}, ["/metadata/long"]),
    ({"metadata": {"big": 2**60}}, ["/metadata/big"]),
    ({"metadata": {f"n{n}": n for n in range(51)}}, ["/metadata"]),
    ({"tags": "vip"}, ["/tags"]),
    ({"tags": ["vip", "", 5, "x" * 101, "a\tb"]}, ["/tags/1", "/tags/2", "/tags/3", "/tags/4"]),
    ({"tags": [f"t{n}" for n in range(201)]}, ["/tags"]),
    ({"emial": "ada@example.com"}, ["/emial"]),
    ({"id": "con_1", "createdAt": "2026-01-01T00:00:00Z"}, ["/id", "/createdAt"]),
    ({"name/first": None}, ["/name~1first"]),
    (
        {"emial": "?", "email": "ada", "phone": "12", "timezone": "Mars", "metadata": 1, "tags": 1},
        ["/emial", "/email", "/phone", "/timezone", "/metadata", "/tags"],
    ),
]


async def test_everything_that_is_wrong_with_a_contact_is_named_at_once(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, ADA)
    for values, wrong in WRONG:
        new = {"email": "bob@example.com", **values}
        assert pointers(await cast.ed.post(CONTACTS, new)) == wrong, values
        changed = await cast.ed.patch(f"{CONTACTS}/{made['id']}", values)
        assert pointers(changed) == wrong, values
    made.pop("suppressions")
    assert await cast.ed.read(CONTACTS) == {"data": [made], "nextCursor": None}


async def test_a_hundred_errors_are_listed_however_many_there_are(cast: Cast) -> None:
    response = await cast.ed.post(CONTACTS, {f"n{n}": n for n in range(1_000)})
    assert len(pointers(response)) == 100


async def test_a_body_that_is_no_json_object_is_refused(cast: Cast) -> None:
    json = {"Content-Type": "application/json"}
    for body, headers, answer in (
        (b"{", json, (400, "malformed_json")),
        (b"", json, (400, "malformed_json")),
        (b'{"email": NaN}', json, (400, "malformed_json")),
        (b"[]", json, (422, "invalid")),
        (b"null", json, (422, "invalid")),
        (b"{}", {"Content-Type": "text/plain"}, (415, "unsupported_media_type")),
        (b"{}", {**json, "Content-Encoding": "gzip"}, (415, "unsupported_media_type")),
    ):
        response = await cast.ed.call("POST", CONTACTS, content=body, headers=headers)
        assert refused(response) == answer, body


async def test_a_national_number_is_read_with_the_workspace_s_country(cast: Cast) -> None:
    await cast.adam.patch("/settings/workspace", {"country": "US"})
    made = await cast.ed.made(CONTACTS, {"phone": "(415) 555-0132"})
    assert made["phone"] == "+14155550132"


async def test_an_address_that_another_contact_has_is_a_conflict_that_names_it(cast: Cast) -> None:
    ada = await cast.ed.made(CONTACTS, {"email": "ada@example.com"})
    bob = await cast.ed.made(CONTACTS, {"phone": "+14155550132"})
    for values, existing in (
        ({"email": "ADA@example.COM"}, ada),
        ({"phone": "+1 (415) 555-0132"}, bob),
        ({"email": "new@example.com", "phone": "+14155550132"}, bob),
    ):
        response = await cast.ed.post(CONTACTS, values)
        assert refused(response) == (409, "conflict")
        assert response.json()["existingId"] == existing["id"], values
    response = await cast.ed.patch(f"{CONTACTS}/{bob['id']}", {"email": "ada@example.com"})
    assert refused(response) == (409, "conflict")
    assert response.json()["existingId"] == ada["id"]
    assert await cast.ed.read(f"{CONTACTS}/{bob['id']}") == bob
    assert (await cast.mallory.post(CONTACTS, {"email": "ada@example.com"})).status_code == 201


async def test_twenty_posts_at_once_of_one_address_make_one_contact(cast: Cast) -> None:
    answers = await asyncio.gather(
        *(cast.ed.post(CONTACTS, {"email": "ada@example.com"}) for _ in range(20))
    )
    [made] = [answer.json() for answer in answers if answer.status_code == 201]
    others = [answer for answer in answers if answer.status_code != 201]
    assert {refused(answer) for answer in others} == {(409, "conflict")}
    assert {answer.json()["existingId"] for answer in others} == {made["id"]}


# --- change ---------------------------------------------------------------------------------------


async def test_a_merge_patch_meets_a_name_however_it_was_typed(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, {"metadata": {"gr\u00f6\u00dfe": "4", "plan": "pro"}})
    changed = await cast.ed.patch(
        f"{CONTACTS}/{made['id']}", {"metadata": {"gro\u0308\u00dfe": None}}
    )
    assert (changed.status_code, changed.json()["metadata"]) == (200, {"plan": "pro"})


async def test_a_merge_patch_changes_what_it_names_and_clears_what_is_null(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, ADA)
    url = f"{CONTACTS}/{made['id']}"
    for patch, changed in (
        ({}, {}),
        ({"firstName": "Augusta"}, {"firstName": "Augusta"}),
        ({"lastName": None, "locale": None}, {"lastName": None, "locale": None}),
        (
            {"metadata": {"plan": None, "seats": 4, "city": "Rome"}},
            {"metadata": {"seats": 4, "score": 1.5, "trial": False, "city": "Rome"}},
        ),
        ({"metadata": None}, {"metadata": {}}),
        ({"tags": ["new", "vip"]}, {"tags": ["new", "vip"]}),
        ({"tags": None}, {"tags": []}),
        ({"phone": None}, {"phone": None}),
    ):
        before = await cast.ed.read(url)
        response = await cast.ed.patch(
            url, patch, headers={"Content-Type": "application/merge-patch+json"}
        )
        assert response.status_code == 200
        after = response.json()
        assert after == {**before, **changed, "updatedAt": after["updatedAt"]}, patch
        assert await cast.vic.read(url) == after
    assert pointers(await cast.ed.patch(url, {"email": None})) == [""]


async def test_what_a_contact_holds_already_changes_nothing_however_it_is_spelled(
    cast: Cast,
) -> None:
    made = await cast.ed.post(CONTACTS, ADA)
    url, tag = made.headers["location"], made.headers["etag"]
    trail = await cast.olivia.read("/audit-logs")
    for patch in (
        {"phone": "+1 (415) 555-0132"},
        {"locale": ADA["locale"].replace("-", "_")},
        {"tags": [*reversed(ADA["tags"]), *ADA["tags"]]},
        {"subscriptions": {"email": "subscribed"}},
    ):
        same = await cast.ed.patch(url, patch)
        assert (same.status_code, same.headers["etag"]) == (200, tag), patch
        assert same.json() == made.json(), patch
    again = await cast.ed.post(f"{url}/tags", {"tags": ADA["tags"]})
    assert (again.status_code, again.headers["etag"]) == (200, tag)
    assert await cast.olivia.read("/audit-logs") == trail


@pytest.mark.parametrize(("held", "given"), [(1, True), (True, 1), (0, False), (1.0, True)])
async def test_true_is_not_1(cast: Cast, held: Json, given: Json) -> None:
    """As it is to Python."""
    made = await cast.ed.made(CONTACTS, {"email": "ada@example.com", "metadata": {"vip": held}})
    changed = await cast.ed.patch(f"{CONTACTS}/{made['id']}", {"metadata": {"vip": given}})
    assert changed.json()["metadata"]["vip"] is given
    text = json.dumps(given)
    assert await ids(cast.vic, f"?metadata[vip]={text}") == [made["id"]]
    assert await ids(cast.vic, f"?metadata[vip]={json.dumps(held)}") == []


async def test_a_patch_of_several_fields_applies_whole_or_not_at_all(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, ADA)
    url = f"{CONTACTS}/{made['id']}"
    patch = {"firstName": "Augusta", "metadata": {"plan": "free"}, "tags": [], "phone": "12"}
    assert pointers(await cast.ed.patch(url, patch)) == ["/phone"]
    assert await cast.ed.read(url) == made


async def test_if_match_guards_a_change_and_a_removal(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, ADA)
    url = f"{CONTACTS}/{made['id']}"
    fresh, stale = {"If-Match": '"1"'}, {"If-Match": '"7"'}
    assert refused(await cast.ed.patch(url, {"locale": "de"}, headers=stale)) == (412, "stale")
    assert refused(await cast.ed.delete(url, headers=stale)) == (412, "stale")
    assert await cast.ed.read(url) == made
    changed = await cast.ed.patch(url, {"locale": "de"}, headers=fresh)
    assert changed.headers["ETag"] == '"2"'
    assert refused(await cast.ed.delete(url, headers=fresh)) == (412, "stale")
    again = {"locale": "fr"}
    assert (await cast.ed.patch(url, again, headers={"If-Match": "*"})).status_code == 200
    assert (await cast.ed.delete(url, headers={"If-Match": '"3"'})).status_code == 204


async def test_a_removed_contact_is_gone_and_its_runs_end(cast: Cast, process: Process) -> None:
    wait = {"type": "wait", "duration": "PT1H"}
    await hook(process, cast.ed.workspace_id, [wait])
    token = await hook(process, cast.ed.workspace_id, [wait])
    sent = await cast.client.post(f"/v1/webhooks/in/{token}", json={"email": "ada@example.com"})
    receipt = sent.json()
    await settle(process)
    url = f"{CONTACTS}/{receipt['contactId']}"
    removed = await cast.ed.delete(url)
    assert (removed.status_code, removed.content) == (204, b"")
    for again in (await cast.ed.get(url), await cast.ed.delete(url), await cast.ed.patch(url, {})):
        assert refused(again) == (404, "not_found")
    run = await cast.ed.read(f"/runs/{receipt['runId']}")
    assert (run["status"], run["reason"]["code"]) == ("CANCELLED", "contact_erased")
    assert (await cast.ed.post(CONTACTS, {"email": "ada@example.com"})).status_code == 201


# --- tags -----------------------------------------------------------------------------------------


async def test_tags_are_added_once_and_removed_by_name(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, {"email": "ada@example.com", "tags": ["lead"]})
    url = f"{CONTACTS}/{made['id']}"
    added = await cast.ed.post(f"{url}/tags", {"tags": ["vip", "lead", "a/b c", "vip"]})
    assert added.status_code == 200
    assert added.json()["tags"] == ["a/b c", "lead", "vip"]
    assert added.headers["ETag"] == '"2"'
    same = await cast.ed.post(f"{url}/tags", {"tags": ["vip"]})
    assert same.headers["ETag"] == '"2"'  # nothing has changed
    for name in ("a%2Fb%20c", "vip"):
        assert (await cast.ed.delete(f"{url}/tags/{name}")).status_code == 204
    assert refused(await cast.ed.delete(f"{url}/tags/vip")) == (404, "not_found")
    assert (await cast.ed.read(url))["tags"] == ["lead"]


async def test_a_contact_has_at_most_two_hundred_tags(cast: Cast) -> None:
    tags = [f"t{n}" for n in range(200)]
    made = await cast.ed.made(CONTACTS, {"email": "ada@example.com", "tags": tags})
    url = f"{CONTACTS}/{made['id']}"
    assert pointers(await cast.ed.post(f"{url}/tags", {"tags": ["one more"]})) == ["/tags"]
    assert (await cast.ed.post(f"{url}/tags", {"tags": ["t7"]})).status_code == 200
    assert (await cast.ed.patch(url, {"firstName": "Ada"})).status_code == 200


async def test_wrong_tags_are_named(cast: Cast) -> None:
    made = await cast.ed.made(CONTACTS, {"email": "ada@example.com"})
    for body, wrong in (
        ({}, ["/tags"]),
        ({"tags": "vip"}, ["/tags"]),
        ({"tags": ["vip", ""]}, ["/tags/1"]),
        ({"tags": ["vip"], "tag": "vip"}, ["/tag"]),
    ):
        response = await cast.ed.post(f"{CONTACTS}/{made['id']}/tags", body)
        assert pointers(response) == wrong, body
    assert (await cast.ed.read(f"{CONTACTS}/{made['id']}"))["tags"] == []


# --- lists ----------------------------------------------------------------------------------------


async def test_filters_narrow_the_list(cast: Cast) -> None:
    ada = await cast.ed.made(CONTACTS, ADA)
    await asyncio.sleep(0.002)  # times are shown to the millisecond, and compared as shown
    between = now()
    await asyncio.sleep(0.002)
    bob = await cast.ed.made(CONTACTS, {"email": "bob+x@example.com", "tags": ["lead"]})
    after = now()
    theirs = {"email": "ada@example.com", "tags": ["lead"]}
    mallory = await cast.mallory.made(CONTACTS, theirs)
    await cast.ed.patch(f"{CONTACTS}/{ada['id']}", {"locale": "de"})
    for query, found in (
        ("", [bob, ada]),
        ("?email=ADA@example.com", [ada]),
        ("?email=bob%2Bx@example.com", [bob]),
        ("?email=nobody@example.com", []),
        ("?phone=%2B1%20415%20555%200132", [ada]),
        ("?tag=lead", [bob, ada]),
        ("?tag=vip", [ada]),
        ("?tag=vip&email=bob%2Bx@example.com", []),
        (f"?createdAfter={between}", [bob]),
        (f"?createdBefore={between}", [ada]),
        (f"?createdAfter={between}&createdBefore={between}", []),
        (f"?updatedAfter={after}", [ada]),
        ("?createdAfter=2999-01-01T00:00:00Z", []),
        (f"?ids={ada['id']},con_of_nobody,{bob['id']},{mallory['id']}", [bob, ada]),
        (f"?ids={ada['id']}", [ada]),
        (f"?ids={ada['id']},{bob['id']}&tag=vip", [ada]),
        (f"?ids={ada['id']},{bob['id']}&q=bob", [bob]),
        (f"?ids={ada['id']},{bob['id']}&updatedAfter={after}", [ada]),
        (f"?ids={ada['id']},{bob['id']}&createdAfter={between}", [bob]),
        (f"?ids={ada['id']},{bob['id']}&limit=1", [bob]),
    ):
        assert await ids(cast.vic, query) == [one["id"] for one in found], query


async def test_a_wrong_filter_is_named(cast: Cast) -> None:
    for query, wrong in (
        ("?email=ada", ["?email"]),
        ("?phone=12", ["?phone"]),
        ("?email=ada&phone=12", ["?email", "?phone"]),
        ("?limit=0&createdAfter=today", ["?limit", "?createdAfter"]),
        ("?limit=201", ["?limit"]),
        ("?limit=1_0", ["?limit"]),
        ("?tag=a&tag=b", ["?tag"]),
        ("?name=Ada", ["?name"]),
        ("?cursor=made-up", ["?cursor"]),
        ("?ids=", ["?ids"]),
        (f"?ids={'con_1,' * 2_000}", ["?ids"]),
    ):
        assert pointers(await cast.vic.get(CONTACTS + query)) == wrong, query


async def test_pages_follow_each_other_newest_first_whatever_comes_meanwhile(cast: Cast) -> None:
    made = [
        (await cast.ed.made(CONTACTS, {"email": f"n{n}@example.com", "tags": ["t"]}))["id"]
        for n in range(5)
    ]
    seen, cursor = [], ""
    while True:
        page = await cast.vic.read(f"{CONTACTS}?tag=t&limit=2{cursor}")
        seen += [contact["id"] for contact in page["data"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
        await cast.ed.made(CONTACTS, {"phone": f"+1415555013{len(seen)}", "tags": ["t"]})
    assert seen == made[::-1]


async def every_page(person: Person, path: str) -> list[list[str]]:
    pages, cursor = list[list[str]](), ""
    while not pages or cursor:
        page = await person.read(f"{path}limit=4{cursor}")
        pages.append([contact["id"] for contact in page["data"]])
        cursor = page["nextCursor"] and f"&cursor={page['nextCursor']}"
    return pages


async def test_pages_of_large_contacts_are_shorter_and_follow_each_other(
    cast: Cast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_pages, "MOST_BYTES", 5_000)
    began, made = now(), list[str]()
    for n in range(6):
        metadata = {"plan": "pro", **{f"n{number}": "x" * 500 for number in range(5)}}
        body = {"email": f"nn{n}@example.com", "tags": ["vip"], "metadata": metadata}
        made.append((await cast.ed.made(CONTACTS, body))["id"])
    vip = {"path": "contact.tags", "op": "contains", "value": "vip"}
    segment = await cast.ed.made("/segments", {"name": "Vip", "filter": vip})
    members = f"/segments/{segment['id']}/contacts?"
    lists = ("", "tag=vip", "metadata[plan]=pro", "q=nn", f"ids={','.join(made)}")
    pages = [made[:-3:-1], made[-3:-5:-1], made[-5::-1]]
    assert await every_page(cast.vic, members) == pages
    with monkeypatch.context() as patched:  # however many it looks through at once
        patched.setattr(segment_contacts, "WALK", 1)
        assert await every_page(cast.vic, members) == [*pages, []]
    await settle(process)  # from now on they are kept
    assert await every_page(cast.vic, members) == pages
    for query in (*lists, f"updatedAfter={began}"):
        assert await every_page(cast.vic, f"{CONTACTS}?{query}&") == pages, query
    exported = (await cast.vic.get("/contacts/export?format=ndjson")).text.splitlines()
    assert [json.loads(line)["id"] for line in exported] == made[::-1]


async def test_a_cursor_opens_its_own_list_only(cast: Cast) -> None:
    for n in range(2):
        await cast.ed.made(CONTACTS, {"email": f"n{n}@example.com", "tags": ["t"]})
    cursor = (await cast.vic.read(f"{CONTACTS}?limit=1&tag=t"))["nextCursor"]
    bare = (await cast.vic.read(f"{CONTACTS}?limit=1"))["nextCursor"]
    assert len(await ids(cast.vic, f"?limit=200&tag=t&cursor={cursor}")) == 1
    for person, url in (
        (cast.vic, f"{CONTACTS}?cursor={cursor}"),
        (cast.vic, f"{CONTACTS}?tag=u&cursor={cursor}"),
        (cast.vic, f"/templates?cursor={bare}"),
        (cast.vic, f"{CONTACTS}?tag=t&cursor={cursor[:-2]}AA"),
        (cast.mallory, f"{CONTACTS}?tag=t&cursor={cursor}"),
    ):
        assert "?cursor" in pointers(await person.get(url)), url


async def test_a_locale_is_kept_as_bcp_47_writes_it(cast: Cast) -> None:
    for given, kept in (("de_DE", "de-DE"), ("zh-Hant-TW", "zh-Hant-TW"), ("x-none", "x-none")):
        made = await cast.ed.made(CONTACTS, {"email": f"{kept}@x.test", "locale": given})
        assert made["locale"] == kept


async def test_a_tag_has_no_space_around_it(cast: Cast) -> None:
    ada = await cast.ed.made(CONTACTS, {"email": "ada@x.test", "tags": [" b ", "b", "c"]})
    assert ada["tags"] == ["b", "c"]
    changed = await cast.ed.post(f"{CONTACTS}/{ada['id']}/tags", {"tags": ["\u3000b", " d"]})
    assert changed.json()["tags"] == ["b", "c", "d"]


async def test_a_number_too_long_for_a_double_is_told_how_long_it_may_be(cast: Cast) -> None:
    body = {"email": "ada@x.test", "metadata": {"card": 123456789012345678901}}
    [error] = (await cast.ed.post(CONTACTS, body)).json()["errors"]
    assert "a double (a whole one: up to 2^53)" in error["message"]


async def test_a_question_too_short_is_told_so_in_characters(cast: Cast) -> None:
    [error] = (await cast.vic.get(f"{CONTACTS}?q=%20a%20")).json()["errors"]
    assert error == {"pointer": "?q", "message": "Must have at least 2 characters."}
