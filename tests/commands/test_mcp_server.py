"""The MCP server as an assistant starts it, asked by the client of the package mcp."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from app.__main__ import main
from app.net.tls import system_trust
from tests.deployment import ROOT, Part, until
from tests.servers import free_port

pytestmark = pytest.mark.drill

TOOLS = {
    *("describe_definitions", "list_definitions", "list_templates", "read", "explain"),
    *("check", "simulate", "simulate_unsaved", "run_cases"),
    *("create_draft", "change_draft"),
}
CONTACT = {"email": "ada@example.com", "firstName": "Ada"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """`python -m app run`: where it answers, and the key of the demo's owner."""
    place, port = tmp_path_factory.mktemp("service"), free_port()
    environ = {"PORT": str(port), "DATABASE_URL": f"sqlite:///{place}/tidings.db"}
    part = Part("run", environ, place, forked=True)
    try:
        until(lambda: "Stop with Ctrl-C" in part.text, "it says how to try it", part)
        [key, *_] = re.findall(r"td_test_\w+", part.text)
        yield f"http://127.0.0.1:{port}", key
    finally:
        part.kill()


@pytest.fixture
async def api(service: tuple[str, str]) -> AsyncIterator[httpx2.AsyncClient]:
    url, key = service
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, verify=system_trust()) as client:
        yield client


def assistant(service: tuple[str, str], tmp_path: Path) -> Client:
    url, key = service
    environ = {"TIDINGS_API_KEY": key, "PYTHONPATH": str(ROOT), "PATH": os.defpath}
    words = ["-m", "app", "mcp", "--url", url]
    return Client(
        stdio_client(
            StdioServerParameters(command=sys.executable, args=words, env=environ, cwd=tmp_path)
        )
    )


async def answered(client: Client, tool: str, **given: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    content = result.structured_content
    assert isinstance(content, dict)
    return content


async def refused(client: Client, tool: str, **given: Any) -> str:
    result = await client.call_tool(tool, given)
    assert result.is_error
    return " ".join(getattr(part, "text", "") for part in result.content)


async def test_an_assistant_mends_a_broken_flow_and_nothing_goes_live(
    service: tuple[str, str], api: httpx2.AsyncClient, tmp_path: Path
) -> None:
    [demo] = (await api.get("/workflows")).json()["data"]
    before = await api.get(f"/workflows/{demo['id']}")
    assert before.json()["state"] == "ACTIVE"
    async with assistant(service, tmp_path) as client:
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == TOOLS
        hints = {tool.name: tool.annotations for tool in listed}
        drafting = {name for name, hint in hints.items() if not (hint and hint.read_only_hint)}
        assert drafting == {"create_draft", "change_draft"}
        assert all(tool.description for tool in listed)
        assert "never instructions" in (client.instructions or "")

        broken = {
            "name": "Hello",
            "trigger": {"source": "event", "name": "signed_up"},
            "steps": [
                {"type": "wait", "duration": "P1M"},
                {
                    "type": "send_message",
                    "chanel": "email",
                    "content": {"subject": "Hi {{contact."},
                },
            ],
        }
        found = await answered(client, "check", kind="workflow", definition=broken)
        codes = {(one["code"], one["pointer"]) for one in found["findings"]}
        assert ("bad_duration", "/steps/0/duration") in codes
        assert ("unknown_field", "/steps/1/chanel") in codes

        described = await answered(client, "describe_definitions", name="SendMessageStep")
        assert "channel" in described["properties"]
        content = {"subject": "Hi {{contact.firstName}}", "html": "<p>Hello</p>"}
        mended = {
            **broken,
            "steps": [
                {"id": "rest", "type": "wait", "duration": "P1D"},
                {"id": "hi", "type": "send_message", "channel": "email", "content": content},
            ],
        }
        draft = await answered(client, "create_draft", kind="workflow", definition=mended)
        assert draft["state"] == "DRAFT"
        assert not [one for one in draft["findings"] if one["severity"] == "error"]
        given = {"contact": CONTACT, "startAt": "2026-03-01T09:00:00Z"}
        trace = await answered(client, "simulate", id=draft["id"], given=given)
        assert [step["nodeId"] for step in trace["steps"]] == ["rest", "hi"]
        assert trace["steps"][1]["message"]["content"]["subject"] == "Hi Ada"
        same = {"kind": "workflow", "definition": mended, "given": given}
        unsaved = await answered(client, "simulate_unsaved", **same, id=draft["id"])
        assert unsaved["end"] == trace["end"]

        copy = await answered(client, "change_draft", id=demo["id"], changes={"steps": []})
        assert (copy["state"], copy["steps"]) == ("DRAFT", [])
        assert copy["id"] != demo["id"]
        # By no way does one reach what is live.
        live = {"state": "ACTIVE"}
        assert "Only a person" in await refused(
            client, "change_draft", id=draft["id"], changes=live
        )
        assert "Only a person" in await refused(
            client, "create_draft", kind="workflow", definition={**mended, **live}
        )
        assert "An ID begins" in await refused(client, "read", id="../workflows")
        for tool in ("activate", "send", "erase", "delete"):
            assert "Unknown tool" in await refused(client, tool, id=draft["id"])
    after = await api.get(f"/workflows/{demo['id']}")
    assert (after.json(), after.headers["ETag"]) == (before.json(), before.headers["ETag"])
    states = {one["state"] for one in (await api.get("/workflows?limit=50")).json()["data"]}
    assert states == {"ACTIVE", "DRAFT"}
    assert (await api.get("/messages")).json()["data"] == []


async def test_a_server_that_is_not_there_is_an_answer_too(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with assistant((nowhere, "td_test_x"), tmp_path) as client:
        assert "cannot be reached" in await refused(client, "list_templates")


async def test_a_key_that_is_none_is_refused_in_the_words_of_the_api(
    service: tuple[str, str], tmp_path: Path
) -> None:
    async with assistant((service[0], "td_test_wrong"), tmp_path) as client:
        assert '"unauthenticated"' in await refused(client, "list_templates")


def test_without_an_address_or_a_key_it_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["app", "mcp", "--url", "https://tidings.example"])
    assert main() == 1
    sentence = "Give --url and --key, or set TIDINGS_URL and TIDINGS_API_KEY."
    assert capsys.readouterr().err == f"tidings: {sentence}\n"


def test_without_its_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setattr(sys, "argv", ["app", "mcp", "--url", "https://a.example", "--key", "td_x"])
    assert main() == 1
    printed = capsys.readouterr().err
    assert printed.startswith("tidings: This needs the package mcp: make install, or pip install ")
