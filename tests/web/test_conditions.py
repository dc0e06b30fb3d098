"""If-Match and If-None-Match, as RFC 9110 compares entity tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from app.routes import ROUTES, SANDBOX_ROUTES
from app.web import conditions, reply
from app.web.body import Writable
from app.web.reply import Revised
from app.web.routing import ADMIN, PUBLIC, Endpoint
from tests.cast import HELLO, Cast


def sent(name: str, *lines: str) -> Headers:
    return Headers(raw=[(name.encode(), line.encode()) for line in lines])


@pytest.mark.parametrize(
    ("lines", "matches"),
    [
        ([], True),
        (["*"], True),
        ([" * "], True),
        (['"7"'], True),
        (['"6", "7"'], True),
        (['"6","7"'], True),
        (['"6"', '"7"'], True),  # two lines are one list
        (['"6"'], False),
        (['"77"'], False),
        (['W/"7"'], False),
        (['W/"7", "7"'], True),
        (["7"], False),
        ([""], False),
        (['"7'], False),
    ],
)
def test_if_match_compares_strongly(lines: list[Any], matches: bool) -> None:
    assert conditions.matches(sent("if-match", *lines), conditions.tag(7)) is matches


@pytest.mark.parametrize("line", ["*", '"0"', '"7"', ""])
def test_what_is_not_there_matches_no_if_match(line: str) -> None:
    assert conditions.matches(sent("if-match", line), None) is False


@pytest.mark.parametrize(
    ("line", "is_changed", "is_made"),
    [
        ("*", False, True),
        ('"7"', False, True),
        ('W/"7"', False, True),
        ('"6", "7"', False, True),
        ('"7.0abc"', False, True),
        ('"6"', True, True),
        ("", True, True),
    ],
)
def test_if_none_match_bars_a_change_of_what_it_names(
    line: str, is_changed: bool, is_made: bool
) -> None:
    headers = sent("if-none-match", line)
    assert conditions.matches(headers, conditions.tag(7)) is is_changed
    assert conditions.matches(headers, None) is is_made


def test_both_conditions_have_to_hold() -> None:
    both = Headers({"If-Match": '"7"', "If-None-Match": '"7"'})
    assert conditions.matches(both, conditions.tag(7)) is False


@pytest.mark.parametrize(
    ("line", "matches"),
    [
        ('"7.0abc"', True),
        ('"6", "7.0abc"', True),
        ('W/"7.0abc"', False),
        ('"6.0abc"', False),
        ('"77.0abc"', False),
        ('"7.xyz"', False),
        ('"7."', False),
    ],
)
def test_what_is_told_beside_a_revision_does_not_count_for_a_change(
    line: str, matches: bool
) -> None:
    assert conditions.matches(sent("if-match", line), conditions.tag(7)) is matches


def test_what_is_told_beside_a_revision_is_part_of_the_tag() -> None:
    tags = {conditions.tag(7), conditions.tag(7, b"a"), conditions.tag(7, b"b")}
    assert len(tags) == 3
    assert all(conditions.TAG.fullmatch(tag) for tag in tags)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([], 200),
        (['"7"'], 304),
        (['W/"7"'], 304),  # weakly: the answer would be as good
        (['"6", "7"'], 304),
        (['"6"', 'W/"7"'], 304),
        (["*"], 304),
        (['"6"'], 200),
        (["7"], 200),
        ([""], 200),
    ],
)
def test_if_none_match_compares_weakly(lines: list[Any], status: int) -> None:
    answer = reply.ok({"name": "Ada"}, revision=7)
    response = conditions.unchanged(sent("if-none-match", *lines), answer)
    assert response.status_code == status
    assert response.headers["etag"] == '"7"'
    assert bool(response.body) is (status == 200)


@pytest.mark.parametrize("answer", [reply.ok({}), reply.created("/a", {}, revision=7), Response()])
def test_only_what_has_a_revision_can_be_unchanged(answer: Response) -> None:
    assert conditions.unchanged(sent("if-none-match", '"7"', "*"), answer) is answer


def test_unchanged_says_what_the_whole_answer_would_have_said() -> None:
    answer = Response("x", headers={"ETag": '"7"', "Cache-Control": "max-age=1", "Vary": "Accept"})
    unchanged = conditions.unchanged(sent("if-none-match", "*"), answer)
    assert dict(unchanged.headers) == {
        "etag": '"7"',
        "cache-control": "max-age=1",
        "vary": "Accept",
    }


# --- on every resource ----------------------------------------------------------------------------

OFFER = {"name": "Offer", "channel": "email", "category": "marketing", "content": HELLO}
# What to make one of; the workspace is there.
MADE: Mapping[str, Mapping[str, Any]] = {
    "/contacts/{id}": {"email": "ada@example.com"},
    "/templates/{id}": {"name": "Hello", "channel": "email", "content": HELLO},
    "/automations/{id}": {"name": "Graph"},
    "/workflows/{id}": {"name": "Steps"},
    "/event-endpoints/{id}": {"url": "https://hooks.example/tidings"},
    "/segments/{id}": {"name": "S", "filter": {"event": "seen"}},
    "/broadcasts/{id}": {"name": "B", "tag": "vip", "templateId": "of OFFER"},
    "/topics/{id}": {"name": "Offers", "channels": ["email"]},
    "/suppressions/{id}": {"channel": "email", "address": "ada@example.com"},
    "/memberships/invitations/{id}": {"email": "ada@example.com", "role": "viewer"},
    "/settings/api-keys/{id}": {"name": "CI", "role": "viewer"},
}
# What is put where it stands; and by which path it is asked for.
PUT: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/settings/channels/{channel}": (
        "/settings/channels/email",
        {"provider": "smtp", "url": "smtp://mail.example", "from": "a@b.example"},
    ),
}
CASE = {"given": {"startAt": "2026-01-31T09:30:00Z"}, "expect": {"end": {"status": "FAILED"}}}
# The body of a DELETE that wants one.
REMOVAL: Mapping[str, Any] = {"/settings/workspace": {"name": "Acme"}}


# What has no revision that a change could be made to, and why.
UNREVISED = {
    "/sandbox/faults": "they are used up as messages go out",
    "/billing/plan": "whoever takes the payments may change it at any moment",
    "/admin/workspaces/{id}": "it tells what members change; tests/routes/test_admin.py",
    "/settings/sign-in-domains/{domain}": "a role is all that can be changed of it",
}


def methods_by_path() -> dict[str, set[str]]:
    """List the methods of what can be read by itself and changed, by path."""
    methods: dict[str, set[str]] = {}
    for endpoint in [*ROUTES, *SANDBOX_ROUTES]:
        methods.setdefault(endpoint.path, set()).add(endpoint.method)
    changing = {"PATCH", "DELETE"}
    return {
        path: found & changing
        for path, found in methods.items()
        if "GET" in found and found & changing and path not in UNREVISED
    }


def test_what_can_be_written_again_and_nothing_else_has_a_revision() -> None:
    """Decision 0010; a version has that of what it is a version of."""
    revised: set[str] = set()
    written: set[str] = set()
    for endpoint in [*ROUTES, *SANDBOX_ROUTES]:
        gives = endpoint.gives.get(200)
        is_revised = isinstance(gives, type) and issubclass(gives, Revised)
        shows_one = endpoint.method == "GET" and endpoint.can != PUBLIC
        if shows_one and is_revised and "{version}" not in endpoint.path:
            revised.add(endpoint.path)
        if endpoint.method in ("PATCH", "PUT") and gives:
            # Found by what is in the body, or answering what was written of it.
            is_contact = endpoint.path in ("/contacts", "/contacts/{id}/topics/{topicId}")
            written.add("/contacts/{id}" if is_contact else endpoint.path)
    assert written - revised == written & UNREVISED.keys()
    assert revised <= written


async def place_of(cast: Cast, path: str) -> str:
    """Find where there is one of it."""
    if path == "/memberships/{id}":  # what is made there is PENDING, and only withdrawn
        rows = (await cast.olivia.read("/memberships"))["data"]
        return next(f"/memberships/{row['id']}" for row in rows if row["name"] == "Vic")
    if path.endswith("/cases/{name}"):
        url = f"{await place_of(cast, path.removesuffix('/cases/{name}'))}/cases/lost"
        assert (await cast.olivia.call("PUT", url, json=CASE)).status_code == 201
        return url
    if "{id}" in path:
        collection, given = path.removesuffix("/{id}"), MADE[path]
        if "templateId" in given:
            given = {**given, "templateId": (await cast.olivia.made("/templates", OFFER))["id"]}
        made = await cast.olivia.made(collection, given)
        return f"{collection}/{made['id']}"
    if path in PUT:
        url, given = PUT[path]
        assert (await cast.olivia.call("PUT", url, json=given)).status_code == 200
        return url
    return path


@pytest.mark.parametrize("path", methods_by_path())
async def test_a_change_is_made_to_the_revision_that_is_meant(path: str, cast: Cast) -> None:
    url = await place_of(cast, path)
    tag = (await cast.olivia.get(url)).headers["etag"]
    unchanged = await cast.olivia.get(url, headers={"If-None-Match": f'"0", W/{tag}'})
    assert (unchanged.status_code, unchanged.headers["etag"]) == (304, tag)
    for method in sorted(methods_by_path()[path], reverse=True):  # PATCH, then DELETE
        body = {"json": {} if method == "PATCH" else REMOVAL[path]} if needs(method, path) else {}
        for stale in ('"0"', f"W/{tag}", '"0", "999"'):
            refused = await cast.olivia.call(method, url, headers={"If-Match": stale}, **body)
            assert (refused.status_code, refused.json()["code"]) == (412, "stale")
        assert (await cast.olivia.get(url)).headers["etag"] == tag
        for fresh in (f'"0", {tag}', "*") if method == "PATCH" else (f'"0", {tag}',):
            done = await cast.olivia.call(method, url, headers={"If-Match": fresh}, **body)
            assert done.status_code in (200, 202, 204), done.text
            tag = done.headers.get("etag", tag)


def listed() -> list[str]:
    every = [*ROUTES, *SANDBOX_ROUTES]
    found = [one for one in every if one.is_list and one.can != ADMIN and "{" not in one.path]
    return [one.path for one in found]


@pytest.mark.parametrize("path", listed())
async def test_a_list_is_not_sent_again_while_it_is_the_same(path: str, cast: Cast) -> None:
    read = await cast.olivia.get(path)
    held = {"If-None-Match": read.headers["etag"]}
    again = await cast.olivia.get(path, headers=held)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == read.headers["etag"]
    assert again.headers["cache-control"] == "no-store"
    other = await cast.olivia.get(path, headers={"If-None-Match": '"0"'})
    assert (other.status_code, other.content) == (200, read.content)


async def test_a_page_of_a_list_has_another_tag_once_anything_on_it_changes(cast: Cast) -> None:
    made = [await cast.ed.made("/contacts", {"email": f"{one}@x.test"}) for one in "abc"]
    page = "/contacts?limit=2"
    read = await cast.vic.get(page)
    held = {"If-None-Match": read.headers["etag"]}
    assert read.json()["nextCursor"] is not None
    assert (await cast.vic.get(page, headers=held)).status_code == 304
    assert (await cast.vic.get("/contacts?limit=1", headers=held)).status_code == 200
    await cast.ed.patch(f"/contacts/{made[0]['id']}", {"firstName": "Not on the page"})
    assert (await cast.vic.get(page, headers=held)).status_code == 304
    await cast.ed.patch(f"/contacts/{made[2]['id']}", {"firstName": "Cyd"})
    changed = await cast.vic.get(page, headers=held)
    assert (changed.status_code, changed.headers["etag"] == read.headers["etag"]) == (200, False)
    held = {"If-None-Match": changed.headers["etag"]}
    await cast.ed.made("/contacts", {"email": "d@x.test"})
    assert (await cast.vic.get(page, headers=held)).status_code == 200
    rival = await cast.mallory.get(page, headers=held)
    assert (rival.status_code, rival.json()["data"]) == (200, [])


def untagged() -> list[Endpoint]:
    """List what acts without a transaction of ours, on what has no tag."""
    every = [*ROUTES, *SANDBOX_ROUTES]
    shown = {endpoint.path: endpoint for endpoint in every if endpoint.method == "GET"}
    return [
        endpoint
        for endpoint in every
        if endpoint.tx is None and endpoint.can != PUBLIC and endpoint.method != "GET"
        and not endpoint.judges_tag(shown.get(endpoint.path))
    ]  # fmt: skip


@pytest.mark.parametrize("endpoint", untagged(), ids=str)
async def test_what_has_no_tag_matches_no_if_match(endpoint: Endpoint, cast: Cast) -> None:
    """RFC 9110 §13.1.1; and it is refused before anything is done."""
    url = endpoint.path.replace("{id}", "x_0").replace("{channel}", "email")
    refused = await cast.olivia.call(endpoint.method, url, headers={"If-Match": '"1"'})
    assert (refused.status_code, refused.json()["code"]) == (412, "stale")
    for held in ({}, {"If-Match": "*"}):
        other = await cast.olivia.call(endpoint.method, url, headers=held)
        assert other.status_code != 412


def patched() -> dict[str, type[Writable]]:
    return {
        endpoint.path: endpoint.takes
        for endpoint in ROUTES
        if endpoint.method == "PATCH"
        and endpoint.can != ADMIN
        and isinstance(endpoint.takes, type)
        and issubclass(endpoint.takes, Writable)
    }


@pytest.mark.parametrize("path", patched())
async def test_a_patch_after_which_nothing_is_different_is_no_change(path: str, cast: Cast) -> None:
    url = await place_of(cast, path)
    before = await cast.olivia.get(url)
    trail = await cast.olivia.read("/audit-logs")
    shown = before.json()
    names = {field.alias for field in patched()[path].model_fields.values()}
    held = {name: shown[name] for name in names - {"trigger"} if name in shown}  # it tells more
    assert held
    for patch in ({}, held):
        same = await cast.olivia.patch(url, patch)
        assert (same.status_code, same.json()) == (200, shown)
        assert same.headers.get("etag") == before.headers.get("etag")
    assert await cast.olivia.read("/audit-logs") == trail
    wrong = await cast.olivia.patch(url, {**held, "nonsense": 1})
    assert wrong.status_code == 422


def needs(method: str, path: str) -> bool:
    return method == "PATCH" or path in REMOVAL
