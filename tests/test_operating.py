"""The guide to operating names what there is: every figure, and no other; every command."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import httpx2

from app.__main__ import COMMANDS
from app.accounts import registration
from app.commands import definition_files
from app.config.plans import AUDIT_LOGS, PLANS
from app.consent.gate_shapes import LONGEST_WINDOW
from app.machine import segment_filter
from app.process import Process
from app.routes import ROUTES, broadcasts, channels, new_messages, sandbox, sandbox_faults
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
    assert await registration.grant_super_admin(process, cast.olivia.email)
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


def test_a_restored_database_is_migrated_whatever_the_code() -> None:
    """A dump that is restored into a new database brings no settings of our role there."""
    restoring = GUIDE.split("## Restoring without sending twice")[1].split("\n## ")[0]
    [step] = re.findall(r"^2\. (.*?)^3\. ", restoring, re.MULTILINE | re.DOTALL)
    assert "Then run `python -m app migrate`" in step
    assert "If " not in step


def test_the_table_of_plans_is_what_they_allow() -> None:
    for plan in PLANS.values():
        limits = (plan.contacts, plan.messages_per_month, plan.members)
        shown = ["any" if limit is None else f"{limit:,}" for limit in limits]
        audit = "yes" if AUDIT_LOGS in plan.features else "no"
        row = f"| `{plan.name}` | {' | '.join(shown)} | {audit} |"
        assert row in GUIDE, f"paste this: {row}"


def test_the_limits_that_the_documents_name_are_those_of_the_code() -> None:
    """Each in the document that says what it limits."""
    limits = {
        "operating": [
            f"at most {registration.MOST_OWNED} workspaces",
            f"at most {registration.FOUNDED_A_DAY} a day",
        ],
        "segments": [
            f"{segment_filter.LARGEST // 1_024} KiB of JSON",
            f"and {segment_filter.MOST_VALUES} values in lists",
            f"up to {segment_filter.MOST_TIMES:,} times",
        ],
        "channels": [f"{channels.VERIFY.amount} times an hour"],
        "sandbox": [
            f"at most {sandbox.MOST_WAITING} requests",
            f"at most {sandbox_faults.MOST} wait",
        ],
        "definitions-as-files": [
            f"at most {definition_files.MOST_BYTES:,} bytes",
            f"at most {definition_files.MOST:,} definitions",
        ],
        "broadcasts": [f"{broadcasts.MOST:,} of a workspace's may be unfinished"],
        "consent": [f"a minute to {LONGEST_WINDOW.days} days"],
    }
    for name, sentences in limits.items():
        text = " ".join((ROOT / f"docs/{name}.md").read_text().split())
        assert [one for one in sentences if one not in text] == [], name
    assert channels.VERIFY.amount == new_messages.TEST_EMAIL.amount


def test_the_readme_leads_to_it() -> None:
    assert "](docs/operating.md)" in (ROOT / "README.md").read_text()
