"""The guide to operating names what there is: every figure, and no other; every command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import httpx2

from app.__main__ import COMMANDS
from app.accounts import registration as accounts
from app.process import Process
from app.routes import ROUTES
from app.runtime.metrics import FAMILIES
from tests.cast import Cast
from tests.test_policy import session

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs/operating.md").read_text()


async def test_every_figure_has_a_line_that_says_what_to_do(client: httpx2.AsyncClient) -> None:
    """By the name under which a scrape has it."""
    scraped = (await client.get("/metrics")).text
    kinds = re.findall(r"^# TYPE (\w+) (\w+)$", scraped, re.MULTILINE)
    found = re.findall(r"^\| `(tidings_\w+)` \|", GUIDE, re.MULTILINE)
    assert set(found) == {name for name, _ in kinds}
    assert len(found) == len(FAMILIES)
    mentioned = set(re.findall(r"`(tidings_\w+)`", GUIDE))
    assert mentioned == set(found)


async def test_what_it_says_to_ask_is_answered(cast: Cast, process: Process) -> None:
    """Every GET with its query, as it stands there, by a super-admin's session."""
    assert await accounts.grant_super_admin(process, cast.olivia.email)
    root = replace(cast.olivia, key=await session(process, cast.olivia))
    asked = [path for path in re.findall(r"GET `(/[^`]+)`", GUIDE) if ":" not in path]
    assert {"/admin/runs?status=FAILED", "/messages?status=UNKNOWN"} <= set(asked)
    for path in asked:
        assert (await root.get(path)).status_code == 200, path


def test_what_it_says_to_do_can_be_done() -> None:
    documents = [GUIDE, (ROOT / "README.md").read_text(), (ROOT / "docs/deploying.md").read_text()]
    typed = {name for text in documents for name in re.findall(r"python -m app ([\w-]+)", text)}
    assert typed <= set(COMMANDS)
    assert {"after-restore", "rewrap-keys", "migrate", "doctor"} <= typed
    there = {(one.method, re.sub(r"\{(\w+)[^}]*\}", r":\1", one.path)) for one in ROUTES}
    named = re.findall(r"(GET|POST|PATCH) `(/[\w/:-]+)[?`]", GUIDE)
    assert len(named) > 8
    assert set(named) <= there


def test_the_readme_leads_to_it() -> None:
    assert "](docs/operating.md)" in (ROOT / "README.md").read_text()
