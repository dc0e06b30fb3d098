"""The console's page and files: headers, paths, and what is said when it is not built."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from app.process import Process
from app.routes.console import POLICY
from app.web import console_files
from tests.cast import client as cast_client

PAGE = '<meta name="prefix" content="{prefix}"><meta name="features" content="{features}">'
SCRIPT = b"console.log('built')"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A console that was built, of two files."""
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "main-ABCD2345.js").write_bytes(SCRIPT)
    (tmp_path / "main-ABCD2345.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "main-ABCD2345.css").write_text("body{}")
    monkeypatch.setattr(console_files, "BUILT", tmp_path)
    console_files.load.cache_clear()
    yield tmp_path
    console_files.load.cache_clear()


@pytest.fixture
async def page(process: Process, built: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with cast_client(process) as client:
        yield client


@pytest.mark.parametrize("path", ["/console", "/console/", "/console/runs/run_1", "/console/x/y/z"])
async def test_every_path_below_answers_the_page_under_the_strict_policy(
    page: httpx2.AsyncClient, path: str
) -> None:
    response = await page.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["content-security-policy"] == POLICY
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_the_policy_allows_our_own_scripts_and_styles_alone() -> None:
    assert POLICY.split("; ") == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "frame-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]


async def test_the_page_says_what_this_installation_has(page: httpx2.AsyncClient) -> None:
    assert 'name="features" content="sandbox registration"' in (await page.get("/console")).text


async def test_hashed_files_are_kept_for_ever_and_were_packed_once(
    page: httpx2.AsyncClient,
) -> None:
    for accepted in ("gzip", "identity"):
        headers = {"Accept-Encoding": accepted}
        response = await page.get("/console/assets/main-ABCD2345.js", headers=headers)
        assert response.content == SCRIPT
        assert response.headers.get("content-encoding", "identity") == accepted
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["content-type"] == "text/javascript; charset=utf-8"
        assert response.headers["vary"] == "Accept-Encoding"
    style = await page.get("/console/assets/main-ABCD2345.css")
    assert (style.text, style.headers["content-type"]) == ("body{}", "text/css; charset=utf-8")


@pytest.mark.parametrize(
    "name", ["main-00000000.js", "index.html", "main-ABCD2345.js.gz", "..%2Findex.html", "%00"]
)
async def test_no_other_file_is_served(page: httpx2.AsyncClient, name: str) -> None:
    response = await page.get(f"/console/assets/{name}")
    assert response.status_code == 404 or "prefix" in response.text  # a path that is the page's
    assert response.headers["cache-control"] != "public, max-age=31536000, immutable"


async def test_behind_the_path_of_a_proxy_the_page_knows_it(process: Process, built: Path) -> None:
    base_url = "http://127.0.0.1:8000/mail"
    proxied = replace(process, settings=replace(process.settings, base_url=base_url))
    async with cast_client(proxied) as client:
        client.base_url = httpx2.URL("http://127.0.0.1:8000")
        assert 'name="prefix" content="/mail"' in (await client.get("/console")).text


async def test_where_nothing_is_built_the_page_says_what_is_missing(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_files, "BUILT", tmp_path)
    console_files.load.cache_clear()
    async with cast_client(process) as client:
        response = await client.get("/console/runs")
        assert response.status_code == 503
        assert "make console" in response.text
        assert (await client.get("/healthz")).status_code == 200
    console_files.load.cache_clear()


async def test_off_there_is_no_console(process: Process, built: Path) -> None:
    off = replace(process, settings=replace(process.settings, console=False))
    async with cast_client(off) as client:
        for path in ("/console", "/console/", "/console/assets/main-ABCD2345.js"):
            assert (await client.get(path)).status_code == 404, path
