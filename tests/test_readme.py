"""The README tells the truth: its settings are those of config/variables.py, its tour works
as typed, and the index of documents lists all of them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.variables import VARIABLES, Variable
from app.outbound import chains
from app.process import Process
from tests.cast import Cast, settle
from tests.deployment import Part, until
from tests.servers import free_port

BASH, CURL = (shutil.which(name, path=os.defpath) for name in ("bash", "curl"))
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def row(variable: Variable) -> str:
    default = variable.default_in_words or variable.default or ""
    if variable.required_in_production:
        others = "".join(f", or {name}" for name in variable.unless)
        default = f"{default}; **set it in production{others}**"
    return f"| `{variable.name}` | {variable.help} | {default} |"


def test_the_settings_table_is_what_config_reads() -> None:
    table = ["| variable | what it is | default |", "|---|---|---|", *map(row, VARIABLES)]
    assert "\n".join(table) in README, "paste this:\n" + "\n".join(table)


def test_the_index_lists_every_document_and_every_decision_once() -> None:
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md")} - {"README.md"}
    links = re.findall(r"\]\(([^)#]+\.md)\)", (docs / "README.md").read_text())
    assert sorted(link for link in links if not link.startswith("../")) == sorted(there)
    assert all((docs / link).exists() for link in links)
    assert "](docs/README.md)" in README


def test_the_readme_names_both_headers_of_a_chain() -> None:
    section = README.split("## Outbound events")[1].split("\n## ")[0].lower()
    assert f"`{chains.DEPTH}` and" in section
    assert f"`{chains.CHAIN}`" in section


def blocks() -> list[str]:
    """List what the tour gives to paste, in order."""
    tour = README.split("## A tour")[1].split("\n## ")[0].split("### ")[0]
    found = re.findall(r"(?:^    .*\n)+", tour, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def curls() -> list[list[str]]:
    """The words of every curl in the tour, in order."""
    lines = "".join(blocks()).splitlines()
    code = "\n".join(line for line in lines if not re.match(r"[A-Z]+=", line))
    found = re.split(r"^(?=curl )", code, flags=re.MULTILINE)[1:]
    return [shlex.split(command, comments=True) for command in found]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_tour_works_as_typed(
    process: Process, client: httpx2.AsyncClient, cast: Cast
) -> None:
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

    template, workflow, event, run_, captured, messages, attempts, automation = curls()
    ids["tpl_…"] = (await run(template))["id"]
    ids["$HOOK"] = (await run(workflow))["trigger"]["webhookUrl"]
    ids["$RUN"] = (await run(event))["runId"]
    await settle(process)
    assert (await run(run_))["status"] == "COMPLETED"
    [message] = (await run(captured))["data"]
    assert (message["subject"], message["to"]) == ("Welcome, Ada", "ada@example.com")
    assert "<b>pro</b>" in message["html"]
    [message] = (await run(messages))["data"]
    assert (message["status"], message["reason"]) == ("SENT", None)
    [attempt] = (await run(attempts))["data"]
    assert attempt["status"] == "SENT"
    assert (await run(automation))["state"] == "ACTIVE"


@pytest.mark.drill
@pytest.mark.skipif(not (BASH and CURL), reason="bash or curl is not installed")
def test_the_tour_can_be_pasted_into_a_shell_beside_make_run(tmp_path: Path) -> None:
    """As a reader does: the service as a process, its blocks in one shell, its answers by eye."""
    at = f"http://127.0.0.1:{(port := free_port())}"
    environ = {"PORT": str(port), "DATABASE_URL": f"sqlite:///{tmp_path}/tidings.db"}
    part = Part("run", environ, tmp_path, forked=True)
    try:
        until(lambda: "Stop with Ctrl-C" in part.text, "it says how to try it", part)
        [key, *_] = re.findall(r"td_test_\w+", part.text)
        seen = {"http://127.0.0.1:8000": at, "td_test_…": key}
        session: list[str] = []

        def paste(block: str) -> list[Any]:
            """Paste into the shell as it was left; returns what its requests answered."""
            for placeholder, value in seen.items():
                block = block.replace(placeholder, value)
            typed = "\n".join([*session, block])
            session.extend(re.findall(r"^[A-Z]+=.*$", block, re.MULTILINE))
            ended = subprocess.run(
                [str(BASH), "-euc", typed],
                capture_output=True,
                text=True,
                timeout=10,
                env={"PATH": os.defpath},
                check=False,
            )
            assert (ended.returncode, ended.stderr) == (0, ""), f"{typed}\n{ended.stdout}"
            return [
                json.loads(answer) for answer in re.split(r"(?<=})(?={)", ended.stdout) if answer
            ]

        variables, template, workflow, event, happened, automation = blocks()
        assert paste(variables) == []
        seen["tpl_…"] = paste(template)[0]["id"]
        url = paste(workflow)[0]["trigger"]["webhookUrl"]
        assert url.startswith(f"{at}/v1/webhooks/in/")
        seen["$API/v1/webhooks/in/…"] = url
        seen["run_…"] = paste(event)[0]["runId"]
        until(lambda: paste(happened)[0]["status"] == "COMPLETED", "the run is over", part)
        _, captured, messages, attempts = paste(happened)
        assert [one["subject"] for one in captured["data"]] == ["Welcome, Ada"]
        assert [one["status"] for one in messages["data"]] == ["SENT"]
        assert [one["status"] for one in attempts["data"]] == ["SENT"]
        assert paste(automation)[0]["state"] == "ACTIVE"
        assert part.stop() == 0
    finally:
        part.kill()
