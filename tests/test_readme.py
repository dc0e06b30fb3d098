"""The README tells the truth: its settings are those of config.py, and its tour works as typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config import VARIABLES, Variable
from app.process import Process
from tests.cast import Cast, settle

README = (Path(__file__).parents[1] / "README.md").read_text()


def row(variable: Variable) -> str:
    default = variable.default_in_words or variable.default or ""
    if variable.required_in_production:
        default = f"{default}; **set it in production**" if default else "**set it in production**"
    return f"| `{variable.name}` | {variable.help} | {default} |"


def test_the_settings_table_is_what_config_reads():
    table = ["| variable | what it is | default |", "|---|---|---|", *map(row, VARIABLES)]
    assert "\n".join(table) in README, "paste this:\n" + "\n".join(table)


def curls() -> list[list[str]]:
    """The words of every curl in the tour, in order."""
    tour = README.split("## A tour")[1].split("\n## ")[0].split("### ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", tour, re.MULTILINE)
    lines = [line[4:] for block in blocks for line in block.splitlines()]
    code = "\n".join(line for line in lines if not re.match(r"[A-Z]+=", line))
    found = re.split(r"^(?=curl )", code, flags=re.MULTILINE)[1:]
    return [shlex.split(command, comments=True) for command in found]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_tour_works_as_typed(process: Process, client: httpx2.AsyncClient, cast: Cast):
    ids: dict[str, str] = {}

    async def run(words: list[str]) -> dict[str, Any]:
        url, headers, body = "", {}, None
        rest = iter(words[2:])  # after: curl -sS
        for word in rest:
            if word == "-H":
                name, _, value = next(rest).partition(": ")
                headers[name] = value
            elif word == "-d":
                body = next(rest)
            else:
                url = word
        for placeholder, value in ids.items():
            url = url.replace(placeholder, value)
            body = body and body.replace(placeholder, value)
        typed = {"$AUTH": {"Authorization": f"Bearer {cast.olivia.key}"}}
        typed["$JSON"] = {"Content-Type": "application/json"}
        sent = {k: v for name in headers for k, v in typed[name].items()}
        response = await client.request(
            "POST" if body else "GET", url.replace("$API", ""), headers=sent, content=body
        )
        assert response.status_code < 300, f"{words}: {response.text}"
        answer: dict[str, Any] = response.json()
        return answer

    template, workflow, event, run_, captured, attempts, automation = curls()
    ids["tpl_…"] = (await run(template))["id"]
    ids["$HOOK"] = (await run(workflow))["trigger"]["webhookUrl"]
    ids["$RUN"] = (await run(event))["runId"]
    await settle(process)
    assert (await run(run_))["status"] == "COMPLETED"
    [message] = (await run(captured))["data"]
    assert (message["subject"], message["to"]) == ("Welcome, Ada", "ada@example.com")
    assert "<b>pro</b>" in message["html"]
    [attempt] = (await run(attempts))["data"]
    assert attempt["status"] == "SENT"
    assert (await run(automation))["state"] == "ACTIVE"
