"""Pages that anybody may see, also while the database is away."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import httpx2
import pytest

from app.database.db import Database
from app.process import SCHEMA, Process
from tests import cast as company
from tests.cast import Cast
from tests.servers import free_port, new_file


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Database]:
    database = Database(url)
    await database.connect()
    try:
        yield database
    finally:
        await database.disconnect()


@asynccontextmanager
async def with_database(process: Process, url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        connected(url) as database,
        company.client(replace(process, database=database)) as client,
    ):
        yield client


async def test_the_front_door_says_what_this_is_and_where_everything_else_is(
    client: httpx2.AsyncClient, process: Process
) -> None:
    response = await client.get("/")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Tidings" in response.text
    links = re.findall(r"href='([^']*)'", response.text)
    assert links == ["console/", "sandbox", "docs", "openapi.json"]
    for link in links[1:]:
        assert (await client.get(f"/{link}")).status_code in (200, 303)
    without = replace(process, settings=replace(process.settings, console=False))
    async with company.client(without) as bare:
        assert "console/" not in (await bare.get("/")).text
    settings = replace(process.settings, environment="production")
    async with company.client(replace(process, settings=settings)) as production:
        assert "sandbox" not in (await production.get("/")).text


async def test_the_front_door_shows_how_an_event_becomes_a_message_and_fetches_nothing_for_it(
    client: httpx2.AsyncClient,
) -> None:
    response = await client.get("/")
    [picture] = re.findall(r"<svg .*?</svg>", response.text, re.DOTALL)
    assert "How an event becomes a message" in picture
    assert "prefers-color-scheme: dark" in picture
    drawn = ElementTree.fromstring(picture)
    elements = {element.tag.rpartition("}")[2] for element in drawn.iter()}
    assert elements & {"script", "image", "use", "foreignObject"} == set()
    # Its colours are written within: the only thing that the page's policy lets in.
    assert "style-src 'unsafe-inline'" in response.headers["Content-Security-Policy"]
    assert set(re.findall(r"url\((.*?)\)", picture)) == {"#tip", "#softtip"}


async def test_the_first_request_of_the_front_door_works_as_pasted(
    client: httpx2.AsyncClient, cast: Cast, process: Process
) -> None:
    def typed(page: str) -> list[str]:
        [command] = re.findall(r"<pre [^>]*>(.*?)</pre>", page, re.DOTALL)
        return shlex.split(unescape(command))

    curl, _, url, _, media, _, body = typed((await client.get("/")).text)
    assert (curl, media) == ("curl", "Content-Type: application/json")
    made = await client.post(url, content=body, headers={"Content-Type": "application/json"})
    assert made.status_code == 201, made.text
    assert made.json()["accessToken"]
    settings = replace(process.settings, registration="invite_only")
    async with company.client(replace(process, settings=settings)) as invited:
        _, _, url, _, header = typed((await invited.get("/")).text)
        assert header == "Authorization: Bearer $KEY"
        key = {"Authorization": f"Bearer {cast.olivia.key}"}
        assert (await invited.get(url, headers=key)).status_code == 200


async def test_a_healthy_process_is_alive_and_ready(client: httpx2.AsyncClient) -> None:
    for path in ("/healthz", "/readyz"):
        response = await client.get(path)
        assert (response.status_code, response.json()) == (200, {"status": "ok"})
        assert response.headers["Cache-Control"] == "no-store"
        assert (await client.head(path)).status_code == 200
        refused = await client.post(path)
        assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")


async def test_nothing_is_at_any_other_path(client: httpx2.AsyncClient) -> None:
    for path in ("/nowhere", "/healthz/", "/contacts/", "/v1/webhooks/in", "/%00"):
        response = await client.get(path)
        assert response.status_code == 404, path
        assert response.headers["Content-Type"] == "application/problem+json"
        problem = response.json()
        assert problem["type"] == "/problems/not_found"
        assert problem["requestId"] == response.headers["X-Request-Id"]


async def test_a_database_without_its_schema_is_not_ready_and_says_what_to_do(
    process: Process, tmp_path: Path
) -> None:
    async with with_database(process, f"sqlite:///{tmp_path}/empty.db") as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert "python -m app migrate" in response.json()["detail"]
        assert (await client.get("/healthz")).status_code == 200


async def test_a_database_with_another_schema_is_not_ready_and_says_what_differs(
    process: Process, tmp_path: Path
) -> None:
    """What a commit before 1.0.0 applied, whose sections were edited since."""
    url = f"sqlite:///{await new_file(tmp_path / 'old.db', SCHEMA)}"
    async with connected(url) as database, database.write() as db:
        await db.execute("UPDATE schema_migrations SET checksum = 'x' WHERE section = '0003'")
    async with with_database(process, url) as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert "Section 0003" in response.json()["detail"]


async def test_while_the_database_is_away_everything_asks_to_be_tried_again(
    cast: Cast, process: Process
) -> None:
    if process.database.engine == "sqlite":
        pytest.skip("SQLite is a file beside us")
    event = {"email": "ada@example.com"}
    nowhere = f"postgresql://postgres@127.0.0.1:{free_port()}/tidings"
    async with with_database(process, nowhere) as client:
        vic = replace(cast.vic, client=client)
        for response in (
            await client.get("/readyz"),
            await client.post("/v1/webhooks/in/" + "A" * 30, json=event),
            await vic.get("/contacts"),
            await vic.post("/contacts", event),
        ):
            assert response.status_code == 503
            assert response.json()["code"] == "unavailable"
            assert int(response.headers["Retry-After"]) > 0
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_has_a_main_landmark_and_an_icon_of_its_own(
    path: str, client: httpx2.AsyncClient
) -> None:
    response = await client.get(path)
    assert len(re.findall(r"<main[ >]", response.text)) == 1
    assert '<link rel="icon" href="data:image/svg+xml,' in response.text
    assert "img-src data:" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json"])
async def test_a_large_public_answer_is_packed_for_who_takes_that(
    path: str, client: httpx2.AsyncClient
) -> None:
    plain = await client.get(path, headers={"Accept-Encoding": "identity"})
    packed = await client.get(path, headers={"Accept-Encoding": "gzip"})
    assert (plain.text, packed.headers["Content-Encoding"]) == (packed.text, "gzip")
    assert int(packed.headers["Content-Length"]) < len(plain.content) / 2
    if tag := packed.headers.get("ETag"):
        again = {"Accept-Encoding": "gzip", "If-None-Match": tag}
        assert (await client.get(path, headers=again)).status_code == 304
