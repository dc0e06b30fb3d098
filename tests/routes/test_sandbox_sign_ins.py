"""The link to the console that `make run` prints: once, for ten minutes, on this machine."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import httpx2
import pytest

from app.accounts import sign_in_links
from app.commands import demo
from app.process import Process
from app.web import console_files
from tests.cast import client as cast_client


async def link(process: Process, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.setattr(console_files, "load", lambda: console_files.Files("a page"))
    await demo.seed(process)
    return await demo.console_link(process)


async def token(process: Process, monkeypatch: pytest.MonkeyPatch) -> str:
    found = await link(process, monkeypatch)
    assert found is not None
    return found.partition("#sign-in=")[2]


async def sign_in(client: httpx2.AsyncClient, token: str) -> httpx2.Response:
    return await client.post(
        "/sandbox/sign-ins",
        json={"token": token, "session": "cookie"},
        headers={"Origin": str(client.base_url).rstrip("/")},
    )


async def test_it_signs_the_demo_s_owner_in_once(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await token(process, monkeypatch)
    async with cast_client(process) as client:
        answers = await asyncio.gather(*(sign_in(client, made) for _ in range(3)))
        assert sorted(answer.status_code for answer in answers) == [200, 401, 401]
        [fine] = [answer for answer in answers if answer.status_code == 200]
        assert fine.json()["workspace"]["name"] == "Demo"
        assert fine.json()["refreshToken"] is None
        bearer = {"Authorization": f"Bearer {fine.json()['accessToken']}"}
        me = (await client.get("/auth/me", headers=bearer)).json()
        assert (me["user"]["email"], me["role"]) == (demo.OWNER.address, "owner")


async def test_it_is_over_after_ten_minutes(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in_links, "LIFETIME", timedelta(0))
    made = await token(process, monkeypatch)
    async with cast_client(process) as client:
        assert (await sign_in(client, made)).status_code == 401


@pytest.mark.parametrize("forged", ["", "x", "A" * 80])
async def test_what_was_not_signed_here_is_no_link(process: Process, forged: str) -> None:
    async with cast_client(process) as client:
        assert (await sign_in(client, forged)).status_code == 401


async def test_another_machine_cannot_use_it(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await token(process, monkeypatch)
    async with cast_client(process, "10.1.2.3") as client:
        assert (await sign_in(client, made)).status_code == 403


async def test_it_is_printed_only_where_it_works(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = process.settings
    for changed in (
        replace(settings, console=False),
        replace(settings, environment="production"),
        replace(settings, base_url="https://td.example"),
    ):
        assert await link(replace(process, settings=changed), monkeypatch) is None
