"""The page that the links in letters open."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

import httpx2

from app.accounts import account_mail
from app.process import Process
from tests.cast import client as cast_client


async def test_the_page_runs_its_own_script_and_nothing_else(client: httpx2.AsyncClient) -> None:
    response = await client.get("/account?anything=at-all")
    assert response.status_code == 200
    [script] = re.findall(r"<script>(.*?)</script>", response.text, re.DOTALL)
    policy = response.headers["content-security-policy"].split("; ")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert {"default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"} <= set(policy)
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "://" not in response.text


async def test_it_leads_to_the_console_where_there_is_one(process: Process) -> None:
    for console in (True, False):
        settings = replace(process.settings, console=console)
        async with cast_client(replace(process, settings=settings)) as client:
            assert ('<a href="console/">' in (await client.get("/account")).text) == console


# An owner's invitation leads where every invitation does.
LINKED = [kind for kind in account_mail.CONTENTS if kind != "owner_invitation"]


async def test_it_knows_every_letter(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/account")).text
    assert re.findall(r"^  (\w+): {$", page, re.MULTILINE) == LINKED


async def test_it_posts_to_paths_that_exist(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/account")).text
    paths = re.findall(r'path: "([\w/]+)"', page)
    assert len(paths) == len(LINKED)
    for path in paths:
        assert (await client.options(f"/{path}")).headers["Allow"] == "POST"
