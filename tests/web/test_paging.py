"""Lists, page by page, through throw-away endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import httpx2
import pytest
from starlette.responses import Response

from app.database.db import new_id
from app.process import Process
from app.routes import ROUTES, SANDBOX_ROUTES
from app.web import paging
from app.web.edge import Edge
from app.web.paging import Pages, Paging
from app.web.reply import Page
from app.web.routing import MEMBER, Call, Endpoint, get, mount, router
from app.web.throttle import Throttle
from tests.cast import Cast, Person
from tests.tables import each_row

ROWS = [{"id": new_id("con")} for _ in range(7)][::-1]  # newest first, as a store lists them


class Filters(Paging):
    tag: str | None = None


async def index(call: Call) -> Response:
    query = call.query(Filters)
    before = paging.position(call, query)
    rows = [row for row in ROWS if before is None or row["id"] < before]
    return paging.page(call, query, rows[: query.limit + 1], lambda row: row["id"])


async def filters(call: Call) -> Response:
    return paging.page(call, Paging(), [{"id": "only"}], lambda _: call.query(Filters).filters())


@pytest.fixture
async def api(process: Process) -> AsyncIterator[httpx2.AsyncClient]:
    endpoints = [
        get(path, index, can=MEMBER, query=Filters) for path in ("/contacts", "/runs/{id}/steps")
    ]
    endpoints.append(get("/filters", filters, can=MEMBER, query=Filters))
    routes = mount(endpoints, process, Throttle(None))
    transport = httpx2.ASGITransport(app=Edge(router(routes), process.settings))
    async with httpx2.AsyncClient(transport=transport, base_url="http://tidings.test") as client:
        yield client


async def listed(
    api: httpx2.AsyncClient, person: Person, path: str, **query: str
) -> httpx2.Response:
    bearer = {"Authorization": f"Bearer {person.key}"}
    return await api.get(path, headers=bearer, params=query)


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7, 8, 200])
async def test_the_pages_together_are_the_list(
    limit: int, api: httpx2.AsyncClient, cast: Cast
) -> None:
    seen: list[str] = []
    query = {"limit": str(limit)}
    while True:
        page = (await listed(api, cast.vic, "/contacts", **query)).json()
        assert len(page["data"]) <= limit
        seen += page["data"]
        if page["nextCursor"] is None:
            break
        query["cursor"] = page["nextCursor"]
    assert seen == [row["id"] for row in ROWS]


async def test_a_page_may_change_its_size_on_the_way(api: httpx2.AsyncClient, cast: Cast) -> None:
    first = (await listed(api, cast.vic, "/contacts", limit="2")).json()
    rest = (await listed(api, cast.vic, "/contacts", cursor=first["nextCursor"])).json()
    assert first["data"] + rest["data"] == [row["id"] for row in ROWS]


async def test_a_cursor_is_good_for_its_own_list_only(api: httpx2.AsyncClient, cast: Cast) -> None:
    own = {"limit": "2", "tag": "vip", "createdAfter": "2026-01-01T00:00:00Z"}
    page = (await listed(api, cast.vic, "/contacts", **own)).json()
    cursor = page["nextCursor"]
    others = [
        (cast.mallory, "/contacts", own),
        (cast.vic, "/runs/run_1/steps", own),
        (cast.vic, "/contacts", {**own, "tag": "vips"}),
        (cast.vic, "/contacts", {**own, "createdAfter": "2026-01-01T00:00:01Z"}),
        (cast.vic, "/contacts", {"limit": "2"}),
    ]
    for person, path, query in others:
        response = await listed(api, person, path, **{**query, "cursor": cursor})
        assert response.status_code == 422
        assert response.json()["errors"][0]["pointer"] == "?cursor"
    for person in (cast.vic, cast.olivia):  # a colleague sees the same list
        response = await listed(api, person, "/contacts", **{**own, "cursor": cursor})
        assert response.status_code == 200


@each_row(
    "spoil",
    [
        lambda cursor: cursor[:-1],
        lambda cursor: cursor + "A",
        lambda cursor: cursor[:20] + ("A" if cursor[20] != "A" else "B") + cursor[21:],
        lambda cursor: cursor[::-1],
        lambda _: "",
        lambda _: "é\u0130",
        lambda _: "A" * 3_000,
        lambda _: "con_01jd0000000000000000000000",
    ],
)
async def test_a_spoiled_cursor_is_refused(
    spoil: Callable[..., Any], api: httpx2.AsyncClient, cast: Cast
) -> None:
    cursor = (await listed(api, cast.vic, "/contacts", limit="2")).json()["nextCursor"]
    response = await listed(api, cast.vic, "/contacts", cursor=spoil(cursor))
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "?cursor"


@each_row("limit", ["0", "201", "-1", "1_0", "٣", "1e1", "1" + "0" * 9, " 1", "+1", "1.0", "", "x"])
async def test_a_limit_is_1_to_200_in_plain_digits(
    limit: str, api: httpx2.AsyncClient, cast: Cast
) -> None:
    response = await listed(api, cast.vic, "/contacts", limit=limit)
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "?limit"


WHOLE = {
    "/settings/channels": "there are three",
    "/automations/{id}/cases": "at most twenty",
    "/workflows/{id}/cases": "at most twenty",
    "/settings/sign-in-domains": "no more than the owners have addresses",
}


def lists() -> dict[str, Endpoint]:
    found = {}
    for endpoint in [*ROUTES, *SANDBOX_ROUTES]:
        gives = endpoint.gives.get(200)
        if endpoint.method == "GET" and isinstance(gives, type) and issubclass(gives, Page):
            found[endpoint.path] = endpoint
    for path in WHOLE:
        del found[path]
    assert len(found) > 20
    return found


TIMES = {  # of the resource, and by which a list is filtered
    "created_at": {"created_after", "created_before"},
    "captured_at": {"created_after", "created_before"},
    "updated_at": {"updated_after"},
}


@pytest.mark.parametrize("path", lists())
def test_every_list_comes_in_pages_and_is_filtered_by_the_times_that_it_shows(path: str) -> None:
    listed = lists()[path]
    page = listed.gives[200]
    assert isinstance(page, type)
    [shown] = get_args(page.model_fields["data"].annotation)
    assert listed.query is not None
    assert issubclass(listed.query, Pages)
    wanted = set().union(*(TIMES.get(name, set()) for name in shown.model_fields))
    asked = {name for name in listed.query.model_fields if name.endswith(("_after", "_before"))}
    assert asked == wanted


async def test_filters_are_what_was_asked_for_by_name(api: httpx2.AsyncClient, cast: Cast) -> None:
    query = {"limit": "3", "tag": "vip"}
    page = (await listed(api, cast.vic, "/filters", **query)).json()
    assert page["data"] == [{"tag": "vip"}]
