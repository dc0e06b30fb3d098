"""The demo workspace: made once, shown again, and a curl that works when it is pasted."""

from __future__ import annotations

import shlex
from typing import Any

import httpx2

from app.commands import demo
from app.commands.demo import Demo
from app.process import Process
from app.vault.vault import Vault
from tests.cast import settle


async def paste(client: httpx2.AsyncClient, curl: str) -> httpx2.Response:
    """Send a curl command as a shell would read it."""
    command, *words = shlex.split(curl)
    assert command == "curl"
    headers = {}
    url = body = ""
    while words:
        match words.pop(0):
            case "-sS":
                url = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d" | "--data-binary":
                body = words.pop(0)
    return await client.post(url, content=body.encode(), headers=headers)


async def captured(client: httpx2.AsyncClient, key: str) -> Any:
    response = await client.get("/sandbox/messages", headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 200, response.text
    return response.json()["data"]


async def seeded(process: Process) -> Demo:
    made = await demo.seed(process)
    assert made is not None
    return made


async def test_the_curl_becomes_a_message_that_the_key_may_read(
    process: Process, client: httpx2.AsyncClient
) -> None:
    made = await seeded(process)
    answer = await paste(client, made.curl())
    assert answer.status_code == 202, answer.text
    await settle(process)
    [message] = await captured(client, made.api_key)
    assert message["subject"] == "Thank you for order A-1043"
    assert "83.4" in message["html"]
    forged = made.curl().replace("A-1043", "A-1044")
    assert (await paste(client, forged)).status_code == 401


async def test_it_is_made_once_and_shown_again(process: Process) -> None:
    assert await seeded(process) == await seeded(process)
    async with process.database.read() as db:
        for table in ("users", "workspaces", "definitions", "templates", "api_keys"):
            assert await db.fetch_value(f"SELECT count(*) FROM {table}") == 1, table


async def test_key_and_secret_are_stored_nowhere_and_no_other_installation_s(
    process: Process,
) -> None:
    made = await seeded(process)
    async with process.database.read() as db:
        for table in ("users", "definitions", "api_keys", "data_keys"):
            rows = repr(await db.fetch_all(f"SELECT * FROM {table}"))
            assert made.api_key not in rows
            assert made.signing_secret not in rows
    other = Vault(["the key of some other installation"])
    other.open(other.new_data_key())
    assert other.keyed_hash("demo api key", b"") != process.vault.keyed_hash("demo api key", b"")


async def test_when_somebody_took_it_apart_it_is_not_made_again(
    process: Process, client: httpx2.AsyncClient
) -> None:
    made = await seeded(process)
    bearer = {"Authorization": f"Bearer {made.api_key}"}
    [workflow] = (await client.get("/workflows", headers=bearer)).json()["data"]
    paused = await client.patch(
        f"/workflows/{workflow['id']}", json={"state": "PAUSED"}, headers=bearer
    )
    assert paused.status_code == 200, paused.text
    assert await demo.seed(process) is None
    link = "http://127.0.0.1:8000/console/#sign-in=once"
    text = demo.welcome(process.settings, None, link)
    assert link in text  # the only way in for who has no password
    assert f'no active workflow is called "{demo.NAME}"' in text
    assert "Stop with Ctrl-C" in text
